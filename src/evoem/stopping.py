"""Ways to end a run of EM before its last iteration: convergence and callbacks."""

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np

from evoem.em_state import EMState, StepInfo

Callback = Callable[[StepInfo], Any] | Callable[[StepInfo, EMState], Any]


class Criterion(Protocol):
    """Whether a run has converged: any function of the bounds of all iterations so far.

    Examples
    --------
    >>> from evoem import em
    >>> high_enough: em.Criterion = lambda free_energies: free_energies[-1] > -100
    """

    def __call__(self, free_energies: list[float]) -> bool: ...


class Convergence(NamedTuple):
    """Converged when the bound rose by less than `tol` per iteration, on average over `window`.

    The average is needed because a single evolutionary E-step may find little by chance.

    Parameters
    ----------
    tol : float, default=1e-4
        In nats per data point; 0 never stops.
    window : int, default=5
        Iterations.

    Examples
    --------
    >>> from evoem import em
    >>> converged = em.Convergence(tol=0.1, window=2)
    >>> converged([-9.0, -5.0, -4.0]), converged([-9.0, -5.0, -4.0, -3.99, -3.98])
    (False, True)
    """

    tol: float = 1e-4
    window: int = 5

    def __call__(self, free_energies: list[float]) -> bool:
        if self.tol == 0 or len(free_energies) <= self.window:
            return False
        gain = free_energies[-1] - free_energies[-1 - self.window]
        return gain < self.tol * self.window


def has_converged(convergence: Criterion | None, infos: list[StepInfo]) -> bool:
    """Whether a run ends after these iterations."""
    if convergence is None or not infos:
        return False
    return convergence([info.free_energy for info in infos])


def asks_to_stop(callback: Callback | None, info: StepInfo, state: EMState) -> bool:
    """Whether a callback ends the run. It is given the state as well if it takes two arguments."""
    return callback is not None and says_stop(_answer(callback, info, state))


def _answer(callback: Callable[..., Any], info: StepInfo, state: EMState) -> Any:
    try:
        inspect.signature(callback).bind(info, state)
    except (TypeError, ValueError):  # it takes one, or does not say what it takes
        return callback(info)
    return callback(info, state)


def says_stop(answer: Any) -> bool:
    """Whether a callback returned True itself; other truthy values do not end a run."""
    return isinstance(answer, bool | np.bool_) and bool(answer)
