"""Processes of MPI meet before every call, and say what they are about to do.

Otherwise a process that has left, or that calls for something else than the others, would have them
wait for ever, or add up what does not belong together. Here all of them end instead, and one says
why.
"""

import array
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

try:
    import fcntl
    import termios
except ImportError:  # not on this platform
    fcntl = None  # type: ignore[assignment]

# What processes are about to do, and how others are told.
KINDS = ("has left", "adds", "takes the largest", "collects", "gathers", "exchanges", "has failed")
LEAVES, ADDS, LARGEST, COLLECTS, GATHERS, EXCHANGES, FAILS = range(len(KINDS))
UNKNOWN = -1
# Seconds for which a process that waits does not give its processor away, and the share of the wait
# by which that may get longer if it does: there may be fewer processors than processes.
BUSY = 5e-4
SLOWER = 1e-3
LONGEST_SLEEP = 5e-3
# Seconds that one that failed waits to hear of others that did so too: the first one has the say.
TURN = 5.0
# Seconds after which one that others should have ended has the say itself.
LONGEST_WAIT = 15.0
# Seconds that a launcher has to read a message, and then to pass it on, before it is told to end
# all and drops what it still has.
LONGEST_READING = 5.0
PASSING_ON = 0.5
STANDARD_ERROR = 2


class Meeting:
    """Where processes meet.

    Parameters
    ----------
    mpi : module
        `mpi4py.MPI`.
    comm : mpi4py.MPI.Comm
    """

    def __init__(self, mpi: Any, comm: Any) -> None:
        self.rank: int = comm.rank
        self.size: int = comm.size
        self.seconds_waited = 0.0  # for others
        self.seconds_talked = 0.0  # with all of them there
        self._mpi = mpi
        self._comm = comm
        self._took_part = False
        self._torn = False  # out of a call that others may still be in
        self._ended = False

    @contextmanager
    def of_all(self, kind: int, n_bytes: int = 0) -> Iterator[None]:
        """What is done here is done by all processes at the same time."""
        came, self._torn = time.perf_counter(), True
        others = self._met(kind, n_bytes)
        if others is not None:
            self._end_as_apart(others)
        began, self._took_part = time.perf_counter(), True
        yield
        self._torn = False
        self.seconds_waited += began - came
        self.seconds_talked += time.perf_counter() - began

    def leave(self) -> None:
        """Wait for all to leave. One that does not would wait for this one."""
        if self._ended or not self._took_part or self._mpi.Is_finalized():
            return
        if self._torn:
            self.end("left while others waited for it.")
        others = self._met(LEAVES)
        if others is not None:
            self._end_as_apart(others)

    def has_the_say(self) -> bool:
        """Whether it is this process that tells what went wrong: of those that failed the first.

        Those that do not hear of each other in time all do, one after the other.
        """
        if self._torn:
            time.sleep(min(self.rank, TURN))
            return True
        self._torn = True
        others = self._met(FAILS, patience=TURN)
        first = 0 if others is None else others[:, 0].tolist().index(FAILS)
        return first == self.rank

    def wait_for_the_end(self) -> None:
        """Leave the say to another process, as long as it can be hoped that it ends this one."""
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, signal.SIG_DFL)  # some launchers end it by that
        time.sleep(LONGEST_WAIT)

    def end(self, message: str, code: int = 1) -> None:
        """End all processes, with a message."""
        self._ended = True
        sys.stderr.write(f"evoem: process {self.rank} of {self.size}: {message}\n")
        sys.stderr.flush()
        _wait_until_read()
        time.sleep(PASSING_ON)
        self._comm.Abort(code)

    def _met(
        self, kind: int, n_bytes: int = 0, patience: float = float("inf")
    ) -> NDArray[np.int64] | None:
        """Wait for all: None if they are about to do the same, else what each is, and its bytes."""
        if self.size == 1:
            return None
        own, until = np.array([kind, n_bytes], np.int64), time.perf_counter() + patience
        ends = np.concatenate([own, -own])  # the largest, and the smallest by its opposite
        met = self._completed(self._comm.Iallreduce(self._mpi.IN_PLACE, ends, self._mpi.MAX), until)
        if met and (ends[:2] == -ends[2:]).all():
            return None
        others = np.full((self.size, 2), UNKNOWN)
        if met:
            self._completed(self._comm.Iallgather(own, others), until)
        others[self.rank] = own
        return others

    def _completed(self, request: Any, until: float) -> bool:
        """Whether a request was completed in time.

        It is looked at again and again: so signals are handled meanwhile, and the processor is
        there for whoever is waited for.
        """
        began = time.perf_counter()
        while not request.Test():
            now = time.perf_counter()
            if now > until:
                return False
            if now - began > BUSY:
                time.sleep(min(SLOWER * (now - began), LONGEST_SLEEP))
        return True

    def _end_as_apart(self, others: NDArray[np.int64]) -> None:
        """End all, as they are about to do different things."""
        kinds = others[:, 0].tolist()
        failed = FAILS in kinds
        if failed or self.rank > 0:
            self.wait_for_the_end()
        if failed:
            self.end(f"process {kinds.index(FAILS)} has failed.")
        ordered = sorted(range(self.size), key=lambda rank: others[rank].tolist())
        one, other = (_doing(rank, others[rank]) for rank in (ordered[0], ordered[-1]))
        self.end(f"processes must make the same calls in the same order; {one} while {other}.")


def _doing(rank: int, what: NDArray[np.int64]) -> str:
    kind, n_bytes = what.tolist()
    of = f" {n_bytes} bytes" if kind in (ADDS, LARGEST) else ""
    return f"process {rank} {KINDS[kind]}{of}"


def _wait_until_read() -> None:
    """Wait until standard error was read by the launcher, if it can be seen."""
    if fcntl is None:
        return
    left, until = array.array("i", [0]), time.monotonic() + LONGEST_READING
    while time.monotonic() < until:
        try:
            fcntl.ioctl(STANDARD_ERROR, termios.FIONREAD, left, True)
        except OSError:  # no pipe
            return
        if not left[0]:
            return
        time.sleep(0.01)
