"""Binary sparse coding (eq:bsc_gen_model): s_h ~ Bernoulli(π), y ~ N(W s, σ² 1).

| paper | here |
| --- | --- |
| W (D×H) | `components` (H, D) |
| π | `activation_probs` (H,), all equal |
| σ² | `noise_variance` |
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from evoem.models import linear
from evoem.models.base import Posterior, Prior
from evoem.models.linear import Guide, LinearModel, Moments, Rows
from evoem.models.linear_statistics import LinearStats, add_cross, close_row, count
from evoem.models.triangles import pack, row_start, unpack
from evoem.ranking import GROUPS, empty_ranks
from evoem.runtime.compile import ZERO, kernel
from evoem.runtime.linalg import square
from evoem.states import Genomes, Population, active_latents
from evoem.validation import Mask


class BinarySparseCodingParams(NamedTuple):
    """Θ = (π, σ, W)."""

    components: NDArray[np.float64]
    activation_probs: NDArray[np.float64]
    noise_variance: NDArray[np.float64]


class Derived(NamedTuple):
    """V = W/σ, its Gram matrix, and the prior's log-odds."""

    scaled: NDArray[np.floating]
    projector: NDArray[np.floating]  # V / σ
    gram: NDArray[np.floating]
    products: NDArray[np.floating]  # the same, see `triangles`
    logits: NDArray[np.float64]
    bias: NDArray[np.float64]  # of a row without gaps: log-odds, less half of v_hᵀ v_h
    noise_variance: float
    log_prior: float  # Σ_h log(1 - π)
    n_latents: int
    expected_active: float


