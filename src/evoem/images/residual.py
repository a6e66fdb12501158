"""What was taken off a picture: is it white, as noise is, or was something of the picture in it?"""

import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

LAGS = 3  # of the autocorrelation
# Neighbours of white noise are correlated by less than this in all but one of so many cases.
CHANCE = 4.0
LEAST_CORRELATION = 0.05


def whiteness(correlation: Array, n_values: int) -> str:
    """What the autocorrelation says of a residual."""
    apart = np.abs(correlation)
    middle = len(correlation) // 2
    apart[middle, middle] = 0.0
    largest = np.unravel_index(apart.argmax(), apart.shape)
    value = correlation[largest]
    lag = ", ".join(str(abs(int(index) - middle)) for index in largest)
    if abs(value) <= max(LEAST_CORRELATION, CHANCE / math.sqrt(n_values)):
        return f"It is white (no correlation above {abs(value):.2f}): only noise was taken off."
    return (
        f"Its neighbours at distance ({lag}) are correlated by {value:.2f}: the noise was "
        "correlated, or some of the picture was taken off with it."
    )


def autocorrelation(residual: Array, lags: int) -> tuple[Array, int]:
    """Correlation of values with those up to so many rows and columns away; NaN is left out.

    The middle of the result is lag zero. Beside it the number of values.
    """
    known = np.isfinite(residual)
    centred = np.where(known, residual - residual[known].mean(), 0.0)
    variance = float(np.square(centred).sum() / known.sum())
    rows, columns = residual.shape
    found = np.zeros((2 * lags + 1, 2 * lags + 1))
    for down in range(-lags, lags + 1):
        for right in range(-lags, lags + 1):
            here = np.s_[
                max(0, -down) : rows - max(0, down), max(0, -right) : columns - max(0, right)
            ]
            there = np.s_[
                max(0, down) : rows + min(0, down), max(0, right) : columns + min(0, right)
            ]
            n_pairs = np.count_nonzero(known[here] & known[there])
            products = (centred[here] * centred[there]).sum()
            found[lags + down, lags + right] = products / max(n_pairs, 1) / variance
    return found, int(known.sum())
