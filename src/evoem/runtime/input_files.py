"""Read only regular files of limited size: pipes and devices may never end."""

import stat
from pathlib import Path

from evoem.runtime.atomic_files import FileError

MOST_PIXELS = 1 << 28  # of a picture, unless another number is given


def first_bytes(path: Path, number: int) -> bytes:
    """The first bytes of a file, which must be a regular one that may be read."""
    try:
        kind = path.stat().st_mode
        if not stat.S_ISREG(kind):
            what = "a folder" if stat.S_ISDIR(kind) else "a pipe, a device or the like"
            raise FileError(f"{path} must be a file; got {what}.")
        with path.open("rb") as file:
            return file.read(number)
    except FileError:
        raise
    except FileNotFoundError as error:
        raise FileError(f"{path} must be an existing file; found none.") from error
    except OSError as error:
        raise FileError(f"{path} must be a file that can be read; got {error.strerror}.") from error
    except ValueError as error:  # a null character in its name
        raise FileError(f"{str(path)!r} must be the path of a file; got an {error}.") from error


def text(path: Path, most: int) -> str:
    """The whole of a text file of at most so many bytes."""
    content = first_bytes(path, most + 1)
    if len(content) > most:
        raise FileError(f"{path} must have at most {most} bytes; got more.")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise FileError(f"{path} must be a text file; got {content[:8]!r}.") from error
