"""NPY files: NumPy's own, of any number type."""

import tokenize
from pathlib import Path
from typing import IO

import numpy as np

from evoem.images.files.picture import Format, Picture, damaged, is_number, n_channels, with_alpha
from evoem.runtime.atomic_files import FileError


def fits(picture: Picture) -> bool:
    """Whether a file can hold the picture."""
    alone = picture.alpha is None or n_channels(picture) == 3
    return is_number(picture.pixels.dtype) and alone


def read(path: Path) -> Picture:
    """The picture or the stack in an NPY file."""
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


def write(file: IO[bytes], picture: Picture) -> None:
    """Write a picture or a stack."""
    np.save(file, with_alpha(picture), allow_pickle=False)


def _ends_in_channels(shape: tuple[int, ...]) -> bool:
    return shape[-1] <= 4 < min(shape[:-1])


NPY = Format(
    (".npy",),
    (b"\x93NUMPY",),
    "integers and floats of up to 64 bits, and alpha with three channels only",
    fits,
    read,
    write,
)
