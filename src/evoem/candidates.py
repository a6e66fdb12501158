"""Choose among the candidates for new parameters that a model offers in an M-step."""

from collections.abc import Generator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evoem import posterior
from evoem.data import Data, map_chunks
from evoem.em_state import EMState
from evoem.errors import LogJointError
from evoem.models.base import Model
from evoem.runtime.communicator import any_of
from evoem.shares import Layout
from evoem.statistics_sum import StatisticsSum


def choose(
    candidates: Generator[Any, None, Any],
    model: Model,
    data: Data,
    state: EMState,
    bound: float | None,
    n_jobs: int,
    layout: Layout,
) -> tuple[Any, bool, int]:
    """The first candidate whose bound is not below the given one, else what the generator returns.

    Without a bound it is the first candidate. The log-joints of the state are overwritten by those
    of the last candidate compared. All processes choose the same one.

    Returns
    -------
    params
    risen : bool
        Whether the log-joints are those of the chosen parameters.
    evaluated : int
        Log-joints computed.
    """
    evaluated = 0
    try:
        params = next(candidates)
        while bound is not None:
            evaluated += layout.n_rows * state.log_joints.shape[1]
            try:
                risen = _evaluate(model, data, state, params, n_jobs, layout) >= bound
            except LogJointError as error:  # the model may know what to do about it
                params = candidates.throw(error)
                continue
            if risen:
                return params, True, evaluated
            params = next(candidates)
    except StopIteration as last:
        params = last.value
    return params, False, evaluated


def _evaluate(
    model: Model, data: Data, state: EMState, params: Any, n_jobs: int, layout: Layout
) -> float:
    """The bound of all rows; the log-joints of the kept states are computed in place."""

    def bound(derived: Any, rows: Any, chunk: slice, log_joints: NDArray[np.float64]) -> float:
        state.log_joints[chunk] = log_joints
        return float(posterior.weigh(log_joints)[1].sum())

    total, error = StatisticsSum(np.zeros(()), layout.comm), None
    parts = [block for part in layout.parts for block in part]
    try:
        found = map_chunks(bound, model, data, params, state.states, n_jobs, parts=parts)
    except LogJointError as own:
        found, error = [], own
    (failed,) = any_of(layout.comm, error is not None)
    if failed:
        raise error or LogJointError(
            "log_joint must be a number in every process; see there", 0, []
        )
    for block in found:
        total.add(np.array(sum(block)))
    return float(total.total())
