"""Picture files: PNG, JPEG, TIFF and NPY. Nothing is converted silently or half-written."""

import os
import tokenize
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from evoem.images import pillow, tiff
from evoem.images.picture import (
    Picture,
    Pixels,
    damaged,
    is_number,
    n_channels,
    with_alpha,
)
from evoem.runtime.atomic_files import FileError, check_place, write_whole

__all__ = ["FileError", "Picture", "check_output", "read", "read_mask", "write"]

StrPath = str | os.PathLike[str]

FORMATS = {
    ".png": "PNG",
    ".jpg": "JPEG",
    ".jpeg": "JPEG",
    ".tif": "TIFF",
    ".tiff": "TIFF",
    ".npy": "NPY",
}
HOLDS = {
    "PNG": "one 8-bit grey or RGB picture, with or without straight alpha, or a 16-bit grey one",
    "JPEG": "one 8-bit grey or RGB picture without alpha, of at most 65500 x 65500",
    "TIFF": "integers and floats of up to 64 bits",
    "NPY": "integers and floats of up to 64 bits, and alpha with three channels only",
}
LONGEST_JPEG_SIDE = 65500


def read(path: StrPath) -> Picture:
    """The picture in a file, whose first bytes tell the format."""
    path = Path(path)
    start = _first_bytes(path)
    for signature, reader in READERS.items():
        if start.startswith(signature):
            picture = reader(path)
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
    if path.suffix.lower() not in FORMATS:
        raise FileError(f"{path} must end in one of {', '.join(FORMATS)}; got {path.suffix!r}.")
    check_place(path, force=force)
    if picture is not None:
        _check_holds(path, picture)


def write(path: StrPath, picture: Picture, *, force: bool = False) -> None:
    """Write a picture in the format of the extension: the whole of it, or nothing.

    An existing file is replaced only with `force`, and keeps its permissions.
    """
    path = Path(path)
    check_output(path, force=force, picture=picture)
    writer = WRITERS[FORMATS[path.suffix.lower()]]
    write_whole(path, lambda file: writer(file, picture), force=force)


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
    kind = FORMATS[path.suffix.lower()]
    if not _fits(kind, picture):
        raise FileError(f"{path} is {kind}, which holds {HOLDS[kind]}; got {_described(picture)}.")


def _fits(kind: str, picture: Picture) -> bool:
    dtype, channels = picture.pixels.dtype, n_channels(picture)
    if kind == "TIFF":
        return is_number(dtype)
    if kind == "NPY":
        return is_number(dtype) and (picture.alpha is None or channels == 3)
    if picture.stack or channels not in (1, 3):
        return False
    if kind == "JPEG":
        small = max(picture.pixels.shape) <= LONGEST_JPEG_SIDE
        return small and dtype == np.uint8 and picture.alpha is None
    if dtype == np.uint16:
        return channels == 1 and picture.alpha is None
    return dtype == np.uint8 and not picture.metadata.get("premultiplied")


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


def _read_npy(path: Path) -> Picture:
    try:
        # A memory map finds a file too short before memory is taken, and never unpickles.
        pixels = np.array(np.lib.format.open_memmap(path, mode="r"))
    except (ValueError, OSError, EOFError, tokenize.TokenError) as error:
        raise damaged(path, error) from error
    if pixels.dtype == np.bool_:
        pixels = pixels * np.uint8(255)
    if not is_number(pixels.dtype):
        raise FileError(f"{path} must hold integers or real numbers; got {pixels.dtype}.")
    if pixels.ndim not in (2, 3, 4) or not pixels.size:
        raise FileError(f"{path} must have 2 to 4 axes, none empty; got the shape {pixels.shape}.")
    stack = pixels.ndim == 4 or (pixels.ndim == 3 and not _ends_in_channels(pixels.shape))
    colour = pixels.ndim - stack == 3
    if colour and pixels.shape[-1] == 4:
        return Picture(pixels[..., :3], pixels[..., 3], colour, stack, {})
    return Picture(pixels, None, colour, stack, {})


def _ends_in_channels(shape: tuple[int, ...]) -> bool:
    return shape[-1] <= 4 < min(shape[:-1])


def _write_npy(file: IO[bytes], picture: Picture) -> None:
    np.save(file, with_alpha(picture), allow_pickle=False)


READERS = {
    b"\x89PNG\r\n\x1a\n": pillow.read_png,
    b"\xff\xd8\xff": pillow.read,
    b"II*\x00": tiff.read,
    b"MM\x00*": tiff.read,
    b"II+\x00": tiff.read,
    b"MM\x00+": tiff.read,
    b"\x93NUMPY": _read_npy,
}
WRITERS = {
    "PNG": pillow.write_png,
    "JPEG": pillow.write_jpeg,
    "TIFF": tiff.write,
    "NPY": _write_npy,
}
