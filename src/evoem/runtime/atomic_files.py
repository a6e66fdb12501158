"""Write files whole or not at all."""

import os
import secrets
import shutil
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO


class FileError(ValueError):
    """A file that cannot be read or written, said in one sentence."""


def check_place(path: Path, *, force: bool) -> None:
    """Refuse a path that nothing could be written to; an existing file too, unless `force`."""
    try:
        folder = Path(os.path.realpath(path)).parent
        if not folder.is_dir():
            raise FileError(f"{path} must be in an existing folder; found no {folder}.")
        if path.is_dir():
            raise FileError(f"{path} must be a file; got a folder.")
        if path.exists() and not force:
            raise FileError(f"{path} must not exist yet unless force is given; found a file.")
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise FileError(
            f"{path} must be a place that can be written to; got {error.strerror}."
        ) from error


def write_whole(path: Path, write: Callable[[IO[bytes]], object], *, force: bool) -> None:
    """Call `write` on a temporary file beside `path`, and move it there when all is written.

    An existing file is replaced only with `force`, and keeps its permissions.
    """
    check_place(path, force=force)
    target = Path(os.path.realpath(path))  # a link stays a link
    temporary = target.with_name(f".evoem-{secrets.token_hex(8)}.tmp")
    try:
        with temporary.open("x+b") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        if target.exists():
            shutil.copymode(target, temporary)
        os.replace(temporary, target)
    except (OSError, ValueError, struct.error) as error:
        raise FileError(f"{path} must be written in full; writing failed: {error}.") from error
    finally:
        temporary.unlink(missing_ok=True)
