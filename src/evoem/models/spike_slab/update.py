"""M-steps of the slab of spike-and-slab coding: μ, and a diagonal or printed Ψ.

The monotone step of a full Ψ is in `full_slab`.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError

from evoem.models.linear_moments import LinearStats
from evoem.models.spike_slab.state_posterior import SLAB_FLOOR
from evoem.models.triangles import diagonal, unpack
from evoem.runtime.linalg import cholesky, eigenvectors_below, symmetric

# The authors' programs add this to Σ⟨s sᵀ⟩ before they invert it.
AUTHORS_RIDGE = 1e-5
# The printed update of a full Ψ is made positive definite with this share of the second moments.
EIGENVALUE_FLOOR = 1e-4


class SpikeSlabParams(NamedTuple):
    """Θ = (π, σ, W, μ, Ψ)."""

    components: NDArray[np.float64]
    activation_probs: NDArray[np.float64]
    noise_variance: NDArray[np.float64]
    slab_means: NDArray[np.float64]
    slab_covariance: NDArray[np.float64]


class SpikeSlabStats(NamedTuple):
    """The statistics of every linear model, and two more that are empty unless Ψ is full.

    With a full Ψ the second moments are in `pairs`, not in `linear`: values of the same pair of
    latents lie side by side, for the cache.
    """

    linear: LinearStats
    pairs: NDArray[np.float64]  # (pairs, 3), see `triangles`: information, curvature, second moment
    pull: NDArray[np.float64]  # (H,)  Σ⟨Ψ_ss⁻¹ (z_s - μ_s)⟩

    @property
    def all_linear(self) -> LinearStats:
        """The statistics of every linear model, with second moments from wherever they are."""
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
    params: SpikeSlabParams,
    stats: SpikeSlabStats,
    *,
    learn_means: bool,
    learn_covariance: bool,
    as_authors: bool = False,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """μ and Ψ as printed (eq:sssc_mstep): exact for a diagonal Ψ.

    The authors' programs learn another full Ψ, see `authors_covariance`.
    """
    sums = stats.all_linear
    means = params.slab_means
    if learn_means:
        means = slab_means(means, sums)
    if not learn_covariance:
        return means, params.slab_covariance
    if params.slab_covariance.ndim == 2 and as_authors:
        return means, authors_covariance(means, stats)
    if params.slab_covariance.ndim == 2:
        pairs = symmetric(stats.information)
        ratio = symmetric(unpack(sums.second)) / np.where(pairs > 0, pairs, 1.0)
        ratio = np.where(pairs > 0, ratio - np.outer(means, means), params.slab_covariance)
        units = np.sqrt(np.maximum(np.diag(ratio), 0.0) + means**2) + np.finfo(float).tiny
        return means, positive_definite(ratio, units, EIGENVALUE_FLOOR)
    squares = diagonal(sums.second)
    if len(sums.power):  # learnt feature by feature: the others are of complete rows
        squares = squares + sums.power
    return means, slab_variances(params.slab_covariance, means, sums, squares)


def authors_covariance(means: NDArray[np.float64], stats: SpikeSlabStats) -> NDArray[np.float64]:
    """Ψ as the authors' programs learn it.

    Sums are multiplied, entry by entry, by the matrix inverse of Σ⟨s sᵀ⟩, which leaves little
    beside the diagonal. The middle term has ⟨s⟩⟨s⊙z⟩ᵀ of each row, which makes variances larger
    where states are uncertain. The result is not symmetric; here it is made symmetric and positive
    definite.
    """
    sums, pairs = stats.all_linear, symmetric(stats.information)
    middle = means[:, None] * sums.joint
    summed = symmetric(unpack(sums.second)) + np.outer(means, means) * pairs - middle - middle.T
    psi = summed * np.linalg.inv(pairs + AUTHORS_RIDGE * np.eye(len(pairs)))
    units = np.sqrt(np.maximum(np.diag(psi), 0.0) + means**2) + np.finfo(float).tiny
    return positive_definite(psi, units, EIGENVALUE_FLOOR)


def authors_residual(sums: LinearStats, old: NDArray[np.float64]) -> float:
    """Σ y² - ⟨W_d c⟩² over observed values, with the old W."""
    # What is filled in is ⟨W_d c⟩, whose squares are in both terms.
    return float(sums.data_square) - float(np.vdot(symmetric(unpack(sums.outer)) @ old, old))


def printed_residual(
    sums: LinearStats, old: NDArray[np.float64], new: NDArray[np.float64]
) -> float:
    """Σ y² - ⟨W_d c⟩² over observed values with a new W, for the printed σ² (eq:sssc_mstep).

    In each feature missing values keep the share of ⟨W_d c⟩² that they had with the old W. That is
    exact without missing values, and where a feature's row of W changed only in scale.
    """
    outer = symmetric(unpack(sums.outer))
    explained = outer @ new
    before = np.einsum("hd,hd->d", outer @ old, old)
    after = np.einsum("hd,hd->d", explained, new)
    filled = sums.filled[0]
    missing = filled / np.where(before > 0, before, 1.0) * after
    left = float(sums.data_square) - float(np.vdot(explained, new))
    return left + float((missing - filled).sum())


def slab_means(old: NDArray[np.float64], sums: LinearStats) -> NDArray[np.float64]:
    """μ of latents that were active (eq:sssc_mstep); others keep theirs."""
    used = sums.activation > 0
    return np.where(used, sums.first / np.where(used, sums.activation, 1.0), old)


def slab_variances(
    old: NDArray[np.float64],
    means: NDArray[np.float64],
    sums: LinearStats,
    second: NDArray[np.float64],
    least: float = SLAB_FLOOR,
) -> NDArray[np.float64]:
    """The diagonal of Ψ, given μ and Σ⟨c²⟩, of latents that were active; others keep theirs.

    It stays above the `least` share of the slab's second moment.
    """
    used = sums.activation > 0
    counts = np.where(used, sums.activation, 1.0)
    variances = (second - 2 * means * sums.first) / counts + means**2
    # Between the floor and the maximiser the bound rises, as long as the old value is above it.
    floor = np.minimum(least * np.maximum(second / counts, means**2), old)
    variances = np.maximum(np.where(used, variances, old), floor)
    return np.maximum(variances, np.finfo(float).tiny)


def is_positive_definite(matrix: NDArray[np.floating]) -> bool:
    """Whether a Cholesky factor exists; it overwrites the matrix."""
    try:
        cholesky(matrix)
    except LinAlgError:
        return False
    return True


def positive_definite(
    matrix: NDArray[np.float64], units: NDArray[np.float64], floor: float
) -> NDArray[np.float64]:
    """The matrix with its eigenvalues raised to the floor, in the `units` of the latents."""
    matrix = 0.5 * (matrix + matrix.T)
    scale = np.outer(units, units)
    measured = (matrix / scale).astype(np.float32)  # floors are far above its rounding
    if is_positive_definite(measured - np.float32(floor) * np.eye(len(matrix), dtype=np.float32)):
        return matrix
    low, vectors = eigenvectors_below(measured, floor)
    return matrix + (vectors.T * (floor - low)) @ vectors * scale


def unit_second_moments(params: SpikeSlabParams) -> SpikeSlabParams:
    """An equivalent model with μ² + ψ = 1: the scale of W and z is free (subsec:verification)."""
    psi = params.slab_covariance
    scale = np.sqrt((np.diag(psi) if psi.ndim == 2 else psi) + params.slab_means**2)
    return params._replace(
        components=params.components * scale[:, None],
        slab_means=params.slab_means / scale,
        slab_covariance=psi / (np.outer(scale, scale) if psi.ndim == 2 else scale**2),
    )
