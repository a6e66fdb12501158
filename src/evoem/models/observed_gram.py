"""Inner products of dictionary entries over the observed values of a row of data."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evoem.runtime.compile import inlined
from evoem.validation import Mask


class ObservedGram(NamedTuple):
    """Inner products over the observed values of one row, kept until the next row.

    The states of a row share latents, which are numbered in the order in which they occur.
    """

    mask: NDArray[np.floating]  # (D,)  one where observed, else zero
    numbers: NDArray[np.int64]  # (H,)  -1: not in any state yet
    latents: NDArray[np.int64]  # (H,)  those that are numbered
    n_numbered: NDArray[np.int64]  # (1,)  how many these are
    products: NDArray[np.float64]  # a lower triangle, row after row, NaN where not yet computed


def empty_gram(V: NDArray[np.floating], observed: Mask | None) -> ObservedGram | None:
    """Room for the inner products of one row at a time; None if nothing is missing."""
    if observed is None:
        return None
    H, D = V.shape
    return ObservedGram(
        np.empty(D, V.dtype),
        np.full(H, -1),
        np.empty(H, np.int64),
        np.zeros(1, np.int64),
        np.empty(H * (H + 1) // 2),
    )


@inlined
def start_row(known, observed, r):
    """Forget the inner products of the last row."""
    for d in range(len(known.mask)):
        known.mask[d] = observed[r, d]
    for u in range(known.n_numbered[0]):
        known.numbers[known.latents[u]] = -1
    known.n_numbered[0] = 0


@inlined
def _inner_product(V, g, h, mask):
    total = 0.0
    for d in range(V.shape[1]):
        total += V[g, d] * V[h, d] * mask[d]
    return total


@inlined
def gather_observed(known, V, active, k, out):
    """Inner products of the active latents of a state: the lower triangle of a flat k×k matrix."""
    for i in range(k):
        h = active[i]
        if known.numbers[h] < 0:
            number = known.n_numbered[0]
            known.numbers[h], known.latents[number] = number, h
            known.n_numbered[0] = number + 1
            begin = number * (number + 1) // 2
            for u in range(number + 1):
                known.products[begin + u] = np.nan
    for i in range(k):
        a = known.numbers[active[i]]
        for j in range(i + 1):
            b = known.numbers[active[j]]
            index = max(a, b) * (max(a, b) + 1) // 2 + min(a, b)
            value = known.products[index]
            if np.isnan(value):
                value = _inner_product(V, active[i], active[j], known.mask)
                known.products[index] = value
            out[i * k + j] = value
