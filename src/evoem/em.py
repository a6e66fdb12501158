"""Evolutionary expectation maximisation: `init`, `e_step`, `m_step`, `step`, `run` (alg:eem).

A run is a chain of `step`s over an `EMState`, which holds everything the next step needs: save it,
and a run can be continued as if it had never stopped. Rows are independent given the parameters, so
an E-step is threads over fixed blocks of rows, whose statistics are summed in the order of the
blocks: the number of threads changes nothing in the result.
"""

import time
from collections.abc import Generator
from functools import partial
from typing import Any

import numpy as np

from evoem import evolution as breeding
from evoem import posterior, streams, validation
from evoem.candidates import choose
from evoem.data import Data
from evoem.em_state import EMState, EStepInfo, PartResult, StepInfo
from evoem.errors import numbered_rows
from evoem.evolution import Evolution
from evoem.first_states import first_states
from evoem.incremental import incremental_step
from evoem.models.base import Model, Posterior, add_statistics, size_in_bytes
from evoem.runtime.threads import crew, map_blocks, one_blas_thread
from evoem.stopping import Callback, Convergence, Criterion, call_back, says_stop

__all__ = [
    "Callback", "Convergence", "Criterion", "Data", "EMState", "EStepInfo", "Evolution", "StepInfo",
    "call_back", "e_step", "init", "m_step", "run", "says_stop", "step",
]  # fmt: skip


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
    model, data : Model, Data
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
        What `model.prepare` makes of `params`, if that is at hand.

    Returns
    -------
    EMState

    Examples
    --------
    >>> import numpy as np
    >>> from evoem import em, models
    >>> data = em.Data(np.arange(80.0).reshape(20, 4) % 7)
    >>> state = em.init(models.BinarySparseCodingModel(), data, n_latents=3, n_states=4)
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
    first = first_states(model, data, params, n_states, seed, n_jobs, derived)
    model.check(params, data.X, data.observed, first)
    return EMState(params, first, np.full(first.shape[:2], -np.inf), (), False, 0, seed)


def e_step(
    model: Model, data: Data, state: EMState, evolution: Evolution, *, n_jobs: int = 1
) -> tuple[EMState, Any, EStepInfo]:
    """The variational E-step: breed states, keep the best of each row (alg:eem, the inner loop).

    Parameters
    ----------
    model, data, evolution : Model, Data, Evolution
    state : EMState
        Its arrays are overwritten.
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
    >>> from evoem import em, models
    >>> model, data = models.BinarySparseCodingModel(), em.Data(np.arange(80.0).reshape(20, 4) % 7)
    >>> state = em.init(model, data, n_latents=3, n_states=4)
    >>> state, statistics, info = em.e_step(model, data, state, em.Evolution(3, 2))
    >>> bool(np.isfinite(info.bound)), float(statistics.n_rows)
    (True, 20.0)
    """
    _check_step(data, state, evolution, n_jobs)
    with one_blas_thread(), crew(n_jobs):
        found = _improve(model, data, evolution, n_jobs, state, slice(0, len(data)))
    return state._replace(current=True), found.statistics, found.info


