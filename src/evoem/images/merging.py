"""Put patches together to an image."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evoem.images import patches
from evoem.validation import Mask

# Weight of a patch of which nothing was observed, which is the prior mean, against others.
UNSEEN = 1e-6
# Of the noise's variance: added to a patch's own where patches are weighed by it.
VARIANCE_FLOOR = 0.02


class Merged(NamedTuple):
    """What patches say about an image."""

    mean: NDArray[np.float64]  # NaN where no patch lies
    std: NDArray[np.float64]  # of the mixture of what all patches say about a value
    near: NDArray[np.bool_]  # whether any patch saw something near a value
    cut_short: bool = False  # whether the nonlocal passes were left out for an interrupt


class Weighting(NamedTuple):
    """How much overlapping patches count."""

    window: NDArray[np.float64]  # (n_pixels,)
    by_variance: bool
    floor: float  # added to variances


class Estimate(NamedTuple):
    """What some patches are, without noise."""

    numbers: NDArray[np.int64]
    observed: Mask
    mean: NDArray[np.float64]
    variance: NDArray[np.float64]


def weighting(grid: patches.Grid, merge: str, noise_variance: float) -> Weighting:
    """What a way to merge means for patches of a grid."""
    kind = "mean" if merge == "variance" else merge
    window = patches.window(grid.patch, kind, grid.shape[2])
    floor = VARIANCE_FLOOR * noise_variance + float(np.finfo(float).tiny)
    return Weighting(window, merge == "variance", floor)


def merge_patches(
    grid: patches.Grid, merge: str, noise_variance: float, estimates: Iterable[Estimate]
) -> Merged:
    """Patches put together, some at a time."""
    canvas, squares, seen = (patches.Canvas(grid) for _ in range(3))
    window, by_variance, floor = weighting(grid, merge, noise_variance)
    masked = False
    for numbers, observed, mean, variance in estimates:
        weights = np.broadcast_to(window, mean.shape)
        if by_variance:
            weights = weights / (variance + floor)
        some: NDArray[np.bool_] = np.ones((len(mean), 1), np.bool_)  # of a patch was observed
        if observed is not None:
            masked, some = True, np.asarray(observed.any(1, keepdims=True))
            weights = np.where(some, weights, UNSEEN * weights)
        seen.add(numbers, np.broadcast_to(some, mean.shape), window)
        canvas.add(numbers, mean, weights)
        squares.add(numbers, variance + mean**2, weights)
    mean = canvas.mean()
    std = np.sqrt(np.maximum(squares.mean() - mean**2, 0.0))
    return Merged(mean, std, seen.mean() > 0 if masked else np.ones(mean.shape, np.bool_))
