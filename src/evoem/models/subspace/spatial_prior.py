"""Activation probabilities that vary over a plane.

Neighbouring rows, such as patches of an image, have latents in common. So a latent has its own
probability π_jh at every point j of a coarse grid, and at a position p that of a mixture,

    π_h(p) = Σ_j b_j(p) π_jh,

with the bilinear weights b of the four points around p. Which point a latent was drawn from is one
more latent variable. Its posterior has a closed form, and so has the M-step:

    p(j | s_h = 1) = b_j π_jh / π_h(p),    p(j | s_h = 0) = b_j (1 - π_jh) / (1 - π_h(p)).

Few rows lie near a point, so its probabilities have a Beta prior, as if STRENGTH more rows lay
there, with the mean probabilities of the latents.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evoem.runtime.compile import kernel
from evoem.states import active_latents

STRENGTH = 20.0
# Factors of a product whose logarithm is taken: of probabilities, all above 1e-8, these are
# numbers still.
FACTORS = 16


class Sites(NamedTuple):
    """Positions of rows: the points around each, their weights, and the probabilities there."""

    points: NDArray[np.int64]  # (n_rows, 4) numbers of points, row by row of the grid
    shares: NDArray[np.float64]  # (n_rows, 4)  b
    probs: NDArray[np.float64]  # (n_rows, G)  π(p)
    log_inactive: NDArray[np.float64]  # (n_rows,)  Σ_h log(1 - π_h(p))


class FieldStats(NamedTuple):
    """How often each latent was drawn from each point, active or not: (n_points, G)."""

    on: NDArray[np.float64]
    off: NDArray[np.float64]


def uniform(shape: tuple[int, int], probs: NDArray[np.float64]) -> NDArray[np.float64]:
    """A field of this many rows and columns of points, with the same probabilities everywhere."""
    return np.broadcast_to(probs, (*shape, len(probs))).copy()


@kernel
def _mix(field, points, shares, probs, log_inactive):
    G = field.shape[1]
    for r in range(len(points)):
        own = probs[r]
        own[:] = 0.0
        for c in range(4):
            share, point = shares[r, c], field[points[r, c]]
            for g in range(G):
                own[g] += share * point[g]
        total = 0.0
        for start in range(0, G, FACTORS):
            product = 1.0
            for g in range(start, min(start + FACTORS, G)):
                product *= 1.0 - own[g]
            total += np.log(product)
        log_inactive[r] = total


def locate(field: NDArray[np.float64], positions: NDArray[np.floating]) -> Sites:
    """The sites of `positions` (n_rows, 2): rows and columns of the grid, with fractions."""
    points = np.zeros((len(positions), 4), np.int64)
    shares = np.ones((len(positions), 4))
    for axis, length in enumerate(field.shape[:2]):
        position = np.clip(positions[:, axis].astype(np.float64), 0.0, length - 1.0)
        before = np.minimum(position.astype(np.int64), max(length - 2, 0))
        after = np.minimum(before + 1, length - 1)
        for corner in range(4):
            second = (corner >> 1, corner & 1)[axis]
            points[:, corner] *= length
            points[:, corner] += after if second else before
            shares[:, corner] *= position - before if second else 1.0 - (position - before)
    sites = Sites(points, shares, np.empty((len(points), field.shape[2])), np.empty(len(points)))
    _mix(field.reshape(-1, field.shape[2]), *sites)
    return sites


def empty_statistics(field: NDArray[np.float64] | None, n_latents: int) -> FieldStats:
    """Statistics of no rows; empty if there is no field."""
    n_points = 0 if field is None else field[..., 0].size
    return FieldStats(*np.zeros((2, n_points, n_latents)))


@kernel
def _add(states, weights, negligible, points, shares, probs, on, off):
    G = probs.shape[1]
    latents = np.empty(G + 1, np.int64)
    active, inactive = np.empty((2, G))
    for r in range(states.shape[0]):
        active[:] = 0.0
        total = 0.0
        for m in range(states.shape[1]):
            if weights[r, m] > negligible:
                total += weights[r, m]
                for i in range(active_latents(states, r, m, latents)):
                    active[latents[i]] += weights[r, m]
        for g in range(G):
            inactive[g] = (total - active[g]) / (1.0 - probs[r, g])
            active[g] /= probs[r, g]
        for c in range(4):
            j, share = points[r, c], shares[r, c]
            for g in range(G):
                on[j, g] += share * active[g]
                off[j, g] += share * inactive[g]


def add(
    stats: FieldStats,
    sites: Sites | None,
    states: NDArray[np.uint64],
    weights: NDArray[np.float64],
    negligible: float,
) -> None:
    """Add rows with their posteriors, but for a factor that is the same for all, see `settle`.

    Nothing, if they lie nowhere.
    """
    if sites is None:
        return
    _add(states, weights, negligible, sites.points, sites.shares, sites.probs, *stats)


def settle(stats: FieldStats, field: NDArray[np.float64]) -> None:
    """Multiply what was added with this field by the factors of its points."""
    flat = field.reshape(stats.on.shape)
    stats.on[:] *= flat
    stats.off[:] *= 1.0 - flat


def update(
    field: NDArray[np.float64], stats: FieldStats, overall: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The field that maximises the bound and the log-density of its prior."""
    new = (stats.on + STRENGTH * overall) / (stats.on + stats.off + STRENGTH)
    return new.reshape(field.shape)
