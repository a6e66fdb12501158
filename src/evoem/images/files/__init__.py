"""Picture files, of cameras and of instruments. Nothing is converted silently or half-written."""

import os
import re
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evoem import validation
from evoem.images.files import (
    dicom,
    fits,
    hdf5,
    inflation,
    layout,
    microscope,
    nifti,
    npy,
    pillow,
    tiff,
    zarr,
)
from evoem.images.files.picture import Format, Picture, Pixels, Rows, Wanted, damaged, n_channels
from evoem.runtime import input_files
from evoem.runtime.atomic_files import FileError, FolderWrite, Write, write_whole
from evoem.runtime.input_files import MOST_PIXELS

__all__ = [
    "FileError",
    "Picture",
    "check_format",
    "located",
    "may_replace",
    "read",
    "read_mask",
    "write",
    "writer",
]

StrPath = str | os.PathLike[str]

# A file may be larger than its pixels, but not by any amount.
BYTES_PER_PIXEL = 64
BYTES_OF_METADATA = 1 << 28

# A file's content is of the first of them whose signature it has.
FORMATS = {
    "PNG": pillow.PNG,
    "JPEG": pillow.JPEG,
    "TIFF": tiff.TIFF,
    "OME-TIFF": tiff.OME_TIFF,
    "NPY": npy.NPY,
    "FITS": fits.FITS,
    "HDF5": hdf5.HDF5,
    "OME-Zarr": zarr.ZARR,
    "NIfTI": nifti.NIFTI,
    "NIfTI, compressed": nifti.NIFTI_PACKED,
    "NIfTI-2": nifti.NIFTI_2,
    "DICOM": dicom.DICOM,
    "CZI": microscope.CZI,
    "ND2": microscope.ND2,
    "LIF": microscope.LIF,
}
# How much is read of a file that is compressed as a whole, to tell what is in it.
START_OF_PACKED = 4096
BY_SUFFIX = {suffix: name for name, kind in FORMATS.items() for suffix in kind.suffixes}
WITH_PARTS = [suffix for suffix, name in BY_SUFFIX.items() if FORMATS[name].several]
LONGEST_START = max(
    kind.signed_at + len(signature) for kind in FORMATS.values() for signature in kind.signatures
)


class Located(NamedTuple):
    """A file, and which part of it."""

    file: Path
    part: str | None


def located(path: StrPath) -> Located:
    """The file of a path such as scan.h5:/entry/data, and what is behind the colon."""
    text = os.fspath(path)
    for colon in re.finditer(":/", text):
        file, part = text[: colon.start()], text[colon.end() :]
        if _suffix(file) in WITH_PARTS and not os.path.exists(text):
            return Located(Path(file), part)
    return Located(Path(path), None)


def _suffix(path: StrPath) -> str:
    """The extension of a path, such as .ome.tif or .tif, if it is of any format; lower case."""
    name = os.path.basename(os.fspath(path)).lower()
    return max((known for known in BY_SUFFIX if name.endswith(known)), key=len, default="")


def read(
    path: StrPath,
    *,
    max_pixels: int = MOST_PIXELS,
    accept_truncated: bool = False,
    axes: str | None = None,
    rows: Rows | None = None,
) -> Picture:
    """The picture in a file, whose first bytes tell the format, or in a folder of OME-Zarr.

    Behind `:/` the path may name a part of the file. Pixels are counted in each slice and channel,
    as the file's header tells them: nothing is allocated for more than `max_pixels`. With
    `accept_truncated` what is there of a PNG or JPEG file that ends early is taken, and the rest is
    `missing`. `axes`, such as "ZCYX", names those of the file's array. `rows` tells which rows of a
    single picture are looked at, of so many that there are: others need not be read, and may be
    zeros.
    """
    path, part = located(path)
    max_pixels = validation.integer("max_pixels", max_pixels, 1)
    name = _format_of(path)
    if axes is not None and not FORMATS[name].names_axes:
        raise FileError(f"axes must not be given for {path}, as {name} has its own; got {axes!r}.")
    if part is not None and not FORMATS[name].several:
        raise FileError(f"{path} must be given without a part of it; got {part!r}.")
    picture = _read(path, name, max_pixels, Wanted(accept_truncated, axes, part, rows))
    wanted = None if picture.stack else rows
    alpha = None if picture.alpha is None else _native(picture.alpha, wanted)
    return picture._replace(pixels=_native(picture.pixels, wanted), alpha=alpha)


def _format_of(path: Path) -> str:
    """The name of the format of a file or a folder."""
    for name, kind in FORMATS.items():
        if kind.is_folder is not None and kind.is_folder(path):
            return name
    start = inflation.start(input_files.first_bytes(path, START_OF_PACKED), LONGEST_START)
    if not start:
        raise FileError(f"{path} must hold a picture; got an empty file.")
    for name, kind in FORMATS.items():
        if kind.signatures and start[kind.signed_at :].startswith(kind.signatures):
            return name
    raise FileError(f"{path} must be a picture ({_names()}); it starts with {start[:8]!r}.")


def _names() -> str:
    return ", ".join(name for name in FORMATS if "," not in name)


def _check_installed(path: Path, name: str) -> None:
    """Refuse a format that only a package reads that is not there."""
    needs = FORMATS[name].needs
    if needs is not None and find_spec(needs.package) is None:
        raise FileError(
            f"{path} must be of a format whose package is installed; for {name} run "
            f"pip install 'evoem[{needs.extra}]', which installs {needs.package}."
        )


