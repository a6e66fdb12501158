"""Detect JPEG compression, which removes noise together with detail.

JPEG rounds the cosine coefficients of blocks of 8 × 8 pixels, most of those of high frequencies to
zero. In blocks that are cut along the same grid these are still zero; in blocks of any other grid
they are not.
"""

from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from evoem.images.noise_blocks import cosines

Array = NDArray[np.float64]

SIDE = 8
HIGH = 7
# Blocks of each grid that are looked at.
SAMPLE = 400
# A coefficient is zero if it is within this share of the distance of two grey levels.
ZERO = 0.5
# One grid has so many more zeros than the others if the picture was compressed; noise is gone if
# that many coefficients are zero.
MORE, GONE = 0.1, 0.75


class Zeros(NamedTuple):
    """Shares of high frequencies that are zero: in the grid that has most, and in the typical."""

    most: float
    typical: float

    @property
    def compressed(self) -> bool:
        """Whether one grid is apart from the others."""
        return self.most > self.typical + MORE

    @property
    def gone(self) -> bool:
        """Whether next to nothing is left of the noise."""
        return self.compressed and self.most > GONE


def zeros(values: Array, step: float) -> Zeros:
    """Zeros of a picture (rows, columns, channels) whose grey levels are a step apart."""
    windows = sliding_window_view(values.mean(2), (SIDE, SIDE))
    basis = cosines(SIDE)
    high = np.add.outer(np.arange(SIDE), np.arange(SIDE)) >= HIGH
    shares = []
    for row, column in product(range(SIDE), repeat=2):
        blocks = windows[row::SIDE, column::SIDE].reshape(-1, SIDE, SIDE)
        blocks = blocks[:: max(1, len(blocks) // SAMPLE)]
        blocks = blocks[np.ptp(blocks, axis=(1, 2)) > 0]
        if len(blocks):
            coefficients = basis @ blocks @ basis.T
            shares.append(float((np.abs(coefficients[:, high]) < ZERO * step).mean()))
    return Zeros(max(shares, default=0.0), float(np.median(shares)) if shares else 0.0)
