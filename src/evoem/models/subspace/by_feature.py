"""Subspaces learnt feature by feature, from observed values only.

Where much is missing, it is slow to treat missing values as latent: the dictionary is then fitted
to values that it has filled in itself, and moves only by the observed share of the way. Here each
feature is fitted to the rows in which it was observed,

    Σ_n o_nd ⟨(y_d - Σ_g W_gdᵀ c_g)²⟩.

The minimum would need second moments of all pairs of patterns for each feature. Those of the
patterns of the same latent are enough for an upper bound that touches it at the old W: by Jensen's
inequality, in a state of k active latents,

    (r_d - Σ_g δ_gᵀ c_g)² ≤ 1/k Σ_g (r_d - k δ_gᵀ c_g)²,    δ = W - W_old,  r = y - W_old c,

so the bound of EM does not fall either. With one active latent per row it is exact.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evoem import validation
from evoem.models import by_feature, linear
from evoem.models.base import Posterior
from evoem.models.linear import Rows
from evoem.models.linear_moments import (
    NOISE_FLOORS,
    LinearStats,
    empty_stats,
    negligible_weight,
)
from evoem.models.subspace import spatial_prior
from evoem.models.subspace.kernels import most_patterns
from evoem.models.subspace.model import SubspaceModel, SubspaceParams
from evoem.models.subspace.shrinkage_prior import pseudo_observations, within_latents
from evoem.models.subspace.small_systems import (
    System,
    cholesky,
    empty_gram,
    gather_observed,
    invert,
    list_patterns,
    solve_back,
    start_row,
)
from evoem.models.subspace.spatial_prior import FieldStats
from evoem.runtime.compile import inlined, kernel
from evoem.states import active_latents


class FeatureStats(NamedTuple):
    """The statistics of every linear model, with `cross` and `data_square` of the bound above:

    Σ_d Σ_g W_gdᵀ A_gd W_gd - 2 Σ W ⊙ cross + data_square.
    """

    linear: LinearStats
    squares: NDArray[np.float64]  # (D Σ q(q+1)/2,)  A_gd, lower triangles, by latents
    own: NDArray[np.float64]  # (Σ q(q+1)/2,)  Σ⟨c_g c_gᵀ⟩, likewise
    field: FieldStats  # empty if there is none


def triangle_starts(groups: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where the lower triangles of latents start, one after the other, and the last one ends."""
    sizes = np.diff(groups)
    return np.concatenate([[0], np.cumsum(sizes * (sizes + 1) // 2)])


@inlined
def add_own_squares(groups, starts, latents, k, weight, known, system, own, triangles):
    """Add the second moments of each active latent; k times these where they are for the row."""
    u, covariance = system.u, system.local
    row = 0
    for x in range(k):
        g = latents[x]
        width = groups[g + 1] - groups[g]
        start = starts[g]
        here = triangles[known.numbers[g]]
        t = 0
        for i in range(width):
            for j in range(i + 1):
                value = weight * (covariance[row + i, row + j] + u[row + i] * u[row + j])
                own[start + t] += value
                here[t] += k * value
                t += 1
        row += width


@inlined
def add_slopes(packed, active, n, n_seen, sigma, weight, system, residual, slopes):
    """Add ⟨(y_d - W_d c) c_i⟩ of a state over what was observed."""
    u, covariance = system.u, system.local
    for i in range(n):
        own = slopes[active[i], :n_seen]
        factor = weight * u[i]
        for d in range(n_seen):
            own[d] += factor * residual[d]
        for j in range(n):
            pair = covariance[i, j] if j <= i else covariance[j, i]
            factor = weight * sigma * pair
            other = packed[active[j], :n_seen]
            for d in range(n_seen):
                own[d] -= factor * other[d]


@inlined
def solve_observed(derived, known, projections, r, latents, k, active, n, system):
    """u = M⁻¹ η of a state, and M⁻¹, over what was observed."""
    for i in range(n):
        system.eta[i] = projections[r, active[i]] + derived.shift[active[i]]
    gather_observed(known, derived.scaled, derived.groups, latents, k, system.local)
    cholesky(n, 0, system)
    solve_back(n, 0, system)
    invert(n, 0, system)


@inlined
def add_state(active, n, sigma, weight, known, system, residual, linear, scalars):
    """Add the means of a state, and subtract what it explains from `residual`, in place."""
    n_seen, u, trace = known.sizes[0], system.u, 0.0
    for i in range(n):
        linear.activation[active[i]] += weight
        linear.first[active[i]] += weight * u[i]  # eq:sssc_exp_sz
        trace += system.local[i, i]
        factor = sigma * u[i]
        for d in range(n_seen):
            residual[d] -= factor * known.packed[active[i], d]
    total = 0.0
    for d in range(n_seen):
        total += residual[d] * residual[d]
    # ⟨|y - W c|²⟩, since V Vᵀ = M - 1.
    scalars[1] += weight * (total + sigma * sigma * (n - trace))


@inlined
def add_row(groups, starts, sigma, known, triangles, slopes, explained, stats, scalars):
    """Add the sums of a row, latent by latent."""
    squares, cross = stats.squares, stats.linear.cross
    n_seen, D = known.sizes[0], cross.shape[1]
    for number in range(known.sizes[1]):
        g = known.latents[number]
        first, width = groups[g], groups[g + 1] - groups[g]
        size = width * (width + 1) // 2
        here = triangles[number]
        for d in range(n_seen):
            start = starts[g] * D + known.observed[d] * size
            line = squares[start : start + size]
            for t in range(size):
                line[t] += here[t]
        for i in range(width):
            explained[:n_seen] = 0.0
            for j in range(width):
                low, high = max(i, j), min(i, j)
                factor = sigma * here[low * (low + 1) // 2 + high]
                for d in range(n_seen):
                    explained[d] += factor * known.packed[first + j, d]
            for d in range(n_seen):
                slope = slopes[first + i, d]
                cross[first + i, known.observed[d]] += explained[d] + slope
                scalars[1] += sigma * known.packed[first + i, d] * (explained[d] + 2 * slope)


@kernel
def add_rows(
    derived, starts, sigma, rows, observed, known, posterior, negligible, stats, scalars, room
):
    """Add the statistics of rows, in rotated patterns."""
    states, weights = posterior
    groups, X, projections = derived.groups, rows.X, rows.projections
    linear, own = stats.linear, stats.own
    (C, D), G = derived.scaled.shape, len(groups) - 1
    latents, active = np.empty((2, C + 1), np.int64)
    widest = 0
    for g in range(G):
        widest = max(widest, groups[g + 1] - groups[g])
    local, N = np.empty((2, room, room))
    eta, u, inverse = np.empty(C), np.empty(C), np.empty(C)
    system = System(local, N, eta, inverse, u)
    residual, explained = np.empty(D), np.empty(D)
    triangles = np.empty((G, widest * (widest + 1) // 2))
    slopes = np.empty((C, D))
    packed, values, numbered, sizes = known.packed, known.observed, known.latents, known.sizes
    for r in range(states.shape[0]):
        start_row(known, observed, r)
        n_seen, n_numbered = sizes[0], 0
        scalars[0] += n_seen
        for m in range(states.shape[1]):
            weight = weights[r, m]
            if not weight > negligible:
                continue
            k = active_latents(states, r, m, latents)
            n = list_patterns(groups, latents, k, active)
            solve_observed(derived, known, projections, r, latents, k, active, n, system)
            for number in range(n_numbered, sizes[1]):  # in a state for the first time
                g = numbered[number]
                triangles[number] = 0.0
                slopes[groups[g] : groups[g + 1], :n_seen] = 0.0
            n_numbered = sizes[1]
            for d in range(n_seen):
                residual[d] = X[r, values[d]]
            add_state(active, n, sigma, weight, known, system, residual, linear, scalars)
            add_own_squares(groups, starts, latents, k, weight, known, system, own, triangles)
            add_slopes(packed, active, n, n_seen, sigma, weight, system, residual, slopes)
        add_row(groups, starts, sigma, known, triangles, slopes, explained, stats, scalars)


def each_latent(
    groups: NDArray[np.int64], triangles: NDArray[np.float64]
) -> Iterator[NDArray[np.float64]]:
    """Symmetric matrices of lower triangles, equally many for each latent."""
    starts = triangle_starts(groups)
    number = len(triangles) // starts[-1]
    for g, width in enumerate(np.diff(groups)):
        own = triangles[number * starts[g] : number * starts[g + 1]].reshape(number, -1)
        row, column = np.indices((width, width))
        low, high = np.maximum(row, column), np.minimum(row, column)
        yield own[:, low * (low + 1) // 2 + high]


def rotate_triangles(
    groups: NDArray[np.int64], back: NDArray[np.float64], triangles: NDArray[np.float64]
) -> None:
    """Second moments from rotated patterns to those of the parameters, in place."""
    turned = []
    for g, matrices in enumerate(each_latent(groups, triangles)):
        width = matrices.shape[1]
        own = back[groups[g] : groups[g + 1], :width]
        lower = np.tril_indices(width)
        turned.append((own @ matrices @ own.T)[:, *lower].ravel())
    triangles[:] = np.concatenate(turned)


class SubspacesByFeature(SubspaceModel):
    """Subspaces whose dictionary is learnt from observed values only.

    Parameters
    ----------
    rank : int
        Largest number of patterns of a latent, besides its mean.
    prior_rows : float
        Strength of the prior by which latents resemble each other, in rows, see `shrinkage_prior`.
        M-steps then raise the sum of bound and log-prior.
    """

    def __init__(
        self, rank: int = 2, prior_rows: float = 0.0, least_noise_variance: float = 0.0
    ) -> None:
        super().__init__(rank, least_noise_variance)
        self.prior_rows = validation.real("prior_rows", prior_rows, 0.0)

    def empty_statistics(self, params: SubspaceParams) -> Any:
        D, G = params.components.shape[1], len(params.activation_probs)
        size = triangle_starts(params.groups)[-1]
        return FeatureStats(
            empty_stats(params.components)._replace(second=np.zeros(0)),
            np.zeros(size * D),
            np.zeros(size),
            spatial_prior.empty_statistics(params.field, G),
        )

    def accumulate(
        self, stats: Any, params: Any, derived: Any, rows: Rows, posterior: Posterior
    ) -> None:
        observed = rows.observed
        if observed is None:
            observed = np.ones(rows.X.shape, np.bool_)
        sums, scalars = stats.linear, np.zeros(2)
        negligible = negligible_weight(derived.scaled.dtype)
        room = int(most_patterns(derived.groups, posterior, negligible))
        plain, some, _ = self._records(derived, rows._replace(observed=None))
        add_rows(
            plain, triangle_starts(derived.groups), np.sqrt(derived.noise_variance), some, observed,
            empty_gram(derived.scaled, derived.groups, observed), posterior, negligible, stats,
            scalars, room,
        )  # fmt: skip
        square = np.square(rows.X, dtype=np.float64).sum()
        sums.n_rows[...] += len(rows.X)
        sums.n_observed[...] += scalars[0]
        sums.data_square[...] += scalars[1]
        sums.floor[...] += NOISE_FLOORS[rows.X.dtype] * square
        spatial_prior.add(stats.field, rows.sites, *posterior, negligible)

    def finish_statistics(self, derived: Any, stats: Any) -> tuple[Any, Any]:
        rotate_triangles(derived.groups, derived.back, stats.squares)
        rotate_triangles(derived.groups, derived.back, stats.own)
        self.rotate_sums(derived, stats)
        return stats, stats

    def new_dictionary(
        self, params: SubspaceParams, stats: Any
    ) -> tuple[NDArray[np.float64], float]:
        sums, W, groups = stats.linear, params.components, params.groups
        prior = pseudo_observations(params, self.prior_rows)
        wanted = sums.cross + prior.cross
        new, pulled = np.empty_like(W), np.empty_like(W)
        weakest = by_feature.least_pull(float(sums.activation.mean()) + self.prior_rows)
        for g, squares in enumerate(each_latent(groups, stats.squares)):
            own, width = slice(groups[g], groups[g + 1]), groups[g + 1] - groups[g]
            systems = squares + prior.second[own, :width]
            new[own], pulled[own] = by_feature.solve_features(systems, wanted[own], W[own], weakest)
        pulled += prior.cross - within_latents(groups, prior.second, new)
        old, least = float(params.noise_variance), self.least_noise_variance
        return new, linear.noise_left(sums, new, pulled, old, least)

    def sums_of_squares(self, params: SubspaceParams, stats: Any) -> NDArray[np.float64]:
        return np.concatenate(
            [np.diag(matrix) for (matrix,) in each_latent(params.groups, stats.own)]
        )
