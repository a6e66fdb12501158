"""When a run of EM ends before its last iteration: convergence and callbacks."""

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np

from evoem.em_state import EMState, StepInfo

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
