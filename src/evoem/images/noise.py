"""A first guess at the noise, before anything is learnt."""

import numpy as np
from numpy.typing import NDArray

from evoem.images import bands
from evoem.images.bands import Band

# Median of the absolute value of a standard normal variable.
MEDIAN_OF_ABSOLUTE = 0.6745


def share_of_noise(values: NDArray[np.floating], band: Band | None = None) -> float:
    """Standard deviation of the noise relative to that of what is under it; inf without contrast.

    The former is found in differences of differences along rows and columns, which of most images
    hold little but noise, by the median, which the edges among them do not move. `values` are
    (rows, columns, channels), of which each process may have some rows.
    """
    band = bands.whole(len(values)) if band is None else band
    below = [slice(own.start, min(own.stop + 1, band.n_rows)) for own in band.own]
    rows = np.diff(band.fetch(values, below), axis=0)
    crossed = np.diff(rows, axis=1) / 2
    if not band.any(crossed.size > 0)[0]:
        return 0.0
    noise = band.median(np.abs(crossed)) / MEDIAN_OF_ABSOLUTE
    everywhere = np.ones(values.shape[:2], np.bool_)
    deviations = [
        band.mean_and_deviation(channel, everywhere)[1] for channel in np.moveaxis(values, 2, 0)
    ]
    rest = float(np.mean(np.square(deviations))) - noise**2
    return float(noise / np.sqrt(rest)) if rest > 0 else np.inf
