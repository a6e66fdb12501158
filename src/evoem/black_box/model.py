"""The model contract for a user's log-joint.

The model stores the user's parameters as named NumPy arrays, see `parameters`; `template` is an
example of the form in which the user wants to see them. Prior activation probabilities, which some
operators need, are estimated by the posterior means of the latents, as is exact for models whose
latents are independent a priori.

The M-step is the user's own, from statistics that are sums over rows:

    statistics(params, X, observed, states, weights) -> dict of arrays
    update(params, statistics) -> params

or a step along the gradient of the bound, see `gradient`; or there is none.
"""

from collections.abc import Callable, Generator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from evoem.black_box import parameters
from evoem.black_box.array_libraries import Library
from evoem.black_box.gradient import ROWS_OF_GRADIENT, Ascent, AscentState
from evoem.black_box.parameters import Values
from evoem.black_box.quadrature import Support, by_quadrature, support_of
from evoem.black_box.scalar_log_joint import ScalarLogJoint
from evoem.black_box.vectorized_log_joint import (
    VectorizedLogJoint,
    active_of,
    dense_posterior,
    dense_states,
    row_chunks,
)
from evoem.errors import LogJointError
from evoem.models.base import Model, Posterior, add_statistics
from evoem.models.linear import clip_probabilities
from evoem.runtime.communicator import ALONE, Communicator
from evoem.runtime.compile import kernel
from evoem.states import Genomes, Population, States
from evoem.validation import Mask, Positions

# Rows and states of each that a log-joint is tried on before anything is learnt.
ROWS_TRIED = 8
STATES_TRIED = 16
# By how much log-joints of the same state may differ when they are computed among others.
TRIAL_TOLERANCE = 1e-3


class BlackBoxParams(NamedTuple):
    """The user's parameters by name, and what EM stores with them."""

    values: Values
    activation_probs: NDArray[np.float64]  # (H,)  mean of the posteriors
    support: Support  # of the data
    ascent: AscentState  # of the gradient's optimiser, if there is one


class BlackBoxStats(NamedTuple):
    """Additive statistics."""

    n_rows: NDArray[np.float64]
    activation: NDArray[np.float64]  # (H,)
    sums: dict[str, NDArray[np.float64]]  # the user's, or a gradient


class Derived(NamedTuple):
    """Parameters in the form that the user's functions take."""

    params: Any
    n_latents: int
    expected_active: float


class Functions(NamedTuple):
    """What a user can give besides the log-joint; see `evoem.BlackBox`."""

    statistics: Callable[..., Mapping[str, Any]] | None = None
    update: Callable[..., Any] | None = None
    mean: Callable[..., Any] | None = None
    sample: Callable[..., tuple[Any, Any]] | None = None
    log_constant: Callable[..., Any] | None = None


@kernel
def _first_invalid(log_joints, starts, stops):
    """Row and slot of the first log-joint that is neither finite nor -inf; -1 if there is none."""
    for r in range(log_joints.shape[0]):
        for m in range(starts[r], stops[r]):
            if not log_joints[r, m] < np.inf:
                return r, m
    return -1, -1


