"""A user's `log_joint(params, x, observed, state)` of one row and one state, compiled by Numba.

With a parameter `active` instead of `state` it is passed the numbers of the active latents: finding
them among many latents takes longer than all the rest of some models.

Compiled, it becomes part of a kernel that loops over all states of a block of rows, without
callbacks into Python. In plain Python it is called for each state.
"""

import inspect
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numba
import numpy as np
from numba.core.dispatcher import Dispatcher
from numba.core.errors import NumbaError
from numpy.typing import DTypeLike, NDArray

from evoem.black_box import parameters
from evoem.black_box.array_libraries import read_only
from evoem.errors import LogJointError
from evoem.runtime.compile import OPTIONS, inlined
from evoem.states import Population, active_latents, unpack
from evoem.validation import Mask


class ScalarRows(NamedTuple):
    """A block of rows."""

    X: NDArray[np.floating]
    observed: NDArray[np.bool_]
    inputs: NDArray[np.floating]  # X, or what the user makes of it once for all states

    def take(self, part: slice) -> "ScalarRows":
        """A part of them."""
        return ScalarRows(self.X[part], self.observed[part], self.inputs[part])

    @property
    def mask(self) -> NDArray[np.bool_]:
        """What was observed."""
        return self.observed


@inlined
def _set_active(state, active, k, value):
    for i in range(k):
        state[active[i]] = value


def _loop_over_states(log_joint: Any, by_active: bool) -> Any:
    """A kernel that calls a compiled log-joint for every state of every row."""

    def of_active(params, X, observed, n_latents, states, out, starts, stops):
        active = np.empty(n_latents + 1, np.int64)
        for r in range(states.shape[0]):
            x, seen = X[r], observed[r]
            for m in range(starts[r], stops[r]):
                k = active_latents(states, r, m, active)
                out[r, m] = log_joint(params, x, seen, active[:k])

    def of_state(params, X, observed, n_latents, states, out, starts, stops):
        active = np.empty(n_latents + 1, np.int64)
        state = np.zeros(n_latents, np.bool_)
        for r in range(states.shape[0]):
            x, seen = X[r], observed[r]
            for m in range(starts[r], stops[r]):
                k = active_latents(states, r, m, active)
                _set_active(state, active, k, True)
                out[r, m] = log_joint(params, x, seen, state)
                _set_active(state, active, k, False)

    return numba.njit(**OPTIONS)(of_active if by_active else of_state)


def takes_active(function: Callable[..., Any]) -> bool:
    """Whether a log-joint takes the active latents, and not a boolean state."""
    return "active" in inspect.signature(getattr(function, "py_func", function)).parameters


@lru_cache(maxsize=32)
def _compiled(function: Callable[..., Any]) -> tuple[Any, Any]:
    """A function and its kernel, which are compiled at the first call."""
    ready = isinstance(function, Dispatcher)
    log_joint = function if ready else numba.njit(**OPTIONS)(function)
    return log_joint, _loop_over_states(log_joint, takes_active(function))


def _reason(error: Exception, function: Callable[..., Any]) -> str:
    """The line that does not compile, and why, from Numba's long message."""
    if not isinstance(error, NumbaError):
        return f"Numba gave up on it, maybe since what it is given is read-only: {error}"
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(error))
    lines = [line.strip(" -") for line in text.splitlines()]
    skipped = ("Failed in", "File ", "During:", "<source", "There are", "def ")
    why = next((line for line in lines if line and not line.startswith(skipped)), text)
    number, source = _offending_line(text, function)
    return f"line {number} ({source}): {why}" if number else why


def _offending_line(text: str, function: Callable[..., Any]) -> tuple[int, str]:
    """Number and text of the line that Numba complains about; 0 if it is unknown."""
    lines, first = inspect.getsourcelines(function)
    file = inspect.getsourcefile(function) or ""
    for name, number in reversed(re.findall(r'File "(.*?)", line (\d+)', text)):
        line = int(number) - first
        if file.endswith(name.removeprefix("../")) and 0 <= line < len(lines):
            return int(number), lines[line].strip()
    for unknown in re.findall(r"name '(\w+)' is not defined", text):
        for line, source in enumerate(lines):
            if re.search(rf"\b{unknown}\b", source):
                return first + line, source.strip()
    return 0, ""


