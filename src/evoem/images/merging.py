"""Merge overlapping patches into an image."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evoem.images import patches
from evoem.images.bands import PatchRows
from evoem.runtime.communicator import any_of
from evoem.validation import Mask

# Weight of a patch of which nothing was observed, which is the prior mean, against others.
UNSEEN = 1e-6
# Of the noise's variance: added to a patch's own where patches are weighed by it.
VARIANCE_FLOOR = 0.02


class Merged(NamedTuple):
    """What patches say about an image, or the rows of it that this process has."""

    mean: NDArray[np.float64]  # NaN where no patch lies
    std: NDArray[np.float64]  # of the mixture of what all patches say about a value
    near: NDArray[np.bool_]  # whether any patch saw something near a value
    cut_short: bool = False  # whether the nonlocal passes were left out for an interrupt


class Weighting(NamedTuple):
    """Weights of overlapping patches."""

    window: NDArray[np.float64]  # (n_pixels,)
    by_variance: bool
    floor: float  # added to variances


class Estimate(NamedTuple):
    """What some patches are, without noise."""

    numbers: NDArray[np.int64]
    observed: Mask | None
    mean: NDArray[np.float64]
    variance: NDArray[np.float64]

    def part(self, which: NDArray[np.bool_]) -> "Estimate":
        """Some of them."""
        return Estimate._make(None if each is None else each[which] for each in self)


def weighting(grid: patches.Grid, merge: str, noise_variance: float) -> Weighting:
    """The weighting of an option `merge` for the patches of a grid."""
    kind = "mean" if merge == "variance" else merge
    window = patches.window(grid.patch, kind, grid.shape[2])
    floor = VARIANCE_FLOOR * noise_variance + float(np.finfo(float).tiny)
    return Weighting(window, merge == "variance", floor)


def own_estimates(estimates: Iterator[Estimate], rows: PatchRows) -> Iterator[Estimate]:
    """Estimates of the patches that belong to this process, even if others have made them.

    All processes must call this, and take the same number of items.
    """
    comm = rows.band.comm
    if comm.size == 1:
        yield from estimates
        return
    while True:
        own = next(estimates, None)
        if not any_of(comm, own is not None)[0]:
            return
        pieces: list[Estimate | None] = [None] * comm.size
        if own is not None:
            owners = rows.owners_of(own.numbers)
            for rank in np.unique(owners).tolist():
                pieces[rank] = own.part(owners == rank)
        yield from (piece for piece in comm.exchange(pieces) if piece is not None)


def merge_patches(
    rows: PatchRows,
    merge: str,
    noise_variance: float,
    estimates: Iterable[Estimate],
) -> Merged:
    """Patches put together, some at a time; each process gives those that are its own."""
    grid, strip = rows.grid, rows.strip
    canvas = patches.Canvas(grid, strip)
    squares, seen = patches.PatchSum(grid, strip), patches.Marks(grid, strip)
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
        seen.add(numbers[some[:, 0]])
        canvas.add(numbers, mean, weights)
        squares.add(numbers, variance + mean**2, weights)
    rows.add([canvas.totals, canvas.weights, squares], seen)
    (masked,) = rows.band.any(masked)
    mean = canvas.mean()
    std = np.sqrt(np.maximum(canvas.mean_of(squares) - mean**2, 0.0))
    return Merged(mean, std, seen.value if masked else np.ones(mean.shape, np.bool_))
