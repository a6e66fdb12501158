"""Evolutionary expectation maximisation: `init`, `e_step`, `m_step`, `step`, `run` (alg:eem).

>>> import numpy as np
>>> from evoem import em
>>> from evoem.models import BinarySparseCodingModel
>>> data = em.Data(np.random.default_rng(0).normal(size=(200, 6)))
>>> model = BinarySparseCodingModel()
>>> state = em.init(model, data, n_latents=4, n_states=8, seed=1)
>>> state, infos = em.run(model, data, state, em.Evolution(n_parents=4, n_children=2), max_iter=3)
>>> [info.iteration for info in infos]
[1, 2, 3]

A run is a chain of `step`s over an `EMState`, which holds everything the next step needs: save it,
and a run can be continued as if it had never stopped. Rows are independent given the parameters, so
an E-step is threads over fixed blocks of rows, whose statistics are summed in the order of the
blocks: the number of threads changes nothing in the result.
"""

import inspect
import time
from collections.abc import Callable, Generator
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from evoem import evolution as breeding
from evoem import posterior, states, streams, validation
from evoem.data import Data, map_chunks
from evoem.errors import LogJointError, numbered_rows
from evoem.evolution import Evolution
from evoem.models.base import Model, Posterior, add_statistics, size_in_bytes
from evoem.runtime.threads import crew, map_blocks, one_blas_thread

__all__ = [
    "Convergence", "Data", "EMState", "EStepInfo", "Evolution", "StepInfo",
    "e_step", "init", "m_step", "run", "step",
]  # fmt: skip

INIT_STREAM = 2**63  # the "iteration" that draws the first states; no run counts this far


class EMState(NamedTuple):
    """All that the next step needs. `step` overwrites its arrays: copy what must be kept."""

    params: Any
    states: NDArray[np.uint64]  # (n_samples, n_states, n_words), see `evoem.states`
    log_joints: NDArray[np.float64]  # (n_samples, n_states)
    statistics: tuple[Any, ...]  # of each part of the data, for mini-batches; empty before
    current: bool  # whether the log-joints belong to `params`, not to those before the last M-step
    iteration: int
    seed: int


class EStepInfo(NamedTuple):
    """What an E-step found."""

    bound: float  # log Σ_s p(s, x), summed over the rows
    evaluated: int  # log-joints computed
    replaced: int  # kept states that gave way to better ones


class StepInfo(NamedTuple):
    """What happened in one iteration."""

    iteration: int  # from one
    free_energy: float  # the bound per data point after the E-step, before the M-step
    seconds: float
    states_evaluated: int
    states_replaced: int


Callback = Callable[[StepInfo], Any] | Callable[[StepInfo, EMState], Any]


class Criterion(Protocol):
    """Decides when a run has converged."""

    def __call__(self, free_energies: list[float]) -> bool: ...


class Convergence(NamedTuple):
    """Converged when the bound rose, on average over `window` iterations, by less than `tol` each.

    In nats per data point. An average, because what one evolutionary E-step finds is chance.
    `tol=0` never stops.
    """

    tol: float = 1e-4
    window: int = 5

    def __call__(self, free_energies: list[float]) -> bool:
        if self.tol == 0 or len(free_energies) <= self.window:
            return False
        gain = free_energies[-1] - free_energies[-1 - self.window]
        return gain < self.tol * self.window


def init(
    model: Model,
    data: Data,
    *,
    n_states: int,
    n_latents: int = 0,
    params: Any = None,
    seed: int = 0,
    n_jobs: int = 1,
    derived: Any = None,
) -> EMState:
    """The state before the first iteration.

    Parameters
    ----------
    model : Model
    data : Data
    n_states : int
        States kept per row; 2**n_latents keeps all of them, which is exact inference.
    n_latents : int
        Needed unless `params` are given.
    params : NamedTuple, optional
        The model's parameters to start from; by default `model.initialize` makes them.
    seed : int
        Everything random follows from it.
    n_jobs : int
        Threads.
    derived : optional
        What `model.prepare` makes of `params`, if that is at hand: for rows that come in many
        blocks it is made once.

    Returns
    -------
    EMState

    Examples
    --------
    >>> import numpy as np
    >>> from evoem import em
    >>> from evoem.models import BinarySparseCodingModel
    >>> model, data = BinarySparseCodingModel(), em.Data(np.arange(80.0).reshape(20, 4) % 7)
    >>> state = em.init(model, data, n_latents=3, n_states=4)
    >>> state.states.shape, state.iteration
    ((20, 4, 1), 0)
    """
    validation.integer("seed", seed, 0, streams.LARGEST_WORD)
    validation.integer("n_jobs", n_jobs, 1)
    if params is None:
        validation.integer("n_latents", n_latents, 1)
        rng = np.random.default_rng(seed)
        params = model.initialize(data.X, data.observed, n_latents, rng)
    validation.same_features(data.X, params)
    H = len(params.activation_probs)
    n_states = validation.n_states(n_states, H)
    first = np.empty((len(data), n_states, states.n_words(H)), np.uint64)
    numbers, first_states = data.numbers, model.first_states
    if first_states is not None and n_states <= H and derived is None:
        derived = model.prepare(params, data.X.dtype)

    def fill(block: slice) -> None:
        if first_states is None or n_states > H:
            own = streams.start(seed, INIT_STREAM, numbers[block])
            states.draw_distinct(H, n_states, own, first[block])
            return
        for chunk in posterior.chunks(block, H):
            with numbered_rows(range(chunk.start, chunk.stop)):
                rows = data.take(chunk).prepare(model, derived)
                first[chunk] = first_states(derived, rows, n_states)

    with one_blas_thread():
        map_blocks(fill, slice(0, len(data)), n_jobs)
    model.check(params, data.X, data.observed, first)
    return EMState(params, first, np.full(first.shape[:2], -np.inf), (), False, 0, seed)