class ScalarLogJoint:
    """Evaluates a log-joint of one state.

    `prepare_rows(params, X, observed)` computes (n, e), which the log-joint gets instead of x.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        compiled: bool,
        prepare_rows: Callable[..., Any] | None = None,
    ) -> None:
        self.function = function
        self.compiled = compiled
        self.prepare_rows = prepare_rows
        self.by_active = takes_active(function)
        if compiled:
            self._log_joint, self._kernel = _compiled(function)

    def __reduce__(self) -> Any:  # compiled code is made again where it is needed
        return ScalarLogJoint, (self.function, self.compiled, self.prepare_rows)

    def prepare(self, template: Any, values: parameters.Values, dtype: DTypeLike) -> Any:
        """Parameters in the form that the function takes, in the precision of the data."""

        def make(name: str) -> Any:
            value = values[name]
            if value.ndim == 0:
                return value[()]
            real = value.dtype.kind == "f"
            return read_only(np.ascontiguousarray(value, dtype if real else None))

        return parameters.rebuild(template, make, for_numba=True)

    def rows(self, params: Any, X: NDArray[np.floating], observed: Mask | None) -> ScalarRows:
        """Rows in the form that the function takes, one by one."""
        seen = np.ones(X.shape, np.bool_) if observed is None else observed
        X, seen = read_only(X), read_only(seen)
        if self.prepare_rows is None:
            return ScalarRows(X, seen, X)
        made = np.asarray(self.prepare_rows(params, X, seen))
        if made.ndim != 2 or len(made) != len(X) or made.dtype.kind not in "fiub":
            raise ValueError(
                f"prepare_rows must return real numbers of the shape (n, e), here ({len(X)}, e); "
                f"got {made.dtype} of the shape {made.shape}."
            )
        return ScalarRows(X, seen, read_only(np.ascontiguousarray(made, X.dtype)))

    def compile(self, params: Any, rows: ScalarRows, n_latents: int) -> None:
        """Make sure that the function compiles and returns a real number."""
        if not self.compiled:
            return
        function = getattr(self._log_joint, "py_func", self.function)
        state: NDArray[Any] = np.zeros(n_latents, np.int64 if self.by_active else np.bool_)
        types = tuple(map(numba.typeof, (params, rows.inputs[0], rows.observed[0], state)))
        try:
            self._log_joint.compile(types)
        except Exception as error:  # Numba raises others too, where it did not foresee something
            raise TypeError(
                "log_joint must compile with Numba (which reads a dict of parameters as "
                "params.name), or be run as plain Python by compiled=False; "
                f"{_reason(error, function)}"
            ) from error
        result = self._log_joint.overloads[types].signature.return_type
        if not isinstance(result, numba.types.Float | numba.types.Integer | numba.types.Boolean):
            raise LogJointError(f"log_joint must return a real number; it returns {result}", 0, [])

    def evaluate(
        self, params: Any, rows: ScalarRows, n_latents: int, population: Population
    ) -> None:
        """Fill in `population.log_joints`."""
        if self.compiled:
            self._kernel(params, rows.inputs, rows.observed, n_latents, *population)
            return
        states, out, starts, stops = population
        for r, (x, observed) in enumerate(zip(rows.inputs, rows.observed, strict=True)):
            dense = unpack(states[r, starts[r] : stops[r]], n_latents)
            for m, state in enumerate(dense):
                given = np.flatnonzero(state) if self.by_active else state
                value = self.function(params, x, observed, given)
                out[r, starts[r] + m] = _real(value, r, state)


def _real(value: Any, row: int, state: NDArray[np.bool_]) -> float:
    array = np.asarray(value)
    if array.ndim == 0 and array.dtype.kind in "fiub":
        return float(array)
    what = f"the shape {array.shape}" if array.ndim else repr(value)
    active = np.flatnonzero(state).tolist()
    raise LogJointError(f"log_joint must return a real number; got {what}", row, active)
