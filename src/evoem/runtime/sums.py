"""Sums of floats that depend neither on the order nor on the grouping of the addends.

Every addend is cut into slices at fixed powers of two, 2^(width·level). Slices of a level are
multiples of one unit, few enough for their float64 sum to be exact, so it is the same in any order
(Demmel and Nguyen, "Parallel reproducible summation", 2015). Of the levels that the largest addend
of an array has any part in, only the highest ones are kept: what is below is less than 2^-64 of
that addend, and cut off from each addend by itself, so that it does not matter when.

Sums of more than 2^22 addends would not be exact, those of rows of more than 2^30, of pixels of
more than 2^18.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evoem.runtime.communicator import Communicator
from evoem.runtime.compile import kernel_in_order


class Slicing(NamedTuple):
    """How addends are cut."""

    width: int  # bits of a slice
    n_slices: int

    @property
    def lowest(self) -> int:
        """The lowest level: of what is smaller than its units nothing is left."""
        return -(SMALLEST // self.width)


OF_BLOCKS = Slicing(32, 3)
OF_ROWS = Slicing(24, 4)  # narrower ones leave room for more addends
OF_PIXELS = Slicing(36, 3)  # wider ones tell a little weight from none beside a large one
# Addends above 2^LARGEST, whose units would be near infinity, are left to ordinary sums.
LARGEST = 864
SMALLEST = 896
ENTRIES_AT_ONCE = 1024  # slices of these stay in the nearest cache
EXPONENT_BIAS = 1023


@kernel_in_order
def _largest_bits(values):
    """The bits of the largest magnitude: they are ordered as magnitudes are, then infinity, NaN."""
    bits, largest = values.view(np.int64), np.int64(0)
    for i in range(len(bits)):
        largest = max(largest, bits[i] & np.int64(0x7FFFFFFFFFFFFFFF))
    return largest


@kernel_in_order
def _deposit(values, rounders, slices):
    """Add values to the sums of their slices; x + r - r rounds x to a multiple of r's last bit."""
    rest = np.empty(ENTRIES_AT_ONCE)
    for start in range(0, len(values), ENTRIES_AT_ONCE):
        n = min(ENTRIES_AT_ONCE, len(values) - start)
        for i in range(n):
            rest[i] = values[start + i]
        for k in range(len(rounders)):
            rounder, own = rounders[k], slices[k, start : start + n]
            for i in range(n):
                part = (rest[i] + rounder) - rounder
                own[i] += part
                rest[i] -= part


@kernel_in_order
def _deposit_rows(values, rounders, slices):
    """Add the rows of an array to the sums of their slices."""
    for row in range(len(values)):
        for i in range(values.shape[1]):
            rest = values[row, i]
            for k in range(len(rounders)):
                part = (rest + rounders[k]) - rounders[k]
                slices[k, i] += part
                rest -= part


