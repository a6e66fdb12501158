"""Noisy-OR Bayes net (eq:nor_gen_model): p(y_d = 0 | s) = Π_h (1 - W_dh s_h), s_h ~ Bernoulli(π_h).

| paper | here |
| --- | --- |
| W (D×H) | `components` (H, D) |
| π | `activation_probs` (H,) |
| N_d(s) | probability that y_d is on |

There is no leak probability: with no latent active every y_d is off, so s = 0 is impossible
(log-joint -inf) for a row with any value on.
"""

from collections.abc import Mapping
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from evoem import validation
from evoem.models.all_rows import AllRows
from evoem.models.base import Model, Posterior, Prior
from evoem.models.linear import (
    PROBABILITY_FLOOR,
    clip_probabilities,
    nothing_observed,
    row_products,
)
from evoem.runtime.communicator import ALONE, Communicator
from evoem.runtime.compile import inlined, kernel
from evoem.states import Population, active_latents
from evoem.validation import Mask, Positions

# W stays this far from 0 and 1, where a single observation could make a row impossible for good.
WEIGHT_MARGIN = 1e-6
# States below this weight add nothing that double precision would show.
NEGLIGIBLE = float(np.finfo(float).eps)
# As many factors N_d >= WEIGHT_MARGIN can be multiplied before a logarithm is due.
FACTORS_PER_LOG = 32


class NoisyOrParams(NamedTuple):
    """Θ = (π, W)."""

    components: NDArray[np.float64]
    activation_probs: NDArray[np.float64]


class Derived(NamedTuple):
    """1 - W and its logarithm, and the prior's log-odds."""

    off: NDArray[np.float64]  # (H, D)  1 - W
    log_off: NDArray[np.float64]
    logits: NDArray[np.float64]
    log_prior: float
    n_latents: int
    expected_active: float


class Rows(NamedTuple):
    """The dimensions that are on in each row, and the cost of each latent in those that are off."""

    off_costs: NDArray[np.floating]  # (n_rows, H)  Σ over observed y_d = 0 of log(1 - W_dh)
    on: NDArray[np.int64]  # (n_rows, D): first the dimensions with y_d = 1
    n_on: NDArray[np.int64]
    observed: Mask | None  # (n_rows, D), None if nothing is missing anywhere


class NoisyOrStats(NamedTuple):
    """Additive statistics."""

    n_rows: NDArray[np.float64]
    activation: NDArray[np.float64]  # (H,)  Σ⟨s_h⟩
    chances: NDArray[np.float64]  # (H, D)  Σ⟨s_h⟩ over the rows that observe d
    causes: NDArray[np.float64]  # (H, D)  Σ⟨s_h y_d / N_d⟩; printed: Σ(1 - y_d)⟨D_dh⟩
    contrast: NDArray[np.float64]  # (H, D)  printed: Σ⟨C_dh⟩; else empty


@kernel
def _list_on(X, on, n_on):
    for r in range(X.shape[0]):
        n = 0
        for d in range(X.shape[1]):
            if X[r, d] != 0:
                on[r, n] = d
                n += 1
        n_on[r] = n


@inlined
def _none_of(off, active, k, n, product):
    """Π_h (1 - W_dh) over the active latents for each of the first n dimensions."""
    for d in range(n):
        product[d] = 1.0
    for i in range(k):
        h = active[i]
        for d in range(n):
            product[d] *= off[h, d]


@kernel
def _log_joints(off, logits, log_prior, off_costs, on, n_on, states, out, starts, stops):
    H, D = off.shape
    active = np.empty(H + 1, np.int64)
    product = np.empty(D)
    compact = np.empty((H, D))  # 1 - W of the dimensions that are on in this row
    for r in range(states.shape[0]):
        if starts[r] == stops[r]:
            continue
        n = n_on[r]
        for h in range(H):
            for j in range(n):
                compact[h, j] = off[h, on[r, j]]
        for m in range(starts[r], stops[r]):
            k = active_latents(states, r, m, active)
            if k == 0 and n > 0:
                out[r, m] = -np.inf  # app:lpj
                continue
            value = log_prior
            for i in range(k):
                value += logits[active[i]] + off_costs[r, active[i]]
            _none_of(compact, active, k, n, product)
            for begin in range(0, n, FACTORS_PER_LOG):
                factor = 1.0
                for j in range(begin, min(begin + FACTORS_PER_LOG, n)):
                    factor *= 1.0 - product[j]
                value += np.log(factor)
            out[r, m] = value


