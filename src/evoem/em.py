"""Evolutionary expectation maximisation: `init`, `e_step`, `m_step`, `step`, `run` (alg:eem).

A run is a chain of `step`s over an `EMState`, which holds everything the next step needs: save it,
and a run can be continued as if it had never stopped. Rows are independent given the parameters, so
threads, and processes if there are several, share the E-step in fixed blocks of rows. The
statistics of blocks are added exactly: the result does not depend on the number of threads.
"""

from pathlib import Path
from typing import Any

import numpy as np

from evoem import evolution as breeding
from evoem import streams, validation
from evoem.checkpoints import DEFAULT_EVERY
from evoem.data import Data
from evoem.em_state import EMState, EStepInfo, StepInfo
from evoem.evolution import Evolution
from evoem.first_states import first_states
from evoem.iteration import Iteration
from evoem.kept_run import KeptRun
from evoem.models.base import Model
from evoem.runtime.communicator import ALONE, Communicator, any_of, check_alike
from evoem.runtime.interrupts import EXIT_TERMINATED
from evoem.runtime.threads import crew
from evoem.shares import SharedRows, shares_of
from evoem.stopping import Callback, Convergence, Criterion, asks_to_stop, has_converged

__all__ = [
    "Callback", "Convergence", "Criterion", "Data", "EMState", "EStepInfo", "Evolution", "StepInfo",
    "e_step", "init", "m_step", "run", "step",
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
    comm: Communicator = ALONE,
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
        Seed of all random numbers.
    n_jobs : int
        Threads.
    derived : optional
        The result of `model.prepare(params)`, if it has been computed already.
    comm : Communicator
        Other processes, see `evoem.distributed`. Each has consecutive rows, in the order of the
        processes; some may have none.

    Returns
    -------
    EMState
        The state of the rows of this process.

    Examples
    --------
    >>> import numpy as np
    >>> from evoem import em, models
    >>> data = em.Data(np.arange(80.0).reshape(20, 4) % 7)
    >>> state = em.init(models.BinarySparseCodingModel(), data, n_latents=3, n_states=4)
    >>> state.states.shape, state.iteration
    ((20, 4, 1), 0)
    """
    seed = validation.integer("seed", seed, 0, streams.LARGEST_WORD)
    n_jobs = validation.integer("n_jobs", n_jobs, 1)
    data = shares_of(data, comm).number(data)
    if params is None:
        n_latents = validation.integer("n_latents", n_latents, 1)
        rng = np.random.default_rng(seed)
        others = {"comm": comm} if comm.size > 1 else {}
        params = model.initialize(data.X, data.observed, n_latents, rng, **others)
    validation.same_features(data.X, params)
    H = len(params.activation_probs)
    n_states = validation.n_states(n_states, H)
    first = first_states(model, data, params, n_states, seed, n_jobs, derived)
    if len(data):
        model.check(params, data.X, data.observed, first)
    return EMState(params, first, np.full(first.shape[:2], -np.inf), (), False, 0, seed)


def e_step(
    model: Model,
    data: Data,
    state: EMState,
    evolution: Evolution,
    *,
    n_jobs: int = 1,
    comm: Communicator = ALONE,
) -> tuple[EMState, Any, EStepInfo]:
    """The variational E-step: breed states, keep the best of each row (alg:eem, the inner loop).

    Parameters
    ----------
    model, data, evolution : Model, Data, Evolution
    state : EMState
        Its arrays are overwritten.
    n_jobs : int
    comm : Communicator
        See `init`.

    Returns
    -------
    state : EMState
        With better states, and their log-joints under its parameters.
    statistics
        Expectations that `m_step` needs, summed over the rows of all processes.
    info : EStepInfo
        The bound, and how many states were evaluated and replaced, in all processes.

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
    evolution, n_jobs = _checked_step(data, state, evolution, n_jobs)
    shared = SharedRows(model, data, state.params, 1, comm)
    iteration = Iteration(model, shared.data, n_jobs, shared.layout)
    state, statistics, info = iteration.e_step(shared.forth(state), evolution)
    return shared.back(state), statistics, info


def m_step(
    model: Model,
    data: Data,
    state: EMState,
    statistics: Any,
    info: EStepInfo | None = None,
    *,
    n_jobs: int = 1,
    comm: Communicator = ALONE,
) -> tuple[EMState, int]:
    """New parameters from the statistics of an E-step (alg:eem, the outer loop).

    Parameters
    ----------
    model : Model
        Its `update` may yield candidates. The first that does not lower the bound is taken; if
        there is none, what `update` returns.
    data, state : Data, EMState
    statistics
        Those that `e_step` returned.
    info : EStepInfo, optional
        What `e_step` returned, for its bound. Without it the first candidate is taken.
    n_jobs : int
    comm : Communicator
        See `init`. Every process makes the same step.

    Returns
    -------
    state : EMState
        With new parameters.
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
    n_jobs = _checked_state(data, state, n_jobs)
    shared = SharedRows(model, data, state.params, 1, comm)
    iteration = Iteration(model, shared.data, n_jobs, shared.layout)
    state, evaluated = iteration.m_step(shared.forth(state), statistics, info)
    return shared.back(state), evaluated


def step(
    model: Model,
    data: Data,
    state: EMState,
    evolution: Evolution,
    *,
    n_parts: int = 1,
    n_jobs: int = 1,
    comm: Communicator = ALONE,
) -> tuple[EMState, StepInfo]:
    """One iteration: a variational E-step and an M-step (the outer loop of alg:eem).

    Parameters
    ----------
    model, data, evolution : Model, Data, Evolution
    state : EMState
        Its arrays are overwritten.
    n_parts : int
        Number of mini-batches. An M-step follows each, on the latest statistics of all of them
        (incremental EM); 1 is the paper's full batch.
    n_jobs : int
        Threads.
    comm : Communicator
        See `init`.

    Returns
    -------
    state : EMState
    info : StepInfo
        About the rows of all processes; the seconds are those of this process.

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
    evolution, n_jobs = _checked_step(data, state, evolution, n_jobs)
    n_parts = validation.integer("n_parts", n_parts, 1)
    shared = SharedRows(model, data, state.params, n_parts, comm)
    iteration = Iteration(model, shared.data, n_jobs, shared.layout)
    state, info = iteration.step(shared.forth(state), evolution)
    return shared.back(state), info


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
    checkpoint: str | Path | None = None,
    every: float = DEFAULT_EVERY,
    resume: bool = False,
    comm: Communicator = ALONE,
) -> tuple[EMState, list[StepInfo]]:
    """Iterate until the run has converged, the callback returns True, or `max_iter` is reached.

    Parameters
    ----------
    model, data, evolution : Model, Data, Evolution
    state : EMState
        Its arrays are overwritten.
    max_iter : int
    convergence : callable, optional
        Called with the bounds of all iterations so far, such as `Convergence(tol)`; returning True
        ends the run.
    callback : callable, optional
        Called with a `StepInfo` after each iteration, and with the `EMState` if it takes two
        arguments.
    n_parts, n_jobs : int
        See `step`.
    checkpoint : str or Path, optional
        File that the run is saved to, so that it can be resumed. Ctrl-C and SIGTERM, which queues
        send before a time limit, then wait for the end of the iteration. It is saved before
        KeyboardInterrupt is raised or the program ends with exit code 143.
    every : float
        Seconds between checkpoints, at least; one is always written at the end.
    resume : bool
        Resume from the checkpoint if it exists: the result is that of an uninterrupted run, to the
        bit. Data, model, evolution, seed and `n_parts` must be the same. Of `state` only the types
        and shapes of the parameters matter then.
    comm : Communicator
        See `init`. The callback is called in every process, and any of them may end the run. A run
        may be resumed with another number of processes.

    Returns
    -------
    state : EMState
    infos : list of StepInfo
        One per iteration, including those before the run was resumed.

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
    max_iter = validation.integer("max_iter", max_iter, 0)
    n_parts = validation.integer("n_parts", n_parts, 1)
    evolution, n_jobs = _checked_step(data, state, evolution, n_jobs)
    kept_in = None if checkpoint is None else str(checkpoint)
    check_alike(comm, max_iter=max_iter, n_parts=n_parts, evolution=evolution, checkpoint=kept_in)
    shared = SharedRows(model, data, state.params, n_parts, comm)
    data, state = shared.data, shared.forth(state)
    iteration = Iteration(model, data, n_jobs, shared.layout)
    kept = KeptRun(model, data, state, evolution, checkpoint, every, resume, shared.layout)
    state, infos = kept.start(max_iter)
    with crew(n_jobs), kept.guarded() as signals:
        while len(infos) < max_iter and not has_converged(convergence, infos):
            state, info = iteration.step(state, evolution)
            infos.append(info)
            kept.save(state, infos)
            if any(any_of(comm, asks_to_stop(callback, info, state), *signals.came())):
                break
        kept.save(state, infos, ended=True)
        terminated, interrupted = any_of(comm, *signals.came())
        if terminated:
            raise SystemExit(EXIT_TERMINATED)
        if interrupted:
            raise KeyboardInterrupt
    return shared.back(state), infos


def _checked_step(
    data: Data, state: EMState, evolution: Evolution, n_jobs: int
) -> tuple[Evolution, int]:
    evolution = breeding.checked(evolution, len(state.params.activation_probs))
    return evolution, _checked_state(data, state, n_jobs)


def _checked_state(data: Data, state: EMState, n_jobs: int) -> int:
    validation.same_rows(data.X, state.states)
    validation.same_features(data.X, state.params)
    return validation.integer("n_jobs", n_jobs, 1)
