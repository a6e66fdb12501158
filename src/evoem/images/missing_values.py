"""Values that stand for missing ones: declared by the user, or outside any picture's range.

Files often mark missing values by one far outside the range of the picture, such as -3.4e38. Left
in, it would set the scale of everything else. Hot pixels and the like, within reach of the
picture's own values, belong to its noise: see `noise_outliers`.
"""

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from evoem.images import bands
from evoem.images.bands import Band
from evoem.validation import Mask

# A number of which there is no measurement, where all others are at most so large.
ABSURD, SENSIBLE = 1e30, 1e20
# Few values, all this many times as far from the median as any other, are none either,
GAP = 30.0
# if they are at most this share of a channel
LARGEST_SHARE = 1 / 64
# Powers of two that numbers have are less than this.
POWERS = 1100
# and no solid things, which have blocks of this width.
SOLID = np.ones((3, 3), np.bool_)


def implausible(values: NDArray[np.float64], missing: Mask, band: Band | None = None) -> Mask:
    """Where values (rows, columns, channels) are too far from the others to be of a picture.

    Light has no such gaps: around a star or a spark there are values in between. Each process may
    have some rows of the picture.
    """
    band = bands.whole(len(values)) if band is None else band
    found = _absurd(values, missing, band)
    for channel in range(values.shape[2]):
        left = ~missing[..., channel] & ~found[..., channel]
        found[..., channel] |= _beyond_a_gap(values[..., channel], left, band)
    return found


def _absurd(values: NDArray[np.float64], missing: Mask, band: Band) -> Mask:
    sizes = np.where(missing, 0.0, np.abs(values))
    found = sizes >= ABSURD
    others = sizes[~found & ~missing]
    largest = band.largest(float(others.max(initial=-1.0)))
    return found & (0 <= largest <= SENSIBLE)


def _beyond_a_gap(values: NDArray[np.float64], left: Mask, band: Band) -> Mask:
    """Of one channel."""
    seen = values[left]
    most = int(LARGEST_SHARE * band.count(left))
    nowhere = np.zeros(values.shape, np.bool_)
    if not most:
        return nowhere
    # In halves, as the difference of the largest numbers is none.
    middle = band.median(seen) / 2
    limit = _below_the_gap(np.abs(seen / 2 - middle), most, band)
    if not limit:  # beside one value all others are far
        return nowhere
    found = band.everywhere(left & (np.abs(values / 2 - middle) > limit))
    solid = ndimage.binary_opening(found, SOLID)
    scattered = found & ~ndimage.binary_propagation(solid, SOLID, mask=found)
    return np.asarray(scattered[band.rows])


def _below_the_gap(distances: NDArray[np.float64], most: int, band: Band) -> float:
    """The largest distance below the first gap with at most so many beyond it; zero if none is.

    Distances of a gap differ in their powers of two, of which there are few.
    """
    powers = np.where(distances > 0, np.frexp(distances)[1] + POWERS, 0)
    often = np.bincount(powers, minlength=2 * POWERS)
    smallest, largest = np.full(2 * POWERS, -np.inf), np.full(2 * POWERS, -np.inf)
    np.maximum.at(smallest, powers, -distances)
    np.maximum.at(largest, powers, distances)
    for numbers in (smallest, largest):
        band.comm.largest(numbers)
    band.comm.add(often)
    there = np.flatnonzero(often)
    for lower, upper in pairwise(there):
        beyond = often[upper:].sum()
        if beyond <= most and -smallest[upper] / GAP > largest[lower]:
            return float(largest[lower])
    return 0.0