@kernel
def _statistics(
    off, on, n_on, observed, states, weights, printed,
    sum_activation, chances, causes, contrast,
):  # fmt: skip
    H, D = off.shape
    active = np.empty(H + 1, np.int64)
    product = np.empty(D)
    activation = np.empty(H)
    is_on = np.zeros(D)
    seen = np.ones(D)
    for r in range(states.shape[0]):
        activation[:] = 0.0
        is_on[:] = 0.0
        for j in range(n_on[r]):
            is_on[on[r, j]] = 1.0
        if observed is not None:
            for d in range(D):
                seen[d] = observed[r, d]
        for m in range(states.shape[1]):
            weight = weights[r, m]
            if not weight > NEGLIGIBLE:
                continue
            k = active_latents(states, r, m, active)
            for i in range(k):
                activation[active[i]] += weight
            _none_of(off, active, k, D, product)
            for i in range(k):
                h = active[i]
                if printed:
                    for d in range(D):
                        others = product[d] / off[h, d]  # W̃_dh(s)
                        D_dh = weight * seen[d] * others / (product[d] * (1.0 - product[d]))
                        causes[h, d] += (1.0 - is_on[d]) * D_dh
                        contrast[h, d] += others * D_dh
                else:
                    for d in range(D):
                        causes[h, d] += weight * is_on[d] / (1.0 - product[d])
        for h in range(H):
            if activation[h] > 0.0:
                sum_activation[h] += activation[h]
                for d in range(D):
                    chances[h, d] += activation[h] * seen[d]


@kernel
def _reconstruct(off, states, weights, mean, variance):
    H, D = off.shape
    active = np.empty(H + 1, np.int64)
    product = np.empty(D)
    for r in range(states.shape[0]):
        mean[r] = 0.0
        variance[r] = 0.0
        for m in range(states.shape[1]):
            weight = weights[r, m]
            if not weight > NEGLIGIBLE:
                continue
            k = active_latents(states, r, m, active)
            _none_of(off, active, k, D, product)
            for d in range(D):
                mean[r, d] += weight * (1.0 - product[d])
                variance[r, d] += weight * (1.0 - product[d]) ** 2
        for d in range(D):
            variance[r, d] = max(variance[r, d] - mean[r, d] ** 2, 0.0)


