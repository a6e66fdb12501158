"""Axes of arrays in files: convert any number of axes, in any order, to a picture and back."""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evoem.images.files.picture import Picture, Pixels, Rows, with_alpha
from evoem.runtime.atomic_files import FileError

# Letters that stand for channels, the first one found: samples of a colour, and channels.
CHANNELS = "SC"

# Letters for slices that nobody names, the last one first.
SLICES = "ABDEFGHIJKLMNOPQRUVWTZ"


class Layout(NamedTuple):
    """How an array lies in its file."""

    axes: str  # a letter each, with Y and X among them; C or S are channels, all others slices
    shape: tuple[int, ...]

    @property
    def channels(self) -> str:
        """The letter of the channels, if there are any."""
        return next((letter for letter in CHANNELS if letter in self.axes), "")

    @property
    def slices(self) -> list[int]:
        """Which axes are slices."""
        others = "YX" + self.channels
        return [axis for axis, letter in enumerate(self.axes) if letter not in others]

    @property
    def last(self) -> list[int]:
        """Which axes are rows, columns and channels."""
        return [self.axes.index(letter) for letter in "YX" + self.channels]

    def size(self, letter: str) -> int:
        """The length of an axis; one if there is none."""
        return self.shape[self.axes.index(letter)] if letter in self.axes else 1


def checked(name: str, axes: str, shape: tuple[int, ...]) -> Layout:
    """The layout of an array whose axes somebody has named."""
    letters = axes.upper()
    if not (letters.isalpha() and letters.isascii() and len(set(letters)) == len(letters)):
        raise FileError(f"axes must be different letters, such as ZYX; got {axes!r}.")
    if not {"Y", "X"} <= set(letters):
        raise FileError(f"axes must have Y and X, rows and columns; got {axes!r}.")
    if len(letters) != len(shape):
        raise FileError(
            f"axes must be {len(shape)} letters for {name}, whose shape is {shape}; got {axes!r}."
        )
    return Layout(letters, shape)


def guessed(shape: tuple[int, ...]) -> Layout:
    """The layout of an array that says nothing of its axes: up to four values are a colour."""
    if len(shape) < 2:
        raise FileError(f"a picture must have two axes or more; got the shape {shape}.")
    colour = len(shape) > 2 and shape[-1] <= 4 < min(shape[-3:-1])
    names = "YXC" if colour else "YX"
    others = len(shape) - len(names)
    slices = SLICES[-others:] if others else ""
    return Layout(slices + names, shape)


def of_slices(shape: tuple[int, ...]) -> Layout:
    """The layout of an array whose last axes are rows and columns, and all others slices."""
    if len(shape) < 2:
        raise FileError(f"a picture must have two axes or more; got the shape {shape}.")
    return Layout(SLICES[-(len(shape) - 2) :] * (len(shape) > 2) + "YX", shape)


def rows_and_columns_last(layout: Layout) -> Layout:
    """The same axes in the order of formats that have channels before rows and columns."""
    slices = layout.slices
    order = [*slices, *(layout.axes.index(letter) for letter in layout.channels + "YX")]
    return Layout(
        "".join(layout.axes[axis] for axis in order), tuple(layout.shape[axis] for axis in order)
    )


def plain(picture: Picture) -> Layout:
    """That of the picture's own array, with alpha among the channels."""
    pixels = with_alpha(picture)
    axes = "Z" * picture.stack + "YX" + "C" * (pixels.ndim - picture.stack - 2)
    return Layout(axes, pixels.shape)


def layout_of(picture: Picture) -> Layout:
    """How the picture lay in its file, if that is known and true of it still."""
    known = picture.metadata.get("layout")
    if isinstance(known, Layout):
        pixels = with_alpha(picture)
        sides = pixels.shape[picture.stack : picture.stack + 2]
        if math.prod(known.shape) == pixels.size and sides == (known.size("Y"), known.size("X")):
            return known
    return plain(picture)


def arranged(array: NDArray[Any], layout: Layout) -> tuple[Pixels, bool, bool]:
    """Pixels with slices first and channels last, and whether there are channels and slices."""
    slices = layout.slices
    pixels = array.transpose(slices + layout.last)
    pixels = pixels.reshape(-1, *pixels.shape[len(slices) :])
    colour = layout.size(layout.channels) > 1 if layout.channels else False
    if layout.channels and not colour:
        pixels = pixels[..., 0]
    stack = len(pixels) > 1
    return pixels if stack else pixels[0], colour, stack


def wanted_rows(array: Any, layout: Layout, rows: Rows | None) -> NDArray[Any]:
    """What is wanted of an array in a file, which is read where it is indexed.

    Of a stack that is all.
    """
    if rows is None or math.prod(layout.shape[axis] for axis in layout.slices) > 1:
        return np.asarray(array[...])
    return only_rows(array, layout.axes.index("Y"), rows, array.dtype)


def only_rows(array: Any, axis: int, rows: Rows, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Some rows of an array, and zeros, which take no memory until they are looked at."""
    where = (slice(None),) * axis + (rows(array.shape[axis]),)
    found = np.zeros(array.shape, dtype)
    found[where] = array[where]
    return found


def in_file(picture: Picture, layout: Layout) -> NDArray[Any]:
    """The array as it lies in a file; the inverse of `arranged`."""
    slices = layout.slices
    pixels = with_alpha(picture).reshape([layout.shape[axis] for axis in slices + layout.last])
    return np.ascontiguousarray(pixels.transpose(np.argsort(slices + layout.last)))
