"""A first guess at the noise, before anything is learnt."""

import numpy as np
from numpy.typing import NDArray

# Median of the absolute value of a standard normal variable.
MEDIAN_OF_ABSOLUTE = 0.6745


def share_of_noise(values: NDArray[np.floating]) -> float:
    """Standard deviation of the noise relative to that of what is under it; inf without contrast.

    The former is found in differences of differences along rows and columns, which of most images
    hold little but noise, by the median, which the edges among them do not move. `values` are
    (rows, columns, channels).
    """
    rows = np.diff(values, axis=0)
    crossed = np.diff(rows, axis=1) / 2
    if crossed.size == 0:
        return 0.0
    noise = np.median(np.abs(crossed)) / MEDIAN_OF_ABSOLUTE
    rest = values.var(axis=(0, 1)).mean() - noise**2
    return float(noise / np.sqrt(rest)) if rest > 0 else np.inf