@kernel
def _log_joints(
    scaled, products, logits, bias, projections, base, complete, observed,
    states, out, starts, stops,
):  # fmt: skip
    H, D = scaled.shape
    active = np.empty(H + 1, np.int64)
    if observed is not None:
        slots = np.full(H, -1)
        members = np.empty(H, np.int64)
        n_members = ZERO
        known = np.empty(H * (H + 1) // 2)
        local = np.empty(H * H)
        seen = np.empty(D, scaled.dtype)
    for r in range(states.shape[0]):
        if observed is not None:
            for d in range(D):
                seen[d] = observed[r, d]
            n_members = linear.reset_observed_gram(slots, members, n_members)
        for m in range(starts[r], stops[r]):
            k = active_latents(states, r, m, active)
            # app:lpj: log-odds·|s| - |y - W s|² / 2σ², with the square multiplied out.
            value = base[r]
            if observed is None or complete[r]:
                for i in range(k):
                    value += bias[active[i]] + projections[r, active[i]]
                    start = row_start(H, active[i])
                    for j in range(i):
                        value -= products[start + active[j]]
            elif observed is not None:
                n_members = linear.fill_observed_gram(
                    scaled, seen, active, k, slots, members, n_members, known, local
                )
                for i in range(k):
                    value += logits[active[i]] + projections[r, active[i]] - 0.5 * local[i * k + i]
                    for j in range(i):
                        value -= local[i * k + j]
            out[r, m] = value


@kernel
def _moments(
    H, offsets, squares, members, activation, first, second, states, weights, negligible, sum_second
):
    active = np.empty(H + 1, np.int64)
    places = np.empty(H, np.int64)
    for r in range(states.shape[0]):
        begin, matrix = offsets[r], squares[r]
        n = offsets[r + 1] - begin
        keep = squares[r + 1] > matrix
        for u in range(n):
            places[members[begin + u]] = u
        for m in range(states.shape[1]):
            weight = weights[r, m]
            if not weight > negligible:
                continue
            k = active_latents(states, r, m, active)
            for i in range(k):
                h = active[i]
                first[begin + places[h]] += weight
                start = row_start(H, h)
                for j in range(i + 1):
                    if keep:
                        second[matrix + places[h] * n + places[active[j]]] += weight
                    else:
                        sum_second[h if j == i else start + active[j]] += weight
        for u in range(n):
            activation[begin + u] = first[begin + u]


@kernel
def _add_complete_rows(X, states, weights, negligible, printed, sums):
    _, _, sum_second, cross, _ = sums
    n_rows, H = len(X), len(cross)
    active = np.empty(H + 1, np.int64)
    activation = np.zeros(H)  # of one row
    offsets = np.empty(n_rows + 1, np.int64)
    members, means = np.empty(n_rows * H + 1, np.int64), np.empty(n_rows * H)
    total, square = ZERO, 0.0
    for r in range(n_rows):
        offsets[r] = total
        for d in range(X.shape[1]):
            square += np.float64(X[r, d]) * np.float64(X[r, d])
        for m in range(states.shape[1]):
            weight = weights[r, m]
            if not weight > negligible:
                continue
            for i in range(active_latents(states, r, m, active)):
                h = active[i]
                # It has its place before it is known whether it is new: no branch to mispredict.
                members[total] = h
                total += activation[h] == 0.0
                activation[h] += weight
                sum_second[h] += weight
                start = row_start(H, h)
                for j in range(i):
                    sum_second[start + active[j]] += weight
        close_row(members, offsets[r], total, activation, activation, means, printed, sums)
    offsets[n_rows] = total
    add_cross(offsets, members, means, X, cross)
    return square


@kernel
def _best_additions(guide, gram, projections, states, counts, out):
    H = len(gram)
    active = np.empty(H + 1, np.int64)
    ones = np.ones(H)
    room = np.empty(H, gram.dtype), np.empty(H, gram.dtype), np.empty(GROUPS, gram.dtype)
    for r in range(states.shape[0]):
        for p in range(counts[r]):
            k = active_latents(states, r, p, active)
            linear.rank_by_residual(guide, gram, projections, ones, active, k, r, p, room, out)


class BinarySparseCodingModel(LinearModel):
    """Binary sparse coding behind the model contract.

    `updates="printed"` differs with missing values only: it fills them in by their estimate.
    """

    def prepare(self, params: BinarySparseCodingParams, dtype: DTypeLike) -> Derived:
        sigma = np.sqrt(params.noise_variance)
        scaled = params.components / sigma
        pi = params.activation_probs
        gram = square(scaled).astype(dtype)
        logits = np.log(pi / (1 - pi))
        return Derived(
            scaled.astype(dtype),
            (scaled / sigma).astype(dtype),
            gram,
            pack(gram),
            logits,
            logits - 0.5 * np.diag(gram),
            float(params.noise_variance),
            float(np.log1p(-pi).sum()),
            len(pi),
            float(pi.sum()),
        )

    def best_additions(
        self, derived: Derived, rows: Rows, genomes: Genomes, n_best: int
    ) -> NDArray[np.int32]:
        """Ranked by their gain without the prior's log-odds."""
        squares = self.observed_squares(derived, rows)
        dtype = squares.dtype.type
        guide = Guide(
            np.zeros_like(squares[0]),
            squares / (np.diag(derived.gram) + np.finfo(dtype).tiny),
            np.zeros_like(squares),
            dtype(0.5) * squares,
            dtype(1),
        )
        out = empty_ranks(genomes, n_best)
        _best_additions(guide, derived.gram, rows.projections, *genomes, out)
        return out

    def log_joints(self, derived: Derived, rows: Rows, population: Population) -> None:
        _log_joints(
            derived.scaled,
            derived.products,
            derived.logits,
            derived.bias,
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
        stats: LinearStats | None,
    ) -> None:
        negligible = linear.negligible_weight(derived.scaled.dtype)
        sums = np.empty(0) if stats is None else stats.second
        _moments(len(derived.logits), *moments, *posterior, negligible, sums)

    def add_complete_rows(
        self,
        stats: LinearStats,
        params: BinarySparseCodingParams,
        derived: Derived,
        rows: Rows,
        posterior: Posterior,
    ) -> None:
        negligible = linear.negligible_weight(derived.scaled.dtype)
        square = _add_complete_rows(rows.X, *posterior, negligible, self.printed, stats.arrays)
        count(stats, rows.X, rows.X.size, square)

    def update(
        self, params: BinarySparseCodingParams, stats: LinearStats
    ) -> BinarySparseCodingParams:
        components, noise_variance = linear.update_dictionary(
            stats, unpack(stats.second), params.components, float(params.noise_variance)
        )
        pi = stats.activation.mean() / stats.n_rows  # app:mstep_equations: π
        return BinarySparseCodingParams(
            components,
            linear.clip_probabilities(np.full(len(components), pi)),
            np.array(noise_variance),
        )

    def prior(self, params: BinarySparseCodingParams) -> Prior:
        pi, W = params.activation_probs, params.components
        return Prior(pi, pi @ W, (pi * (1 - pi)) @ W**2)

    def initialize(
        self, X: NDArray[np.floating], observed: Mask, n_latents: int, rng: np.random.Generator
    ) -> BinarySparseCodingParams:
        components, variance = self.initial_dictionary(X, observed, n_latents, rng)
        return BinarySparseCodingParams(
            components, np.full(n_latents, 1.0 / max(n_latents, 2)), np.array(variance)
        )

    def with_dictionary(
        self,
        examples: NDArray[np.float64],
        details: NDArray[np.float64],
        noise_variance: float,
    ) -> BinarySparseCodingParams:
        components = np.concatenate([examples, details])
        pi = np.full(len(components), linear.few_active(len(examples), len(details)).mean())
        return BinarySparseCodingParams(components, pi, np.array(noise_variance))

    def sample(
        self, params: BinarySparseCodingParams, n: int, rng: np.random.Generator
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        states = rng.random((n, len(params.components))) < params.activation_probs
        return linear.observe(states.astype(float), params, rng), states
