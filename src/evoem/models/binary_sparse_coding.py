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
from evoem.models.all_rows import AllRows
from evoem.models.base import Posterior, Prior
from evoem.models.ceiling import below_ceiling
from evoem.models.linear import LinearModel, Rows
from evoem.models.linear_moments import (
    LinearStats,
    Moments,
    add_cross,
    count,
    finish_row,
    negligible_weight,
)
from evoem.models.observed_gram import empty_gram, gather_observed, start_row
from evoem.models.residual_ranking import Guide, rank_by_residual
from evoem.models.triangles import pack, row_start, unpack
from evoem.ranking import GROUPS, empty_ranks
from evoem.runtime.communicator import ALONE, Communicator
from evoem.runtime.compile import ZERO, kernel
from evoem.runtime.linalg import square, symmetric
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


# `known` has the inner products over what was observed. It is None where nothing is missing, and
# the compiler then leaves out what it would need.


@kernel
def _log_joints(derived, rows, known, population):
    states, out, starts, stops = population
    V, products, logits, bias = derived.scaled, derived.products, derived.logits, derived.bias
    projections, base, ceilings, complete = (
        rows.projections, rows.base, rows.ceiling, rows.complete
    )  # fmt: skip
    H, least = len(bias), logits.min()
    active = np.empty(H + 1, np.int64)
    if known is not None:
        local = np.empty(H * H)
    for r in range(states.shape[0]):
        if known is not None:
            start_row(known, rows.observed, r)
        for m in range(starts[r], stops[r]):
            k = active_latents(states, r, m, active)
            # app:lpj: log-odds·|s| - |y - W s|² / 2σ², with the square multiplied out.
            value = base[r]
            if known is None or complete[r]:
                for i in range(k):
                    value += bias[active[i]] + projections[r, active[i]]
                    start = row_start(H, active[i])
                    for j in range(i):
                        value -= products[start + active[j]]
            elif known is not None:
                gather_observed(known, V, active, k, local)
                for i in range(k):
                    value += logits[active[i]] + projections[r, active[i]] - 0.5 * local[i * k + i]
                    for j in range(i):
                        value -= local[i * k + j]
            out[r, m] = below_ceiling(value, ceilings[r], logits, least, active, k)


@kernel
def _fill_moments(H, posterior, negligible, moments):
    states, weights = posterior
    offsets, squares, members, activation, first, second = moments
    active = np.empty(H + 1, np.int64)
    positions = np.empty(H, np.int64)  # of latents among the members of a row
    for r in range(states.shape[0]):
        begin, matrix = offsets[r], squares[r]
        n = offsets[r + 1] - begin
        for u in range(n):
            positions[members[begin + u]] = u
        for m in range(states.shape[1]):
            weight = weights[r, m]
            if not weight > negligible:
                continue
            k = active_latents(states, r, m, active)
            for i in range(k):
                u = positions[active[i]]
                first[begin + u] += weight
                for j in range(i + 1):
                    second[matrix + u * n + positions[active[j]]] += weight
        for u in range(n):
            activation[begin + u] = first[begin + u]


@kernel
def _add_complete_rows(X, complete, posterior, negligible, printed, stats):
    states, weights = posterior
    second, cross = stats.second, stats.cross
    n_rows, H = len(X), len(cross)
    active = np.empty(H + 1, np.int64)
    activation = np.zeros(H)  # of one row
    offsets = np.empty(n_rows + 1, np.int64)
    members, means = np.empty(n_rows * H + 1, np.int64), np.empty(n_rows * H)
    total, square = ZERO, 0.0
    for r in range(n_rows):
        offsets[r] = total
        if not complete[r]:
            continue
        for d in range(X.shape[1]):
            square += np.float64(X[r, d]) * np.float64(X[r, d])
        for m in range(states.shape[1]):
            weight = weights[r, m]
            if not weight > negligible:
                continue
            for i in range(active_latents(states, r, m, active)):
                h = active[i]
                # Listed before it is known whether it is new: no branch to mispredict.
                members[total] = h
                total += activation[h] == 0.0
                activation[h] += weight
                second[h] += weight
                start = row_start(H, h)
                for j in range(i):
                    second[start + active[j]] += weight
        finish_row(members, offsets[r], total, activation, activation, means, printed, stats)
    offsets[n_rows] = total
    add_cross(offsets, members, means, X, cross)
    return square


