"""Pictures of so few photons that most values are of none.

Blocks of them have one value, or nearly so, and say nothing about the noise. But numbers of photons
have a variance like their mean: (a − b)² of neighbours is on average what a + b is, be the picture
under them bright or dark there, as long as photons are few. Drawings, screenshots and labels have
the same value over wider areas and larger steps beside them, so that it is less or much more.
"""

import numpy as np
from numpy.typing import NDArray

from evoem.validation import Mask

Array = NDArray[np.float64]

# Photons a value, on average, up to which they are few, and in all, from which they say enough.
FEW, ENOUGH = 1.0, 200.0
# Levels that there have to be: of two, drawings may consist as well.
LEAST_LEVELS = 3
# How far the ratio of variance and mean may be from one.
LIKE_PHOTONS = 0.15


def are_few_photons(values: Array, observed: Mask, step: float) -> bool:
    """Whether values, from zero on, are few photons of this size; zero is no size."""
    if step == 0:
        return False
    photons = values / step
    seen = photons[observed]
    if seen.mean() > FEW or seen.sum() < ENOUGH or len(np.unique(np.rint(seen))) < LEAST_LEVELS:
        return False
    squares, sums = 0.0, 0.0
    for axis in (0, 1):
        before, after = np.delete(photons, -1, axis), np.delete(photons, 0, axis)
        both = np.delete(observed, -1, axis) & np.delete(observed, 0, axis)
        squares += float(np.sum((after - before)[both] ** 2))
        sums += float(np.sum((after + before)[both]))
    return sums > 0 and abs(squares / sums - 1) < LIKE_PHOTONS
