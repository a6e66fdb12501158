"""A user's `log_joint(params, X, states)` of many rows and states at once.

X is (n, d), states are (n, s, h), zeros and ones of the same type, and the result is (n, s). Only a
function with a parameter `observed`, (n, d) and boolean, can be used with missing values, where X
is zero.
"""

import inspect
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from evoem.black_box.array_libraries import Library, read_only
from evoem.black_box.parameters import Values
from evoem.errors import LogJointError
from evoem.models.base import Posterior
from evoem.runtime.compile import kernel
from evoem.states import Population, States, active_latents, unpack
from evoem.validation import Mask

# Numbers in the largest array that a function is given or, most likely, makes: a few megabytes,
# which stay in the processor's cache.
NUMBERS_AT_ONCE = 500_000


class VectorizedRows(NamedTuple):
    """A block of rows."""

    X: NDArray[np.floating]
    observed: Mask | None

    def take(self, part: slice | NDArray[Any]) -> "VectorizedRows":
        """A part of them."""
        return VectorizedRows(self.X[part], None if self.observed is None else self.observed[part])

    @property
    def mask(self) -> NDArray[np.bool_]:
        """The mask of observed values, also if all are observed."""
        return np.ones(self.X.shape, np.bool_) if self.observed is None else self.observed


@kernel
def _unpack_rows(states, rows, starts, stops, out):
    """Dense states of some rows, each from start to stop, padded with its first state."""
    active = np.empty(out.shape[2] + 1, np.int64)
    for i in range(out.shape[0]):
        r = rows[i]
        for j in range(out.shape[1]):
            m = starts[r] + j if starts[r] + j < stops[r] else starts[r]
            for a in range(active_latents(states, r, m, active)):
                out[i, j, active[a]] = 1


@kernel
def _scatter(values, rows, starts, stops, out):
    for i in range(values.shape[0]):
        r = rows[i]
        for j in range(stops[r] - starts[r]):
            out[r, starts[r] + j] = values[i, j]


def row_chunks(n_rows: int, numbers_per_row: int) -> Iterator[slice]:
    """Chunks of rows that are processed together."""
    size = max(1, NUMBERS_AT_ONCE // max(numbers_per_row, 1))
    for start in range(0, n_rows, size):
        yield slice(start, min(start + size, n_rows))


def dense_states(states: States, n_latents: int, dtype: DTypeLike) -> NDArray[Any]:
    """States of all rows as zeros and ones."""
    out = np.zeros((*states.shape[:2], n_latents), dtype)
    starts, stops = np.zeros(len(states), np.int64), np.full(len(states), states.shape[1])
    _unpack_rows(states, np.arange(len(states)), starts, stops, out)
    return out


@kernel
def _unpack_weighted(states, weights, negligible, out, out_weights):
    active = np.empty(out.shape[2] + 1, np.int64)
    for r in range(out.shape[0]):
        heaviest = 0
        for m in range(weights.shape[1]):
            if weights[r, m] > weights[r, heaviest]:
                heaviest = m
        n, m = 0, 0
        while n < out.shape[1]:
            if m < weights.shape[1] and not weights[r, m] > negligible:
                m += 1
                continue
            chosen = m if m < weights.shape[1] else heaviest
            for i in range(active_latents(states, r, chosen, active)):
                out[r, n, active[i]] = 1
            out_weights[r, n] = weights[r, m] if m < weights.shape[1] else 0.0
            n += 1
            m += 1


def dense_posterior(
    posterior: Posterior, n_latents: int, dtype: DTypeLike
) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """Dense states with a weight above zero, and their weights.

    Rows with fewer of them are padded with their heaviest state, at weight zero: states without
    weight may have log-joints that cannot be differentiated.
    """
    states, weights = posterior
    negligible = float(np.finfo(dtype).eps)
    most = int(np.count_nonzero(weights > negligible, axis=1).max(initial=1))
    width = min(1 << (most - 1).bit_length(), weights.shape[1])  # few shapes, which JAX compiles
    out = np.zeros((len(states), width, n_latents), dtype)
    out_weights = np.empty((len(states), width))
    _unpack_weighted(states, weights, negligible, out, out_weights)
    return out, out_weights


def takes_observed(function: Callable[..., Any]) -> bool:
    """Whether a function has a parameter `observed`."""
    return "observed" in inspect.signature(function).parameters


class VectorizedLogJoint:
    """Evaluates a log-joint of many states."""

    def __init__(self, function: Callable[..., Any], library: Library) -> None:
        self.function = function
        self.library = library
        self.takes_observed = takes_observed(function)

    def prepare(self, template: Any, values: Values, dtype: DTypeLike) -> Any:
        """Parameters as the user's function is given them."""
        return self.library.params(template, values, dtype)

    def rows(self, params: Any, X: NDArray[np.floating], observed: Mask | None) -> VectorizedRows:
        """A block of rows."""
        if observed is not None and not self.takes_observed:
            raise ValueError(
                "X must have no missing values for a log_joint without the parameter `observed`; "
                f"got {np.count_nonzero(~observed)} of them."
            )
        return VectorizedRows(read_only(X), None if observed is None else read_only(observed))

    def compile(self, params: Any, rows: VectorizedRows, n_latents: int) -> None:
        """Nothing is compiled before its first call."""

    def _arguments(
        self, params: Any, rows: VectorizedRows, states: NDArray[Any]
    ) -> tuple[tuple[Any, Any], dict[str, Any]]:
        array = self.library.array
        more = {"observed": array(params, rows.mask)} if self.takes_observed else {}
        return (array(params, rows.X), array(params, states)), more

    def evaluate(
        self, params: Any, rows: VectorizedRows, n_latents: int, population: Population
    ) -> None:
        """Fill in `population.log_joints`."""
        states, out, starts, stops = population
        width = int((stops - starts).max(initial=0))
        if width == 0:
            return
        busy = np.flatnonzero(stops > starts)
        for part in row_chunks(len(busy), width * max(n_latents, rows.X.shape[1])):
            numbers = busy[part]
            wanted = np.zeros((len(numbers), width, n_latents), rows.X.dtype)
            _unpack_rows(states, numbers, starts, stops, wanted)
            arrays, more = self._arguments(params, rows.take(numbers), wanted)
            found = self.library.call(self.function, params, *arrays, **more)
            _scatter(_checked(found, wanted, int(numbers[0])), numbers, starts, stops, out)

    def gradient(
        self, params: Any, rows: VectorizedRows, states: NDArray[Any], weights: NDArray[np.float64]
    ) -> dict[str, NDArray[np.float64]]:
        """The gradient of Σ_n Σ_s q_n(s) log p(s, x_n) by each real parameter."""
        arrays, more = self._arguments(params, rows, states)
        return self.library.gradient(self.function, params, arrays, weights, more)


def _checked(found: Any, states: NDArray[Any], first_row: int) -> NDArray[np.floating]:
    """The result of a log-joint, checked."""
    values = np.asarray(found)
    shape = states.shape[:2]
    if values.dtype.kind not in "fiub":
        problem = f"log_joint must return real numbers; got {values.dtype}"
    elif values.shape != shape:
        problem = f"log_joint must return the shape (n, s), here {shape}; got {values.shape}"
    else:
        return values.astype(np.float64, copy=False)
    raise LogJointError(problem, first_row, np.flatnonzero(states[0, 0]).tolist())


def active_of(states: States, row: int, slot: int, n_latents: int) -> list[int]:
    """The active latents of one state."""
    found: list[int] = np.flatnonzero(unpack(states[row, slot], n_latents)).tolist()
    return found
