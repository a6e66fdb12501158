"""Picture files: PNG, JPEG, TIFF and NPY. Nothing is converted silently or half-written."""

import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from evoem.images.files import npy, pillow, tiff
from evoem.images.files.picture import Picture, Pixels, n_channels
from evoem.runtime.atomic_files import FileError, check_place, write_whole

__all__ = ["FileError", "Picture", "check_output", "read", "read_mask", "write"]

StrPath = str | os.PathLike[str]


FORMATS = {"PNG": pillow.PNG, "JPEG": pillow.JPEG, "TIFF": tiff.TIFF, "NPY": npy.NPY}
BY_SUFFIX = {suffix: name for name, kind in FORMATS.items() for suffix in kind.suffixes}


def read(path: StrPath) -> Picture:
    """The picture in a file, whose first bytes tell the format."""
    path = Path(path)
    start = _first_bytes(path)
    for kind in FORMATS.values():
        if start.startswith(kind.signatures):
            picture = kind.read(path)
            alpha = None if picture.alpha is None else _native(picture.alpha)
            return picture._replace(pixels=_native(picture.pixels), alpha=alpha)
    raise FileError(f"{path} must be a PNG, JPEG, TIFF or NPY file; it starts with {start!r}.")


def read_mask(path: StrPath, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """Where pixels of a picture of `shape` (rows, columns[, channels]) are missing.

    The result is (rows, columns), or has the channels too if they differ in the file.
    """
    picture = read(path)
    missing = _marked(picture.pixels)
    if picture.colour and not picture.stack and (missing == missing[..., :1]).all():
        missing = missing[..., 0]
    if missing.shape in (shape, shape[:2]):
        return missing
    rule = _size(shape[:2]) + (f" or {_size(shape)}" if len(shape) > 2 else "")
    got = _size(missing.shape)
    raise FileError(f"mask {path} must have the size of the picture, {rule}; got {got}.")


def check_output(path: StrPath, *, force: bool, picture: Picture | None = None) -> None:
    """Refuse a path that `write` would, and a picture that the format cannot hold."""
    path = Path(path)
    if path.suffix.lower() not in BY_SUFFIX:
        raise FileError(f"{path} must end in one of {', '.join(BY_SUFFIX)}; got {path.suffix!r}.")
    check_place(path, force=force)
    if picture is not None:
        _check_holds(path, picture)


def write(path: StrPath, picture: Picture, *, force: bool = False) -> None:
    """Write a picture in the format of the extension: the whole of it, or nothing.

    An existing file is replaced only with `force`, and keeps its permissions.
    """
    path = Path(path)
    check_output(path, force=force, picture=picture)
    kind = FORMATS[BY_SUFFIX[path.suffix.lower()]]
    write_whole(path, lambda file: kind.write(file, picture), force=force)


def _first_bytes(path: Path) -> bytes:
    try:
        if path.is_dir():
            raise FileError(f"{path} must be a file; got a folder.")
        with path.open("rb") as file:
            start = file.read(8)
    except FileNotFoundError as error:
        raise FileError(f"{path} must be an existing file; found none.") from error
    except OSError as error:
        raise FileError(f"{path} must be a file that can be read; got {error.strerror}.") from error
    if not start:
        raise FileError(f"{path} must hold a picture; got an empty file.")
    return start


def _check_holds(path: Path, picture: Picture) -> None:
    pixels, alpha = picture.pixels, picture.alpha
    if not pixels.size:
        raise FileError(f"{path} must hold at least one pixel; got {_size(pixels.shape)}.")
    if alpha is not None and alpha.dtype != pixels.dtype:
        raise FileError(f"{path} must have alpha of {pixels.dtype}, as pixels; got {alpha.dtype}.")
    name = BY_SUFFIX[path.suffix.lower()]
    kind = FORMATS[name]
    if not kind.fits(picture):
        raise FileError(f"{path} is {name}, which holds {kind.holds}; got {_described(picture)}.")


def _described(picture: Picture) -> str:
    pixels, alpha, _, stack, metadata = picture
    channels = n_channels(picture)
    return (
        f"{'a stack of ' if stack else ''}{_size(pixels.shape[stack : stack + 2])} {pixels.dtype} "
        f"pixels with {channels} channel{'s' if channels > 1 else ''}"
        f"{'' if alpha is None else ' and alpha'}"
        f"{' (premultiplied)' if metadata.get('premultiplied') else ''}"
    )


def _size(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))


def _native(pixels: Pixels) -> Pixels:
    return np.ascontiguousarray(pixels, pixels.dtype.newbyteorder("="))


def _marked(pixels: Pixels) -> NDArray[np.bool_]:
    """Values other than zero if there are at most two or none is bright, else bright ones; NaN."""
    nan = np.isnan(pixels)
    known = pixels[~nan]
    if not known.size or np.isin(known, (known.min(), known.max())).all():
        return np.asarray(pixels != 0)
    top = np.iinfo(pixels.dtype).max if pixels.dtype.kind in "ui" else known.max()
    bright = pixels >= top / 2
    return np.asarray((bright if bright.any() else pixels != 0) | nan)
