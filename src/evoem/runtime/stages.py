"""The current stage of a run, for displays of progress.

Work tells by name which stage it is in and how far it is. Whether somebody listens, and what is
made of it, is none of its business.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

# A stage by its name, how much of it is done, and how much there is to do; 0 if that is not known.
Listener = Callable[[str, int, int], None]

_LISTENER: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextmanager
def watched(listener: Listener) -> Iterator[None]:
    """Let somebody know of all stages of what is done here."""
    before = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(before)


def begin(name: str, total: int = 0) -> Callable[[int], None]:
    """A stage begins; what comes back is told of each part that is done, by any thread."""
    listener = _LISTENER.get()
    done = 0

    def advance(n: int = 1) -> None:
        nonlocal done
        done += n
        if listener is not None:
            listener(name, done, total)

    advance(0)
    return advance
