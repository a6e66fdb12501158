"""How the slab of spike-and-slab coding is learnt: the M-steps of μ and Ψ."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError

from evoem.models.linear_statistics import LinearStats
from evoem.models.spike_slab.state_posterior import SLAB_FLOOR
from evoem.models.triangles import diagonal, unpack
from evoem.runtime.linalg import (
    eigenvectors_below,
    factorise,
    solve,
    symmetric,
    symmetric_product,
)
from evoem.runtime.threads import both

# Eigenvalues of the correlation matrix of a full Ψ that is learnt stay above this: it is then
# positive definite in single precision too.
CORRELATION_FLOOR = 1e-2
# The printed update of a full Ψ is made positive definite with this share of the second moments.
EIGENVALUE_FLOOR = 1e-4
# In one step a variance of a full Ψ falls to no less than a tenth of itself, and rises to no more
# than ten times the slab's second moment.
LARGEST_CHANGE = 10.0
# A latent heard of in fewer rows than this moves as if it had been as many.
FEWEST = 1.0
# A cautious step of a full Ψ that leads out of the allowed matrices is halved this often, then
# not taken.
HALVINGS = 6


class SpikeSlabParams(NamedTuple):
    """Θ = (π, σ, W, μ, Ψ)."""

    components: NDArray[np.float64]
    activation_probs: NDArray[np.float64]
    noise_variance: NDArray[np.float64]
    slab_means: NDArray[np.float64]
    slab_covariance: NDArray[np.float64]


class SpikeSlabStats(NamedTuple):
    """Those of every linear model, and two more for a full Ψ, else empty.

    With a full Ψ the second moments are in `pairs`, not in `linear`: what belongs to a pair of
    latents is side by side, for the cache.
    """

    linear: LinearStats
    pairs: NDArray[np.float64]  # (pairs, 3), see `triangles`: information, curvature, second moment
    pull: NDArray[np.float64]  # (H,)  Σ⟨Ψ_ss⁻¹ (z_s - μ_s)⟩

    @property
    def all_linear(self) -> LinearStats:
        """Those of every linear model, wherever they are."""
        if len(self.pairs):
            return self.linear._replace(second=self.pairs[:, 2])
        return self.linear

    @property
    def information(self) -> NDArray[np.float64]:
        """Σ⟨Ψ_ss⁻¹⟩, lower triangle; for the printed update Σ⟨s sᵀ⟩."""
        return unpack(self.pairs[:, 0])

    @property
    def curvature(self) -> NDArray[np.float64]:
        """Σ⟨Ψ_ss⁻¹ (T_s - Ψ_ss) Ψ_ss⁻¹⟩, T_s = ⟨(z_s - μ_s)(z_s - μ_s)ᵀ⟩, lower triangle."""
        return unpack(self.pairs[:, 1])


def update_slab(
    params: SpikeSlabParams, stats: SpikeSlabStats, *, learn_means: bool, learn_covariance: bool
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """μ and Ψ as printed (eq:sssc_mstep): exact for a diagonal Ψ."""
    sums = stats.all_linear
    means = params.slab_means
    if learn_means:
        means = slab_means(means, sums)
    if not learn_covariance:
        return means, params.slab_covariance
    if params.slab_covariance.ndim == 2:
        pairs = symmetric(stats.information)
        ratio = symmetric(unpack(sums.second)) / np.where(pairs > 0, pairs, 1.0)
        ratio = np.where(pairs > 0, ratio - np.outer(means, means), params.slab_covariance)
        units = np.sqrt(np.maximum(np.diag(ratio), 0.0) + means**2) + np.finfo(float).tiny
        return means, positive_definite(ratio, units, EIGENVALUE_FLOOR)
    return means, slab_variances(params.slab_covariance, means, sums, diagonal(sums.second))


def slab_means(old: NDArray[np.float64], sums: LinearStats) -> NDArray[np.float64]:
    """μ of latents that were active (eq:sssc_mstep); others keep theirs."""
    used = sums.activation > 0
    return np.where(used, sums.first / np.where(used, sums.activation, 1.0), old)


def slab_variances(
    old: NDArray[np.float64],
    means: NDArray[np.float64],
    sums: LinearStats,
    second: NDArray[np.float64],
) -> NDArray[np.float64]:
    """The diagonal of Ψ, given μ and Σ⟨c²⟩, of latents that were active; others keep theirs."""
    used = sums.activation > 0
    counts = np.where(used, sums.activation, 1.0)
    variances = (second - 2 * means * sums.first) / counts + means**2
    # Between the floor and the maximiser the bound rises, as long as the old value is above it.
    floor = np.minimum(SLAB_FLOOR * np.maximum(second / counts, means**2), old)
    variances = np.maximum(np.where(used, variances, old), floor)
    return np.maximum(variances, np.finfo(float).tiny)


def update_full_slab(
    params: SpikeSlabParams,
    stats: SpikeSlabStats,
    *,
    learn_means: bool,
    learn_covariance: bool,
    cautious: bool,
) -> tuple[NDArray[np.float64], Callable[[], NDArray[np.float64]]]:
    """A step of μ and a full Ψ up the bound: μ, and what gives Ψ, beside other work maybe.

    Cautious: inactive z_h are filled in by their conditional mean and covariance given the active
    ones (complete-data EM). That never lowers the bound, but most of what it averages is filled in,
    so it moves in proportion to activity. Else μ takes the exact step for this Ψ, and each latent's
    share of Ψ moves by what was said about it: a diagonal Ψ then takes the exact step too.
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
        factorise(information)
        return np.asarray(unit * solve(information, (unit * stats.pull)[:, None])[:, 0])

    if not learn_covariance:
        return means + shift_of_means(), lambda: psi
    if cautious:
        shift = shift_of_means()
        change = psi @ symmetric_product(stats.curvature, psi) / n_rows
        return means + shift, lambda: part_way(psi, change - np.outer(shift, shift))
    change, (shift, heard) = both(
        lambda: wanted_change(psi, stats), lambda: (shift_of_means(), rows_heard(psi, stats))
    )
    change /= np.sqrt(np.outer(heard, heard))
    change -= np.diag(shift**2)
    change *= gentle(psi, change, means)
    new = psi + change
    return means + shift, lambda: positive_definite(new, np.sqrt(np.diag(new)), CORRELATION_FLOOR)


