"""Symmetric matrices over pairs of latents, of which the lower triangle is held, row after row.

The pair of h and g ≤ h stands at h (h + 1) / 2 + g. States look pairs up at random; half of a
matrix stays in the processor's own cache where a whole one would not, and threads then do not wait
for the cache that they share.
"""

import math

import numpy as np
from numpy.typing import NDArray

from evoem.compile import inlined


@inlined
def row_start(h):
    """Where the pairs of h start, which is also the number of pairs of the latents before it."""
    return h * (h + 1) // 2


def n_pairs(n_latents: int) -> int:
    """Pairs of so many latents, each with itself included."""
    return n_latents * (n_latents + 1) // 2


def pack(matrix: NDArray[np.floating]) -> NDArray[np.floating]:
    """The lower triangle of a matrix."""
    return matrix[np.tri(len(matrix), dtype=np.bool_)]


def unpack(triangle: NDArray[np.float64]) -> NDArray[np.float64]:
    """The matrix with this lower triangle, and zeros above it."""
    size = (math.isqrt(8 * len(triangle) + 1) - 1) // 2
    out = np.zeros((size, size))
    out[np.tri(size, dtype=np.bool_)] = triangle
    return out


def diagonal(triangle: NDArray[np.float64]) -> NDArray[np.float64]:
    """The diagonal of the matrix."""
    size = (math.isqrt(8 * len(triangle) + 1) - 1) // 2
    return triangle[np.cumsum(np.arange(1, size + 1)) - 1]