@kernel
def _best_additions(guide, gram, projections, genomes, out):
    states, counts = genomes
    H = len(gram)
    active = np.empty(H + 1, np.int64)
    ones = np.ones(H)
    room = np.empty(H, gram.dtype), np.empty(H, gram.dtype), np.empty(GROUPS, gram.dtype)
    for r in range(states.shape[0]):
        for p in range(counts[r]):
            k = active_latents(states, r, p, active)
            rank_by_residual(guide, gram, projections, ones, active, k, r, p, room, out)


class BinarySparseCodingModel(LinearModel):
    """Binary sparse coding behind the model contract.

    Parameters
    ----------
    init, updates, least_noise_variance, by_feature
        See `LinearModel`. `updates="printed"` differs only where values are missing: it replaces
        them by their estimates. `updates="authors"` also takes σ² from the old W.

    Examples
    --------
    >>> import numpy as np
    >>> from evoem.models import BinarySparseCodingModel
    >>> from evoem.models.binary_sparse_coding import BinarySparseCodingParams
    >>> W = np.array([[1.0, 0, 0], [0, 1, 1]])
    >>> params = BinarySparseCodingParams(W, np.full(2, 0.5), np.array(0.1))
    >>> X, states = BinarySparseCodingModel().sample(params, 5, np.random.default_rng(0))
    >>> X.shape, states.shape
    ((5, 3), (5, 2))
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
        _best_additions(guide, derived.gram, rows.projections, genomes, out)
        return out

    def log_joints(self, derived: Derived, rows: Rows, population: Population) -> None:
        _log_joints(derived, rows, empty_gram(derived.scaled, rows.observed), population)

    def fill_moments(
        self,
        derived: Derived,
        rows: Rows,
        posterior: Posterior,
        moments: Moments,
        stats: LinearStats | None,
    ) -> None:
        negligible = negligible_weight(derived.scaled.dtype)
        _fill_moments(len(derived.logits), posterior, negligible, moments)

    def add_complete_rows(
        self, stats: LinearStats, derived: Derived, rows: Rows, posterior: Posterior
    ) -> None:
        negligible = negligible_weight(derived.scaled.dtype)
        square = _add_complete_rows(
            rows.X, rows.complete, posterior, negligible, self.printed, stats
        )
        n_rows = int(rows.complete.sum())
        count(stats, rows.X.dtype, n_rows, n_rows * rows.X.shape[1], square)

    def update(
        self, params: BinarySparseCodingParams, stats: LinearStats
    ) -> BinarySparseCodingParams:
        components, noise_variance = linear.update_dictionary(
            stats,
            unpack(stats.second),
            params.components,
            float(params.noise_variance),
            self.least_noise_variance,
        )
        if self.as_authors:
            noise_variance = self._authors_noise_variance(params, stats)
        pi = stats.activation.mean() / stats.n_rows  # app:mstep_equations: π
        return BinarySparseCodingParams(
            components,
            linear.clip_probabilities(np.full(len(components), pi)),
            np.array(noise_variance),
        )

    def _authors_noise_variance(
        self, params: BinarySparseCodingParams, stats: LinearStats
    ) -> float:
        """σ² from Σ⟨|y - W s|²⟩ of the old W over what was observed."""
        old = params.components
        second = symmetric(unpack(stats.second))
        residual = float(stats.data_square) + float(np.vdot(second @ old - 2 * stats.cross, old))
        residual -= float(stats.filled[1].sum())  # what a filled in value leaves is its variance
        return linear.authors_noise_variance(
            stats, residual, float(params.noise_variance), self.least_noise_variance
        )

    def prior(self, params: BinarySparseCodingParams) -> Prior:
        pi, W = params.activation_probs, params.components
        return Prior(pi, pi @ W, (pi * (1 - pi)) @ W**2)

    def initialize(
        self,
        X: NDArray[np.floating],
        observed: Mask | None,
        n_latents: int,
        rng: np.random.Generator,
        comm: Communicator = ALONE,
    ) -> BinarySparseCodingParams:
        rows = AllRows(X, observed, comm)
        components, variance = self.initial_dictionary(rows, n_latents, rng)
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
