"""Symmetric matrices over pairs of latents: the diagonal, then the lower triangle row after row.

The entry of h with itself is at h, that of h and g < h at H + h (h - 1) / 2 + g. States look up
random entries, most of them on the diagonal, which is short and stays in the nearest cache. Half of
a matrix often stays in the processor's own cache where all of it would not, and threads then do not
wait for the cache that they share.
"""

import math

import numpy as np
from numpy.typing import NDArray

from evoem.runtime.compile import inlined


@inlined
def row_start(n_latents, h):
    """Index of the first pair of h with a latent before it."""
    return n_latents + h * (h - 1) // 2


@inlined
def gather(products, n_latents, active, k, out):
    """Inner products of the active latents of a state: the lower triangle of a k×k matrix."""
    for i in range(k):
        out[i * k + i] = products[active[i]]
        start = row_start(n_latents, active[i])
        for j in range(i):
            out[i * k + j] = products[start + active[j]]


def n_pairs(n_latents: int) -> int:
    """Number of pairs of latents, including each latent with itself."""
    return n_latents * (n_latents + 1) // 2


def _below_diagonal(size: int) -> NDArray[np.bool_]:
    return np.tri(size, k=-1, dtype=np.bool_)


def _size(triangle: NDArray[np.floating]) -> int:
    return (math.isqrt(8 * len(triangle) + 1) - 1) // 2


def pack(matrix: NDArray[np.floating]) -> NDArray[np.floating]:
    """The pairs of a symmetric matrix."""
    return np.concatenate([np.diag(matrix), matrix[_below_diagonal(len(matrix))]])


def unpack(triangle: NDArray[np.float64]) -> NDArray[np.float64]:
    """The matrix with this lower triangle, and zeros above it."""
    size = _size(triangle)
    out = np.diag(triangle[:size])
    out[_below_diagonal(size)] = triangle[size:]
    return out


def diagonal(triangle: NDArray[np.float64]) -> NDArray[np.float64]:
    """The diagonal of the matrix."""
    return triangle[: _size(triangle)]
