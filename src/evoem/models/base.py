"""The model contract: what EM needs to know about a generative model with binary latents.

A model is a small immutable object that holds its options; everything learnt lives in `Params`, a
NamedTuple of float64 arrays with a field `activation_probs` of length H. All functions are pure.
They process a block of rows at a time, so a model can be compiled code, NumPy, or anything else.
The table lists all members; EM needs the first seven.

| member | result |
| --- | --- |
| `prepare(params, dtype)` | `Derived`: what log-joints need and is the same for all rows, with the fields `n_latents` and `expected_active` |
| `prepare_rows(derived, X, observed, positions)` | `Rows`: what log-joints need about a block of rows, once per E-step |
| `log_joints(derived, rows, population)` | writes log p(s, x), constants included, into the population |
| or `dense_log_joints(derived, rows, states)` | the same for boolean states |
| `empty_statistics(params)` | `Stats` of no rows: a NamedTuple of arrays that can be added |
| `accumulate(stats, params, derived, rows, posterior)` | adds the statistics of a block of rows, in place |
| `update(params, stats)` | the `Params` of the M-step, or candidates for them |
| `initialize(X, observed, n_latents, rng, comm)` | initial `Params` |
| `check(params, X, observed, states)` | raises an error if the model cannot be used |
| `first_states(derived, rows, n_states)` | first states of rows, instead of random ones |
| `log_constants(derived, rows)` | terms that the fitness of parents leaves out |
| `best_additions(derived, rows, genomes, n_best)` | latents that guided mutation may activate |
| `finish_statistics(derived, stats)` | final statistics, after those of all rows have been added |
| `canonical(params)` | an equivalent model, with what the data cannot determine fixed by convention |
| `reconstruct(params, derived, rows, posterior)` | mean and variance of the noise-free data |
| `codes(params, derived, rows, posterior)` | posterior mean of the latents |
| `sample(params, n, rng)` | data and boolean states |

Missing data is a boolean mask `observed` (None: everything is observed); `X` holds zeros where a
value is missing. A model of data explained by the number of active latents alone:

>>> import numpy as np
>>> from typing import NamedTuple
>>> from evoem.models.base import Model, log_joint
>>> class Params(NamedTuple):
...     activation_probs: np.ndarray
>>> class Derived(NamedTuple):
...     log_odds: np.ndarray
...     log_prior: float
...     n_latents: int
...     expected_active: float
>>> class CountModel(Model):
...     def prepare(self, params, dtype):
...         pi = params.activation_probs
...         log_prior = np.log1p(-pi).sum() - 0.5 * np.log(2 * np.pi)
...         return Derived(np.log(pi / (1 - pi)), log_prior, len(pi), pi.sum())
...     def prepare_rows(self, derived, X, observed, positions=None):
...         return X[:, 0]
...     def dense_log_joints(self, derived, rows, states):
...         prior = states @ derived.log_odds + derived.log_prior
...         return prior - 0.5 * (rows[:, None] - states.sum(-1)) ** 2
>>> params = Params(np.array([0.5, 0.5]))
>>> float(log_joint(CountModel(), params, np.array([2.0]), None, [True, True]))
-2.305...
"""

# ruff: noqa: E501 - the rows of a table are no longer than they must be

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from evoem.ranking import rank_inactive
from evoem.runtime.communicator import ALONE, Communicator
from evoem.states import (
    Genomes,
    Population,
    States,
    add_weighted,
    pack,
    unpack,
    whole_population,
)
from evoem.validation import Mask, Positions


class Posterior(NamedTuple):
    """Truncated posteriors of a block of rows (eq:tvem_truncated_posterior).

    Attributes
    ----------
    states : uint64 array of shape (n_rows, n_states, n_words)
    weights : float64 array of shape (n_rows, n_states)
        Each row sums to one.

    Examples
    --------
    >>> import numpy as np
    >>> from evoem.models import Posterior
    >>> from evoem.states import pack
    >>> states = pack(np.array([[[True, False], [True, True]]]))
    >>> Posterior(states, np.array([[0.75, 0.25]])).states.shape
    (1, 2, 1)
    """

    states: States
    weights: NDArray[np.float64]


