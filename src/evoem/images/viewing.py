"""Arrays as pictures to look at: 8-bit colours, and PNG files."""

import io
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Known = NDArray[np.bool_]

# Percentiles of a restored picture that are black and white, and those of the one with noise, of
# which more may be so.
SHOWN, SHOWN_WITH_NOISE = (0.1, 99.9), (2.0, 98.0)
SHOWN_OF_MAP = 99.8  # percentile of a map that is brightest
# An 8-bit picture is shown as it is if it is at least so bright somewhere.
BRIGHT = 100.0
MISSING = (0.9, 0.2, 0.2)  # the colour of pixels without a value
# From nothing to much: dark to bright, by lightness alone, so that it can be told without colours.
HEAT = np.array([
    (0.00, 0.00, 0.02), (0.20, 0.07, 0.36), (0.47, 0.13, 0.43), (0.73, 0.22, 0.34),
    (0.93, 0.41, 0.15), (0.98, 0.69, 0.22), (0.99, 1.00, 0.75),
])  # fmt: skip


def shown_range(before: Array, after: Array, dtype: Any) -> tuple[float, float]:
    """The values that are black and white: what an 8-bit picture has, if it is not too dark."""
    before, after = before[np.isfinite(before)], after[np.isfinite(after)]
    low, high = map(float, np.percentile(after, SHOWN))
    if np.dtype(dtype) == np.uint8 and high >= BRIGHT:
        return 0.0, 255.0
    if before.size:
        noisy = np.percentile(before, SHOWN_WITH_NOISE)
        low, high = min(low, float(noisy[0])), max(high, float(noisy[1]))
    if high <= low:  # a few stars in the dark
        low, high = float(after.min()), float(after.max())
    return low, high


def colours(values: Array, known: Known, low: float, high: float) -> Array:
    """Values as red, green and blue between 0 and 1; what is not known has a colour of its own."""
    scaled = three_channels(np.atleast_3d(to_unit(np.where(known, values, low), low, high)))
    unknown = ~known if known.ndim == 2 else ~known.any(axis=2)
    scaled[unknown] = MISSING
    return scaled


def heat(values: Array, largest: float) -> Array:
    """Values from zero as colours that get brighter."""
    places = np.rint(255 * to_unit(values, 0.0, largest)) / 255 * (len(HEAT) - 1)
    steps = np.arange(len(HEAT))
    return np.stack([np.interp(places, steps, channel) for channel in HEAT.T], axis=-1)


def to_unit(values: Array, low: float, high: float) -> Array:
    """Values between these as between 0 and 1."""
    with np.errstate(over="ignore"):
        return np.clip((values - low) / ((high - low) or 1.0), 0, 1)


def three_channels(values: Array) -> Array:
    """Of grey pictures the same three times, of others than colour ones the mean of channels."""
    if values.shape[2] == 3:
        return values.copy()
    return np.repeat(values.mean(axis=2, keepdims=True), 3, axis=2)


def largest_shown(std: Array) -> float:
    """The deviation that is brightest: a few larger ones would leave all others dark."""
    most = float(np.percentile(std, SHOWN_OF_MAP))
    return most or float(std.max())


def detail(restored: Array, side: int) -> tuple[int, int]:
    """Row and column at which the square with the most edges begins."""
    grey = restored.mean(axis=2)
    edges = np.abs(np.diff(grey, axis=0, prepend=grey[:1]))
    edges += np.abs(np.diff(grey, axis=1, prepend=grey[:, :1]))
    sums = np.zeros((grey.shape[0] + 1, grey.shape[1] + 1))
    sums[1:, 1:] = np.minimum(edges, np.percentile(edges, 99)).cumsum(0).cumsum(1)
    height, width = min(side, grey.shape[0]), min(side, grey.shape[1])
    within = sums[height:, width:] - sums[:-height, width:] - sums[height:, :-width]
    within += sums[:-height, :-width]
    row, column = np.unravel_index(within.argmax(), within.shape)
    return int(row), int(column)


def thinned(colours: Array, largest_side: int) -> Array:
    """Every so many pixels of a large picture: a mean would hide its noise."""
    step = step_of(colours.shape, largest_side)
    return colours[::step, ::step]


def step_of(shape: tuple[int, ...], largest_side: int) -> int:
    """How many rows and columns there are for each that is shown."""
    return math.ceil(max(shape[:2]) / largest_side)


def png(colours: Array) -> bytes:
    """A file of red, green and blue between 0 and 1."""
    from PIL import Image

    file, pixels = io.BytesIO(), np.rint(255 * colours).astype(np.uint8)
    if (pixels == pixels[..., :1]).all():
        picture = Image.fromarray(pixels[..., 0])
    else:
        picture = Image.fromarray(pixels)
        if picture.getcolors(256) is not None:  # a map: a byte for each pixel, as for grey ones
            picture = picture.convert("P", palette=Image.Palette.ADAPTIVE, colors=256)
    picture.save(file, "PNG")
    return file.getvalue()