def _improve(
    model: Model, data: Data, evolution: Evolution, n_jobs: int, state: EMState, part: slice
) -> PartResult:
    """Better states and the statistics of a part of the data; `state` is changed in place."""
    params = state.params
    derived = model.prepare(params, data.X.dtype)
    n_states = state.states.shape[1]
    own = streams.start(state.seed, state.iteration, data.numbers[part])
    statistics, total = model.empty_statistics(params), EStepInfo()

    def work(block: slice) -> tuple[Any, EStepInfo]:
        sums, info = model.empty_statistics(params), EStepInfo()
        for chunk in posterior.chunks(block, n_states + evolution.n_bred):
            rows = data.take(chunk).prepare(model, derived)
            kept, log_joints = state.states[chunk], state.log_joints[chunk]
            random = own[chunk.start - part.start : chunk.stop - part.start]
            with numbered_rows(range(chunk.start, chunk.stop)):
                improvement = posterior.improve(
                    model, derived, rows, evolution, random, kept, log_joints, state.current
                )
            weights, bounds = posterior.weigh(log_joints)
            model.accumulate(sums, params, derived, rows, Posterior(kept, weights))
            info = info.plus(EStepInfo(bounds.sum(), *improvement))
        return sums, info

    def add(result: tuple[Any, EStepInfo]) -> None:
        nonlocal total
        add_statistics(statistics, result[0])
        total = total.plus(result[1])

    map_blocks(work, part, n_jobs, size_in_bytes(statistics), add)
    return PartResult(*model.finish_statistics(derived, statistics), total)


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
    data, state : Data, EMState
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
    >>> from evoem import em, models
    >>> model, data = models.BinarySparseCodingModel(), em.Data(np.arange(80.0).reshape(20, 4) % 7)
    >>> state = em.init(model, data, n_latents=3, n_states=4)
    >>> state, statistics, info = em.e_step(model, data, state, em.Evolution(3, 2))
    >>> state, evaluated = em.m_step(model, data, state, statistics, info)
    >>> state.params.components.shape, evaluated
    ((3, 4), 0)
    """
    offered, risen, evaluated = model.update(state.params, statistics), False, 0
    if isinstance(offered, Generator):
        bound = None if info is None else info.bound
        offered, risen, evaluated = choose(offered, model, data, state, bound, n_jobs)
    return state._replace(params=offered, current=risen), evaluated


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
    model, data, evolution : Model, Data, Evolution
    state : EMState
        Its arrays are overwritten.
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
    >>> from evoem import em, models
    >>> model, data = models.BinarySparseCodingModel(), em.Data(np.arange(80.0).reshape(20, 4) % 7)
    >>> state = em.init(model, data, n_latents=3, n_states=4)
    >>> state, info = em.step(model, data, state, em.Evolution(3, 2))
    >>> info.iteration, state.iteration
    (1, 1)
    """
    started = time.perf_counter()
    _check_step(data, state, evolution, n_jobs)
    validation.integer("n_parts", n_parts, 1)
    with one_blas_thread(), crew(n_jobs):
        if n_parts > 1:
            improve = partial(_improve, model, data, evolution, n_jobs)
            update = partial(m_step, model, data, n_jobs=n_jobs)
            state, found = incremental_step(model, len(data), state, n_parts, improve, update)
        else:
            state, statistics, found = e_step(model, data, state, evolution, n_jobs=n_jobs)
            state, compared = m_step(model, data, state, statistics, found, n_jobs=n_jobs)
            state = state._replace(params=model.canonical(state.params), statistics=())
            found = found._replace(evaluated=found.evaluated + compared)
    state = state._replace(iteration=state.iteration + 1)
    seconds = time.perf_counter() - started
    bound = float(found.bound) / len(data)
    return state, StepInfo(state.iteration, bound, seconds, found.evaluated, found.replaced)


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
    model, data, evolution : Model, Data, Evolution
    state : EMState
        Its arrays are overwritten.
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
    >>> from evoem import em, models
    >>> model, data = models.BinarySparseCodingModel(), em.Data(np.arange(80.0).reshape(20, 4) % 7)
    >>> state = em.init(model, data, n_latents=3, n_states=4)
    >>> state, infos = em.run(model, data, state, em.Evolution(3, 2), max_iter=4)
    >>> bool(infos[-1].free_energy > infos[0].free_energy)
    True
    """
    validation.integer("max_iter", max_iter, 0)
    validation.integer("n_jobs", n_jobs, 1)
    infos: list[StepInfo] = []
    with crew(n_jobs):
        for _ in range(max_iter):
            state, info = step(model, data, state, evolution, n_parts=n_parts, n_jobs=n_jobs)
            infos.append(info)
            if callback is not None and says_stop(call_back(callback, info, state)):
                break
            if convergence is not None and convergence([one.free_energy for one in infos]):
                break
    return state, infos


def _check_step(data: Data, state: EMState, evolution: Evolution, n_jobs: int) -> None:
    breeding.check(evolution, len(state.params.activation_probs))
    validation.same_rows(data.X, state.states)
    validation.same_features(data.X, state.params)
    validation.integer("n_jobs", n_jobs, 1)