class BlackBoxModel(Model):
    """A model given by a user's functions.

    Parameters
    ----------
    log_joint : ScalarLogJoint or VectorizedLogJoint
        The user's function.
    template : Any
        The user's parameters, of which only the form matters.
    library : Library
        Library of the arrays that the user's other functions take.
    functions : Functions
        The user's other functions.
    ascent : Ascent, optional
        The M-step, if the user gives none.
    """

    def __init__(
        self,
        log_joint: ScalarLogJoint | VectorizedLogJoint,
        template: Any,
        library: Library,
        functions: Functions,
        ascent: Ascent | None = None,
    ) -> None:
        self.user_log_joint = log_joint
        self.template = template
        self.library = library
        self.functions = functions
        self.ascent = ascent

    # ------------------------------------------------------------------------------ parameters

    def initialize(
        self,
        X: NDArray[np.floating],
        observed: Mask | None,
        n_latents: int,
        rng: np.random.Generator,
        comm: Communicator = ALONE,
    ) -> BlackBoxParams:
        values = parameters.flatten(self.template)
        if self.ascent is not None:
            self.ascent.check(values)
        probs = np.full(n_latents, 1.0 / max(n_latents, 2))
        return BlackBoxParams(values, probs, support_of(X, observed, comm), AscentState())

    def user_params(self, params: BlackBoxParams) -> Any:
        """Parameters in the form in which the user gave them."""
        return parameters.unflatten(self.template, params.values)

    def prepare(self, params: BlackBoxParams, dtype: DTypeLike) -> Derived:
        native = self.user_log_joint.prepare(self.template, params.values, dtype)
        probs = params.activation_probs
        return Derived(native, len(probs), float(probs.sum()))

    def prepare_rows(
        self,
        derived: Derived,
        X: NDArray[np.floating],
        observed: Mask | None,
        positions: Positions = None,
    ) -> Any:
        self._refuse_positions(positions)
        return self.user_log_joint.rows(derived.params, X, observed)

    def log_constants(self, derived: Derived, rows: Any) -> NDArray[np.float64] | float:
        if self.functions.log_constant is None:
            return 0.0
        found = self._call(self.functions.log_constant, derived, rows.X, rows.mask)
        return np.asarray(found, np.float64)

    # -------------------------------------------------------------------------------- log-joints

    def log_joints(self, derived: Derived, rows: Any, population: Population) -> None:
        states, out, starts, stops = population
        self.user_log_joint.evaluate(derived.params, rows, derived.n_latents, population)
        row, slot = _first_invalid(out, starts, stops)
        if row >= 0:
            raise LogJointError(
                f"log_joint must return finite numbers or -inf; got {out[row, slot]}",
                int(row),
                active_of(states, row, slot, derived.n_latents),
            )

    def best_additions(
        self, derived: Derived, rows: Any, genomes: Genomes, n_best: int
    ) -> NDArray[np.int32]:
        """The best of all flips, each of which is evaluated, for a few rows at a time."""
        n_rows, n_genomes, _ = genomes.states.shape
        found = [
            super(BlackBoxModel, self).best_additions(
                derived,
                rows.take(part),
                Genomes(genomes.states[part], genomes.counts[part]),
                n_best,
            )
            for part in row_chunks(n_rows, n_genomes * derived.n_latents)
        ]
        return np.concatenate(found)

    def check(
        self, params: BlackBoxParams, X: NDArray[np.floating], observed: Mask | None, states: States
    ) -> None:
        """Try the log-joint on a few rows and states, and again one by one in another order."""
        X, states = X[:ROWS_TRIED], states[:ROWS_TRIED, :STATES_TRIED]
        observed = None if observed is None else observed[:ROWS_TRIED]
        derived = self.prepare(params, X.dtype)
        rows = self.prepare_rows(derived, X, observed)
        self.user_log_joint.compile(derived.params, rows, derived.n_latents)
        n_rows, n_states = states.shape[:2]
        together = np.empty((n_rows, n_states))
        starts, stops = np.zeros(n_rows, np.int64), np.full(n_rows, n_states)
        self.log_joints(derived, rows, Population(states, together, starts, stops))
        one = np.zeros(1, np.int64), np.ones(1, np.int64)
        for r in reversed(range(n_rows)):
            for m in reversed(range(n_states)):
                alone = np.empty((1, 1))
                some = rows.take(slice(r, r + 1))
                single = np.ascontiguousarray(states[r : r + 1, m : m + 1])
                self.log_joints(derived, some, Population(single, alone, *one))
                before, after = together[r, m], alone[0, 0]
                close = np.isclose(before, after, rtol=TRIAL_TOLERANCE, atol=TRIAL_TOLERANCE)
                if not close:
                    raise LogJointError(
                        "log_joint must not depend on earlier calls or on other rows and states; "
                        f"got {before} and then {after}",
                        r,
                        active_of(states, r, m, derived.n_latents),
                    )

    # ------------------------------------------------------------------------------------ M-step

    def empty_statistics(self, params: BlackBoxParams) -> BlackBoxStats:
        return BlackBoxStats(np.zeros(()), np.zeros(len(params.activation_probs)), {})

    def accumulate(
        self,
        stats: BlackBoxStats,
        params: BlackBoxParams,
        derived: Derived,
        rows: Any,
        posterior: Posterior,
    ) -> None:
        stats.n_rows[...] += len(posterior.states)
        stats.activation[...] += self.codes(params, derived, rows, posterior).sum(0)
        if self.functions.statistics is None and self.ascent is None:
            return
        numbers = posterior.states.shape[1] * max(derived.n_latents, rows.X.shape[1])
        for part in row_chunks(len(rows.X), numbers):
            some = Posterior(posterior.states[part], posterior.weights[part])
            states, weights = dense_posterior(some, derived.n_latents, rows.X.dtype)
            add_statistics(stats.sums, self._sums(derived, rows.take(part), states, weights))

    def _sums(
        self, derived: Derived, rows: Any, states: NDArray[Any], weights: NDArray[np.float64]
    ) -> dict[str, NDArray[np.float64]]:
        if self.ascent is not None:
            return self._gradient(self.ascent, derived, rows, states, weights)
        statistics = self.functions.statistics
        found = self._call(statistics, derived, rows.X, rows.mask, states, weights)
        if not isinstance(found, Mapping):
            raise TypeError(f"statistics must return a dict of arrays; got {type(found)!r}.")
        return {
            name: parameters.as_numpy(value).astype(np.float64) for name, value in found.items()
        }

    def _gradient(
        self,
        ascent: Ascent,
        derived: Derived,
        rows: Any,
        states: NDArray[Any],
        weights: NDArray[np.float64],
    ) -> dict[str, NDArray[np.float64]]:
        possible = weights.max(1) > 0
        if not possible.all():
            rows, states, weights = rows.take(possible), states[possible], weights[possible]
        if not len(weights):
            return {}
        found = ascent.gradient(derived.params, rows, states, weights)
        return {**found, ROWS_OF_GRADIENT: np.array(float(len(weights)))}

    def update(
        self, params: BlackBoxParams, stats: BlackBoxStats
    ) -> Generator[BlackBoxParams, None, BlackBoxParams]:
        """Candidates: a user's update, or a step along a gradient, may lower the bound."""
        kept = self._with_activity(params, stats)
        if self.ascent is not None:
            values, ascent = self.ascent.step(params.values, params.ascent, stats.sums)
            with suppress(LogJointError):  # the step was too long
                yield kept._replace(values=values, ascent=ascent)
            return kept._replace(ascent=self.ascent.shortened(params.ascent))
        if self.functions.update is not None:
            native = self.prepare(params, np.float64).params
            sums = {name: self.library.array(native, value) for name, value in stats.sums.items()}
            values = parameters.flatten(self.library.apply(self.functions.update, native, sums))
            yield kept._replace(values=parameters.matching(self.template, values, "update"))
        return kept

    def _with_activity(self, params: BlackBoxParams, stats: BlackBoxStats) -> BlackBoxParams:
        probs = clip_probabilities(stats.activation / stats.n_rows)
        return params._replace(activation_probs=probs)

    def finish_statistics(
        self, derived: Derived, stats: BlackBoxStats
    ) -> tuple[BlackBoxStats, BlackBoxStats]:
        """Statistics hold for later M-steps too, a gradient only for its own parameters."""
        return stats, stats._replace(sums={}) if self.ascent is not None else stats

    # --------------------------------------------------------------------------------- estimates

    def reconstruct(
        self, params: BlackBoxParams, derived: Derived, rows: Any, posterior: Posterior
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        if self.functions.mean is None:
            return by_quadrature(self, derived, rows, posterior, params.support)
        n_features = rows.X.shape[1]
        mean, square = np.zeros(rows.X.shape), np.zeros(rows.X.shape)
        for part in row_chunks(
            len(mean), posterior.states.shape[1] * max(derived.n_latents, n_features)
        ):
            states = dense_states(posterior.states[part], derived.n_latents, rows.X.dtype)
            means = np.asarray(self._call(self.functions.mean, derived, states), np.float64)
            expected = (*states.shape[:2], n_features)
            if means.shape != expected:
                raise ValueError(
                    f"mean must return the shape (n, s, d), here {expected}; got {means.shape}."
                )
            weights = posterior.weights[part]
            mean[part] = np.einsum("ns,nsd->nd", weights, means)
            square[part] = np.einsum("ns,nsd->nd", weights, means**2)
        return mean, np.maximum(square - mean**2, 0.0)

    def sample(
        self, params: BlackBoxParams, n: int, rng: np.random.Generator
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        if self.functions.sample is None:
            raise TypeError("sampler must be given to draw data from the model; it is None.")
        native = self.prepare(params, np.float64).params
        X, states = self.library.apply(self.functions.sample, native, n, rng)
        X, states = parameters.as_numpy(X), parameters.as_numpy(states)
        return X.astype(np.float64), states.astype(np.bool_)

    def _call(self, function: Any, derived: Derived, *arrays: NDArray[Any]) -> Any:
        """One of the user's functions of arrays."""
        given = (self.library.array(derived.params, array) for array in arrays)
        return self.library.apply(function, derived.params, *given)
