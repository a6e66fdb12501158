"""Spike-and-slab sparse coding (eq:sssc_gen_model_prior): y ~ N(W (s⊙z), σ² 1), z ~ N(μ, Ψ).

| paper | here |
| --- | --- |
| W (D×H) | `components` (H, D) |
| π | `activation_probs` (H,) |
| σ² | `noise_variance` |
| μ | `slab_means` (H,) |
| Ψ | `slab_covariance` (H, H) if full, else its diagonal (H,) |

How the slab of a state is integrated out stands in `slab_posterior`, how μ and Ψ are learnt in
`slab_update`.
"""

from collections.abc import Generator, Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy import linalg

from evoem import validation
from evoem.models import linear
from evoem.models.base import Posterior, Prior
from evoem.models.linear import Guide, LinearModel, Moments, Rows
from evoem.models.linear_statistics import LinearStats, count, empty_stats
from evoem.models.spike_slab.complete_rows import add_complete_rows
from evoem.models.spike_slab.state_posterior import add_few, expect, solve, value_of_few
from evoem.models.spike_slab.update import (
    SpikeSlabParams,
    SpikeSlabStats,
    unit_second_moments,
    update_full_slab,
    update_slab,
)
from evoem.models.triangles import diagonal, n_pairs, pack, row_start, unpack
from evoem.ranking import GROUPS, empty_ranks
from evoem.runtime.compile import YES, ZERO, inlined, kernel
from evoem.runtime.linalg import square, symmetric
from evoem.runtime.threads import both
from evoem.states import Genomes, Population, active_latents
from evoem.validation import Mask

# Slab variance with which learning starts for latents that look like data points, their means
# being one; it is one for others.
EXAMPLE_SPREAD = 0.02


class Derived(NamedTuple):
    """The scaled dictionary V, its Gram matrix, and what each active latent adds."""

    scaled: NDArray[np.floating]  # W √ψ / σ, or W / σ with a full Ψ
    projector: NDArray[np.floating]  # V / σ
    gram: NDArray[np.floating]  # V Vᵀ
    bias: NDArray[np.float64]  # log-odds, less t²/2 with a diagonal Ψ
    shift: NDArray[np.float64]  # t = μ/√ψ with a diagonal Ψ, μ with a full one
    spread: NDArray[np.float64]  # √ψ (H,), unused with a full Ψ
    products: NDArray[np.floating]  # V Vᵀ once more, see `triangles`
    tables: NDArray[np.floating] | None  # (pairs, 2): with a full Ψ, V Vᵀ and Ψ side by side
    noise_variance: float
    log_prior: float
    n_latents: int
    expected_active: float


def own_slabs(derived: Derived) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and variance of each latent's own slab, in the units of V."""
    if derived.tables is None:
        return derived.shift, np.ones_like(derived.shift)
    return derived.shift, diagonal(derived.tables[:, 1].astype(np.float64))


# `observed` and `tables` are None where nothing is missing and Ψ is diagonal; the compiler then
# leaves out what they would need.


@kernel
def _log_joints(
    V, products, bias, shift, tables, projections, base, complete, observed,
    states, out, starts, stops,
):  # fmt: skip
    H, D = V.shape
    active = np.empty(H + 1, np.int64)
    room = 16  # active latents there is room for; most states have few
    local, L = np.empty(room**2), np.empty(room**2)
    eta, v, inverse, variances = np.empty(H), np.empty(H), np.empty(H), np.ones(H)
    R, covariance = np.empty(room**2), np.empty(room**2)
    t, precisions = np.empty(H), np.empty(H)
    if observed is not None:
        slots = np.full(H, -1)
        members = np.empty(H, np.int64)
        n_members = ZERO
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
                R, covariance = np.empty(room**2), np.empty(room**2)
            value = base[r]
            for i in range(k):
                value += bias[active[i]]
                eta[i] = projections[r, active[i]]
            complete_row = YES if observed is None else complete[r]
            if tables is None and complete_row and 0 < k < 3:
                out[r, m] = value + value_of_few(k, products, shift, active, eta)
                continue
            if observed is not None and not complete_row:
                n_members = linear.fill_observed_gram(
                    V, seen, active, k, slots, members, n_members, known, local
                )
            out[r, m] = value + solve(
                k, YES, products, shift, tables, active, complete_row, local, covariance, eta, R, t,
                variances, precisions, L, inverse, v,
            )  # fmt: skip


