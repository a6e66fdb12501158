"""The state of a run of EM between two steps, and what is reported about a step."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class EMState(NamedTuple):
    """Everything that the next step needs. `step` overwrites its arrays: copy what you keep.

    Attributes
    ----------
    params : NamedTuple
        The model's parameters.
    states : uint64 array of shape (n_samples, n_states, n_words)
        The states kept for each row, see `evoem.states`.
    log_joints : float64 array of shape (n_samples, n_states)
        log p(s, x) of each.
    statistics : tuple
        With mini-batches, the latest statistics of each; otherwise empty.
    current : bool
        Whether the log-joints belong to `params`, and not to those before the last M-step.
    iteration : int
        Number of iterations so far.
    seed : int
        Seed of all random numbers.

    Examples
    --------
    >>> import numpy as np
    >>> from evoem import em, models
    >>> data = em.Data(np.arange(80.0).reshape(20, 4) % 7)
    >>> state = em.init(models.BinarySparseCodingModel(), data, n_latents=3, n_states=4)
    >>> state
    EMState(BinarySparseCodingParams, iteration 0, 20 rows with 4 states each)
    >>> state.params.components.shape, state.log_joints.shape, state.current
    ((3, 4), (20, 4), False)
    """

    params: Any
    states: NDArray[np.uint64]
    log_joints: NDArray[np.float64]
    statistics: tuple[Any, ...]
    current: bool
    iteration: int
    seed: int

    def __repr__(self) -> str:
        n_rows, n_states = self.log_joints.shape
        return (
            f"EMState({type(self.params).__name__}, iteration {self.iteration}, "
            f"{n_rows} rows with {n_states} states each)"
        )


class EStepInfo(NamedTuple):
    """What an E-step reports.

    Attributes
    ----------
    bound : float
        log Σ_s p(s, x), summed over the rows.
    evaluated : int
        Log-joints computed.
    replaced : int
        Kept states that gave way to better ones.

    Examples
    --------
    >>> from evoem import em
    >>> em.EStepInfo(-3.0, 8, 2).plus(em.EStepInfo(-1.0, 8, 0))
    EStepInfo(bound=-4.0, evaluated=16, replaced=2)
    """

    bound: float = 0.0
    evaluated: int = 0
    replaced: int = 0

    def plus(self, other: "EStepInfo") -> "EStepInfo":
        """The sum of both."""
        return EStepInfo(
            self.bound + other.bound,
            self.evaluated + other.evaluated,
            self.replaced + other.replaced,
        )


class BlockSums(NamedTuple):
    """Sums over the rows of a block, or of several."""

    statistics: Any
    bound: NDArray[np.float64]
    counts: NDArray[np.float64]  # log-joints computed, and states replaced


class PartResult(NamedTuple):
    """Result of the E-step of one part (mini-batch) of the data."""

    statistics: Any  # for the next M-step
    later: Any  # for the M-steps after it
    info: EStepInfo


class StepInfo(NamedTuple):
    """What an iteration reports.

    Attributes
    ----------
    iteration : int
        Its number, from one.
    free_energy : float
        The bound per data point after the E-step, before the M-step.
    seconds : float
    states_evaluated : int
        Log-joints computed.
    states_replaced : int
        Kept states that gave way to better ones.

    Examples
    --------
    >>> import numpy as np
    >>> from evoem import em, models
    >>> model, data = models.BinarySparseCodingModel(), em.Data(np.arange(80.0).reshape(20, 4) % 7)
    >>> state = em.init(model, data, n_latents=3, n_states=4)
    >>> state, info = em.step(model, data, state, em.Evolution(3, 2))
    >>> info.iteration, bool(info.states_replaced <= info.states_evaluated)
    (1, True)
    """

    iteration: int
    free_energy: float
    seconds: float
    states_evaluated: int
    states_replaced: int