# Single precision is enough for a step that is taken only if the bound rises by it.


def correlations(psi: NDArray[np.float64]) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """Ψ in units of its standard deviations, and the products of these."""
    unit = np.sqrt(np.diag(psi))
    scale = np.outer(unit, unit)
    return (psi / scale).astype(np.float32), scale


def wanted_change(psi: NDArray[np.float64], stats: SpikeSlabStats) -> NDArray[np.float64]:
    """How Ψ would change if all rows had spoken of all latents."""
    near, scale = correlations(psi)
    return scale * (near @ symmetric_product(stats.curvature * scale, near))


def rows_heard(psi: NDArray[np.float64], stats: SpikeSlabStats) -> NDArray[np.float64]:
    """Rows that said something about z_h: it was active in them, or others correlated with it."""
    near, scale = correlations(psi)
    said = symmetric_product(stats.information * scale, near)
    heard: NDArray[np.float64] = np.einsum("gh,gh->h", near, said, dtype=np.float64)
    return np.maximum(heard, FEWEST)


def gentle(
    psi: NDArray[np.float64], change: NDArray[np.float64], means: NDArray[np.float64]
) -> NDArray[np.float64]:
    """How much of a change to make, entry by entry, for no variance to move too far at once."""
    old, wanted = np.diag(psi), np.diag(change)
    second = old + means**2
    lowest = np.minimum(old, np.maximum(old / LARGEST_CHANGE, SLAB_FLOOR * second))
    allowed = np.clip(wanted, lowest - old, LARGEST_CHANGE * second - old)
    share = np.sqrt(np.divide(allowed, wanted, out=np.ones_like(old), where=wanted != 0))
    return np.outer(share, share)


def part_way(psi: NDArray[np.float64], change: NDArray[np.float64]) -> NDArray[np.float64]:
    """Ψ and as much of the change as keeps its correlations allowed.

    From Ψ to the maximiser of complete-data EM the bound rises all the way, so part of that way is
    safe as well.
    """
    change = 0.5 * (change + change.T)
    for halving in range(HALVINGS):
        new = psi + 0.5**halving * change
        if is_positive_definite(new - CORRELATION_FLOOR * np.diag(np.diag(new))):
            return new
    return psi


def is_positive_definite(matrix: NDArray[np.floating]) -> bool:
    """Whether a Cholesky factor exists; it overwrites the matrix."""
    try:
        factorise(matrix)
    except LinAlgError:
        return False
    return True


def positive_definite(
    matrix: NDArray[np.float64], units: NDArray[np.float64], floor: float
) -> NDArray[np.float64]:
    """The matrix with eigenvalues raised to the floor, where latents are measured in `units`."""
    matrix = 0.5 * (matrix + matrix.T)
    scale = np.outer(units, units)
    measured = (matrix / scale).astype(np.float32)  # floors are far above its rounding
    if is_positive_definite(measured - np.float32(floor) * np.eye(len(matrix), dtype=np.float32)):
        return matrix
    low, vectors = eigenvectors_below(measured, floor)
    return matrix + (vectors.T * (floor - low)) @ vectors * scale


def unit_second_moments(params: SpikeSlabParams) -> SpikeSlabParams:
    """The same model with μ² + ψ = 1: W and z have no scale (subsec:verification)."""
    psi = params.slab_covariance
    scale = np.sqrt((np.diag(psi) if psi.ndim == 2 else psi) + params.slab_means**2)
    return params._replace(
        components=params.components * scale[:, None],
        slab_means=params.slab_means / scale,
        slab_covariance=psi / (np.outer(scale, scale) if psi.ndim == 2 else scale**2),
    )
