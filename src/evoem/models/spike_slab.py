"""Spike-and-slab sparse coding (eqs. 10, 11): y ~ N(W (s⊙z), σ² 1), z ~ N(μ, Ψ).

| paper | here |
| --- | --- |
| W (D×H) | `components` (H, D) |
| π | `activation_probs` (H,) |
| σ² | `noise_variance` |
| μ | `slab_means` (H,) |
| Ψ | `slab_covariance` (H, H) if full, else its diagonal (H,) |

With Ψ_ss = R d Rᵀ, d diagonal, the slab of the active latents is z = R u, u ~ N(t, d), t = R⁻¹ μ_s,
and everything follows from one k×k system (k active latents), whatever D is:

    M = d⁻¹ + Rᵀ (W_sᵀ W_s / σ²) R,    η = Rᵀ W_sᵀ y / σ² + d⁻¹ t,
    log p(s, y) = … - ½ log|M d| + ½ ηᵀ M⁻¹ η - ½ tᵀ d⁻¹ t,    u | s, y ~ N(M⁻¹ η, M⁻¹).

For a diagonal Ψ, R = √ψ goes into the dictionary, V = W √ψ / σ, and d = 1; M is then never nearly
singular, also as Ψ vanishes.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy import linalg

from evoem.compile import inlined_in_order, kernel
from evoem.models import linear
from evoem.models.base import Mask, Posterior, Prior
from evoem.models.linear import LinearModel, LinearStats, Moments, Rows
from evoem.states import Population, active_latents

# Slab variances, and eigenvalues of a full Ψ, stay above these shares of the slab's second moment;
# the latter so far that Ψ is positive definite in single precision too.
SLAB_FLOOR = 1e-8
EIGENVALUE_FLOOR = 1e-5
# A fast step of a full Ψ is to leave this share of each variance unexplained by the others. It is
# tried with growing caution: a pair of latents counts as seen together `prior` times more, then all
# covariances shrink.
MARGIN = 0.05
CAUTION = ((3.0, 1.0), (10.0, 1.0), (30.0, 1.0), (100.0, 1.0), (100.0, 0.9), (100.0, 0.7),
           (100.0, 0.4), (100.0, 0.0))  # fmt: skip
# The product of pivots is turned into a logarithm before it can overflow.
LARGE = 1e200


class SpikeSlabParams(NamedTuple):
    """Θ = (π, σ, W, μ, Ψ)."""

    components: NDArray[np.float64]
    activation_probs: NDArray[np.float64]
    noise_variance: NDArray[np.float64]
    slab_means: NDArray[np.float64]
    slab_covariance: NDArray[np.float64]


class Derived(NamedTuple):
    """The scaled dictionary V, its Gram matrix, and what each active latent adds."""

    scaled: NDArray[np.floating]  # W √ψ / σ, or W / σ with a full Ψ
    projector: NDArray[np.floating]  # V / σ
    gram: NDArray[np.floating]  # V Vᵀ
    bias: NDArray[np.float64]  # log-odds, less t²/2 with a diagonal Ψ
    shift: NDArray[np.float64]  # t = μ/√ψ with a diagonal Ψ, μ with a full one
    spread: NDArray[np.float64]  # √ψ (H,), unused with a full Ψ
    tables: NDArray[np.floating] | None  # (H, H, 2): with a full Ψ, V Vᵀ and Ψ side by side
    noise_variance: float
    log_prior: float
    expected_active: float


class SpikeSlabStats(NamedTuple):
    """Those of every linear model, and two more for a full Ψ, else empty.

    With a full Ψ the second moments are in `pairs`, not in `linear`: what belongs to a pair of
    latents is side by side, for the cache.
    """

    linear: LinearStats
    pairs: NDArray[np.float64]  # (H, H, 3), lower triangles: coactivation, curvature, second moment
    pull: NDArray[np.float64]  # (H,)  Σ⟨Ψ_ss⁻¹ (z_s - μ_s)⟩

    @property
    def coactivation(self) -> NDArray[np.float64]:
        """Σ⟨s sᵀ⟩."""
        return linear.symmetric(self.pairs[:, :, 0])

    @property
    def curvature(self) -> NDArray[np.float64]:
        """Σ⟨Ψ_ss⁻¹ (T_s - Ψ_ss) Ψ_ss⁻¹⟩, T_s = ⟨(z_s - μ_s)(z_s - μ_s)ᵀ⟩."""
        return linear.symmetric(self.pairs[:, :, 1])


# Matrices of the k active latents are flat, k×k, so that they stay together in the cache.


@inlined_in_order
def whiten(covariance, means, active, k, local, eta, R, t, variances, precisions):
    """With a full Ψ: R and d of Ψ_ss = R diag(d) Rᵀ, t = R⁻¹ μ_s; then d⁻¹ + Rᵀ G R less one over
    `local` = G, and Rᵀ p + d⁻¹ t over `eta` = p. Returns -½ tᵀ d⁻¹ t.

    `covariance` = Ψ_ss, flat; of it and of G the lower triangle is used.

    R is lower triangular with ones on its diagonal; above it stand the columns times d. `variances`
    = d, `precisions` = 1/d.
    """
    square = 0.0
    for i in range(k):
        pivot = covariance[i * k + i]
        shift = means[active[i]]
        for j in range(i):
            total = covariance[i * k + j]
            for p in range(j):
                total -= R[p * k + i] * R[j * k + p]
            R[j * k + i] = total
            total *= precisions[j]
            R[i * k + j] = total
            pivot -= total * R[j * k + i]
            shift -= total * t[j]
            local[j * k + i] = local[i * k + j]
        R[i * k + i] = 1.0
        pivot = max(pivot, SLAB_FLOOR * covariance[i * k + i])  # below that by rounding alone
        variances[i] = pivot
        precisions[i] = 1.0 / pivot
        t[i] = shift
        square += shift * shift * precisions[i]
    for i in range(k):  # G R, in place: column j needs the columns from j on
        for j in range(k):
            total = local[i * k + j]
            for p in range(j + 1, k):
                total += local[i * k + p] * R[p * k + j]
            local[i * k + j] = total
    for i in range(k):  # Rᵀ (G R), in place: row i needs the rows from i on
        for j in range(i + 1):
            total = local[i * k + j]
            for p in range(i + 1, k):
                total += R[p * k + i] * local[p * k + j]
            local[i * k + j] = total
        local[i * k + i] += precisions[i] - 1.0
        total = eta[i] + t[i] * precisions[i]
        for p in range(i + 1, k):
            total += R[p * k + i] * eta[p]
        eta[i] = total
    return -0.5 * square


@inlined_in_order
def factorise(local, eta, k, L, inverse, v, variances):
    """L and d of M = 1 + `local` = L diag(d) Lᵀ, v = L⁻¹ η; ½ ηᵀ M⁻¹ η - ½ log|M diag(variances)|.

    L has ones on its diagonal, which is not stored; `inverse` = 1/d. `local` is overwritten.
    """
    value = 0.0
    determinant = 1.0
    for i in range(k):
        pivot = 1.0 + local[i * k + i]
        z = eta[i]
        for j in range(i):
            total = local[i * k + j]
            for p in range(j):
                total -= local[i * k + p] * L[j * k + p]
            local[i * k + j] = total  # L[i, j] d[j]
            L[i * k + j] = total * inverse[j]
            pivot -= total * L[i * k + j]
            z -= L[i * k + j] * v[j]
        if pivot * variances[i] < 1.0:  # by rounding alone: M d is one plus a positive matrix
            pivot = 1.0 / variances[i]
        determinant *= pivot * variances[i]
        if determinant > LARGE:
            value -= 0.5 * np.log(determinant)
            determinant = 1.0
        inverse[i] = 1.0 / pivot
        v[i] = z
        value += 0.5 * z * z * inverse[i]
    return value - 0.5 * np.log(determinant)


@inlined_in_order
def invert_unit_triangle(L, k, N):
    """N = L⁻¹ of a lower triangle with ones on its diagonal, which is stored in N alone."""
    for j in range(k):
        N[j * k + j] = 1.0
        for i in range(j + 1, k):
            total = -L[i * k + j]
            for p in range(j + 1, i):
                total -= L[i * k + p] * N[p * k + j]
            N[i * k + j] = total


@inlined_in_order
def invert(L, inverse, v, k, N, u):
    """N = L⁻¹, ones on its diagonal included, and u = M⁻¹ η = Nᵀ d⁻¹ v."""
    invert_unit_triangle(L, k, N)
    for j in range(k):
        total = 0.0
        for p in range(j, k):
            total += N[p * k + j] * v[p] * inverse[p]
        u[j] = total


@inlined_in_order
def covariance_of(N, inverse, k, out):
    """M⁻¹ = Nᵀ d⁻¹ N, both triangles."""
    for i in range(k):
        for j in range(i + 1):
            total = 0.0
            for p in range(i, k):
                total += N[p * k + i] * N[p * k + j] * inverse[p]
            out[i * k + j] = total
            out[j * k + i] = total


@inlined_in_order
def add_outer(u, k, out):
    """Add u uᵀ."""
    for i in range(k):
        for j in range(k):
            out[i * k + j] += u[i] * u[j]


@inlined_in_order
def slab_gradients(local, u, R, t, variances, precisions, k, N, Q, gradient):
    """The terms of the gradients of a full Ψ and of μ, from u's mean and covariance `local` = M⁻¹:

        gradient = Ψ_ss⁻¹ ⟨z - μ⟩ = R⁻ᵀ d⁻¹ (u - t),
        Q = Ψ_ss⁻¹ ⟨(z - μ)(z - μ)ᵀ - Ψ_ss⟩ Ψ_ss⁻¹ = R⁻ᵀ d⁻¹ (M⁻¹ + (u - t)(u - t)ᵀ - d) d⁻¹ R⁻¹.

    Written so, nothing large cancels. N is overwritten by R⁻¹.
    """
    invert_unit_triangle(R, k, N)
    for i in range(k):
        for j in range(k):
            total = local[i * k + j] + (u[i] - t[i]) * (u[j] - t[j])
            if i == j:
                total -= variances[i]
            Q[i * k + j] = total * precisions[i] * precisions[j]
    for j in range(k):  # R⁻ᵀ (…), in place: row i needs the rows from i on
        for i in range(k):
            total = Q[i * k + j]
            for p in range(i + 1, k):
                total += N[p * k + i] * Q[p * k + j]
            Q[i * k + j] = total
    for i in range(k):
        for j in range(k):  # (…) R⁻¹, in place: column j needs the columns from j on
            total = Q[i * k + j]
            for p in range(j + 1, k):
                total += Q[i * k + p] * N[p * k + j]
            Q[i * k + j] = total
        total = (u[i] - t[i]) * precisions[i]
        for p in range(i + 1, k):
            total += N[p * k + i] * (u[p] - t[p]) * precisions[p]
        gradient[i] = total


@inlined_in_order
def transform_full(local, u, R, k):
    """From u to z = R u: ⟨u uᵀ⟩ to ⟨z zᵀ⟩ = R ⟨u uᵀ⟩ Rᵀ and ⟨u⟩ to ⟨z⟩, in place."""
    for j in range(k):  # R ⟨u uᵀ⟩: row i needs the rows up to i
        for i in range(k - 1, -1, -1):
            total = local[i * k + j]
            for p in range(i):
                total += R[i * k + p] * local[p * k + j]
            local[i * k + j] = total
    for i in range(k - 1, -1, -1):
        for j in range(k - 1, -1, -1):  # (…) Rᵀ: column j needs the columns up to j
            total = local[i * k + j]
            for p in range(j):
                total += local[i * k + p] * R[j * k + p]
            local[i * k + j] = total
        total = u[i]
        for p in range(i):
            total += R[i * k + p] * u[p]
        u[i] = total


@inlined_in_order
def gather_both(tables, active, k, local, covariance):
    """G and Ψ of the active latents, all at once: most of the time goes into waiting for memory."""
    for i in range(k):
        h = active[i]
        for j in range(i + 1):
            local[i * k + j] = tables[h, active[j], 0]
            covariance[i * k + j] = tables[h, active[j], 1]


# `observed` and `tables` are None where nothing is missing and Ψ is diagonal; the compiler then
# leaves out what they would need.


@kernel
def _log_joints(
    V, gram, bias, shift, tables, projections, base, complete, observed,
    states, out, starts, stops,
):  # fmt: skip
    H, D = V.shape
    active = np.empty(H + 1, np.int64)
    room = 16  # active latents there is room for; most states have few
    local, L = np.empty(room**2), np.empty(room**2)
    eta, v, inverse, variances = np.empty(H), np.empty(H), np.empty(H), np.ones(H)
    if tables is not None:
        R, covariance = np.empty(room**2), np.empty(room**2)
        t, precisions = np.empty(H), np.empty(H)
    if observed is not None:
        slots = np.full(H, -1)
        members = np.empty(H, np.int64)
        n_members = 0
        known = np.empty(H * (H + 1) // 2)
        seen = np.empty(D, V.dtype)
    for r in range(states.shape[0]):
        if observed is not None:
            for d in range(D):
                seen[d] = observed[r, d]
            n_members = linear.reset_observed_gram(slots, members, n_members)
        for m in range(starts[r], stops[r]):
            k = active_latents(states, r, m, active)
            if k > room:
                room = min(2 * k, H)
                local, L = np.empty(room**2), np.empty(room**2)
                if tables is not None:
                    R, covariance = np.empty(room**2), np.empty(room**2)
            value = base[r]
            for i in range(k):
                value += bias[active[i]]
                eta[i] = projections[r, active[i]]
            if tables is not None:
                gather_both(tables, active, k, local, covariance)
            elif observed is None or complete[r]:
                linear.gather(gram, active, k, local)
            if observed is not None and not complete[r]:
                n_members = linear.fill_observed_gram(
                    V, seen, active, k, slots, members, n_members, known, local
                )
            if tables is not None:
                value += whiten(
                    covariance, shift, active, k, local, eta, R, t, variances, precisions
                )
            else:
                for i in range(k):
                    eta[i] += shift[active[i]]
            out[r, m] = value + factorise(local, eta, k, L, inverse, v, variances)


@kernel
def _moments(
    V, gram, shift, spread, tables, projections, complete, observed,
    offsets, squares, members, activation, first, second, states, weights, negligible,
    sum_second, pairs, pull,
):  # fmt: skip
    H, D = V.shape
    active = np.empty(H + 1, np.int64)
    places = np.empty(H, np.int64)
    room = 16  # active latents there is room for; most states have few
    local, L, N = np.empty(room**2), np.empty(room**2), np.empty(room**2)
    eta, v, u = np.empty(H), np.empty(H), np.empty(H)
    inverse, variances = np.empty(H), np.ones(H)
    if tables is not None:
        R, Q, covariance = np.empty(room**2), np.empty(room**2), np.empty(room**2)
        t, precisions = np.empty(H), np.empty(H)
    if observed is not None:
        slots = np.full(H, -1)
        met = np.empty(H, np.int64)
        n_met = 0
        known = np.empty(H * (H + 1) // 2)
        seen = np.empty(D, V.dtype)
    for r in range(states.shape[0]):
        begin, matrix = offsets[r], squares[r]
        n = offsets[r + 1] - begin
        keep = squares[r + 1] > matrix
        for i in range(n):
            places[members[begin + i]] = i
        if observed is not None:
            for d in range(D):
                seen[d] = observed[r, d]
            n_met = linear.reset_observed_gram(slots, met, n_met)
        for m in range(states.shape[1]):
            weight = weights[r, m]
            if not weight > negligible:
                continue
            k = active_latents(states, r, m, active)
            if k > room:
                room = min(2 * k, H)
                local, L, N = np.empty(room**2), np.empty(room**2), np.empty(room**2)
                if tables is not None:
                    R, Q, covariance = np.empty(room**2), np.empty(room**2), np.empty(room**2)
            for i in range(k):
                eta[i] = projections[r, active[i]]
            if tables is not None:
                gather_both(tables, active, k, local, covariance)
            elif observed is None or complete[r]:
                linear.gather(gram, active, k, local)
            if observed is not None and not complete[r]:
                n_met = linear.fill_observed_gram(
                    V, seen, active, k, slots, met, n_met, known, local
                )
            if tables is not None:
                whiten(covariance, shift, active, k, local, eta, R, t, variances, precisions)
            else:
                for i in range(k):
                    eta[i] += shift[active[i]]
            factorise(local, eta, k, L, inverse, v, variances)
            invert(L, inverse, v, k, N, u)
            covariance_of(N, inverse, k, local)
            if tables is not None:
                slab_gradients(local, u, R, t, variances, precisions, k, N, Q, eta)
            add_outer(u, k, local)
            if tables is not None:
                transform_full(local, u, R, k)
            else:
                for i in range(k):  # z = √ψ u
                    u[i] *= spread[active[i]]
                    for j in range(i + 1):
                        local[i * k + j] *= spread[active[i]] * spread[active[j]]
            for i in range(k):
                h = active[i]
                activation[begin + places[h]] += weight
                first[begin + places[h]] += weight * u[i]  # eq. 46
                for j in range(i + 1):  # eq. 47
                    value = weight * local[i * k + j]
                    if keep:
                        second[matrix + places[h] * n + places[active[j]]] += value
                    else:
                        sum_second[h, active[j]] += value
            if tables is not None:
                for i in range(k * (len(pull) > 0)):  # `pull` is empty where no sums are wanted
                    h = active[i]
                    pull[h] += weight * eta[i]
                    for j in range(i + 1):
                        pairs[h, active[j], 0] += weight
                        pairs[h, active[j], 1] += weight * Q[i * k + j]


class SpikeSlabModel(LinearModel):
    """Spike-and-slab sparse coding behind the model contract.

    Parameters
    ----------
    slab : {"diagonal", "full", "fixed"}
        Ψ is learnt as a diagonal or a full matrix, or stays as it is.
    learn_slab_means : bool
        Whether μ is learnt.
    init : {"mean", "data"}
        Initial dictionary, see `LinearModel`.
    updates : {"monotone", "printed"}
        M-steps that never lower the bound, or those printed in appendix D: σ² from squared means
        instead of second moments, and a full Ψ as an element-wise ratio, made positive definite.
    """

    def __init__(
        self,
        slab: str = "diagonal",
        learn_slab_means: bool = True,
        init: str = "mean",
        updates: str = "monotone",
    ) -> None:
        super().__init__(init, updates)
        self.slab = slab
        self.learn_slab_means = learn_slab_means

    def prepare(self, params: SpikeSlabParams, dtype: DTypeLike) -> Derived:
        pi, psi = params.activation_probs, params.slab_covariance
        sigma = np.sqrt(params.noise_variance)
        scaled = params.components / sigma
        logits = np.log(pi / (1 - pi))
        if psi.ndim == 2:
            bias, shift, spread = logits, params.slab_means, np.empty(0)
        else:
            spread = np.sqrt(psi)
            shift = params.slab_means / spread
            bias = logits - 0.5 * shift**2
            scaled = scaled * spread[:, None]
        gram = (scaled @ scaled.T).astype(dtype)
        return Derived(
            scaled.astype(dtype),
            (scaled / sigma).astype(dtype),
            gram,
            bias,
            shift,
            spread,
            np.stack([gram, psi.astype(dtype)], axis=-1) if psi.ndim == 2 else None,
            float(params.noise_variance),
            float(np.log1p(-pi).sum()),
            float(pi.sum()),
        )

    def constant_variance(self, derived: Derived) -> float:
        return 1.0  # appendix A counts log σ² to log|C_s|, not to C(Θ)

    def log_joints(self, derived: Derived, rows: Rows, population: Population) -> None:
        _log_joints(
            derived.scaled,
            derived.gram,
            derived.bias,
            derived.shift,
            derived.tables,
            rows.projections,
            rows.base,
            rows.complete,
            rows.observed,
            *population,
        )

    def fill_moments(
        self,
        derived: Derived,
        rows: Rows,
        posterior: Posterior,
        moments: Moments,
        stats: SpikeSlabStats | None,
    ) -> None:
        if stats is None:
            sums: tuple[Any, ...] = np.empty((0, 0)), np.empty((0, 0, 3)), np.empty(0)
        else:
            sums = self.linear_part(stats).second, *stats[1:]
        _moments(
            derived.scaled,
            derived.gram,
            derived.shift,
            derived.spread,
            derived.tables,
            rows.projections,
            rows.complete,
            rows.observed,
            *moments,
            *posterior,
            linear.negligible_weight(derived.scaled.dtype),
            *sums,
        )

    def empty_statistics(self, params: SpikeSlabParams) -> SpikeSlabStats:
        sums = linear.empty_stats(params.components, self.printed)
        size = len(params.components) if params.slab_covariance.ndim == 2 else 0
        if size:
            sums = sums._replace(second=np.zeros((0, 0)))
        return SpikeSlabStats(sums, np.zeros((size, size, 3)), np.zeros(size))

    def linear_part(self, stats: SpikeSlabStats) -> LinearStats:
        if len(stats.pairs):
            return stats.linear._replace(second=stats.pairs[:, :, 2])
        return stats.linear

    def update(self, params: SpikeSlabParams, stats: SpikeSlabStats) -> SpikeSlabParams:
        return self._update(params, stats, cautious=False)

    @property
    def guarded(self) -> bool:
        return self.slab == "full" and not self.printed

    def fallback_update(self, params: SpikeSlabParams, stats: SpikeSlabStats) -> SpikeSlabParams:
        return self._update(params, stats, cautious=True)

    def _update(
        self, params: SpikeSlabParams, stats: SpikeSlabStats, cautious: bool
    ) -> SpikeSlabParams:
        sums = self.linear_part(stats)
        components, noise = linear.update_dictionary(sums, params.components)
        if self.printed:
            outer = linear.symmetric(sums.outer)
            explained = float(np.vdot(outer @ components, components))
            noise = linear.noise_variance(sums, float(sums.data_square) - explained)
        pi = linear.clip_probabilities(sums.activation / sums.n_rows)  # appendix D: π
        if params.slab_covariance.ndim == 2 and not self.printed:
            means, covariance = update_full_slab(params, stats, self, cautious)
        else:
            means, covariance = update_slab(params, stats, self)
        return SpikeSlabParams(components, pi, np.array(noise), means, covariance)

    def canonical(self, params: SpikeSlabParams) -> SpikeSlabParams:
        if self.slab != "fixed" and self.learn_slab_means:
            return unit_second_moments(params)
        return params

    def prior(self, params: SpikeSlabParams) -> Prior:
        pi, mu, psi, W = (params.activation_probs, params.slab_means, params.slab_covariance,
                          params.components)  # fmt: skip
        means = pi * mu
        full = psi if psi.ndim == 2 else np.diag(psi)
        covariance = np.outer(pi, pi) * full
        np.fill_diagonal(covariance, pi * (np.diag(full) + mu**2) - means**2)
        return Prior(means, means @ W, np.einsum("gd,gh,hd->d", W, covariance, W, optimize=True))

    def initialize(
        self, X: NDArray[np.floating], observed: Mask, n_latents: int, rng: np.random.Generator
    ) -> SpikeSlabParams:
        components, variance = self.initial_dictionary(X, observed, n_latents, rng)
        pi = rng.uniform(0.1, 0.5, n_latents)
        means = rng.uniform(1.0, 5.0, n_latents)
        if not self.learn_slab_means:
            means = np.ones(n_latents)  # section 4.3
        covariance = np.eye(n_latents) if self.slab == "full" else np.ones(n_latents)
        return SpikeSlabParams(components, pi, np.array(variance), means, covariance)

    def sample(
        self, params: SpikeSlabParams, n: int, rng: np.random.Generator
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        H = len(params.components)
        states = rng.random((n, H)) < params.activation_probs
        normal = rng.standard_normal((n, H))
        if params.slab_covariance.ndim == 2:
            slab = normal @ linalg.cholesky(params.slab_covariance, lower=True).T
        else:
            slab = normal * np.sqrt(params.slab_covariance)
        return linear.observe(states * (params.slab_means + slab), params, rng), states


def update_slab(
    params: SpikeSlabParams, stats: SpikeSlabStats, model: SpikeSlabModel
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """μ and Ψ as printed in appendix D: exact for a diagonal Ψ."""
    sums = model.linear_part(stats)
    used = sums.activation > 0
    counts = np.where(used, sums.activation, 1.0)
    means = params.slab_means
    if model.learn_slab_means:
        means = np.where(used, sums.first / counts, means)
    if model.slab == "fixed":
        return means, params.slab_covariance
    if params.slab_covariance.ndim == 2:
        pairs = stats.coactivation
        ratio = linear.symmetric(sums.second) / np.where(pairs > 0, pairs, 1.0)
        ratio = np.where(pairs > 0, ratio - np.outer(means, means), params.slab_covariance)
        return means, positive_definite(ratio, means)
    second = np.diag(sums.second)
    variances = (second - 2 * means * sums.first) / counts + means**2
    # Between the floor and the maximiser the bound rises, as long as the old value is above it.
    floor = np.minimum(SLAB_FLOOR * np.maximum(second / counts, means**2), params.slab_covariance)
    variances = np.maximum(np.where(used, variances, params.slab_covariance), floor)
    return means, np.maximum(variances, np.finfo(float).tiny)


def update_full_slab(
    params: SpikeSlabParams, stats: SpikeSlabStats, model: SpikeSlabModel, cautious: bool
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """A step of μ and a full Ψ up the bound.

    Cautious: inactive z_h are filled in by their conditional mean and covariance given the active
    ones (complete-data EM), which never lowers the bound but moves in proportion to activity. Else
    that step is divided, entry by entry, by how often it had a say; a diagonal Ψ then takes the
    exact step. Pairs of latents that are seldom active together would move too far by that, so it
    is taken with as little CAUTION as keeps Ψ well inside the positive definite matrices.
    """
    sums = model.linear_part(stats)
    psi, n = params.slab_covariance, float(sums.n_rows)
    step = psi @ stats.curvature @ psi
    shift = psi @ stats.pull if model.learn_slab_means else np.zeros(len(psi))
    if cautious:
        # The bound rises all the way from Ψ to the maximiser, so going part of it is safe as well.
        means = params.slab_means + shift / n
        change = step / n - np.outer(shift, shift) / n**2
        scale = np.sqrt(np.diag(psi) + params.slab_means**2)
        floor = EIGENVALUE_FLOOR * np.diag(scale**2)
        while not is_positive_definite(psi + change - floor) and np.abs(change).max() > 0:
            change *= 0.5
            change[np.abs(change) < np.finfo(float).tiny] = 0.0
        return means, psi + 0.5 * (change + change.T)
    shift = shift / np.maximum(sums.activation, 1.0)
    means = params.slab_means + shift
    if model.slab == "fixed":
        return means, psi
    counts = stats.coactivation
    step -= counts * np.outer(shift, shift)
    exact = np.diag(psi) + np.diag(step) / np.maximum(np.diag(counts), 1.0)
    variances = np.diag(np.maximum(exact, SLAB_FLOOR * np.diag(psi)))
    for prior, shrinkage in CAUTION:
        covariances = psi + step / (counts + prior)
        np.fill_diagonal(covariances, 0.0)
        new = variances + shrinkage * covariances
        if is_positive_definite(new - MARGIN * variances):
            break
    return means, 0.5 * (new + new.T)


def is_positive_definite(matrix: NDArray[np.float64]) -> bool:
    """Whether a Cholesky factor exists."""
    try:
        linalg.cholesky(matrix, lower=True, check_finite=False)
    except linalg.LinAlgError:
        return False
    return True


def positive_definite(
    matrix: NDArray[np.float64], means: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The matrix with eigenvalues raised to the floor, in units of the slab's second moments."""
    matrix = 0.5 * (matrix + matrix.T)
    scale = np.sqrt(np.maximum(np.diag(matrix), 0.0) + means**2) + np.finfo(float).tiny
    units = np.outer(scale, scale)
    if is_positive_definite(matrix - EIGENVALUE_FLOOR * np.diag(scale**2)):
        return matrix
    values, vectors = linalg.eigh(matrix / units)
    return (vectors * np.maximum(values, EIGENVALUE_FLOOR)) @ vectors.T * units


def unit_second_moments(params: SpikeSlabParams) -> SpikeSlabParams:
    """The same model with μ² + ψ = 1: the scale of W and z is not identified (section 3.2)."""
    psi = params.slab_covariance
    scale = np.sqrt((np.diag(psi) if psi.ndim == 2 else psi) + params.slab_means**2)
    return params._replace(
        components=params.components * scale[:, None],
        slab_means=params.slab_means / scale,
        slab_covariance=psi / (np.outer(scale, scale) if psi.ndim == 2 else scale**2),
    )
