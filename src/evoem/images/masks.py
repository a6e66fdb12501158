"""Masks: grow them, describe them, and propose them for scratches, dust, dead pixels and text.

Proposed are thin things outside the range of their surroundings. Thin is what a morphological
opening removes: brighter than the picture without everything narrower than a disc, or, the other
way round, darker. Fine texture is thin as well, so a thing counts only if it stands out from the
range of its surroundings, and several times as far as the texture there.
"""

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from evoem.validation import Mask

Array = NDArray[np.float64]

# Of the largest value of a mask, what is neither black nor as bright as to be marked.
LEAST_GREY = 1 / 16
# Pixels by which growing a mask is suggested, at most.
MOST_GROWTH = 5

# What is thinner than this is thin; wider in larger pictures, by a pixel for so many.
THIN, SIDE_PER_PIXEL = 7, 256
# Width of what surrounds a pixel, in these widths.
SURROUNDINGS = 2
# Texture is what this percentage of pixels within this width have less than, of which every fourth
# is looked at.
TEXTURE_SHARE, TEXTURE_WIDTH, TEXTURE_STEP = 70, 45, 4
# A thin thing differs from its surroundings by this many deviations of the noise and at least by
# this share of the picture's range,
BEYOND_NOISE, BEYOND_RANGE = 6.0, 0.12
# and beside that by this share of the surroundings' range and so many times their texture.
OF_SURROUNDINGS, OF_TEXTURE = 0.5, 3.0
# Pixels beside those count if they stand out by this share of all that.
BESIDE = 0.5
EIGHT = np.ones((3, 3), np.bool_)


def grown(missing: Mask, n_pixels: int) -> Mask:
    """A mask (rows, columns[, channels]) with all pixels up to so many from it."""
    if n_pixels == 0:
        return missing
    width = 2 * n_pixels + 1
    size = (width, width, 1)[: missing.ndim]
    return np.asarray(ndimage.maximum_filter(missing, size=size))


def grey(values: NDArray[np.generic], missing: Mask) -> Mask:
    """Pixels of a mask that are neither black nor marked: at soft edges, or by compression."""
    numbers = np.nan_to_num(values.astype(np.float64))
    darkest, brightest = numbers.min(), numbers.max()
    found = ~missing & (numbers > darkest + LEAST_GREY * (brightest - darkest))
    return np.asarray(found & (numbers != 0))


def description(missing: Mask, left_grey: Mask, n_grown: int) -> str:
    """How many pixels a mask marks, and what is done about the grey ones that it leaves."""
    said = f"{_pixels(missing)} missing"
    left_grey = left_grey & ~missing
    if not left_grey.any():
        return f"{said}."
    number = f"{np.count_nonzero(left_grey):,} grey"
    verb = "one" if np.count_nonzero(left_grey) == 1 else "ones"
    for n_pixels in range(1, MOST_GROWTH + 1):
        if not (left_grey & ~grown(missing, n_pixels)).any():
            taken = "it" if verb == "one" else "them"
            return (
                f"{said}; {number} {verb} at the edge of the mask kept: --mask-grow "
                f"{n_grown + n_pixels} takes {taken} too."
            )
    return f"{said}; {number} {verb} kept: a lower --mask-threshold takes more of them."


def _pixels(mask: Mask) -> str:
    number = np.count_nonzero(mask)
    return f"{number:,} pixel{'' if number == 1 else 's'}"


def proposed(values: Array, missing: Mask | None = None) -> Mask:
    """Where a picture (rows, columns, channels) has thin things unlike what surrounds them."""
    found = np.zeros(values.shape[:2], np.bool_)
    if min(found.shape) < 3:  # too little to tell noise by
        return found
    known = values if missing is None else np.where(missing, _middle(values, missing), values)
    width = THIN + 2 * (min(values.shape[:2]) // (2 * SIDE_PER_PIXEL))
    for channel in np.moveaxis(known, 2, 0):
        noise, extent = _deviation(channel), float(np.ptp(channel))
        for sign in (1.0, -1.0):
            found |= _standing_out(sign * channel, width, noise, extent)
    return found if missing is None else found & ~missing.any(2)


def _middle(values: Array, missing: Mask) -> Array:
    """The median of what is there, of each channel."""
    return np.asarray(np.nanmedian(np.where(missing, np.nan, values), axis=(0, 1)))


def _deviation(channel: Array) -> float:
    """Standard deviation of the noise, by second differences along rows or columns."""
    spreads = [float(np.median(np.abs(np.diff(channel, 2, axis=axis)))) for axis in (0, 1)]
    return min(spreads) / (0.6745 * 6**0.5)


def _standing_out(channel: Array, width: int, noise: float, extent: float) -> Mask:
    """Where thin things are brighter than what surrounds them."""
    disc = np.hypot(*np.mgrid[-(width // 2) : width // 2 + 1, -(width // 2) : width // 2 + 1])
    disc = disc <= width / 2
    opened = ndimage.grey_opening(channel, footprint=disc)
    closed = ndimage.grey_closing(channel, footprint=disc)
    highest = ndimage.maximum_filter(opened, size=SURROUNDINGS * width + 1)
    lowest = ndimage.minimum_filter(closed, size=SURROUNDINGS * width + 1)
    surroundings = np.maximum(highest - lowest - 3 * noise, 0.0)
    texture = _typical(np.maximum(closed - channel, channel - opened))
    least = max(BEYOND_NOISE * noise, BEYOND_RANGE * extent)
    needed = least + OF_SURROUNDINGS * surroundings + OF_TEXTURE * texture
    distance = channel - highest
    beside = distance > BESIDE * needed
    return np.asarray(ndimage.binary_propagation(distance > needed, EIGHT, mask=beside))


def _typical(detail: Array) -> Array:
    """What thin detail most places around have less than: things are the exception."""
    step = TEXTURE_STEP
    some = detail[step // 2 :: step, step // 2 :: step]
    typical = ndimage.percentile_filter(some, TEXTURE_SHARE, size=TEXTURE_WIDTH // step)
    rows, columns = (
        np.minimum(np.arange(n) // step, m - 1)
        for n, m in zip(detail.shape, some.shape, strict=True)
    )
    return np.asarray(typical[np.ix_(rows, columns)])
