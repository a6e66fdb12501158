"""A picture in memory, as its file stores it."""

from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evoem.runtime.atomic_files import FileError

Pixels = NDArray[Any]

# For each EXIF and TIFF orientation: swap rows and columns, then reverse rows, reverse columns.
ORIENTATIONS = {
    2: (False, False, True),
    3: (False, True, True),
    4: (False, True, False),
    5: (True, False, False),
    6: (True, False, True),
    7: (True, True, True),
    8: (True, True, False),
}


class Picture(NamedTuple):
    """A picture as its file stores it.

    `pixels` are (rows, columns), with channels behind if `colour` and slices in front if `stack`.
    `alpha` has their shape without channels. `metadata` may hold `icc_profile` and `exif` (bytes),
    `resolution` (x, y) with its `resolution_unit` ("none", "inch" or "centimeter"), `description`,
    `imagej` (what ImageJ keeps of a hyperstack) and `premultiplied` (of the colours with alpha).
    """

    pixels: Pixels
    alpha: Pixels | None
    colour: bool
    stack: bool
    metadata: dict[str, Any]


class Format(NamedTuple):
    """How files of a format are told, read and written."""

    suffixes: tuple[str, ...]
    signatures: tuple[bytes, ...]  # with which files begin
    holds: str  # what `fits` asks for, in words
    fits: Callable[[Picture], bool]
    read: Callable[[Path], Picture]
    write: Callable[[IO[bytes], Picture], None]


def n_channels(picture: Picture) -> int:
    """Number of values per pixel, alpha not counted."""
    return picture.pixels.shape[-1] if picture.colour else 1


def with_alpha(picture: Picture) -> Pixels:
    """Pixels with alpha as the last channel."""
    pixels, alpha, colour, _, _ = picture
    if alpha is None:
        return pixels
    return np.concatenate([pixels if colour else pixels[..., None], alpha[..., None]], axis=-1)


def upright(pixels: Pixels, orientation: int, stack: bool) -> Pixels:
    """Pixels turned and mirrored as EXIF and TIFF ask a viewer to do."""
    swap, reverse_rows, reverse_columns = ORIENTATIONS.get(orientation, (False, False, False))
    rows, columns = (1, 2) if stack else (0, 1)
    if swap:
        pixels = pixels.swapaxes(rows, columns)
    return np.flip(pixels, (rows,) * reverse_rows + (columns,) * reverse_columns)


def is_number(dtype: np.dtype[Any]) -> bool:
    """Whether pixels may have this type: integers, and floats of up to 64 bits."""
    return dtype.kind in "uif" and dtype.itemsize <= 8


def damaged(path: Path, cause: object) -> FileError:
    """The error for a file whose content its reader cannot follow."""
    said = str(cause).rstrip(".") or type(cause).__name__
    return FileError(f"{path} must be a whole and readable picture; reading failed: {said:.200}.")
