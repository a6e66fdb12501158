"""The interface to other processes, and its trivial case of a single process.

Every process runs the same program on rows of its own. A communicator is passed in, never looked
for; `evoem.distributed` has that of MPI.
"""

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")


class Communicator(Protocol):
    """What processes tell each other. All of them make the same calls, in the same order."""

    rank: int  # the number of this process, from zero
    size: int  # how many there are
    exact: bool  # whether sums have the same bits whatever the number of processes

    def add(self, buffer: NDArray[Any]) -> None:
        """Overwrite a buffer by its sum over all processes."""

    def largest(self, buffer: NDArray[Any]) -> None:
        """Overwrite a buffer by its largest values over all processes."""

    def collect(self, item: T) -> list[T]:
        """What each process has: small, and known to all afterwards."""

    def gather(self, item: T) -> list[T] | None:
        """What each process has, for the first one; None for the others."""

    def exchange(self, items: Sequence[T]) -> list[T]:
        """What each process has for this one, given what this one has for each."""

    def report(self) -> str:
        """What to tell of talking to others, beside what else is told of a run."""

    def abort(self, message: str, code: int = 1) -> None:
        """End all processes, with the message of the first that wants to, and an exit code."""


class OneProcess:
    """No others.

    Examples
    --------
    >>> import numpy as np
    >>> alone = OneProcess()
    >>> buffer = np.ones(2)
    >>> alone.add(buffer)
    >>> buffer, alone.collect("rows")
    (array([1., 1.]), ['rows'])
    """

    rank = 0
    size = 1
    exact = True

    def add(self, buffer: NDArray[Any]) -> None:
        """Leave it as it is."""

    def largest(self, buffer: NDArray[Any]) -> None:
        """Leave it as it is."""

    def collect(self, item: T) -> list[T]:
        """This one alone."""
        return [item]

    def gather(self, item: T) -> list[T] | None:
        """This one alone."""
        return [item]

    def exchange(self, items: Sequence[T]) -> list[T]:
        """What this one has for itself."""
        return list(items)

    def report(self) -> str:
        """Nothing."""
        return ""

    def abort(self, message: str, code: int = 1) -> None:
        """End with a message."""
        raise SystemExit(message)


ALONE = OneProcess()


def agreed(comm: Communicator, item: T) -> T:
    """What the first process has, where it may differ: clocks do."""
    return item if comm.size == 1 else comm.collect(item)[0]


def check_alike(comm: Communicator, **settings: Any) -> None:
    """Refuse settings that differ between processes, which would then wait for each other."""
    said = comm.collect(settings) if comm.size > 1 else [settings]
    for name, first in said[0].items():
        for other in said:
            if other[name] != first:
                raise ValueError(
                    f"{name} must be the same in all processes; got {first!r} and {other[name]!r}."
                )


def any_of(comm: Communicator, *said: bool) -> list[bool]:
    """For each of some questions, whether any process says yes."""
    flags = np.array(said, np.int64)
    comm.largest(flags)
    return [bool(flag) for flag in flags]
