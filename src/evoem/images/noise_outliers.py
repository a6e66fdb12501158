"""Outliers: hot and dead pixels, salt and pepper, cosmic rays.

An outlier lies beyond all but one of the observed values around it (the second largest or smallest
of eight) by more than noise explains. Lines and edges have two neighbours like themselves, so they
are none; one other outlier nearby does no harm. Ends of tracks are outliers by this rule, so what
is found is left out and the search repeated beside it. Where many outliers share one extreme value,
as salt and pepper do, other values exactly there are held against the odds of noise reaching it.

Fine details stand out as well, but only where there is texture, while outliers fall anywhere. So
what stands out in textured places is believed as far as it is no more frequent there than in flat
ones; otherwise it has to stand out from the texture too.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Self

import numpy as np
from numpy.typing import NDArray

from evoem.images.distributions import normal_below
from evoem.validation import Mask

Array = NDArray[np.float64]


# Standard deviations of the noise beyond the second largest neighbour: less than one pixel in 10^6.
BEYOND = 4.5
# Range of 24 normal values but for the two largest and smallest, in standard deviations.
RANGE_OF_NOISE = 3.0
# Shares of texture's range that a value may have to exceed; the last is enough for all details.
TEXTURE = (0.0, 0.1, 0.2, 0.3, 0.45, 0.6, 0.85)
# Places are textured if that range is this share of what noise explains. There outliers are missed
# more easily, so that more than this share of their frequency in flat places is too much.
TEXTURED, TOO_FREQUENT = 0.5, 0.9
SAMPLE = 20_000
REPEATS = 3
# Neighbours that a value must have to be judged.
LEAST_NEIGHBOURS = 5
# Signals at which the least variance is looked for.
SIGNALS = 64
# Places that are looked at together; each takes some 400 bytes.
PLACES_AT_ONCE = 200_000
# An extreme value shared by so many outliers, and by this share of them, is that of an impulse.
LEAST_SHARED, SHARED = 20, 0.1
# If that many outliers are impulses, other values have to stand out this many times as far: where
# impulses are at one end of the range, they may be hot pixels of which others are not as bright.
MOSTLY_IMPULSES, OTHERS_BEYOND_ONE_END, OTHERS_BEYOND_BOTH = 0.5, 1.5, 2.0
# Odds of an impulse over noise at which a value is called one.
ODDS = 100.0


@dataclass(frozen=True)
class _Surroundings:
    """Values within `reach` of a place, NaN where there is none."""

    padded: Array
    reach: int

    @classmethod
    def of(cls, channel: Array, usable: Mask, reach: int) -> Self:
        padded = np.pad(np.where(usable, channel, np.nan), reach, constant_values=np.nan)
        return cls(padded, reach)

    def ascending(self, where: NDArray[np.intp]) -> Array:
        """Those around each of a number of places, NaN last: (places, number)."""
        reach, width = self.reach, self.padded.shape[1]
        rows, columns = np.divmod(where, width - 2 * reach)
        middle = (rows + reach) * width + columns + reach
        steps = [
            i * width + j
            for i, j in product(range(-reach, reach + 1), repeat=2)
            if (i, j) != (0, 0)
        ]
        return np.sort(self.padded.ravel()[middle[:, None] + np.array(steps)], axis=1)


def _by_parts(measure: Callable[[NDArray[np.intp]], Array], where: NDArray[np.intp]) -> Array:
    """What is measured at places, of so many at once as fit into little memory."""
    n_parts = max(1, -(-len(where) // PLACES_AT_ONCE))
    return np.concatenate([measure(part) for part in np.array_split(where, n_parts)])


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
    share = None
    for _ in range(REPEATS):
        standing_out = _StandingOut.of(channel, observed & ~outliers, variance, gain)
        where = np.flatnonzero(nearby & ~outliers & standing_out.suspects())
        distance, texture = _by_parts(standing_out, where).T
        if share is None:
            share = believable(distance, texture, standing_out.textured(observed))
        measure = distance / (1 + share * texture)
        new = where[measure > 1]
        if not len(new):
            break
        outliers.ravel()[new] = True
        stands_out.ravel()[where] = measure
        nearby = observed & _dilated(outliers)
    impulses = _impulses(channel, observed, outliers, variance)
    ends = channel[impulses & outliers]
    if ends.size > MOSTLY_IMPULSES * outliers.sum():
        at_both = ends.min() < ends.max()
        outliers &= stands_out > (OTHERS_BEYOND_BOTH if at_both else OTHERS_BEYOND_ONE_END)
    return outliers | impulses


def believable(distance: Array, texture: Array, textured: float) -> float:
    """The share of texture's range that values have to exceed, so that they are no details.

    `distance` and `texture` are in units of what noise explains, `textured` is the share of places
    that are.
    """
    rough = texture > TEXTURED
    in_flat = np.count_nonzero(distance[~rough] > 1)
    most = TOO_FREQUENT * in_flat * textured / max(1 - textured, 1e-6)
    for share in TEXTURE:
        if np.count_nonzero(distance[rough] > 1 + share * texture[rough]) <= most:
            break
    return share


@dataclass(frozen=True)
class _StandingOut:
    """Distance beyond the neighbours, and range of texture, relative to what noise explains."""

    channel: Array
    near: _Surroundings
    around: _Surroundings
    variance: Callable[[Array], Array]
    gain: float

    @classmethod
    def of(
        cls, channel: Array, usable: Mask, variance: Callable[[Array], Array], gain: float
    ) -> Self:
        near, around = (_Surroundings.of(channel, usable, reach) for reach in (1, 2))
        return cls(channel, near, around, variance, gain)

    def suspects(self) -> Mask:
        """The few values far from all but one of the four nearest, as every outlier is."""
        signals = np.linspace(np.nanmin(self.near.padded), np.nanmax(self.near.padded), SIGNALS)
        explained = BEYOND * np.sqrt(self.variance(signals).min())
        above, below = (np.zeros(self.channel.shape, np.int8) for _ in range(2))
        for rows, columns in ((0, 1), (1, 0), (1, 2), (2, 1)):
            height, width = self.channel.shape
            beside = self.near.padded[rows : rows + height, columns : columns + width]
            distance = self.channel - beside
            above += ~(distance <= explained)  # so that missing neighbours are no reason against it
            below += ~(distance >= -explained)
        return (above >= 3) | (below >= 3)

    def __call__(self, where: NDArray[np.intp]) -> Array:
        value = self.channel.ravel()[where]
        low, high, number = _ranked(self.near.ascending(where), 1)
        enough = number >= LEAST_NEIGHBOURS
        low, high = np.where(enough, low, value), np.where(enough, high, value)
        up = value > high
        distance = np.where(up, value - high, low - value)
        deviation = np.sqrt(self.variance(np.where(up, high, low)))
        # Noise of photons is skewed: its upper tail is longer (first term of Cornish and Fisher).
        skew = np.where(up, max(self.gain, 0.0) * (BEYOND**2 - 1) / 6, 0.0)
        explained = BEYOND * deviation + skew
        far = np.flatnonzero(distance > explained)
        texture = np.zeros(len(where))
        low, high, _ = _ranked(self.around.ascending(where[far]), 2)
        texture[far] = np.maximum(high - low - RANGE_OF_NOISE * deviation[far], 0) / explained[far]
        return np.stack([distance / explained, texture], axis=1)

    def textured(self, observed: Mask) -> float:
        """The share of places with texture around them, from a sample."""
        where = np.flatnonzero(observed)
        where = where[:: max(1, len(where) // SAMPLE)]
        low, high, number = _ranked(self.around.ascending(where), 2)
        low, high = low[number > 0], high[number > 0]
        deviation = np.sqrt(self.variance((low + high) / 2))
        rough = high - low - RANGE_OF_NOISE * deviation > TEXTURED * BEYOND * deviation
        return float(rough.mean()) if len(rough) else 0.0


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
        around = _Surroundings.of(channel, observed & ~outliers & ~here, 2)
        by_noise = _ByNoise(float(extreme), away, around, variance)
        where = np.flatnonzero(here)
        odds = _by_parts(by_noise, where)
        found.ravel()[where] = odds * ODDS < shared / observed.sum()
    return found


@dataclass(frozen=True)
class _ByNoise:
    """Probability that noise brings a value to an extreme; one where it cannot be told."""

    extreme: float
    away: float
    around: _Surroundings
    variance: Callable[[Array], Array]

    def __call__(self, where: NDArray[np.intp]) -> Array:
        low, high, number = _ranked(self.around.ascending(where), 2)
        enough = number >= LEAST_NEIGHBOURS
        # The upper or lower end of what is around, so that edges do not count as spread.
        bound = np.where(enough, high if self.away > 0 else low, self.extreme)
        noise = self.variance(bound)
        texture = np.where(enough, high - low, 0) - RANGE_OF_NOISE * np.sqrt(noise)
        spread = np.sqrt(noise + (np.maximum(texture, 0) / 6) ** 2)
        apart = self.away * (self.extreme - bound) / spread
        return np.where(enough, normal_below(-apart - RANGE_OF_NOISE / 2), 1.0)


def filled(channel: Array, observed: Mask, outliers: Mask) -> tuple[Array, Mask]:
    """A channel with medians of what is around in place of outliers, and where it has values."""
    where = np.flatnonzero(outliers & observed)
    around = _Surroundings.of(channel, observed & ~outliers, 1).ascending(where)
    number = np.isfinite(around).sum(1)
    there = number >= LEAST_NEIGHBOURS
    values, known = channel.copy(), observed & ~outliers
    values.ravel()[where[there]] = around[np.arange(len(where)), number // 2][there]
    known.ravel()[where[there]] = True
    return values, known