def _read(path: Path, name: str, max_pixels: int, wanted: Wanted) -> Picture:
    """Read a file if it says that it is not too large."""
    kind = FORMATS[name]
    _check_installed(path, name)
    # Readers warn of what they then refuse, or of nothing that matters to the pixels.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            header = kind.header(path, wanted)
            if header.n_pixels > max_pixels:
                raise FileError(
                    f"{path} must have at most {max_pixels} pixels (max_pixels), counted in each "
                    f"slice and channel; got {_size(header.shape)}."
                )
            most = BYTES_PER_PIXEL * header.n_pixels + BYTES_OF_METADATA
            if not kind.lazy and inflation.size_of(path, most) > most:
                raise FileError(
                    f"{path} must not be larger than {_size(header.shape)} pixels can be; got "
                    f"more than {most} bytes."
                )
            return kind.read(path, wanted)
        except (FileError, MemoryError):
            raise
        # Files may hold anything, and readers look at little before use: damage ends in whatever
        # error the nonsense leads to, from KeyError to ZeroDivisionError and zlib.error.
        except Exception as error:
            raise damaged(path, error) from error


def read_mask(
    path: StrPath,
    shape: tuple[int, ...],
    *,
    max_pixels: int = MOST_PIXELS,
    threshold: float | None = None,
) -> NDArray[np.bool_]:
    """Where pixels of a picture of `shape` (rows, columns[, channels]) are missing.

    The result is (rows, columns), or has the channels too if they differ in the file. Values above
    the `threshold` mark pixels, if there is one.
    """
    picture = read(path, max_pixels=max_pixels)
    missing = _marked(picture.pixels) if threshold is None else picture.pixels > threshold
    if picture.colour and not picture.stack and (missing == missing[..., :1]).all():
        missing = missing[..., 0]
    if missing.shape in (shape, shape[:2]):
        return missing
    rule = _size(shape[:2]) + (f" or {_size(shape)}" if len(shape) > 2 else "")
    got = _size(missing.shape)
    raise FileError(f"mask {path} must have the size of the picture, {rule}; got {got}.")


def check_format(path: StrPath, picture: Picture) -> None:
    """Refuse a path whose extension is of no format, or of one that cannot hold the picture."""
    path = located(path).file
    if not _suffix(path):
        raise FileError(f"{path} must end in one of {', '.join(BY_SUFFIX)}; got {path.suffix!r}.")
    _check_holds(path, picture)
    _check_installed(path, BY_SUFFIX[_suffix(path)])


def writer(path: StrPath, picture: Picture) -> Write:
    """What writes a picture in the format of the extension."""
    check_format(path, picture)
    path, part = located(path)
    kind = _kind(path)
    fill, is_folder = kind.fill, kind.is_folder
    if fill is not None and is_folder is not None:
        if part is not None:
            raise FileError(f"{path} must be given without a part to be written; got {part!r}.")
        return FolderWrite(lambda folder: fill(folder, picture), is_folder)
    if part is not None:
        picture = picture._replace(metadata=picture.metadata | {"part": part})
    return lambda file: kind.write(file, picture)


def may_replace(path: StrPath) -> Callable[[Path], bool] | None:
    """Which folders a path may replace, if its extension is that of a format of folders."""
    path = located(path).file
    return _kind(path).is_folder if _suffix(path) else None


def _kind(path: Path) -> Format:
    """The format of the extension."""
    return FORMATS[BY_SUFFIX[_suffix(path)]]


def write(path: StrPath, picture: Picture, *, force: bool = False) -> None:
    """Write a picture in the format of the extension: the whole of it, or nothing.

    An existing file is replaced only with `force`, and keeps its permissions.
    """
    write_whole(located(path).file, writer(path, picture), force=force)


def _check_holds(path: Path, picture: Picture) -> None:
    pixels, alpha = picture.pixels, picture.alpha
    if not pixels.size:
        raise FileError(f"{path} must hold at least one pixel; got {_size(pixels.shape)}.")
    if alpha is not None and alpha.dtype != pixels.dtype:
        raise FileError(f"{path} must have alpha of {pixels.dtype}, as pixels; got {alpha.dtype}.")
    name = BY_SUFFIX[_suffix(path)]
    kind = FORMATS[name]
    if not kind.fits(picture):
        raise FileError(f"{path} is {name}, which holds {kind.holds}; got {_described(picture)}.")


def _described(picture: Picture) -> str:
    pixels, alpha, stack, metadata = (
        picture.pixels,
        picture.alpha,
        picture.stack,
        picture.metadata,
    )
    channels = n_channels(picture)
    return (
        f"{'a stack of ' if stack else ''}{_size(pixels.shape[stack : stack + 2])} {pixels.dtype} "
        f"pixels with {channels} channel{'s' if channels > 1 else ''}"
        f"{'' if alpha is None else ' and alpha'}"
        f"{' (premultiplied)' if metadata.get('premultiplied') else ''}"
    )


def _size(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))


def _native(pixels: Pixels, rows: Rows | None) -> Pixels:
    dtype = pixels.dtype.newbyteorder("=")
    if rows is None or (pixels.flags.c_contiguous and pixels.dtype == dtype):
        return np.ascontiguousarray(pixels, dtype)
    return layout.only_rows(pixels, 0, rows, dtype)


def _marked(pixels: Pixels) -> NDArray[np.bool_]:
    """Values other than zero if there are at most two or none is bright, else bright ones; NaN."""
    nan = np.isnan(pixels)
    known = pixels[~nan]
    if not known.size or np.isin(known, (known.min(), known.max())).all():
        return np.asarray(pixels != 0)
    top = np.iinfo(pixels.dtype).max if pixels.dtype.kind in "ui" else known.max()
    bright = pixels >= top / 2
    return np.asarray((bright if bright.any() else pixels != 0) | nan)
