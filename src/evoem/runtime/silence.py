"""Keep C libraries from writing to the terminal beside our own error message."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

STANDARD_ERROR = 2


@contextmanager
def silent_libraries() -> Iterator[None]:
    """Nothing reaches standard error, from whichever thread: for a program, not for a library.

    libtiff prints what it dislikes about a file, and can only be told not to by its own functions.
    """
    kept = None
    with suppress(OSError):  # there may be no standard error
        kept = os.dup(STANDARD_ERROR)
    if kept is None:
        yield
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, STANDARD_ERROR)
        yield
    finally:
        os.dup2(kept, STANDARD_ERROR)
        os.close(nowhere)
        os.close(kept)