class Prior(NamedTuple):
    """Means of the latents, and mean and variance of the noise-free data, under the prior."""

    codes: NDArray[np.float64]  # (H,)
    mean: NDArray[np.float64]  # (D,)
    variance: NDArray[np.float64]  # (D,)


class Model(ABC):
    """A generative model as EM sees it; the docstring of the module lists all members.

    Examples
    --------
    >>> from evoem.models import BinarySparseCodingModel, Model
    >>> isinstance(BinarySparseCodingModel(), Model)
    True
    """

    # `first_states(derived, rows, n_states)`: states that rows start from, (n_rows, n_states,
    # n_words). EM asks for no more than there are latents. None: random ones.
    first_states: Callable[[Any, Any, int], States] | None = None

    @abstractmethod
    def prepare(self, params: Any, dtype: DTypeLike) -> Any:
        """What log-joints need and is the same for all rows; `dtype` is that of the data.

        It has the fields `n_latents`, H, and `expected_active`, Σ_h π_h.
        """

    @abstractmethod
    def prepare_rows(
        self,
        derived: Any,
        X: NDArray[np.floating],
        observed: Mask | None,
        positions: Positions = None,
    ) -> Any:
        """What log-joints need about a block of rows.

        `positions` (n_rows, 2) are given only to models whose prior depends on them.
        """

    def log_joints(self, derived: Any, rows: Any, population: Population) -> None:
        """Compute `population.log_joints` for the states of each row between start and stop."""
        states, out, starts, stops = population
        if states.shape[1] == 0:
            return
        values = self.dense_log_joints(derived, rows, unpack(states, derived.n_latents))
        number = np.arange(states.shape[1])
        inside = (number >= starts[:, None]) & (number < stops[:, None])
        out[inside] = values[inside]

    def dense_log_joints(
        self, derived: Any, rows: Any, states: NDArray[np.bool_]
    ) -> NDArray[np.float64]:
        """log p(s, x) of boolean states (n_rows, n_states, n_latents).

        A model defines this or `log_joints`.
        """
        raise self._undefined("log_joints or dense_log_joints")

    def empty_statistics(self, params: Any) -> Any:
        """Statistics of no rows: a NamedTuple, maybe nested, of arrays that can be added."""
        raise self._undefined("empty_statistics")

    def accumulate(
        self, stats: Any, params: Any, derived: Any, rows: Any, posterior: Posterior
    ) -> None:
        """Add the statistics of a block of rows to `stats`, in place."""
        raise self._undefined("accumulate")

    def update(self, params: Any, stats: Any) -> Any:
        """The M-step: new parameters.

        Or a generator that yields candidates, in order of preference. EM takes the first that does
        not lower the bound, or, if there is none, what the generator returns. An error about a
        candidate's log-joints (`LogJointError`) is raised at its `yield`. With mini-batches the
        first candidate is taken.
        """
        raise self._undefined("update")

    def initialize(
        self,
        X: NDArray[np.floating],
        observed: Mask | None,
        n_latents: int,
        rng: np.random.Generator,
        comm: Communicator = ALONE,
    ) -> Any:
        """Parameters to start from.

        `comm` is passed only if there are several processes. Each has some of the rows, and all
        must arrive at the same parameters; `models.all_rows` helps.
        """
        raise self._undefined("initialize")

    def check(  # noqa: B027 - most models need no check
        self, params: Any, X: NDArray[np.floating], observed: Mask | None, states: States
    ) -> None:
        """Raise an error if the model cannot be used, before the first iteration."""

    def log_constants(self, derived: Any, rows: Any) -> NDArray[np.float64] | float:
        """C(Θ), for each row or for all, which the fitness of parents leaves out (app:lpj)."""
        return 0.0

    def best_additions(
        self, derived: Any, rows: Any, genomes: Genomes, n_best: int
    ) -> NDArray[np.int32]:
        """The inactive latents that are most promising to activate: (n_rows, n_genomes, n_best).

        Best first, -1 where there are no more. Guided mutation chooses among them. They should be
        those that raise the log-joint most; leaving the prior out of the ranking, where that is
        cheap, finds better states.
        """
        return rank_inactive(flip_gains(self, derived, rows, genomes), genomes, n_best)

    def finish_statistics(self, derived: Any, stats: Any) -> tuple[Any, Any]:
        """Statistics for the next M-step, and what later M-steps may still use of them.

        Called once for each part of the data, in every process, after the statistics of its rows
        have been summed over all processes and before those of other parts are added. `derived`
        belongs to the parameters that the statistics were computed with. May overwrite `stats`.
        """
        return stats, stats

    def canonical(self, params: Any) -> Any:
        """An equivalent model, with what the data cannot determine fixed by convention."""
        return params

    def reconstruct(
        self, params: Any, derived: Any, rows: Any, posterior: Posterior
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Posterior mean and variance of the noise-free data of a block of rows."""
        raise self._undefined("reconstruct")

    def codes(
        self, params: Any, derived: Any, rows: Any, posterior: Posterior
    ) -> NDArray[np.float64]:
        """Posterior mean of the latents of a block of rows; by default of the states."""
        out = np.zeros((len(posterior.states), derived.n_latents))
        add_weighted(*posterior, out)
        return out

    def sample(
        self, params: Any, n: int, rng: np.random.Generator
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """n rows of data and their states."""
        raise self._undefined("sample")

    def __repr__(self) -> str:
        options = ", ".join(
            f"{name}={getattr(self, name)!r}"
            for name in inspect.signature(type(self)).parameters
            if isinstance(getattr(self, name, None), str | int | float)
        )
        return f"{type(self).__name__}({options})"

    def _undefined(self, name: str) -> TypeError:
        return TypeError(f"{type(self).__name__} must define {name} for this; it does not.")

    def _refuse_positions(self, positions: Positions) -> None:
        if positions is not None:
            raise self._undefined("a prior that depends on positions")


def log_joint(
    model: Model, params: Any, x: ArrayLike, observed: Mask | None, state: ArrayLike
) -> float:
    """log p(s, x) of one row and one boolean state."""
    row = np.atleast_2d(np.asarray(x, np.float64))
    mask = None if observed is None else np.atleast_2d(observed)
    derived = model.prepare(params, row.dtype)
    out = np.empty((1, 1))
    states = pack(np.asarray(state, np.bool_)[None, None])
    rows = model.prepare_rows(derived, row, mask)
    model.log_joints(derived, rows, whole_population(states, out))
    return float(out[0, 0])


def flip_gains(model: Model, derived: Any, rows: Any, genomes: Genomes) -> NDArray[np.float64]:
    """Change of the log-joint by each single flip: (n_rows, n_genomes, n_latents).

    A flip between two impossible states gains nothing; gains past a row's count are zero.
    """
    n_rows, n_genomes, width = genomes.states.shape
    n_latents = derived.n_latents
    single = pack(np.eye(n_latents, dtype=np.bool_))
    flips = np.concatenate([np.zeros((1, width), np.uint64), single])
    flipped = genomes.states[:, :, None] ^ flips  # the state itself, then each flip
    flipped = flipped.reshape(n_rows, -1, width)
    out = np.zeros(flipped.shape[:2])
    stops = genomes.counts * (n_latents + 1)
    model.log_joints(derived, rows, Population(flipped, out, np.zeros_like(stops), stops))
    out = out.reshape(n_rows, n_genomes, n_latents + 1)
    before, after = out[:, :, :1], out[:, :, 1:]
    return np.subtract(after, before, out=np.zeros_like(after), where=after != before)


def size_in_bytes(stats: Any) -> int:
    """Bytes that a NamedTuple or dict of statistics takes."""
    if isinstance(stats, np.ndarray):
        return stats.nbytes
    return sum(map(size_in_bytes, stats.values() if isinstance(stats, dict) else stats))


def add_statistics(total: Any, more: Any) -> None:
    """Add a NamedTuple of statistics to another in place, field by field; dicts by name."""
    if isinstance(total, np.ndarray):
        total += more
    elif isinstance(total, dict):
        for name, value in more.items():
            if name in total:
                add_statistics(total[name], value)
            else:
                total[name] = value.copy()
    else:
        for mine, other in zip(total, more, strict=True):
            add_statistics(mine, other)
