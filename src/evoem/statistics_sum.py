"""Add the statistics of blocks, and those of all processes, exactly or plainly."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evoem.runtime.communicator import Communicator
from evoem.runtime.sums import (
    ExactSum,
    PlainSum,
    add_over_processes,
    add_plain_over_processes,
)

Path = tuple[str, ...]


class StatisticsSum:
    """The sum of statistics over blocks, and then over processes.

    Parameters
    ----------
    empty : NamedTuple
        Statistics of no rows, maybe nested; what dicts in it have is told by what is added.
    comm : Communicator
    """

    def __init__(self, empty: Any, comm: Communicator) -> None:
        self._empty = empty
        self._comm = comm
        self._kind = ExactSum if comm.exact else PlainSum
        self._sums: dict[Path, Any] = {
            path: self._kind(array.shape) for path, array in _arrays(empty)
        }

    def add(self, statistics: Any) -> None:
        """Add those of a block."""
        for path, array in _arrays(statistics):
            if path not in self._sums:
                self._sums[path] = self._kind(array.shape)
            self._sums[path].add(array)

    def total(self) -> Any:
        """Of all processes, which must all ask for it."""
        if self._comm.size > 1:
            if _has_dict(self._empty):
                self._agree()
            ordered = [self._sums[path] for path in sorted(self._sums)]
            if self._comm.exact:
                add_over_processes(ordered, self._comm)
            else:
                add_plain_over_processes(ordered, self._comm)
        return self._filled(self._empty, ())

    def _agree(self) -> None:
        """Have the same arrays as others: a process without rows does not know the user's."""
        shapes = {path: one.shape for path, one in self._sums.items()}
        for others in self._comm.collect(shapes):
            for path, shape in others.items():
                if shapes.setdefault(path, shape) != shape:
                    raise ValueError(
                        f"statistics {path[-1]!r} must have one shape; got {shape} and "
                        f"{shapes[path]}."
                    )
        for path in shapes.keys() - self._sums.keys():
            self._sums[path] = self._kind(shapes[path])

    def _filled(self, empty: Any, path: Path) -> Any:
        if isinstance(empty, np.ndarray):
            return self._sums[path].value()
        if isinstance(empty, dict):
            inside = [own for own in sorted(self._sums) if own[:-1] == path]
            return {own[-1]: self._sums[own].value() for own in inside}
        fields = zip(empty._fields, empty, strict=True)
        return type(empty)(*(self._filled(value, (*path, name)) for name, value in fields))


def _arrays(statistics: Any, path: Path = ()) -> Iterator[tuple[Path, NDArray[np.float64]]]:
    if isinstance(statistics, np.ndarray):
        yield path, statistics
        return
    fields = statistics if isinstance(statistics, dict) else statistics._asdict()
    for name, value in fields.items():
        yield from _arrays(value, (*path, name))


def _has_dict(statistics: Any) -> bool:
    if isinstance(statistics, np.ndarray):
        return False
    return isinstance(statistics, dict) or any(map(_has_dict, statistics))
