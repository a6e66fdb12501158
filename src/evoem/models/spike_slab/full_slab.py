"""The monotone M-step of μ and a full Ψ."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from evoem.models.spike_slab.state_posterior import SLAB_FLOOR
from evoem.models.spike_slab.update import (
    SpikeSlabParams,
    SpikeSlabStats,
    is_positive_definite,
    positive_definite,
)
from evoem.runtime.linalg import cholesky, solve, symmetric_product
from evoem.runtime.threads import both

# Eigenvalues of the correlation matrix of a full Ψ that is learnt stay above this: it is then
# positive definite in single precision too.
CORRELATION_FLOOR = 1e-2
# In one step a variance of a full Ψ falls to no less than a tenth of itself, and rises to no more
# than ten times the slab's second moment.
LARGEST_CHANGE = 10.0
# A latent heard of in fewer rows than this moves as if it had been as many.
FEWEST = 1.0
# A cautious step of a full Ψ that leads out of the allowed matrices is halved this often, then
# not taken.
HALVINGS = 6


def update_full_slab(
    params: SpikeSlabParams,
    stats: SpikeSlabStats,
    *,
    learn_means: bool,
    learn_covariance: bool,
    cautious: bool,
) -> tuple[NDArray[np.float64], Callable[[], NDArray[np.float64]]]:
    """A step of μ and a full Ψ up the bound: returns μ, and a function that computes Ψ.

    The cautious step fills in inactive z_h by their conditional mean and covariance given the
    active ones (complete-data EM). It never lowers the bound, but most of what it averages is
    filled in, so it is short where activity is low. The other step takes the exact μ for this Ψ,
    and moves each latent's share of Ψ by the evidence about it: exact, too, for a diagonal Ψ.
    """
    psi, means, n_rows = params.slab_covariance, params.slab_means, float(stats.linear.n_rows)

    def shift_of_means() -> NDArray[np.float64]:
        if not learn_means:
            return np.zeros(len(psi))
        if cautious:
            return psi @ stats.pull / n_rows
        unit = np.sqrt(np.diag(psi))
        information = stats.information * np.outer(unit, unit)
        information[np.diag_indices_from(information)] += FEWEST
        cholesky(information)
        return np.asarray(unit * solve(information, (unit * stats.pull)[:, None])[:, 0])

    if not learn_covariance:
        return means + shift_of_means(), lambda: psi
    if cautious:
        shift = shift_of_means()
        change = psi @ symmetric_product(stats.curvature, psi) / n_rows
        return means + shift, lambda: backtrack(psi, change - np.outer(shift, shift))
    change, (shift, counts) = both(
        lambda: wanted_change(psi, stats), lambda: (shift_of_means(), effective_counts(psi, stats))
    )
    change /= np.sqrt(np.outer(counts, counts))
    change -= np.diag(shift**2)
    change *= limited_share(psi, change, means)
    new = psi + change
    return means + shift, lambda: positive_definite(new, np.sqrt(np.diag(new)), CORRELATION_FLOOR)


# Single precision is enough for a step that is taken only if the bound rises by it.


def correlations(psi: NDArray[np.float64]) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """The correlations of Ψ, and the products of its standard deviations."""
    unit = np.sqrt(np.diag(psi))
    scale = np.outer(unit, unit)
    return (psi / scale).astype(np.float32), scale


def wanted_change(psi: NDArray[np.float64], stats: SpikeSlabStats) -> NDArray[np.float64]:
    """How Ψ would change if all latents were active in all rows."""
    near, scale = correlations(psi)
    return scale * (near @ symmetric_product(stats.curvature * scale, near))


def effective_counts(psi: NDArray[np.float64], stats: SpikeSlabStats) -> NDArray[np.float64]:
    """Effective number of rows with evidence about z_h: it or a correlated latent was active."""
    near, scale = correlations(psi)
    said = symmetric_product(stats.information * scale, near)
    counts: NDArray[np.float64] = np.einsum("gh,gh->h", near, said, dtype=np.float64)
    return np.maximum(counts, FEWEST)


def limited_share(
    psi: NDArray[np.float64], change: NDArray[np.float64], means: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The share of a change to make, entry by entry, so that no variance moves too far at once."""
    old, wanted = np.diag(psi), np.diag(change)
    second = old + means**2
    lowest = np.minimum(old, np.maximum(old / LARGEST_CHANGE, SLAB_FLOOR * second))
    allowed = np.clip(wanted, lowest - old, LARGEST_CHANGE * second - old)
    share = np.sqrt(np.divide(allowed, wanted, out=np.ones_like(old), where=wanted != 0))
    return np.outer(share, share)


def backtrack(psi: NDArray[np.float64], change: NDArray[np.float64]) -> NDArray[np.float64]:
    """Ψ plus the largest part of the change that keeps its correlations valid.

    The bound rises all the way from Ψ to the maximiser of complete-data EM, so a part of the change
    is safe as well.
    """
    change = 0.5 * (change + change.T)
    for halving in range(HALVINGS):
        new = psi + 0.5**halving * change
        if is_positive_definite(new - CORRELATION_FLOOR * np.diag(np.diag(new))):
            return new
    return psi
