"""A prior by which subspaces resemble each other.

A latent with few observed values takes chance for a direction. The prior says that the covariance
of a latent and the noise, C_g = σ² 1 + W_gᵀ Ψ_g W_g, is like S_g, the average of them all, scaled
to the same trace: as if ν complete rows had been observed of this latent alone, with covariance S_g
about its mean,

    ν E[log N(e; 0, C_g)],    e ~ N(0, S_g).

S_g, σ² and Ψ are those of the parameters before an M-step; this is a prior of W only.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class PseudoObservations(NamedTuple):
    """Statistics of these ν rows, which are added to Σ⟨c cᵀ⟩ and Σ⟨c yᵀ⟩."""

    second: NDArray[np.float64]  # (C, most patterns): row h has those with its latent's patterns
    cross: NDArray[np.float64]  # (C, D)


def patterns_by_width(groups: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Patterns of latents that have the same number of them, (latents, patterns)."""
    sizes = np.diff(groups)
    return [groups[:-1][sizes == width][:, None] + np.arange(width) for width in np.unique(sizes)]


def within_latents(
    groups: NDArray[np.int64], blocks: NDArray[np.float64], values: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Multiply the values of patterns, one a row, by a matrix for each latent: row i of `blocks`
    has that of pattern i."""
    out = np.empty_like(values)
    for own_patterns in patterns_by_width(groups):
        out[own_patterns] = blocks[own_patterns, : own_patterns.shape[1]] @ values[own_patterns]
    return out


def average_covariance(params: Any) -> NDArray[np.float64]:
    """σ² 1 plus the covariances of latents, weighted by their probabilities."""
    shares = params.activation_probs / params.activation_probs.sum()
    weights = params.slab_covariance * np.repeat(shares, np.diff(params.groups))
    W = params.components
    noise = float(params.noise_variance) * np.eye(W.shape[1])
    average: NDArray[np.float64] = (W * weights[:, None]).T @ W + noise
    return average


def pseudo_observations(params: Any, number: float) -> PseudoObservations:
    """Statistics of this number of pseudo-observations of each latent."""
    W, psi, noise = params.components, params.slab_covariance, float(params.noise_variance)
    average = average_covariance(params)
    second = np.zeros((len(W), int(np.diff(params.groups).max())))
    cross = np.empty_like(W)
    for own_patterns in patterns_by_width(params.groups):
        own, width = W[own_patterns], own_patterns.shape[1]
        precision = (
            own @ own.transpose(0, 2, 1) / noise + np.eye(width) / psi[own_patterns][:, None]
        )
        covariance = np.linalg.inv(precision)
        estimator = covariance @ own / noise  # ⟨c⟩ = estimator @ e
        traces = (psi[own_patterns] * np.square(own).sum(2)).sum(1) + noise * W.shape[1]
        estimated = (traces / np.trace(average))[:, None, None] * (estimator @ average)
        second[own_patterns, :width] = number * (
            covariance + estimated @ estimator.transpose(0, 2, 1)
        )
        cross[own_patterns] = number * estimated
    return PseudoObservations(second, cross)