class _PartResult(NamedTuple):
    """What an E-step makes of a part of the data."""

    statistics: Any  # for the next M-step
    later: Any  # for those after it
    info: EStepInfo


def _improve_part(
    model: Model, data: Data, state: EMState, evolution: Evolution, part: slice, n_jobs: int
) -> _PartResult:
    """Better states and the statistics of a part of the data; `state` is changed in place."""
    params = state.params
    derived = model.prepare(params, data.X.dtype)
    n_states = state.states.shape[1]
    own = streams.start(state.seed, state.iteration, data.numbers[part])

    def work(block: slice) -> tuple[Any, EStepInfo]:
        stats = model.empty_statistics(params)
        bound, evaluated, replaced = 0.0, 0, 0
        for chunk in posterior.chunks(block, n_states + evolution.n_bred):
            rows = data.take(chunk).prepare(model, derived)
            kept, log_joints = state.states[chunk], state.log_joints[chunk]
            random = own[chunk.start - part.start : chunk.stop - part.start]
            with numbered_rows(range(chunk.start, chunk.stop)):
                improvement = posterior.improve(
                    model, derived, rows, evolution, random, kept, log_joints, state.current
                )
            weights, bounds = posterior.weigh(log_joints)
            model.accumulate(stats, params, derived, rows, Posterior(kept, weights))
            bound += bounds.sum()
            evaluated += improvement.evaluated
            replaced += improvement.replaced
        return stats, EStepInfo(bound, evaluated, replaced)

    statistics = model.empty_statistics(params)
    total = EStepInfo(0.0, 0, 0)

    def add(result: tuple[Any, EStepInfo]) -> None:
        nonlocal total
        add_statistics(statistics, result[0])
        total = _both(total, result[1])

    map_blocks(work, part, n_jobs, size_in_bytes(statistics), add)
    return _PartResult(*model.finish_statistics(derived, statistics), total)


def _both(one: EStepInfo, other: EStepInfo) -> EStepInfo:
    return EStepInfo(
        one.bound + other.bound, one.evaluated + other.evaluated, one.replaced + other.replaced
    )


def e_step(
    model: Model, data: Data, state: EMState, evolution: Evolution, *, n_jobs: int = 1
) -> tuple[EMState, Any, EStepInfo]:
    """The variational E-step: breed states, keep the best of each row (alg:eem, the inner loop).

    Parameters
    ----------
    model : Model
    data : Data
    state : EMState
        Its arrays are overwritten.
    evolution : Evolution
    n_jobs : int

    Returns
    -------
    state : EMState
        With better states, and their log-joints under its parameters.
    statistics
        What `m_step` needs of them: they add over rows.
    info : EStepInfo

    Examples
    --------
    >>> import numpy as np
    >>> from evoem import em
    >>> from evoem.models import BinarySparseCodingModel
    >>> model, data = BinarySparseCodingModel(), em.Data(np.arange(80.0).reshape(20, 4) % 7)
    >>> state = em.init(model, data, n_latents=3, n_states=4)
    >>> evolution = em.Evolution(n_parents=3, n_children=2)
    >>> state, statistics, info = em.e_step(model, data, state, evolution)
    >>> bool(np.isfinite(info.bound)), float(statistics.n_rows)
    (True, 20.0)
    """
    _check_step(data, state, evolution, n_jobs)
    with one_blas_thread(), crew(n_jobs):
        found = _improve_part(model, data, state, evolution, slice(0, len(data)), n_jobs)
    return state._replace(current=True), found.statistics, found.info


