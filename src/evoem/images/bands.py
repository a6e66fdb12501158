"""Bands of a picture: consecutive rows of pixels for each process, and the rows around them.

A patch belongs to the process that has the first row of its group, some consecutive rows of patches
which are the same for any number of processes. So patches reach beyond a band: rows around it are
fetched from other processes before patches are cut, and sums over patches are given back to those
whose rows they are of.
"""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evoem.images.patches import Grid, Marks, PatchSum
from evoem.runtime.communicator import ALONE, Communicator, any_of
from evoem.runtime.row_ranges import Ranges, moved
from evoem.runtime.sums import OF_ROWS, ExactSum, add_over_processes, agree_on_levels
from evoem.runtime.threads import split

# Patches that are worked on at once, as far as whole rows of them go, and how many pixels the first
# and the last of these rows may be apart.
PATCHES_AT_ONCE = 8192
LARGEST_SPAN = 64
# Values that every process may have for a moment. Means of them are then numpy's, whose rounding
# follows from the order of all.
FEW = 1 << 22


class Band(NamedTuple):
    """The rows of pixels that each process has."""

    own: Ranges
    comm: Communicator = ALONE

    @property
    def n_rows(self) -> int:
        """Of the whole picture."""
        return int(self.own[-1].stop)

    @property
    def rows(self) -> slice:
        """Those of this process."""
        return self.own[self.comm.rank]

    def owners(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """The process that has each of some rows of the picture."""
        ends = np.array([own.stop for own in self.own])
        return np.searchsorted(ends, rows, side="right")

    def fetch(self, values: NDArray[Any], wanted: Ranges) -> NDArray[Any]:
        """Values of the rows that this process wants, given those that it has."""
        return moved(values, self.own, wanted, self.comm)

    def everywhere(self, values: NDArray[Any]) -> NDArray[Any]:
        """Values of all rows, in every process."""
        return self.fetch(values, [slice(0, self.n_rows)] * self.comm.size)

    def at_first(self, values: NDArray[Any]) -> NDArray[Any]:
        """Values of all rows in the first process, and none in the others."""
        others = [slice(0, 0)] * (self.comm.size - 1)
        return self.fetch(values, [slice(0, self.n_rows), *others])

    def window(self, rows: slice) -> "Band":
        """What each process has of some rows, which are then all there are."""
        ends = [(min(max(end, rows.start), rows.stop) - rows.start) for end in self._ends()]
        return Band([slice(*pair) for pair in zip([0, *ends[:-1]], ends, strict=True)], self.comm)

    def inside(self, rows: slice) -> slice:
        """What this process has of some rows of the picture, counted from its first one."""
        mine = self.rows
        start = min(max(rows.start, mine.start), mine.stop)
        return slice(start - mine.start, max(min(rows.stop, mine.stop), start) - mine.start)

    def total(self, values: NDArray[np.floating], where: NDArray[np.bool_] | None = None) -> float:
        """The sum of all values, exactly, and so the same on any number of processes."""
        sums = np.zeros((len(values), 1))
        for row, own in enumerate(values):
            sums[row] = (own if where is None else own[where[row]]).sum(dtype=np.float64)
        found = ExactSum((1,), OF_ROWS)
        found.add_rows(sums)
        if self.comm.size > 1:
            add_over_processes([found], self.comm)
        return float(found.value()[0])

    def count(self, where: NDArray[np.bool_]) -> int:
        """How often something is true, in all processes."""
        number = np.array([np.count_nonzero(where)])
        self.comm.add(number)
        return int(number[0])

    def mean(self, values: NDArray[np.floating], where: NDArray[np.bool_] | None = None) -> float:
        """Of the values of all processes, where they are known."""
        if self._are_few(values):
            known = True if where is None else self._in_order(where)
            return float(self._in_order(values).mean(dtype=np.float64, where=known))
        if where is None:
            return self.total(values) / (self.n_rows * math.prod(values.shape[1:]))
        return self.total(values, where) / self.count(where)

    def deviation(self, values: NDArray[np.floating], where: NDArray[np.bool_]) -> float:
        """Of the values of all processes, where they are known."""
        if self._are_few(values):
            return float(self._in_order(values).std(where=self._in_order(where)))
        return self.mean_and_deviation(values, where)[1]

    def _are_few(self, values: NDArray[Any]) -> bool:
        return self.n_rows * math.prod(values.shape[1:]) <= FEW

    def _in_order(self, values: NDArray[Any]) -> NDArray[Any]:
        return np.ascontiguousarray(self.everywhere(values))

    def mean_and_deviation(
        self, values: NDArray[np.floating], where: NDArray[np.bool_]
    ) -> tuple[float, float]:
        """Of the values of all processes, where they are known."""
        if self._are_few(values):
            seen = self.everywhere(values)[self.everywhere(where)]
            return (float(seen.mean()), float(seen.std())) if seen.size else (0.0, 0.0)
        number = max(self.count(where), 1)
        mean = self.total(values, where) / number
        squares = np.square(values.astype(np.float64) - mean)
        return mean, float(np.sqrt(self.total(squares, where) / number))

    def largest(self, value: float) -> float:
        """The largest of the values that processes have."""
        found = np.array([value], np.float64)
        self.comm.largest(found)
        return float(found[0])

    def median(self, values: NDArray[np.floating]) -> float:
        """Of the values of all processes, in any shape; NaN if there are none."""
        if self.comm.size == 1:
            return float(np.median(values)) if values.size else np.nan
        keys = _ordered_keys(values)
        number = int(sum(self.comm.collect(len(keys))))
        if not number:
            return np.nan
        middle = {self._smallest(keys, rank) for rank in ((number - 1) // 2, number // 2)}
        return float(np.mean(sorted(middle)))

    def _smallest(self, keys: NDArray[np.uint64], rank: int) -> float:
        """The value that so many are smaller than, found 16 bits at a time."""
        prefix = 0
        for shift in (48, 32, 16, 0):
            often = np.bincount((keys >> np.uint64(shift)) & np.uint64(0xFFFF), minlength=1 << 16)
            self.comm.add(often)
            ends = np.cumsum(often)
            digit = int(np.searchsorted(ends, rank, side="right"))
            rank -= int(ends[digit] - often[digit])
            prefix = prefix << 16 | digit
            keys = keys[keys >> np.uint64(shift) == prefix]
        return _value_of(prefix)

    def any(self, *said: bool | np.bool_) -> list[bool]:
        """For each of some questions, whether any process says yes."""
        return any_of(self.comm, *map(bool, said))

    def _ends(self) -> list[int]:
        return [own.stop for own in self.own]


def _ordered_keys(values: NDArray[np.floating]) -> NDArray[np.uint64]:
    """Numbers in the order of values."""
    bits = np.ascontiguousarray(values, np.float64).reshape(-1).view(np.uint64)
    negative = bits >> np.uint64(63) != 0
    return np.where(negative, ~bits, bits | np.uint64(1 << 63))


def _value_of(key: int) -> float:
    bits = key ^ (1 << 63) if key >> 63 else ~key & (1 << 64) - 1
    return float(np.uint64(bits).view(np.float64))


def whole(n_rows: int) -> Band:
    """A picture that this process has alone."""
    return Band([slice(0, n_rows)])


def even(n_rows: int, comm: Communicator) -> Band:
    """About as many rows for each process, the first ones having more."""
    ends = [-(-n_rows * (rank + 1) // comm.size) for rank in range(comm.size)]
    return Band([slice(*pair) for pair in zip([0, *ends[:-1]], ends, strict=True)], comm)


class PatchRows(NamedTuple):
    """Which process works on which rows of the patches of a grid."""

    grid: Grid
    band: Band
    owners: NDArray[np.int64]  # of each row of patches
    at_once: int  # rows of patches in a group

    @property
    def strips(self) -> Ranges:
        """Rows of the image with its frame that lie under the patches of each process."""
        found = []
        for rank in range(self.band.comm.size):
            tops = self.grid.tops[self.owners == rank]
            ends = (int(tops[0]), int(tops[-1]) + self.grid.patch[0]) if len(tops) else (0, 0)
            found.append(slice(*ends))
        return found

    @property
    def strip(self) -> slice:
        """That of this process."""
        return self.strips[self.band.comm.rank]

    def pixels(self, above: int = 0, below: int = 0) -> Ranges:
        """Rows of the image under the patches of each process, and so many around them."""
        margin, last = self.grid.margin, self.band.n_rows
        return [
            slice(max(one.start - margin - above, 0), min(one.stop - margin + below, last))
            if one.stop
            else one
            for one in self.strips
        ]

    def owners_of(self, numbers: NDArray[np.integer]) -> NDArray[np.int64]:
        """The process that each of some patches belongs to."""
        found: NDArray[np.int64] = self.owners[numbers // len(self.grid.lefts)]
        return found

    def groups(self) -> Iterator[slice]:
        """Groups of rows of patches that this process works on."""
        for start in range(0, len(self.grid.tops), self.at_once):
            if self.owners[start] == self.band.comm.rank:
                yield slice(start, min(start + self.at_once, len(self.grid.tops)))

    def numbers(self) -> Iterator[NDArray[np.int64]]:
        """Numbers of the patches of this process, some at a time."""
        width = len(self.grid.lefts)
        for group in self.groups():
            for part in split(width * (group.stop - group.start), PATCHES_AT_ONCE):
                yield np.arange(part.start, part.stop) + group.start * width

    def add(self, sums: list[PatchSum], marks: Marks | None = None) -> None:
        """Make sums over the patches of each process those of all, over its own rows."""
        comm, margin = self.band.comm, self.grid.margin
        if comm.size == 1:
            return
        framed = [slice(own.start + margin, own.stop + margin) for own in self.band.own]
        agree_on_levels([one.sum for one in sums], comm)
        for one in sums:
            one.share(framed, comm)
        if marks is not None:
            marks.share(framed, comm)


def patch_rows(grid: Grid, band: Band, at_once: int | None = None) -> PatchRows:
    """Groups of rows of patches, each of the process that has the row of pixels it starts in."""
    if at_once is None:
        step = max(grid.widest_step, 1)
        at_once = max(1, min(PATCHES_AT_ONCE // len(grid.lefts), 1 + LARGEST_SPAN // step))
    firsts = np.arange(len(grid.tops)) // at_once * at_once
    rows = np.clip(grid.tops[firsts] - grid.margin, 0, band.n_rows - 1)
    return PatchRows(grid, band, band.owners(rows), at_once)
