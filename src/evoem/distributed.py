"""Several processes by MPI, which is imported only when it is used.

The same program runs in every process, each with rows of its own:

    comm = evoem.distributed.world()
    evoem.SpikeSlabCoding(64).fit(my_rows, comm=comm)

    mpiexec -n 64 python fit.py

An error in one process ends all of them, with one message.
"""

import os
import sys
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from evoem.errors import MissingExtra
from evoem.runtime.communicator import ALONE, Communicator

T = TypeVar("T")

# How many processes launchers say that they have started, the most specific first.
SIZES_OF_STEPS = (
    "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS", "SLURM_STEP_NUM_TASKS",
)  # fmt: skip
SIZES = (*SIZES_OF_STEPS, "SLURM_NTASKS")  # the last one of a job, also where it starts only one
# Seconds that a launcher has to pass on a message, before it is told to end all and drops the rest.
PASSING_ON = 0.5
# Seconds by which a process lets those before it say first what went wrong everywhere.
TURN = 1.5
LONGEST_WAIT = 6.0


class Processes:
    """The processes of an MPI communicator.

    Parameters
    ----------
    mpi : module
        `mpi4py.MPI`.
    comm : mpi4py.MPI.Comm
    exact : bool
        Whether sums have the same bits whatever the number of processes.
    """

    def __init__(self, mpi: Any, comm: Any, exact: bool) -> None:
        self.rank: int = comm.rank
        self.size: int = comm.size
        self.exact = exact
        self.bytes_sent = 0  # given to the library: how often it copies them it knows
        self.seconds_waited = 0.0  # for others, and for the network
        self._mpi = mpi
        self._comm = comm

    def add(self, buffer: NDArray[Any]) -> None:
        """Overwrite a buffer by its sum over all processes."""
        self._reduce(buffer, self._mpi.SUM)

    def largest(self, buffer: NDArray[Any]) -> None:
        """Overwrite a buffer by its largest values over all processes."""
        self._reduce(buffer, self._mpi.MAX)

    def _reduce(self, buffer: NDArray[Any], operation: Any) -> None:
        self.bytes_sent += buffer.nbytes
        self._timed(lambda: self._comm.Allreduce(self._mpi.IN_PLACE, buffer, operation))

    def collect(self, item: T) -> list[T]:
        """What each process has: small, and known to all afterwards."""
        found: list[T] = self._timed(lambda: self._comm.allgather(item))
        return found

    def gather(self, item: T) -> list[T] | None:
        """What each process has, for the first one; None for the others."""
        self.bytes_sent += _n_bytes(item)
        found: list[T] | None = self._timed(lambda: self._comm.gather(item))
        return found

    def exchange(self, items: Sequence[T]) -> list[T]:
        """What each process has for this one, given what this one has for each."""
        self.bytes_sent += _n_bytes(items)
        found: list[T] = self._timed(lambda: self._comm.alltoall(items))
        return found

    def _timed(self, call: Callable[[], Any]) -> Any:
        started = time.perf_counter()
        found = call()
        self.seconds_waited += time.perf_counter() - started
        return found

    def report(self) -> str:
        """How long this process has waited for others, and what it has sent, so far."""
        sent = self.bytes_sent / 1e6
        return (
            f", waited {self.seconds_waited:.1f} s for {self.size - 1} others, {sent:.1f} MB sent"
        )

    def abort(self, message: str) -> None:
        """End all processes, with a message."""
        sys.stderr.write(f"evoem: process {self.rank} of {self.size}: {message}\n")
        sys.stderr.flush()
        time.sleep(PASSING_ON)
        self._comm.Abort(1)


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
    comm = MPI.COMM_WORLD
    check_launcher(comm.size)
    processes = Processes(MPI, comm, exact)
    if processes.size > 1:
        end_all_on_error(processes)
    return processes


def check_launcher(size: int) -> None:
    """Refuse to be one of several programs that each think they are alone."""
    said = next((name for name in SIZES if name in os.environ), None)
    if size > 1 or said is None or not os.environ[said].isdigit():
        return
    if int(os.environ[said]) > 1:
        raise RuntimeError(
            f"MPI must see the {os.environ[said]} processes that {said} tells of; it sees 1: the "
            "launcher belongs to another MPI than mpi4py, or started this program only once "
            "(use its own mpiexec, or srun --mpi=pmi2 or pmix)."
        )


def launched() -> Communicator:
    """All processes, if a launcher tells that it started several; else this one alone.

    Examples
    --------
    >>> launched().size
    1
    """
    told = (os.environ[name] for name in SIZES_OF_STEPS if name in os.environ)
    size = next(told, "1")
    return world() if size.isdigit() and int(size) > 1 else ALONE


def abort_in_turn(comm: Communicator, message: str) -> None:
    """End all processes. If the same went wrong everywhere, the first one says so, and ends the
    others while they wait for their turn."""
    time.sleep(min(TURN * comm.rank, LONGEST_WAIT))
    comm.abort(message)


def end_all_on_error(processes: Processes) -> None:
    """Let an error that nobody handles end all processes, not leave the others waiting."""
    usual = sys.excepthook

    def end_all(
        kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        if processes.rank == 0:
            usual(kind, error, trace)
        abort_in_turn(processes, told(error))

    sys.excepthook = end_all


def told(error: BaseException) -> str:
    """An error in one line, with what was added to it on its way."""
    notes = getattr(error, "__notes__", [])
    return " ".join([f"{type(error).__name__}: {error}", *notes])
