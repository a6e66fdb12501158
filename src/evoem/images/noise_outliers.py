"""Values that are no measurements: hot and dead pixels, salt and pepper, cosmic rays.

An outlier lies beyond all but one of the observed values around it (the second largest or smallest
of eight) by more than noise explains. Lines and edges have two neighbours like themselves, so they
are none; one other outlier nearby does no harm. Ends of tracks are outliers by this rule, so what
is found is left out and the search repeated beside it. Where many outliers share one extreme value,
as salt and pepper do, other values exactly there are held against the odds of noise reaching it.
"""

from collections.abc import Callable
from itertools import product

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

# Standard deviations of the noise beyond the second largest neighbour: less than one pixel in 10^6.
BEYOND = 4.5
# Range of 24 normal values but for the two largest and smallest, in standard deviations.
RANGE_OF_NOISE = 3.0
TEXTURE = 0.85
REPEATS = 3
# Neighbours that a value must have to be judged.
LEAST_NEIGHBOURS = 5
# An extreme value shared by so many outliers, and by this share of them, is that of an impulse.
LEAST_SHARED, SHARED = 20, 0.1
# If that many outliers are impulses, other values have to stand out this many times as far.
MOSTLY_IMPULSES, OTHERS_BEYOND = 0.5, 2.0
# Odds of an impulse over noise at which a value is called one.
ODDS = 100.0


def _around(channel: Array, usable: Mask, reach: int, where: NDArray[np.intp]) -> Array:
    """Values within `reach` of each place, ascending, NaN where there is none: (places, number)."""
    padded = np.pad(np.where(usable, channel, np.nan), reach, constant_values=np.nan)
    width = padded.shape[1]
    rows, columns = np.divmod(where, channel.shape[1])
    middle = (rows + reach) * width + columns + reach
    steps = [
        i * width + j for i, j in product(range(-reach, reach + 1), repeat=2) if (i, j) != (0, 0)
    ]
    values = padded.ravel()[middle[:, None] + np.array(steps)]
    return np.sort(values, axis=1)  # NaN last


def _ranked(ascending: Array, left_out: int) -> tuple[Array, Array, NDArray[np.intp]]:
    """The smallest and the largest finite values but for some, and how many values there are."""
    number = np.isfinite(ascending).sum(1)
    rows = np.arange(len(ascending))
    low = ascending[rows, np.minimum(left_out, np.maximum(number - 1, 0))]
    high = ascending[rows, np.maximum(number - 1 - left_out, 0)]
    return low, high, number


def find_outliers(
    channel: Array, observed: Mask, variance: Callable[[Array], Array], gain: float
) -> Mask:
    """Where a channel with this variance at a signal, and this gain, has outliers."""
    outliers = np.zeros(channel.shape, bool)
    stands_out = np.zeros(channel.shape)
    nearby = observed
    for _ in range(REPEATS):
        where = np.flatnonzero(nearby & ~outliers)
        measure = _standing_out(channel, observed & ~outliers, variance, gain, where)
        new = where[measure > 1]
        if not len(new):
            break
        outliers.ravel()[new] = True
        stands_out.ravel()[where] = measure
        nearby = observed & _dilated(outliers)
    impulses = _impulses(channel, observed, outliers, variance)
    if (impulses & outliers).sum() > MOSTLY_IMPULSES * outliers.sum():
        outliers &= stands_out > OTHERS_BEYOND
    return outliers | impulses


def _standing_out(
    channel: Array,
    usable: Mask,
    variance: Callable[[Array], Array],
    gain: float,
    where: NDArray[np.intp],
) -> Array:
    """Distance beyond the neighbours, relative to the largest that noise and texture explain."""
    value = channel.ravel()[where]
    low, high, number = _ranked(_around(channel, usable, 1, where), 1)
    enough = number >= LEAST_NEIGHBOURS
    low, high = np.where(enough, low, value), np.where(enough, high, value)
    up = value > high
    distance = np.where(up, value - high, low - value)
    deviation = np.sqrt(variance(np.where(up, high, low)))
    # Noise of photons is skewed, so its upper tail is longer (first term of Cornish and Fisher).
    skew = np.where(up, max(gain, 0.0) * (BEYOND**2 - 1) / 6, 0.0)
    explained = BEYOND * deviation + skew
    measure = distance / explained
    far = np.flatnonzero(measure > 1)
    low, high, _ = _ranked(_around(channel, usable, 2, where[far]), 2)
    texture = np.maximum(high - low - RANGE_OF_NOISE * deviation[far], 0)
    measure[far] = distance[far] / (explained[far] + TEXTURE * texture)
    return measure


def _dilated(mask: Mask) -> Mask:
    padded = np.pad(mask, 1)
    rows, columns = mask.shape
    shifted = [padded[i : i + rows, j : j + columns] for i in range(3) for j in range(3)]
    return np.asarray(np.logical_or.reduce(shifted))


def _impulses(
    channel: Array, observed: Mask, outliers: Mask, variance: Callable[[Array], Array]
) -> Mask:
    """Values at an extreme shared by many outliers that noise would seldom bring there."""
    found = np.zeros(channel.shape, bool)
    if outliers.sum() < LEAST_SHARED:
        return found
    for extreme, away in ((channel[observed].min(), -1.0), (channel[observed].max(), 1.0)):
        here = observed & (channel == extreme)
        shared = (here & outliers).sum()
        if shared < max(LEAST_SHARED, SHARED * outliers.sum()):
            continue
        where = np.flatnonzero(here)
        around = _around(channel, observed & ~outliers & ~here, 2, where)
        low, high, number = _ranked(around, 2)
        enough = number >= LEAST_NEIGHBOURS
        # The upper or lower end of what is around, so that edges do not count as spread.
        bound = np.where(enough, high if away > 0 else low, extreme)
        noise = variance(bound)
        texture = np.where(enough, high - low, 0) - RANGE_OF_NOISE * np.sqrt(noise)
        spread = np.sqrt(noise + (np.maximum(texture, 0) / 6) ** 2)
        by_noise = norm.sf(away * (extreme - bound) / spread + RANGE_OF_NOISE / 2)
        found.ravel()[where] = enough & (by_noise * ODDS < shared / observed.sum())
    return found


def filled(channel: Array, observed: Mask, outliers: Mask) -> tuple[Array, Mask]:
    """A channel with medians of what is around in place of outliers, and where it has values."""
    where = np.flatnonzero(outliers & observed)
    around = _around(channel, observed & ~outliers, 1, where)
    number = np.isfinite(around).sum(1)
    there = number >= LEAST_NEIGHBOURS
    values, known = channel.copy(), observed & ~outliers
    values.ravel()[where[there]] = around[np.arange(len(where)), number // 2][there]
    known.ravel()[where[there]] = True
    return values, known
