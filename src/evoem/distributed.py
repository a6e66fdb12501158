"""Several processes by MPI, which is imported only when it is used.

The same program runs in every process, each with rows of its own:

    comm = evoem.distributed.world()
    evoem.SpikeSlabCoding(64).fit(my_rows, comm=comm)

    mpiexec -n 64 python fit.py

An error in one process ends all of them, with one message; so does a process that leaves while
others go on.
"""

import atexit
import sys
from collections.abc import Sequence
from functools import cache
from types import TracebackType
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from evoem.errors import MissingExtra
from evoem.runtime import launchers, meeting
from evoem.runtime.communicator import ALONE, Communicator
from evoem.runtime.interrupts import EXIT_INTERRUPTED
from evoem.runtime.meeting import Meeting

T = TypeVar("T")


class Processes:
    """The processes of an MPI communicator.

    Parameters
    ----------
    mpi : module
        `mpi4py.MPI`.
    comm : mpi4py.MPI.Comm
    where : Meeting
        Of its processes.
    exact : bool
        Whether sums have the same bits whatever the number of processes.
    """

    def __init__(self, mpi: Any, comm: Any, where: Meeting, exact: bool) -> None:
        self.rank: int = comm.rank
        self.size: int = comm.size
        self.exact = exact
        self.bytes_sent = 0  # given to the library: how often it copies them it knows
        self._mpi = mpi
        self._comm = comm
        self._meeting = where

    def add(self, buffer: NDArray[Any]) -> None:
        """Overwrite a buffer by its sum over all processes."""
        self._reduce(meeting.ADDS, buffer, self._mpi.SUM)

    def largest(self, buffer: NDArray[Any]) -> None:
        """Overwrite a buffer by its largest values over all processes."""
        self._reduce(meeting.LARGEST, buffer, self._mpi.MAX)

    def _reduce(self, kind: int, buffer: NDArray[Any], operation: Any) -> None:
        self.bytes_sent += buffer.nbytes
        with self._meeting.of_all(kind, buffer.nbytes):
            self._comm.Allreduce(self._mpi.IN_PLACE, buffer, operation)

    def collect(self, item: T) -> list[T]:
        """What each process has: small, and known to all afterwards."""
        with self._meeting.of_all(meeting.COLLECTS):
            found: list[T] = self._comm.allgather(item)
        return found

    def gather(self, item: T) -> list[T] | None:
        """What each process has, for the first one; None for the others."""
        self.bytes_sent += _n_bytes(item)
        with self._meeting.of_all(meeting.GATHERS):
            found: list[T] | None = self._comm.gather(item)
        return found

    def exchange(self, items: Sequence[T]) -> list[T]:
        """What each process has for this one, given what this one has for each."""
        self.bytes_sent += _n_bytes(items)
        with self._meeting.of_all(meeting.EXCHANGES):
            found: list[T] = self._comm.alltoall(items)
        return found

    def report(self) -> str:
        """How long this process has waited for others, and what it has sent, so far."""
        waited, talked = self._meeting.seconds_waited, self._meeting.seconds_talked
        return (
            f", waited {waited:.1f} s for {self.size - 1} others, {self.bytes_sent / 1e6:.1f} MB "
            f"sent in {talked:.1f} s"
        )

    def abort(self, message: str, code: int = 1) -> None:
        """End all processes, with the message of the first that wants to, and an exit code."""
        if not self._meeting.has_the_say():
            self._meeting.wait_for_the_end()
        self._meeting.end(message, code)


def _n_bytes(item: Any) -> int:
    if isinstance(item, np.ndarray):
        return int(item.nbytes)
    return sum(map(_n_bytes, item)) if isinstance(item, list | tuple) else 0


def world(exact: bool = True) -> Processes:
    """All processes that `mpiexec` or `srun` started.

    From then on an error that a process does not handle ends all of them.

    Parameters
    ----------
    exact : bool
        Sums of statistics then have the same bits whatever the number of processes and threads.
        Otherwise they are rounded in the order in which they come, which sends a third of the
        bytes, and each process has blocks of its own, however few rows it has.

    Returns
    -------
    Processes
        To be given as `comm`.

    Examples
    --------
    >>> from evoem import distributed  # doctest: +SKIP
    >>> comm = distributed.world()  # doctest: +SKIP
    """
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:  # the latter if there is no library of MPI
        raise MissingExtra("mpi4py with a library of MPI", "mpi") from error
    launchers.check_size(MPI.COMM_WORLD.size)
    return Processes(MPI, MPI.COMM_WORLD, _meeting_of_all(MPI), exact)


@cache
def _meeting_of_all(mpi: Any) -> Meeting:
    """Where all processes meet, now and when they end."""
    where = Meeting(mpi, mpi.COMM_WORLD)
    if where.size > 1:
        end_all_on_error(where)
        atexit.register(where.leave)
    return where


def launched() -> Communicator:
    """All processes, if a launcher tells that it started several; else this one alone.

    Examples
    --------
    >>> launched().size
    1
    """
    return world() if launchers.told_size() > 1 else ALONE


def end_all_on_error(where: Meeting) -> None:
    """Let an error that nobody handles end all processes, not leave the others waiting."""
    usual = sys.excepthook

    def end_all(
        kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        if where.has_the_say():
            usual(kind, error, trace)
        else:
            where.wait_for_the_end()
        where.end(told(error), EXIT_INTERRUPTED if kind is KeyboardInterrupt else 1)

    sys.excepthook = end_all


def told(error: BaseException) -> str:
    """An error in one line, with what was added to it on its way."""
    said = f"{type(error).__name__}: {error}".removesuffix(": ")
    return " ".join([said, *getattr(error, "__notes__", [])])
