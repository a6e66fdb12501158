"""The removed part of an image: is it like the noise, or does it contain some of the image?"""

import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

LAGS = 3  # of the autocorrelation
# Neighbours of white noise are correlated by less than this in all but one of so many cases.
CHANCE = 4.0
LEAST_CORRELATION = 0.05
# From the correlation of noise, which is an estimate itself.
LEAST_DIFFERENCE = 0.1


def whiteness(correlation: Array, n_values: int, of_noise: Array | None = None) -> str:
    """What the autocorrelation says of a residual, given that of the noise if it is not white."""
    apart = correlation - expected(of_noise, len(correlation))
    largest = np.unravel_index(np.abs(apart).argmax(), apart.shape)
    value, excess = correlation[largest], apart[largest]
    middle = len(correlation) // 2
    lag = ", ".join(str(abs(int(index) - middle)) for index in largest)
    least = LEAST_CORRELATION if of_noise is None else LEAST_DIFFERENCE
    if abs(excess) <= max(least, CHANCE / math.sqrt(n_values)):
        if of_noise is None:
            return f"It is white (no correlation above {abs(value):.2f}): only noise was removed."
        return (
            f"It is correlated as the noise is (within {abs(excess):.2f}): only noise was taken "
            "off."
        )
    told = f"Its neighbours at distance ({lag}) are correlated by {value:.2f}"
    if of_noise is not None:
        told += f", those of the noise by {value - excess:.2f}"
    if excess < 0:  # what is left of a mean of neighbours
        return f"{told}: some of the noise stayed in the picture."
    return f"{told}: the noise was correlated, or part of the picture was removed with it."


def expected(of_noise: Array | None, side: int) -> Array:
    """The autocorrelation of the noise at the lags of a residual's."""
    found = np.zeros((side, side))
    middle = side // 2
    found[middle, middle] = 1.0
    if of_noise is not None:
        down, right = (min(length // 2, middle) for length in of_noise.shape)
        rows, columns = (length // 2 for length in of_noise.shape)
        found[middle - down : middle + down + 1, middle - right : middle + right + 1] = of_noise[
            rows - down : rows + down + 1, columns - right : columns + right + 1
        ]
    return found


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