def m_step(
    model: Model,
    data: Data,
    state: EMState,
    statistics: Any,
    info: EStepInfo | None = None,
    *,
    n_jobs: int = 1,
) -> tuple[EMState, int]:
    """New parameters from the statistics of an E-step (alg:eem, the outer loop).

    Parameters
    ----------
    model : Model
        Its `update` may yield candidates. The first that does not lower the bound is taken, else
        what it returns.
    data : Data
    state : EMState
    statistics
        Of all rows.
    info : EStepInfo, optional
        With the bound of all rows; without it the first candidate is taken.
    n_jobs : int

    Returns
    -------
    state : EMState
    evaluated : int
        Log-joints computed to compare candidates.

    Examples
    --------
    >>> import numpy as np
    >>> from evoem import em
    >>> from evoem.models import BinarySparseCodingModel
    >>> model, data = BinarySparseCodingModel(), em.Data(np.arange(80.0).reshape(20, 4) % 7)
    >>> state = em.init(model, data, n_latents=3, n_states=4)
    >>> evolution = em.Evolution(n_parents=3, n_children=2)
    >>> state, statistics, info = em.e_step(model, data, state, evolution)
    >>> state, evaluated = em.m_step(model, data, state, statistics, info)
    >>> state.params.components.shape, evaluated
    ((3, 4), 0)
    """
    candidates, evaluated = model.update(state.params, statistics), 0
    if not isinstance(candidates, Generator):
        return state._replace(params=candidates, current=False), 0
    try:
        params = next(candidates)
        while info is not None:
            evaluated += state.log_joints.size
            try:
                risen = _evaluate(model, data, state, params, n_jobs) >= info.bound
            except LogJointError as error:  # the model may know what to do about it
                params = candidates.throw(error)
                continue
            if risen:
                return state._replace(params=params, current=True), evaluated
            params = next(candidates)
    except StopIteration as last:
        params = last.value
    return state._replace(params=params, current=False), evaluated


def _evaluate(model: Model, data: Data, state: EMState, params: Any, n_jobs: int) -> float:
    """Log-joints of the states as they are, in place, and the bound of all rows."""

    def bound(derived: Any, rows: Any, chunk: slice, log_joints: NDArray[np.float64]) -> float:
        state.log_joints[chunk] = log_joints
        return float(posterior.weigh(log_joints)[1].sum())

    return sum(map_chunks(bound, model, data, params, state.states, n_jobs))


def step(
    model: Model,
    data: Data,
    state: EMState,
    evolution: Evolution,
    *,
    n_parts: int = 1,
    n_jobs: int = 1,
) -> tuple[EMState, StepInfo]:
    """One iteration: a variational E-step and an M-step (the outer loop of alg:eem).

    Parameters
    ----------
    model : Model
    data : Data
    state : EMState
        Its arrays are overwritten.
    evolution : Evolution
    n_parts : int
        Mini-batches: an M-step after each, on the latest statistics of all (incremental EM); 1 is
        the paper's full batch.
    n_jobs : int
        Threads.

    Returns
    -------
    state : EMState
    info : StepInfo

    Examples
    --------
    >>> import numpy as np
    >>> from evoem import em
    >>> from evoem.models import BinarySparseCodingModel
    >>> model, data = BinarySparseCodingModel(), em.Data(np.arange(80.0).reshape(20, 4) % 7)
    >>> state = em.init(model, data, n_latents=3, n_states=4)
    >>> evolution = em.Evolution(n_parents=3, n_children=2)
    >>> state, info = em.step(model, data, state, evolution)
    >>> info.iteration, state.iteration
    (1, 1)
    """
    started = time.perf_counter()
    _check_step(data, state, evolution, n_jobs)
    validation.integer("n_parts", n_parts, 1)
    with one_blas_thread(), crew(n_jobs):
        if n_parts > 1:
            state, found = _incremental_step(model, data, state, evolution, n_parts, n_jobs)
        else:
            state, statistics, found = e_step(model, data, state, evolution, n_jobs=n_jobs)
            state, compared = m_step(model, data, state, statistics, found, n_jobs=n_jobs)
            state = state._replace(params=model.canonical(state.params), statistics=())
            found = found._replace(evaluated=found.evaluated + compared)
    state = state._replace(iteration=state.iteration + 1)
    seconds = time.perf_counter() - started
    bound = float(found.bound) / len(data)
    return state, StepInfo(state.iteration, bound, seconds, found.evaluated, found.replaced)


