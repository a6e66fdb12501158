"""NPY files: NumPy's own, of any number type."""

import math
from pathlib import Path
from typing import IO

import numpy as np
from numpy.lib import format as npy

from evoem.images.files import layout
from evoem.images.files.picture import (
    Format,
    Header,
    Picture,
    Wanted,
    is_number,
    n_channels,
    with_alpha,
)
from evoem.runtime.atomic_files import FileError

READERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
LONGEST_HEADER = 10_000  # bytes


def fits(picture: Picture) -> bool:
    """Whether a file can hold the picture."""
    alone = picture.alpha is None or n_channels(picture) == 3
    return is_number(picture.pixels.dtype) and alone


def header(path: Path, wanted: Wanted) -> Header:
    """What an NPY file says of its size, checked against that of the file."""
    with path.open("rb") as file:
        version = npy.read_magic(file)
        if version not in READERS:
            raise ValueError(f"its version is {version}")
        shape, _, dtype = READERS[version](file, max_header_size=LONGEST_HEADER)
        start = file.tell()
    if dtype.hasobject:
        raise ValueError("it holds Python objects")
    if not is_number(dtype) and dtype != np.bool_:
        raise FileError(f"{path} must hold integers or real numbers; got {dtype}.")
    if not all(type(length) is int and length >= 0 for length in shape):
        raise ValueError(f"its shape is {shape}")
    if wanted.axes is not None:
        layout.checked(str(path), wanted.axes, shape)
    if (len(shape) not in (2, 3, 4) and wanted.axes is None) or 0 in shape:
        raise FileError(f"{path} must have 2 to 4 axes, none empty; got the shape {shape}.")
    there, said = path.stat().st_size - start, math.prod(shape) * dtype.itemsize
    if there < said:
        raise ValueError(f"it has {there} bytes of pixels instead of {said}")
    return Header(shape)


def read(path: Path, wanted: Wanted) -> Picture:
    """The picture or the stack in an NPY file."""
    mapped = npy.open_memmap(path, mode="r")  # which never unpickles
    pixels = np.array(mapped) if wanted.rows is None else mapped.view(np.ndarray)
    if pixels.dtype == np.bool_:
        pixels = pixels * np.uint8(255)
    if wanted.axes is not None:
        lies = layout.checked(str(path), wanted.axes, pixels.shape)
        pixels, colour, stack = layout.arranged(pixels, lies)
        return Picture(pixels, None, colour, stack, {"layout": lies})
    stack = pixels.ndim == 4 or (pixels.ndim == 3 and not _ends_in_channels(pixels.shape))
    colour = pixels.ndim - stack == 3
    if colour and pixels.shape[-1] == 4:
        return Picture(pixels[..., :3], pixels[..., 3], colour, stack, {})
    return Picture(pixels, None, colour, stack, {})


def write(file: IO[bytes], picture: Picture) -> None:
    """Write a picture or a stack."""
    if "layout" in picture.metadata:
        array = layout.in_file(picture, layout.layout_of(picture))
    else:
        array = with_alpha(picture)
    np.save(file, array, allow_pickle=False)


def _ends_in_channels(shape: tuple[int, ...]) -> bool:
    return shape[-1] <= 4 < min(shape[:-1])


NPY = Format(
    (".npy",),
    (b"\x93NUMPY",),
    "integers and floats of up to 64 bits, and alpha with three channels only",
    fits,
    header,
    read,
    write,
)
