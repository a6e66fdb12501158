"""A picture in memory, as it is stored in its file."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evoem.runtime.atomic_files import FileError

Pixels = NDArray[Any]
Missing = NDArray[np.bool_] | None

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


class OwnMetadata:
    """What only one format has of a picture."""

    def of_deviations(self) -> "OwnMetadata":
        """What of it is true of standard deviations too."""
        raise NotImplementedError


# What of metadata tells where pixels lie, and not what their values are.
WHERE = ("layout", "pixel_size", "channel_names", "part", "resolution", "resolution_unit", "ome")

# What ImageJ keeps of how values are shown.
IMAGEJ_VALUES = ("min", "max", "Ranges", "LUTs")


class Picture(NamedTuple):
    """A picture as its file stores it.

    `pixels` are (rows, columns), with channels behind if `colour` and slices in front if `stack`.
    `alpha` has their shape without channels. `metadata` may hold `icc_profile` and `exif` (bytes),
    `resolution` (x, y) with its `resolution_unit` ("none", "inch" or "centimeter"), `description`
    and `premultiplied` (of the colours with alpha); `layout`, how the array lay in its file,
    `pixel_size` ({"X": (0.1, "µm")}), `channel_names` and `part`, where in its file it was; and
    what only its own format has: `imagej`, `ome`. `missing` is True where the file has no value, of
    the shape of pixels with or without channels; `notes` say so. `noise_variance` is that of each
    value, of the shape of pixels, if the file tells it.
    """

    pixels: Pixels
    alpha: Pixels | None
    colour: bool
    stack: bool
    metadata: dict[str, Any]
    missing: Missing = None
    notes: tuple[str, ...] = ()
    noise_variance: NDArray[np.float64] | None = None


Rows = Callable[[int], slice]


class Wanted(NamedTuple):
    """What of a file is wanted, and how."""

    accept_truncated: bool = False  # whether to take what is there of a file that ends early
    axes: str | None = None  # names for the axes of its array, instead of what the file says
    part: str | None = None  # behind `:/` in the path: a dataset, an extension or a scene
    # Which rows of a single picture are looked at, of how many there are; None: all of them. Others
    # may be zeros, or stay in the file.
    rows: Rows | None = None


class Needs(NamedTuple):
    """The package that reads a format, and the extra that installs it."""

    package: str
    extra: str


class Header(NamedTuple):
    """What a file says of its size, before anything is allocated for it."""

    shape: tuple[int, ...]  # of the pixels, with slices and channels

    @property
    def n_pixels(self) -> int:
        """Number of pixels, counted in each slice and channel."""
        return math.prod(self.shape)


class Format(NamedTuple):
    """How files of a format are told, measured, read and written.

    `files.read` calls `header` first, and `read` only if the picture is not too large. Whatever
    error they raise but FileError and MemoryError is said to be damage.
    """

    suffixes: tuple[str, ...]
    signatures: tuple[bytes, ...]  # with which files begin
    holds: str  # what `fits` asks for, in words
    fits: Callable[[Picture], bool]
    header: Callable[[Path, Wanted], Header]
    read: Callable[[Path, Wanted], Picture]
    write: Callable[[IO[bytes], Picture], None]
    needs: Needs | None = None
    signed_at: int = 0  # where the signature is
    several: str = ""  # what a file may have several of, if it may
    names_axes: bool = True  # whether somebody else may
    lazy: bool = False  # whether a file may hold any amount beside the picture
    # Of formats that are folders: what fills a new one, and which folders are of the format.
    fill: Callable[[Path, Picture], None] | None = None
    is_folder: Callable[[Path], bool] | None = None


def n_channels(picture: Picture) -> int:
    """Number of values per pixel, alpha not counted."""
    return picture.pixels.shape[-1] if picture.colour else 1


def with_alpha(picture: Picture) -> Pixels:
    """Pixels with alpha as the last channel."""
    pixels, alpha, colour = picture.pixels, picture.alpha, picture.colour
    if alpha is None:
        return pixels
    return np.concatenate([pixels if colour else pixels[..., None], alpha[..., None]], axis=-1)


def of_deviations(metadata: dict[str, Any]) -> dict[str, Any]:
    """What of a picture's metadata is true of its standard deviations too: where pixels lie."""
    kept = {name: value for name, value in metadata.items() if name in WHERE}
    for name, value in metadata.items():
        if isinstance(value, OwnMetadata):
            kept[name] = value.of_deviations()
    if "imagej" in metadata:
        about = metadata["imagej"]
        kept["imagej"] = {name: about[name] for name in about if name not in IMAGEJ_VALUES}
    return kept


def upright(pixels: Pixels, orientation: int, stack: bool) -> Pixels:
    """Pixels turned and mirrored as EXIF and TIFF ask a viewer to do."""
    swap, reverse_rows, reverse_columns = ORIENTATIONS.get(orientation, (False, False, False))
    rows, columns = (1, 2) if stack else (0, 1)
    if swap:
        pixels = pixels.swapaxes(rows, columns)
    return np.flip(pixels, (rows,) * reverse_rows + (columns,) * reverse_columns)


def equal(pixels: Pixels, value: float) -> NDArray[np.bool_]:
    """Where pixels have a value, rounded to their type as who wrote them did."""
    if pixels.dtype.kind in "ui":
        limits = np.iinfo(pixels.dtype)
        if value != np.floor(value) or not limits.min <= value <= limits.max:
            return np.zeros(pixels.shape, np.bool_)
        return np.asarray(pixels == int(value))
    with np.errstate(over="ignore"):
        return np.asarray(pixels == np.asarray(value).astype(pixels.dtype))


def is_number(dtype: np.dtype[Any]) -> bool:
    """Whether pixels may have this type: integers, and floats of up to 64 bits."""
    return dtype.kind in "uif" and dtype.itemsize <= 8


def damaged(path: Path, cause: object) -> FileError:
    """The error for a file whose content its reader cannot follow."""
    said = " ".join(str(cause).split()).rstrip(".") or type(cause).__name__
    return FileError(f"{path} must be a whole and readable picture; reading failed: {said:.200}.")
