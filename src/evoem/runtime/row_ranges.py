"""Ranges of rows by process, and moving values of rows between processes."""

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evoem.runtime.communicator import Communicator

Ranges = list[slice]  # of rows among all, by process


def ranges_of(counts: list[int]) -> Ranges:
    """Ranges of rows, given how many each process has."""
    ends = np.cumsum([0, *counts]).tolist()
    return [slice(*pair) for pair in pairwise(ends)]


def even_share(n_rows: int, comm: Communicator) -> slice:
    """What this process has if all have about as many.

    Examples
    --------
    >>> from evoem.runtime.communicator import ALONE
    >>> even_share(5, ALONE)
    slice(0, 5, None)
    """
    return share_of(n_rows, comm.rank, comm.size)


def share_of(n_rows: int, rank: int, size: int) -> slice:
    """What one of so many processes has then.

    Examples
    --------
    >>> share_of(5, 1, 2)
    slice(2, 5, None)
    """
    return slice(n_rows * rank // size, n_rows * (rank + 1) // size)


def whole_blocks(own: Ranges, edges: NDArray[np.int64]) -> Ranges:
    """Ranges of whole blocks, each taken by the process that has its first row.

    `edges` are where blocks start, and the end of the last.
    """
    ends = [0, *(int(edges[np.searchsorted(edges, share.stop)]) for share in own)]
    return [slice(*pair) for pair in pairwise(ends)]


def moved(values: NDArray[Any], before: Ranges, after: Ranges, comm: Communicator) -> NDArray[Any]:
    """Values of the rows that are this process's afterwards, given those of its rows before."""
    if before == after:
        return values
    mine = before[comm.rank]

    def part(other: slice) -> slice:
        start, stop = max(mine.start, other.start), min(mine.stop, other.stop)
        return slice(start - mine.start, max(stop, start) - mine.start)

    pieces = [values[part(other)] for other in after]
    kept, pieces[comm.rank] = pieces[comm.rank], values[:0]
    found = comm.exchange(pieces)
    found[comm.rank] = kept
    return np.concatenate(found)
