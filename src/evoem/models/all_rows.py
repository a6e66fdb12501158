"""Sums over the rows of all processes, and a choice of these rows: what models start from."""

from collections.abc import Callable, Iterator
from typing import Self

import numpy as np
from numpy.typing import NDArray

from evoem.runtime.communicator import ALONE, Communicator
from evoem.runtime.row_ranges import even_share, moved, ranges_of, whole_blocks
from evoem.runtime.sums import OF_ROWS, ExactSum, add_over_processes
from evoem.runtime.threads import split
from evoem.validation import Mask

# Rows whose sums are made together, to have the same bits in any process.
ROWS_OF_BLOCK = 1 << 14
# Rows whose squares are held at once.
ROWS_AT_ONCE = 4096


class AllRows:
    """The rows of all processes, of which this one has some.

    Parameters
    ----------
    X : array of shape (n_own, n_features)
        Zeros where missing.
    observed : bool array of the same shape, or None
    comm : Communicator
        Rows of the first process come first.
    rows_of_block : int
        See `in_whole_blocks`.
    """

    def __init__(
        self,
        X: NDArray[np.floating],
        observed: Mask | None = None,
        comm: Communicator = ALONE,
        rows_of_block: int = ROWS_OF_BLOCK,
    ) -> None:
        self.X, self.observed, self.comm = X, observed, comm
        self.rows_of_block = rows_of_block
        self._ranges = ranges_of(comm.collect(len(X)))
        self.start = self._ranges[comm.rank].start
        self.n_rows = self._ranges[-1].stop

    def seen(self, part: slice = slice(None)) -> NDArray[np.bool_]:
        """Where values were observed, of some rows of this process."""
        if self.observed is None:
            return np.ones(self.X[part].shape, np.bool_)
        return self.observed[part]

    def counts(self) -> NDArray[np.int64]:
        """(D,)  Observed values of each feature."""
        own: NDArray[np.int64] = self.seen().sum(0)
        self.comm.add(own)
        return own

    def sums(self) -> NDArray[np.float64]:
        """(D,)  Σ y_d."""
        return self._sum(lambda values: values)

    def squares(self, centre: NDArray[np.float64] | float = 0.0) -> NDArray[np.float64]:
        """(D,)  Σ (y_d - c_d)²."""
        return self._sum(lambda values: np.square(values - centre))

    def _sum(
        self, function: Callable[[NDArray[np.float64]], NDArray[np.float64]]
    ) -> NDArray[np.float64]:
        total = ExactSum(self.X.shape[1:], OF_ROWS)
        for part in split(len(self.X), ROWS_AT_ONCE):
            values = function(self.X[part].astype(np.float64))
            total.add_rows(np.where(self.seen(part), values, 0.0))
        if self.comm.size > 1:
            add_over_processes([total], self.comm)
        return total.value()

    def mean_square(self) -> float:
        """Of what was observed."""
        return float(self.squares().sum() / self.counts().sum())

    def draw(
        self, rng: np.random.Generator, number: int
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """So many rows chosen at random, and where they were observed; equal ones if need be."""
        return self.take(rng.choice(self.n_rows, number, replace=number > self.n_rows))

    def take(self, numbers: NDArray[np.integer]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Rows of these numbers among all, in every process."""
        rows = np.zeros((len(numbers), self.X.shape[1]))
        seen = np.zeros(rows.shape, np.int8)
        own = np.flatnonzero((numbers >= self.start) & (numbers < self.start + len(self.X)))
        mine = numbers[own] - self.start
        rows[own] = self.X[mine]
        seen[own] = True if self.observed is None else self.observed[mine]
        self.comm.add(rows)  # others have zeros there
        self.comm.add(seen)
        return rows, seen.astype(np.bool_)

    def in_whole_blocks(self) -> Self:
        """The same rows, moved between processes so that no block is cut."""
        edges = np.append(np.arange(0, self.n_rows, self.rows_of_block), self.n_rows)
        ways = self._ranges, whole_blocks(self._ranges, edges), self.comm
        observed = None if self.observed is None else moved(self.observed, *ways)
        return type(self)(moved(self.X, *ways), observed, self.comm, self.rows_of_block)

    def blocks(self) -> Iterator[slice]:
        """The blocks of this process's rows."""
        stop, size = self.start + len(self.X), self.rows_of_block
        for first in range(self.start // size * size, stop, size):
            start, end = max(first, self.start), min(first + size, stop)
            if end > start:
                yield slice(start - self.start, end - self.start)


def share_of_blocks(n_rows: int, comm: Communicator) -> slice:
    """An even share of rows in whole blocks."""
    share = even_share(-(-n_rows // ROWS_OF_BLOCK), comm)
    return slice(min(share.start * ROWS_OF_BLOCK, n_rows), min(share.stop * ROWS_OF_BLOCK, n_rows))


def median_of_counts(counts: NDArray[np.integer], most: int, comm: Communicator) -> float:
    """The median of whole numbers up to `most`, over all processes."""
    often = np.bincount(counts, minlength=most + 1)
    comm.add(often)
    ends = np.cumsum(often)
    middle = [(ends[-1] - 1) // 2, ends[-1] // 2]
    return float(np.searchsorted(ends, middle, side="right").mean())
