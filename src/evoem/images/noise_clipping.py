"""Clipping at the ends of a detector's range, and its effect on variances."""

import numpy as np
from numpy.typing import NDArray

from evoem.images.distributions import normal_below, normal_density, poisson_probabilities

Array = NDArray[np.float64]
Levels = tuple[float | None, float | None]

# Values at an end are clipped if they are this share of all and this many times as frequent as
# values in the first steps away from it, ...
LEAST_SHARE, PILE = 5e-4, 2.0
# ... and at the lower end if some lie in those steps at all: without, it is that of no photon.
LEAST_BESIDE = 0.01
STEPS_BESIDE = 3
# Levels are numbers of photons if they are this far apart, more than those of eight bits, and if
# their distance is the gain, nearly.
COARSE, LIKE_A_PHOTON = 0.01, 0.2
# Levels and multiples of their distance are the same up to this share of it.
BESIDE_LEVEL = 0.02
GRID = 300
# Up to so many photons their noise is too skewed to be taken for normal.
MOST_PHOTONS = 30.0


def rounding_step(values: Array) -> float:
    """Distance of the levels that values are rounded to; 0 if they are not."""
    levels = np.unique(values)
    if len(levels) < 2 or len(levels) > max(values.size // 8, 2):
        return 0.0
    gaps = np.diff(levels)
    step = float(gaps.min())
    return step if np.allclose(gaps / step, np.round(gaps / step), atol=BESIDE_LEVEL) else 0.0


def on_levels(values: Array, step: float) -> Array:
    """Values between 0 and 1 that were rounded, exactly on their levels.

    Scaling and moving a picture leaves them beside, by as much as its numbers are exact to, and
    what had been equal would be sorted by that.
    """
    if step == 0:
        return values
    n_steps = round(1 / step)
    exact = np.round(values * n_steps) / n_steps
    return exact if np.abs(exact - values).max() < BESIDE_LEVEL * step else values


def of_photons(step: float, gain: float) -> bool:
    """Whether levels, of a picture between 0 and 1, are numbers of photons rather than rounded."""
    return step > COARSE and abs(gain / step - 1) < LIKE_A_PHOTON


def clipping_levels(values: Array, deviation: float, step: float, gain: float) -> Levels:
    """Lowest and highest level where values pile up as noise of this deviation would not."""
    reach = STEPS_BESIDE * step if step else deviation / 4
    found: list[float | None] = []
    for end, away in ((float(values.min()), 1.0), (float(values.max()), -1.0)):
        distance = away * (values - end)
        at_end = int((distance == 0).sum())
        beside = int(((distance > 0) & (distance <= reach)).sum())
        per_level = beside / STEPS_BESIDE if step else 0.0
        piled = at_end >= max(LEAST_SHARE * values.size, 8) and at_end > PILE * per_level
        found.append(end if piled else None)
        if away > 0 and (beside < LEAST_BESIDE * at_end or of_photons(step, gain)):
            found[0] = None
    return found[0], found[1]


def clipped_law(
    gain: float, intercept: float, least: float, levels: Levels, span: tuple[float, float]
) -> tuple[Array, Array, Array, Array]:
    """Means before and after clipping of noisy values, and their variances before and after.

    The variance before is gain · mean + intercept, at least `least`; `span` is what the means after
    clipping have to cover where there is no level to clip at. Noise is taken to be normal, or that
    of photons if these are few.
    """
    size = np.sqrt(max(gain * max(map(abs, span)) + max(intercept, 0.0), least))
    before = np.linspace(span[0] - 4 * size, span[1] + 4 * size, GRID)
    variance = np.maximum(gain * before + intercept, least)
    few = gain > 0 and variance[-1] < MOST_PHOTONS * gain**2
    moments = _clipped_photons if few else _clipped_normal
    after, left = moments(before, variance, gain, levels)
    order = np.argsort(after, kind="stable")
    return before[order], after[order], variance[order], np.maximum(left, 0)[order]


def _clipped_normal(
    before: Array, variance: Array, gain: float, levels: Levels
) -> tuple[Array, Array]:
    low, high = levels
    deviation = np.sqrt(variance)
    # Moments of a standard normal variable held between a and b.
    mean, square = np.zeros_like(before), np.ones_like(before)
    if low is not None:
        a = (low - before) / deviation
        mean += normal_density(a) + a * normal_below(a)
        square += (a**2 - 1) * normal_below(a) + a * normal_density(a)
    if high is not None:
        b = (high - before) / deviation
        mean -= normal_density(b) - b * normal_below(-b)
        square += (b**2 - 1) * normal_below(-b) - b * normal_density(b)
    return before + deviation * mean, variance * (square - mean**2)


def _clipped_photons(
    before: Array, variance: Array, gain: float, levels: Levels
) -> tuple[Array, Array]:
    photons = variance / gain**2
    counts = np.arange(int(photons[-1] + 8 * np.sqrt(photons[-1])) + 10)
    share = poisson_probabilities(counts, photons[:, None])
    low, high = (
        level if level is not None else unlimited
        for level, unlimited in zip(levels, (-np.inf, np.inf), strict=True)
    )
    values = np.clip((before - gain * photons)[:, None] + gain * counts, low, high)
    mean = (share * values).sum(1)
    return mean, (share * (values - mean[:, None]) ** 2).sum(1)