def _incremental_step(
    model: Model, data: Data, state: EMState, evolution: Evolution, n_parts: int, n_jobs: int
) -> tuple[EMState, EStepInfo]:
    """Rows in consecutive parts, an M-step after each on the latest statistics of *all* parts.

    Incremental EM (Neal and Hinton, 1998). The first iteration is full-batch in any case: else the
    first parts would take the whole dictionary.
    """
    parts = parts_of(len(data), n_parts)
    first = len(state.statistics) != n_parts
    latest: list[Any] = [None] * n_parts if first else list(state.statistics)
    total = EStepInfo(0.0, 0, 0)
    for group in [range(n_parts)] if first else [[number] for number in range(n_parts)]:
        later = {}
        for number in group:
            found = _improve_part(model, data, state, evolution, parts[number], n_jobs)
            latest[number], later[number] = found.statistics, found.later
            total = _both(total, found.info)
        statistics = model.empty_statistics(state.params)
        for own in latest:
            add_statistics(statistics, own)
        # A part's own bound may fall by a step that is good for all. Statistics of other parts are
        # in the old scale, so parameters are not made canonical.
        bound = total if first else None
        state, compared = m_step(model, data, state, statistics, bound, n_jobs=n_jobs)
        state = state._replace(current=False)
        total = total._replace(evaluated=total.evaluated + compared)
        for number, kept in later.items():
            latest[number] = kept
    return state._replace(statistics=tuple(latest)), total


def parts_of(n_rows: int, n_parts: int) -> list[slice]:
    """Consecutive parts of equal size; the last is smaller, and with few rows some are empty."""
    size = -(-n_rows // n_parts)
    ends = [min(number * size, n_rows) for number in range(n_parts + 1)]
    return [slice(start, stop) for start, stop in pairwise(ends)]


def run(
    model: Model,
    data: Data,
    state: EMState,
    evolution: Evolution,
    *,
    max_iter: int = 100,
    convergence: Criterion | None = None,
    callback: Callback | None = None,
    n_parts: int = 1,
    n_jobs: int = 1,
) -> tuple[EMState, list[StepInfo]]:
    """Iterate until converged, until the callback returns True, or `max_iter` times.

    Parameters
    ----------
    model : Model
    data : Data
    state : EMState
        Its arrays are overwritten.
    evolution : Evolution
    max_iter : int
    convergence : callable, optional
        Such as `Convergence(tol)`: called with the bounds of all iterations.
    callback : callable, optional
        Called with a `StepInfo` after each iteration, and with the `EMState` if it takes two
        arguments.
    n_parts, n_jobs : int
        See `step`.

    Returns
    -------
    state : EMState
    infos : list of StepInfo

    Examples
    --------
    >>> import numpy as np
    >>> from evoem import em
    >>> from evoem.models import BinarySparseCodingModel
    >>> model, data = BinarySparseCodingModel(), em.Data(np.arange(80.0).reshape(20, 4) % 7)
    >>> state = em.init(model, data, n_latents=3, n_states=4)
    >>> evolution = em.Evolution(n_parents=3, n_children=2)
    >>> state, infos = em.run(model, data, state, evolution, max_iter=4)
    >>> bool(infos[-1].free_energy > infos[0].free_energy)
    True
    """
    validation.integer("max_iter", max_iter, 0)
    validation.integer("n_jobs", n_jobs, 1)
    infos: list[StepInfo] = []
    free_energies: list[float] = []
    with crew(n_jobs):
        for _ in range(max_iter):
            state, info = step(model, data, state, evolution, n_parts=n_parts, n_jobs=n_jobs)
            infos.append(info)
            free_energies.append(info.free_energy)
            if callback is not None and says_stop(call_back(callback, info, state)):
                break
            if convergence is not None and convergence(free_energies):
                break
    return state, infos


def call_back(callback: Callable[..., Any], info: StepInfo, state: EMState) -> Any:
    """What a callback says, which is told the state as well if it takes two arguments."""
    try:
        inspect.signature(callback).bind(info, state)
    except (TypeError, ValueError):  # it takes one, or does not say what it takes
        return callback(info)
    return callback(info, state)


def says_stop(answer: Any) -> bool:
    """Whether a callback returned True; anything else that is true in a condition is no order."""
    return isinstance(answer, bool | np.bool_) and bool(answer)


def _check_step(data: Data, state: EMState, evolution: Evolution, n_jobs: int) -> None:
    breeding.check(evolution, len(state.params.activation_probs))
    validation.same_rows(data.X, state.states)
    validation.same_features(data.X, state.params)
    validation.integer("n_jobs", n_jobs, 1)
