"""Expected values of the data from the joint alone, by integration over each value.

The mean of x_d given a state and the other observed values is Σ_v v p(s, x | x_d = v) over all
values v, divided by Σ_v p(s, x | x_d = v). Columns of whole numbers are sums, others integrals over
a grid that is refined where the mass is. If values are independent given the state, this is the
mean of the noise-free value.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evoem.models.base import Model, Posterior
from evoem.runtime.communicator import ALONE, Communicator
from evoem.states import Population
from evoem.validation import Mask

POINTS = 33  # of a grid; more for columns of whole numbers that need them
LEVELS = 3  # of refinement
MOST_WHOLE = 1025
NEGLIGIBLE = 1e-3  # weight of a state that is left out
LOG_DENSITY_RANGE = 30.0  # nats below the largest, further down there is no mass
PAIRS_AT_ONCE = 4096  # of a row, with a value changed, and a state


class Support(NamedTuple):
    """The values that each column can take."""

    least: NDArray[np.float64]  # (D,)
    largest: NDArray[np.float64]
    whole: NDArray[np.bool_]  # numbers only


def support_of(
    X: NDArray[np.floating], observed: Mask | None, comm: Communicator = ALONE
) -> Support:
    """The support, from observed values; whole numbers other than 0 and 1 may go twice as far."""
    seen = np.ones(X.shape, np.bool_) if observed is None else observed
    least = X.min(0, initial=np.inf, where=seen).astype(np.float64)
    largest = X.max(0, initial=-np.inf, where=seen).astype(np.float64)
    fractions = np.any((np.round(X) != X) & seen, axis=0)
    extremes = np.stack([-least, largest, fractions])
    comm.largest(extremes)
    least, largest, whole = -extremes[0], extremes[1], extremes[2] == 0
    never = largest == -np.inf
    least[never], largest[never] = least.min(), largest.max()
    binary = whole & (least >= 0) & (largest <= 1)
    least, largest = np.where(binary, 0.0, least), np.where(binary, 1.0, largest)
    room = np.where(binary, 0.0, np.maximum(largest - least, 1.0))
    lower = np.where(whole & (least >= 0), 0.0, least - room / 2)
    upper = largest + np.where(whole, room, room / 2)
    whole &= upper - lower < MOST_WHOLE
    return Support(lower, upper, whole)


def by_quadrature(
    model: Model, derived: Any, rows: Any, posterior: Posterior, support: Support
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean of the expected values over the states, and their variance."""
    X = np.asarray(rows.X, np.float64)
    mean, square = np.zeros(X.shape), np.zeros(X.shape)
    kept = posterior.weights >= np.minimum(NEGLIGIBLE, posterior.weights.max(1, keepdims=True))
    row, slot = np.nonzero(kept & (posterior.weights > 0))
    total = np.zeros(len(X))
    np.add.at(total, row, posterior.weights[row, slot])
    for d in range(X.shape[1]):
        points = POINTS
        if support.whole[d]:
            points = int(support.largest[d] - support.least[d]) + 1
        size = max(1, PAIRS_AT_ONCE // points)
        for start in range(0, len(row), size):
            pairs = slice(start, start + size)
            expected = _expected(
                model, derived, rows, row[pairs], posterior.states[row[pairs], slot[pairs]],
                d, points, support,
            )  # fmt: skip
            weights = posterior.weights[row[pairs], slot[pairs]] / total[row[pairs]]
            np.add.at(mean[:, d], row[pairs], weights * expected)
            np.add.at(square[:, d], row[pairs], weights * expected**2)
    return mean, np.maximum(square - mean**2, 0.0)


def _expected(
    model: Model,
    derived: Any,
    rows: Any,
    row: NDArray[np.int64],
    states: NDArray[np.uint64],
    d: int,
    points: int,
    support: Support,
) -> NDArray[np.float64]:
    """The mean of column d for pairs of a row and a state."""
    low = np.full(len(row), support.least[d])
    high = np.full(len(row), support.largest[d])
    for _ in range(1 if support.whole[d] else LEVELS):
        grid = np.linspace(low, high, points, axis=1)
        log_joints = _with_values(model, derived, rows, row, states, d, grid)
        largest = log_joints.max(1, keepdims=True)
        has_mass = log_joints > largest - LOG_DENSITY_RANGE
        step = (high - low) / (points - 1) if points > 1 else np.zeros_like(low)
        low = grid[np.arange(len(row)), has_mass.argmax(1)] - step
        high = grid[np.arange(len(row)), points - 1 - has_mass[:, ::-1].argmax(1)] + step
    density = np.exp(log_joints - largest)
    mean: NDArray[np.float64] = (density * grid).sum(1) / density.sum(1)
    return mean


def _with_values(
    model: Model,
    derived: Any,
    rows: Any,
    row: NDArray[np.int64],
    states: NDArray[np.uint64],
    d: int,
    grid: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Log-joints with column d set to each value of a grid."""
    n_pairs, points = grid.shape
    X = np.repeat(rows.X[row], points, axis=0)
    X[:, d] = grid.ravel()
    observed = None
    if rows.observed is not None:
        observed = np.repeat(rows.observed[row], points, axis=0)
        observed[:, d] = True
        observed = None if observed.all() else observed
    some = model.prepare_rows(derived, X, observed)
    one = np.repeat(states, points, axis=0)[:, None]
    out = np.empty((len(X), 1))
    starts, stops = np.zeros(len(X), np.int64), np.ones(len(X), np.int64)
    model.log_joints(derived, some, Population(one, out, starts, stops))
    return out.reshape(n_pairs, points)