@inlined
def _add_slab_terms(k, active, weight, eta, covariance, Q, printed, pairs, pull):
    """Add the terms of the gradients of a full Ψ and of μ, see `slab_posterior.expect`."""
    for i in range(k):
        h = active[i]
        pull[h] += weight * eta[i]
        start = row_start(len(pull), h)
        for j in range(i + 1):
            place = h if j == i else start + active[j]
            pairs[place, 0] += weight * (1.0 if printed else covariance[i * k + j])
            pairs[place, 1] += weight * Q[i * k + j]


@kernel
def _moments(
    V, products, shift, spread, tables, projections, complete, observed,
    offsets, squares, members, activation, first, second, states, weights, negligible,
    sum_second, pairs, pull, printed,
):  # fmt: skip
    H, D = V.shape
    active = np.empty(H + 1, np.int64)
    places = np.empty(H, np.int64)
    room = 16  # active latents there is room for; most states have few
    local, L, N = np.empty(room**2), np.empty(room**2), np.empty(room**2)
    eta, v, u = np.empty(H), np.empty(H), np.empty(H)
    inverse, variances = np.empty(H), np.ones(H)
    R, Q, covariance = np.empty(room**2), np.empty(room**2), np.empty(room**2)
    t, precisions = np.empty(H), np.empty(H)
    if observed is not None:
        slots = np.full(H, -1)
        met = np.empty(H, np.int64)
        n_met = ZERO
        known = np.empty(H * (H + 1) // 2)
        seen = np.empty(D, V.dtype)
    for r in range(states.shape[0]):
        begin, matrix = offsets[r], squares[r]
        n = offsets[r + 1] - begin
        keep = squares[r + 1] > matrix
        for i in range(n):
            places[members[begin + i]] = begin + i
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
                R, Q, covariance = np.empty(room**2), np.empty(room**2), np.empty(room**2)
            for i in range(k):
                eta[i] = projections[r, active[i]]
            complete_row = YES if observed is None else complete[r]
            if tables is None and complete_row and not keep and 0 < k < 3:
                pair, amount = add_few(
                    k, products, shift, spread, active, eta, weight, places, activation, first,
                    sum_second,
                )  # fmt: skip
                sum_second[pair] += amount
                continue
            if observed is not None and not complete_row:
                n_met = linear.fill_observed_gram(
                    V, seen, active, k, slots, met, n_met, known, local
                )
            solve(
                k, YES, products, shift, tables, active, complete_row, local, covariance, eta, R, t,
                variances, precisions, L, inverse, v,
            )  # fmt: skip
            expect(
                k, YES, spread, tables, active, local, covariance, eta, R, t, variances, precisions,
                L, inverse, v, N, u, Q,
            )  # fmt: skip
            for i in range(k):
                h = active[i]
                activation[places[h]] += weight
                first[places[h]] += weight * u[i]  # eq:sssc_exp_sz
                start, line = row_start(H, h), matrix + (places[h] - begin) * n - begin
                for j in range(i + 1):  # eq:sssc_exp_szszT
                    value = weight * local[i * k + j]
                    if keep:
                        second[line + places[active[j]]] += value
                    else:
                        sum_second[h if j == i else start + active[j]] += value
            if tables is not None and len(pull) > 0:  # it is empty where no sums are wanted
                _add_slab_terms(k, active, weight, eta, covariance, Q, printed, pairs, pull)


@kernel
def _best_additions(
    guide, V, gram, products, shift, spread, tables, projections, complete, observed, states,
    counts, out,
):  # fmt: skip
    H, D = V.shape
    active = np.empty(H + 1, np.int64)
    room = 16
    local, L, N = np.empty(room**2), np.empty(room**2), np.empty(room**2)
    R, Q, covariance = np.empty(room**2), np.empty(room**2), np.empty(room**2)
    eta, v, u = np.empty(H), np.empty(H), np.empty(H)
    inverse, variances, t, precisions = np.empty(H), np.ones(H), np.empty(H), np.empty(H)
    ranking = np.empty(H, V.dtype), np.empty(H, V.dtype), np.empty(GROUPS, V.dtype)
    if observed is not None:
        slots = np.full(H, -1)
        met = np.empty(H, np.int64)
        n_met = ZERO
        known = np.empty(H * (H + 1) // 2)
        seen = np.empty(D, V.dtype)
    for r in range(states.shape[0]):
        if observed is not None:
            for d in range(D):
                seen[d] = observed[r, d]
            n_met = linear.reset_observed_gram(slots, met, n_met)
        for p in range(counts[r]):
            k = active_latents(states, r, p, active)
            if k > room:
                room = min(2 * k, H)
                local, L, N = np.empty(room**2), np.empty(room**2), np.empty(room**2)
                R, Q, covariance = np.empty(room**2), np.empty(room**2), np.empty(room**2)
            for i in range(k):
                eta[i] = projections[r, active[i]]
            complete_row = YES if observed is None else complete[r]
            if observed is not None and not complete_row:
                n_met = linear.fill_observed_gram(
                    V, seen, active, k, slots, met, n_met, known, local
                )
            solve(
                k, YES, products, shift, tables, active, complete_row, local, covariance, eta, R, t,
                variances, precisions, L, inverse, v,
            )  # fmt: skip
            expect(
                k, YES, spread, tables, active, local, covariance, eta, R, t, variances, precisions,
                L, inverse, v, N, u, Q,
            )  # fmt: skip
            if tables is None:  # ⟨z⟩ is in units of √ψ, and so is V
                for i in range(k):
                    u[i] /= spread[active[i]]
            linear.rank_by_residual(guide, gram, projections, u, active, k, r, p, ranking, out)


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
        M-steps that never lower the bound, or those of eq:sssc_mstep: σ² from squared means
        instead of second moments, and a full Ψ as an element-wise ratio, made positive definite.
    """

    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {
        **LinearModel.choices,
        "slab": ("diagonal", "full", "fixed"),
    }

    def __init__(
        self,
        slab: str = "diagonal",
        learn_slab_means: bool = True,
        init: str = "mean",
        updates: str = "monotone",
    ) -> None:
        super().__init__(init, updates)
        self.slab = validation.choice("slab", slab, self.choices["slab"])
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
        gram = square(scaled).astype(dtype)
        products = pack(gram)
        return Derived(
            scaled.astype(dtype),
            (scaled / sigma).astype(dtype),
            gram,
            bias,
            shift,
            spread,
            products,
            np.stack([products, pack(psi.astype(dtype))], axis=-1) if psi.ndim == 2 else None,
            float(params.noise_variance),
            float(np.log1p(-pi).sum()),
            len(pi),
            float(pi.sum()),
        )

    def constant_variance(self, derived: Derived) -> float:
        return 1.0  # app:lpj counts log σ² to log|C_s|, not to C(Θ)

    def log_joints(self, derived: Derived, rows: Rows, population: Population) -> None:
        _log_joints(
            derived.scaled,
            derived.products,
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
            sums: tuple[Any, ...] = np.empty(0), np.empty((0, 3)), np.empty(0)
        else:
            sums = stats.all_linear.second, *stats[1:]
        _moments(
            derived.scaled,
            derived.products,
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
            self.printed,
        )

    def add_complete_rows(
        self,
        stats: SpikeSlabStats,
        params: SpikeSlabParams,
        derived: Derived,
        rows: Rows,
        posterior: Posterior,
    ) -> None:
        square = add_complete_rows(
            derived.products,
            derived.shift,
            derived.spread,
            derived.tables,
            rows.projections,
            rows.X,
            *posterior,
            linear.negligible_weight(derived.scaled.dtype),
            self.printed,
            stats.all_linear.arrays,
            *stats[1:],
        )
        count(stats.linear, rows.X, rows.X.size, square)

    def best_additions(
        self, derived: Derived, rows: Rows, genomes: Genomes, n_best: int
    ) -> NDArray[np.int32]:
        """Ranked by their gain, as if V were orthogonal, without the prior's log-odds."""
        squares = self.observed_squares(derived, rows)
        dtype = squares.dtype.type
        means, variances = own_slabs(derived)
        pivots = 1 / variances + squares
        constants = 0.5 * (np.log(pivots * variances) + means**2 / variances)
        guide = Guide(
            (means / variances).astype(dtype),
            squares / (np.diag(derived.gram) + np.finfo(dtype).tiny),
            (0.5 / pivots).astype(dtype),
            constants.astype(dtype),
            dtype(0),
        )
        out = empty_ranks(genomes, n_best)
        _best_additions(
            guide,
            derived.scaled,
            derived.gram,
            derived.products,
            derived.shift,
            derived.spread,
            derived.tables,
            rows.projections,
            rows.complete,
            rows.observed,
            *genomes,
            out,
        )
        return out

    def empty_statistics(self, params: SpikeSlabParams) -> SpikeSlabStats:
        sums = empty_stats(params.components, self.printed)
        size = len(params.components) if params.slab_covariance.ndim == 2 else 0
        if size:
            sums = sums._replace(second=np.zeros(0))
        return SpikeSlabStats(sums, np.zeros((n_pairs(size), 3)), np.zeros(size))

    def linear_part(self, stats: SpikeSlabStats) -> LinearStats:
        return stats.all_linear

    def finish_statistics(
        self, derived: Derived, stats: SpikeSlabStats
    ) -> tuple[SpikeSlabStats, SpikeSlabStats]:
        """Later, without the gradients of a full slab: they hold for these parameters alone."""
        later = stats._replace(pairs=stats.pairs * (1.0, 0.0, 1.0), pull=np.zeros_like(stats.pull))
        return stats, later

    def update(self, params: SpikeSlabParams, stats: SpikeSlabStats) -> Any:
        if self.slab == "full" and not self.printed:
            return self._full_slab_candidates(params, stats)
        return self._update(params, stats, cautious=False)

    def _full_slab_candidates(
        self, params: SpikeSlabParams, stats: SpikeSlabStats
    ) -> Generator[SpikeSlabParams, None, SpikeSlabParams]:
        """A long step, which may lower the bound, and one that is certain not to."""
        yield self._update(params, stats, cautious=False)
        return self._update(params, stats, cautious=True)

    def _update(
        self, params: SpikeSlabParams, stats: SpikeSlabStats, cautious: bool
    ) -> SpikeSlabParams:
        sums = stats.all_linear
        old = float(params.noise_variance)
        learnt = {"learn_means": self.learn_slab_means, "learn_covariance": self.slab != "fixed"}

        def dictionary() -> tuple[NDArray[np.float64], float]:
            return linear.update_dictionary(sums, unpack(sums.second), params.components, old)

        if params.slab_covariance.ndim == 2 and not self.printed:
            means, find = update_full_slab(params, stats, cautious=cautious, **learnt)
            (components, noise), covariance = both(dictionary, find)
        else:
            components, noise = dictionary()
            means, covariance = update_slab(params, stats, **learnt)
        if self.printed:
            outer = symmetric(unpack(sums.outer))
            explained = float(np.vdot(outer @ components, components))
            noise = linear.noise_variance(sums, float(sums.data_square) - explained, old)
        pi = linear.clip_probabilities(sums.activation / sums.n_rows)  # app:mstep_equations: π
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
            means = np.ones(n_latents)  # subsec:inpainting
        covariance = np.eye(n_latents) if self.slab == "full" else np.ones(n_latents)
        return SpikeSlabParams(components, pi, np.array(variance), means, covariance)

    def with_dictionary(
        self,
        examples: NDArray[np.float64],
        details: NDArray[np.float64],
        noise_variance: float,
    ) -> SpikeSlabParams:
        components = np.concatenate([examples, details])
        spread = np.ones(len(components))
        if self.slab != "fixed":
            spread[: len(examples)] = EXAMPLE_SPREAD
        return SpikeSlabParams(
            components,
            linear.few_active(len(examples), len(details)),
            np.array(noise_variance),
            np.ones(len(components)),
            np.diag(spread) if self.slab == "full" else spread,
        )

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