class NoisyOrModel(Model):
    """Noisy-OR behind the model contract.

    Parameters
    ----------
    init : {"random", "data"}
        Initial weights: uniform on [0, 1] (subsec:verification), or random data points, softened.
    updates : {"monotone", "printed"}
        W by an EM step, or by the printed fixed-point step, which can lower the bound. The EM step
        takes each cause's own attempt x_dh ~ Bernoulli(W_dh s_h), y_d = OR_h x_dh, as one more
        latent: W_dh = Σ⟨x_dh⟩ / Σ⟨s_h⟩.
    min_activation_prob : float
        π_h is kept at or above this (the paper uses 1/H on image patches).

    Examples
    --------
    >>> import numpy as np
    >>> from evoem.models import NoisyOrModel
    >>> from evoem.models.noisy_or import NoisyOrParams
    >>> params = NoisyOrParams(np.full((2, 3), 0.8), np.full(2, 0.5))
    >>> X, states = NoisyOrModel().sample(params, 5, np.random.default_rng(0))
    >>> X.shape, states.shape
    ((5, 3), (5, 2))
    """

    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "init": ("random", "data"),
        "updates": ("monotone", "printed"),
    }

    def __init__(
        self,
        init: str = "random",
        updates: str = "monotone",
        min_activation_prob: float = PROBABILITY_FLOOR,
    ) -> None:
        self.init = validation.choice("init", init, self.choices["init"])
        self.updates = validation.choice("updates", updates, self.choices["updates"])
        self.min_activation_prob = validation.real(
            "min_activation_prob", min_activation_prob, PROBABILITY_FLOOR, 0.5
        )

    @property
    def printed(self) -> bool:
        """Whether the paper's printed M-step is asked for."""
        return self.updates == "printed"

    def prepare(self, params: NoisyOrParams, dtype: DTypeLike) -> Derived:
        pi = params.activation_probs
        off = 1.0 - params.components
        return Derived(
            off,
            np.log(off),
            np.log(pi / (1 - pi)),
            float(np.log1p(-pi).sum()),
            len(pi),
            float(pi.sum()),
        )

    def prepare_rows(
        self,
        derived: Derived,
        X: NDArray[np.floating],
        observed: Mask | None,
        positions: Positions = None,
    ) -> Rows:
        self._refuse_positions(positions)
        n_rows = len(X)
        on = np.empty(X.shape, np.int64)
        n_on = np.empty(n_rows, np.int64)
        _list_on(X, on, n_on)
        is_off = X == 0 if observed is None else (X == 0) & observed
        costs = row_products(is_off.astype(np.float64), derived.log_off)
        return Rows(costs, on, n_on, observed)

    def log_constants(self, derived: Derived, rows: Rows) -> NDArray[np.float64]:
        return np.full(len(rows.n_on), derived.log_prior)

    def log_joints(self, derived: Derived, rows: Rows, population: Population) -> None:
        _log_joints(
            derived.off,
            derived.logits,
            derived.log_prior,
            rows.off_costs,
            rows.on,
            rows.n_on,
            *population,
        )

    def empty_statistics(self, params: NoisyOrParams) -> NoisyOrStats:
        shape = params.components.shape
        return NoisyOrStats(
            np.zeros(()),
            np.zeros(shape[0]),
            np.zeros(shape),
            np.zeros(shape),
            np.zeros(shape if self.printed else (0, 0)),
        )

    def accumulate(
        self,
        stats: NoisyOrStats,
        params: NoisyOrParams,
        derived: Derived,
        rows: Rows,
        posterior: Posterior,
    ) -> None:
        stats.n_rows[...] += len(rows.n_on)
        _statistics(
            derived.off, rows.on, rows.n_on, rows.observed, *posterior, self.printed, *stats[1:]
        )

    def update(self, params: NoisyOrParams, stats: NoisyOrStats) -> NoisyOrParams:
        W = params.components
        if self.printed:
            used = stats.contrast > 0
            change = stats.causes / np.where(used, stats.contrast, 1.0)
            new = np.where(used, 1.0 - change, W)  # eq:nor_mstep_Wdefs
        else:
            used = stats.chances > 0
            new = np.where(used, W * stats.causes / np.where(used, stats.chances, 1.0), W)
        return self._within_bounds(new, stats.activation / stats.n_rows)

    def reconstruct(
        self, params: NoisyOrParams, derived: Derived, rows: Rows, posterior: Posterior
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Mean and variance of N_d(s), the probability that y_d is on."""
        mean = np.empty((len(rows.n_on), derived.off.shape[1]))
        variance = np.empty_like(mean)
        _reconstruct(derived.off, *posterior, mean, variance)
        unseen = nothing_observed(rows.observed)
        if len(unseen):
            _, mean[unseen], variance[unseen] = self.prior(params)
        return mean, variance

    def codes(
        self, params: NoisyOrParams, derived: Derived, rows: Rows, posterior: Posterior
    ) -> NDArray[np.float64]:
        """Posterior mean of s."""
        out = super().codes(params, derived, rows, posterior)
        unseen = nothing_observed(rows.observed)
        if len(unseen):
            out[unseen] = self.prior(params).codes
        return out

    def prior(self, params: NoisyOrParams) -> Prior:
        pi, W = params.activation_probs[:, None], params.components
        stays_off = np.prod(1 - pi * W, axis=0)
        square = np.prod(1 - pi + pi * (1 - W) ** 2, axis=0)
        return Prior(params.activation_probs, 1 - stays_off, square - stays_off**2)

    def initialize(
        self,
        X: NDArray[np.floating],
        observed: Mask | None,
        n_latents: int,
        rng: np.random.Generator,
        comm: Communicator = ALONE,
    ) -> NoisyOrParams:
        if self.init == "data":
            points, seen = AllRows(X, observed, comm).draw(rng, n_latents)
            components = 0.1 + 0.8 * np.where(seen, points, 0.5)
        else:
            components = rng.random((n_latents, X.shape[1]))
        pi = np.full(n_latents, 1.0 / max(n_latents, 2))
        return self.allowed(NoisyOrParams(components, pi), X, observed)

    def allowed(
        self,
        params: NoisyOrParams,
        X: NDArray[np.floating],
        observed: Mask | None,
        comm: Communicator = ALONE,
    ) -> NoisyOrParams:
        return self._within_bounds(params.components, params.activation_probs)

    def _within_bounds(
        self, components: NDArray[np.float64], probabilities: NDArray[np.float64]
    ) -> NoisyOrParams:
        return NoisyOrParams(
            np.clip(components, WEIGHT_MARGIN, 1.0 - WEIGHT_MARGIN),
            clip_probabilities(probabilities, self.min_activation_prob),
        )

    def sample(
        self, params: NoisyOrParams, n: int, rng: np.random.Generator
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        states = rng.random((n, len(params.components))) < params.activation_probs
        stays_off = np.exp(states @ np.log1p(-params.components))
        return (rng.random(stays_off.shape) >= stays_off).astype(np.float64), states
