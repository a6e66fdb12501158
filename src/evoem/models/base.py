"""The model contract: what EM needs to know about a generative model with binary latents.

A model is a small immutable object that holds its options; everything learnt lives in `Params`, a
NamedTuple of float64 arrays. All functions are pure. They work on a block of rows at a time, so
that a model can be compiled code, NumPy, or anything else.

| member | gives |
| --- | --- |
| `initialize(X, observed, n_latents, rng)` | `Params` |
| `prepare(params, dtype)` | `Derived`: all that the log-joint needs and no row changes |
| `prepare_rows(derived, X, observed)` | `Rows`: what it needs of a block of rows, once per E-step |
| `place(derived, rows, positions)` | rows with the prior of where they lie, if that matters |
| `log_joints(derived, rows, population)` | fills in log p(s, x), constants included |
| `empty_statistics(params)` | `Stats` of no rows: a NamedTuple of arrays that add |
| `accumulate(stats, params, derived, rows, posterior)` | adds those of a block of rows in place |
| `update(params, stats)` | the M-step's `Params` |
| `reconstruct(params, derived, rows, posterior)` | mean and variance of the noise-free data |
| `codes(params, derived, rows, posterior)` | posterior mean of the latents |
| `prior(params)` | the same for a row of which nothing was observed |
| `sample(params, n, rng)` | data and boolean states |

Missing data is a boolean mask `observed` (None: everything is observed); `X` holds zeros where a
value is missing. A complete model, data explained by the number of active latents alone:

>>> import numpy as np
>>> from typing import NamedTuple
>>> from evoem.models.base import Model
>>> class Params(NamedTuple):
...     activation_probs: np.ndarray
>>> class CountModel(Model):
...     def prepare(self, params, dtype):
...         return params
...     def prepare_rows(self, derived, X, observed):
...         return X[:, 0]
...     def n_latents(self, derived):
...         return len(derived.activation_probs)
...     def expected_active(self, derived):
...         return float(derived.activation_probs.sum())
...     def dense_log_joints(self, derived, rows, states):
...         logits = np.log(derived.activation_probs / (1 - derived.activation_probs))
...         prior = states @ logits + np.log1p(-derived.activation_probs).sum()
...         return prior - 0.5 * (rows[:, None] - states.sum(-1)) ** 2 - 0.5 * np.log(2 * np.pi)
>>> model = CountModel()
>>> float(model.log_joint(Params(np.array([0.5, 0.5])), np.array([2.0]), None, [True, True]))
-2.305...
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from evoem.ranking import highest, rank_inactive
from evoem.states import (
    Genomes,
    Population,
    States,
    add_weighted,
    pack,
    unpack,
    whole_population,
)

Mask = NDArray[np.bool_] | None


class Posterior(NamedTuple):
    """Truncated posteriors of a block of rows (eq:tvem_truncated_posterior)."""

    states: States  # (n_rows, n_states, n_words)
    weights: NDArray[np.float64]  # (n_rows, n_states), each row sums to one


class Prior(NamedTuple):
    """Means of the latents and of the noise-free data, and the latter's variance."""

    codes: NDArray[np.float64]  # (H,)
    mean: NDArray[np.float64]  # (D,)
    variance: NDArray[np.float64]  # (D,)


