"""What a run of EM carries from step to step, and what it tells of a step."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


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

    bound: float = 0.0  # log Σ_s p(s, x), summed over the rows
    evaluated: int = 0  # log-joints computed
    replaced: int = 0  # kept states that gave way to better ones

    def plus(self, other: "EStepInfo") -> "EStepInfo":
        """Of the rows of both."""
        return EStepInfo(
            self.bound + other.bound,
            self.evaluated + other.evaluated,
            self.replaced + other.replaced,
        )


class PartResult(NamedTuple):
    """What an E-step makes of a part of the data."""

    statistics: Any  # for the next M-step
    later: Any  # for those after it
    info: EStepInfo


class StepInfo(NamedTuple):
    """What happened in one iteration."""

    iteration: int  # from one
    free_energy: float  # the bound per data point after the E-step, before the M-step
    seconds: float
    states_evaluated: int
    states_replaced: int