class ExactSum:
    """The sum of arrays of one shape, of any number of processes.

    Examples
    --------
    >>> import numpy as np
    >>> total = ExactSum((2,))
    >>> for addend in ([1.0, 1e-3], [1e16, 0.0], [-1e16, 0.0]):
    ...     total.add(np.array(addend))
    >>> total.value().round(6)
    array([1.   , 0.001])
    """

    def __init__(self, shape: tuple[int, ...], slicing: Slicing = OF_BLOCKS) -> None:
        self.shape = shape
        self.slicing = slicing
        self.level = slicing.lowest
        self.slices = np.zeros((slicing.n_slices, int(np.prod(shape, dtype=np.int64))))
        self.special: NDArray[np.float64] | None = None  # sums of what is not finite

    def add(self, addend: NDArray[np.float64], first: int = 0) -> None:
        """Add an array, or a part of one, whose entries are those from a first one on."""
        values = np.ascontiguousarray(addend, np.float64).reshape(-1)
        bits = int(_largest_bits(values))
        if _exponent(bits) >= LARGEST:
            usual = np.abs(values) < 2.0**LARGEST
            special = self.allow_special()[first : first + len(values)]
            special += np.where(usual, 0.0, values)
            values = np.where(usual, values, 0.0)
            bits = int(_largest_bits(values))
        self.make_room(bits)
        _deposit(values, self.rounders(), self.slices[:, first : first + len(values)])

    def add_rows(self, addends: NDArray[np.float64]) -> None:
        """Add the rows of an array, which must be finite."""
        values = np.ascontiguousarray(addends, np.float64)
        self.make_room(int(_largest_bits(values.reshape(-1))))
        _deposit_rows(values, self.rounders(), self.slices)

    def make_room(self, bits: int) -> None:
        """Keep the level that all of a magnitude is at or below: in those above it rounds to zero.

        The magnitude is given by its bits as an integer.
        """
        self.raise_to(-(-(_exponent(bits) + 2) // self.slicing.width) - 1)

    def rounders(self) -> NDArray[np.float64]:
        """What rounds to units of the level and those below it."""
        levels = self.level - np.arange(self.slicing.n_slices, dtype=np.float64)
        return 1.5 * 2.0 ** (52 + self.slicing.width * levels)

    def raise_to(self, level: int) -> None:
        """Keep slices from this level on, if it is higher: larger addends are to come."""
        n_slices = self.slicing.n_slices
        up = min(level - self.level, n_slices)
        if up <= 0:
            return
        self.level = level
        self.slices[up:] = self.slices[: n_slices - up].copy()
        self.slices[:up] = 0.0

    def allow_special(self) -> NDArray[np.float64]:
        """Room for what is not finite."""
        if self.special is None:
            self.special = np.zeros(self.slices.shape[1])
        return self.special

    def arrays(self) -> list[NDArray[np.float64]]:
        """All that has to be added to others of the same level."""
        return [self.slices.reshape(-1), *([] if self.special is None else [self.special])]

    def value(self) -> NDArray[np.float64]:
        """The sum."""
        total: NDArray[np.float64] = self.slices[0]
        for part in self.slices[1:]:
            total = total + part
        if self.special is not None:
            total = total + self.special
        return total.reshape(self.shape)


def _exponent(bits: int) -> int:
    return (bits >> 52) - EXPONENT_BIAS


class PlainSum:
    """The same by plain additions, whose rounding depends on their order."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape
        self.total = np.zeros(shape)

    def add(self, addend: NDArray[np.float64]) -> None:
        """Add an array."""
        self.total += addend

    def value(self) -> NDArray[np.float64]:
        """The sum."""
        return self.total


def add_plain_over_processes(sums: list[PlainSum], comm: Communicator) -> None:
    """Make sums of each process those of all, by one reduction."""
    packed = np.concatenate([one.total.reshape(-1) for one in sums])
    comm.add(packed)
    start = 0
    for one in sums:
        one.total = packed[start : start + one.total.size].reshape(one.shape)
        start += one.total.size


def agree_on_levels(sums: list[ExactSum], comm: Communicator) -> None:
    """Have the same levels and kinds of slices in all processes, by one small reduction."""
    kinds = np.array([[one.level, one.special is not None] for one in sums], np.int64)
    comm.largest(kinds)
    for one, (level, special) in zip(sums, kinds.tolist(), strict=True):
        one.raise_to(level)
        if special:
            one.allow_special()


def add_over_processes(sums: list[ExactSum], comm: Communicator) -> None:
    """Make sums of each process those of all, by one small reduction and one large one."""
    agree_on_levels(sums, comm)
    arrays = [array for one in sums for array in one.arrays()]
    packed = np.concatenate(arrays)
    comm.add(packed)
    start = 0
    for array in arrays:
        array[:] = packed[start : start + array.size]
        start += array.size


def exact_sum(
    addends: Iterable[NDArray[np.float64]], like: NDArray[np.float64], comm: Communicator
) -> NDArray[np.float64]:
    """The sum of what all processes add."""
    total = ExactSum(like.shape)
    for addend in addends:
        total.add(addend)
    if comm.size > 1:
        add_over_processes([total], comm)
    return total.value()