class Model(ABC):
    """See the module's docstring."""

    # Options that are one of several words, and these: of a model's attributes.
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    # Whether rows start from their best states of one active latent, not from random ones.
    starts_single = False

    @abstractmethod
    def prepare(self, params: Any, dtype: DTypeLike) -> Any:
        """What the log-joint needs and no row changes; `dtype` is that of the data."""

    @abstractmethod
    def prepare_rows(self, derived: Any, X: NDArray[np.floating], observed: Mask) -> Any:
        """What the log-joint needs of a block of rows."""

    def place(self, derived: Any, rows: Any, positions: NDArray[np.floating]) -> Any:
        """The same rows, with the prior of where they lie: `positions` (n_rows, 2).

        Needed if EM is told where rows lie.
        """
        raise self._undefined("place")

    @abstractmethod
    def n_latents(self, derived: Any) -> int:
        """H."""

    @abstractmethod
    def expected_active(self, derived: Any) -> float:
        """Σ_h π_h, the prior's mean number of active latents."""

    def log_constants(self, derived: Any, rows: Any) -> NDArray[np.float64] | float:
        """C(Θ), of each row or of all, which the fitness of parents leaves out (app:lpj)."""
        return 0.0

    def log_joints(self, derived: Any, rows: Any, population: Population) -> None:
        """Fill in `population.log_joints` for the states of each row between start and stop."""
        states, out, starts, stops = population
        if states.shape[1] == 0:
            return
        dense = unpack(states, self.n_latents(derived))
        values = self.dense_log_joints(derived, rows, dense)
        place = np.arange(states.shape[1])
        inside = (place >= starts[:, None]) & (place < stops[:, None])
        out[inside] = values[inside]

    def dense_log_joints(
        self, derived: Any, rows: Any, states: NDArray[np.bool_]
    ) -> NDArray[np.float64]:
        """log p(s, x) of boolean states (n_rows, n_states, n_latents).

        A model defines this or `log_joints`.
        """
        raise self._undefined("log_joints or dense_log_joints")

    def best_single(self, derived: Any, rows: Any, out: NDArray[np.int64]) -> None:
        """Fill in latents that are best alone: (n_rows, n_best), in any order.

        By log p(s, x) of all states of one active latent; a model that `starts_single` may know a
        faster way.
        """
        n_latents = self.n_latents(derived)
        single = pack(np.eye(n_latents, dtype=np.bool_))
        states = np.ascontiguousarray(np.broadcast_to(single, (len(out), *single.shape)))
        values = np.empty((len(out), n_latents))
        self.log_joints(derived, rows, whole_population(states, values))
        out[:] = highest(values, out.shape[1])

    def log_joint(self, params: Any, x: ArrayLike, observed: Mask, state: ArrayLike) -> float:
        """log p(s, x) of one row and one boolean state."""
        row = np.atleast_2d(np.asarray(x, np.float64))
        mask = None if observed is None else np.atleast_2d(observed)
        derived = self.prepare(params, row.dtype)
        rows = self.prepare_rows(derived, row, mask)
        out = np.empty((1, 1))
        states = pack(np.asarray(state, np.bool_)[None, None])
        self.log_joints(derived, rows, whole_population(states, out))
        return float(out[0, 0])

    def flip_gains(self, derived: Any, rows: Any, genomes: Genomes) -> NDArray[np.float64]:
        """Change of the log-joint by each single flip: (n_rows, n_genomes, n_latents).

        This default evaluates every flip; a model that can do better overrides it. A flip between
        two impossible states gains nothing; gains past a row's count are zero.
        """
        n_rows, n_genomes, width = genomes.states.shape
        n_latents = self.n_latents(derived)
        single = pack(np.eye(n_latents, dtype=np.bool_))
        flips = np.concatenate([np.zeros((1, width), np.uint64), single])
        flipped = genomes.states[:, :, None] ^ flips  # the state itself, then each flip
        flipped = flipped.reshape(n_rows, -1, width)
        out = np.zeros(flipped.shape[:2])
        stops = genomes.counts * (n_latents + 1)
        self.log_joints(derived, rows, Population(flipped, out, np.zeros_like(stops), stops))
        out = out.reshape(n_rows, n_genomes, n_latents + 1)
        before, after = out[:, :, :1], out[:, :, 1:]
        return np.subtract(after, before, out=np.zeros_like(after), where=after != before)

    def best_additions(
        self, derived: Any, rows: Any, genomes: Genomes, n_best: int
    ) -> NDArray[np.int32]:
        """Inactive latents it is most promising to activate: (n_rows, n_genomes, n_best).

        Best first, -1 where there are no more. Guided mutation chooses among them. They should be
        those that raise the log-joint most; a model that can leave the prior out of it, cheaply,
        does better.
        """
        return rank_inactive(self.flip_gains(derived, rows, genomes), genomes, n_best)

    def check(  # noqa: B027 - most models need no check
        self, params: Any, X: NDArray[np.floating], observed: Mask, states: States
    ) -> None:
        """Refuse a model that cannot be used, before the first iteration with these states."""

    def initialize(
        self, X: NDArray[np.floating], observed: Mask, n_latents: int, rng: np.random.Generator
    ) -> Any:
        """Parameters to start from."""
        raise self._undefined("initialize")

    def allowed(self, params: Any, X: NDArray[np.floating], observed: Mask) -> Any:
        """Given parameters, moved to where updates keep them."""
        return params

    def empty_statistics(self, params: Any) -> Any:
        """Statistics of no rows: a NamedTuple, maybe nested, of arrays that add."""
        raise self._undefined("empty_statistics")

    def accumulate(
        self, stats: Any, params: Any, derived: Any, rows: Any, posterior: Posterior
    ) -> None:
        """Add the statistics of a block of rows to `stats`, in place."""
        raise self._undefined("accumulate")

    def gathered(self, derived: Any, stats: Any) -> Any:
        """The statistics once those of all rows were added; may overwrite `stats`."""
        return stats

    def update(self, params: Any, stats: Any) -> Any:
        """The M-step."""
        raise self._undefined("update")

    def reconstruct(
        self, params: Any, derived: Any, rows: Any, posterior: Posterior
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Posterior mean and variance of the noise-free data of a block of rows."""
        raise self._undefined("reconstruct")

    def codes(
        self, params: Any, derived: Any, rows: Any, posterior: Posterior
    ) -> NDArray[np.float64]:
        """Posterior mean of the latents of a block of rows; by default of the states."""
        out = np.zeros((len(posterior.states), self.n_latents(derived)))
        add_weighted(*posterior, out)
        return out

    def sample(
        self, params: Any, n: int, rng: np.random.Generator
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """n rows of data and their states."""
        raise self._undefined("sample")

    def _undefined(self, name: str) -> TypeError:
        return TypeError(f"{type(self).__name__} must define {name} for this; it does not.")

    def prior(self, params: Any) -> Prior:
        """What the model expects of a row of which nothing was observed."""
        raise self._undefined("prior")

    def canonical(self, params: Any) -> Any:
        """The same model with what the data cannot settle fixed by a convention, for reports."""
        return params

    @property
    def guarded(self) -> bool:
        """Whether `update` may lower the bound.

        EM then takes it only if the bound does not fall by it, else `fallback_update`, which must
        be certain not to lower it.
        """
        return False

    @property
    def explores(self) -> bool:
        """Whether `update` may lead to where log-joints are no numbers: EM falls back there too."""
        return False

    def fallback_update(self, params: Any, stats: Any) -> Any:
        """The update of a guarded model to fall back on."""
        raise self._undefined("fallback_update")

    def settled(self, stats: Any) -> Any:
        """The statistics without what holds for the parameters they were gathered with alone.

        Mini-batches keep those of every part while the parameters move on. May overwrite `stats`.
        """
        return stats


def size_in_bytes(stats: Any) -> int:
    """Memory of a NamedTuple or dict of statistics."""
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
