"""The best few of many values."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from evoem.runtime.compile import inlined, kernel
from evoem.states import Genomes, active_latents

NONE = -1  # a place without a latent
GROUPS = 32  # of scores, those that far apart


@inlined
def kth_largest(values, n, k):
    """The k-th largest of `values[:n]`, which is reordered (Hoare's selection)."""
    low, high = 0, n - 1
    k -= 1
    while low < high:
        middle = (low + high) >> 1
        # Median of three: kept states come in an order that would mislead the first element.
        a, b, c = values[low], values[middle], values[high]
        pivot = max(min(a, b), min(max(a, b), c))
        i, j = low, high
        while i <= j:
            while values[i] > pivot:
                i += 1
            while values[j] < pivot:
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                i += 1
                j -= 1
        if k <= j:
            high = j
        elif k >= i:
            low = i
        else:
            break
    return values[k]


def highest(values: NDArray[np.floating[Any]], n_best: int) -> NDArray[np.int64]:
    """Indices of the highest values of each row, in any order."""
    return np.argpartition(-values, n_best - 1, axis=1)[:, :n_best]


@inlined
def best_scores(scores, tops, out, r, p):
    """Write the indices of the highest scores to `out[r, p]`, best first, but none of -inf.

    A tournament: the best of each group, then the best of those. `tops` is scratch for GROUPS
    values; `scores` are overwritten.
    """
    size = len(scores)
    nothing = scores.dtype.type(-np.inf)
    for j in range(GROUPS):
        tops[j] = nothing
    for i in range(size // GROUPS):
        for j in range(GROUPS):
            value, top = scores[i * GROUPS + j], tops[j]
            tops[j] = value if value > top else top  # `max` minds NaN, and takes three times longer
    for h in range(size - size % GROUPS, size):
        if scores[h] > tops[h % GROUPS]:
            tops[h % GROUPS] = scores[h]
    for place in range(out.shape[2]):
        group, top = 0, tops[0]
        for j in range(1, GROUPS):
            if tops[j] > top:
                group, top = j, tops[j]
        if top == nothing:
            out[r, p, place] = NONE
            continue
        chosen, second = -1, nothing
        for h in range(group, size, GROUPS):
            if chosen < 0 and scores[h] == top:
                chosen = h
            elif scores[h] > second:
                second = scores[h]
        scores[chosen] = nothing
        tops[group] = second
        out[r, p, place] = chosen


@kernel
def _rank(scores, states, counts, out):
    n_latents = scores.shape[2]
    active = np.empty(n_latents + 1, np.int64)
    own = np.empty(n_latents, scores.dtype)
    tops = np.empty(GROUPS, scores.dtype)
    for r in range(states.shape[0]):
        for p in range(counts[r]):
            own[:] = scores[r, p]
            for i in range(active_latents(states, r, p, active)):
                own[active[i]] = -np.inf
            best_scores(own, tops, out, r, p)


def empty_ranks(genomes: Genomes, n_best: int) -> NDArray[np.int32]:
    """Room for the best `n_best` latents of each genome."""
    n_rows, n_genomes, _ = genomes.states.shape
    return np.empty((n_rows, n_genomes, n_best), np.int32)


def rank_inactive(
    scores: NDArray[np.floating[Any]], genomes: Genomes, n_best: int
) -> NDArray[np.int32]:
    """The inactive latents of the highest scores, best first, then NONE.

    `scores` (n_rows, n_genomes, n_latents) are one for each latent of each genome.
    """
    out = empty_ranks(genomes, n_best)
    _rank(scores, *genomes, out)
    return out
