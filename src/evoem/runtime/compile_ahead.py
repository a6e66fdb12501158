"""Compile kernels in several other processes, while this one does something else.

Numba holds the interpreter's lock for most of the time that it compiles, so threads would only wait
for each other. Processes bring code by the cache. This one, when it comes to a kernel that is still
to be compiled, asks for that one next and waits for it. Compiled or loaded, by whom and in which
order: code is the same but for names.
"""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any, NamedTuple, cast

from evoem.runtime.compile import CACHE, is_kept
from evoem.runtime.memory import available_memory
from evoem.runtime.signatures import signature_of

MOST_PROCESSES = 8
# Of a process, and kernels for which it pays to start one.
BYTES_OF_PROCESS = 400 << 20
KERNELS_OF_PROCESS = 4
PROGRAM = (
    "import sys; sys.path[:] = sys.argv[1:]; "
    "from evoem.runtime.compiling_process import main; main()"
)


class Entry(NamedTuple):
    """A kernel to be compiled."""

    line: str
    name: str  # in the cache


class Count(NamedTuple):
    """How far it is."""

    done: int
    total: int


def missing(lines: Iterable[str]) -> list[Entry]:
    """Kernels that are not in the cache yet; none if nothing can be kept."""
    found = []
    for line in lines:
        kernel, arguments = signature_of(line)
        if is_kept(kernel, arguments) is False:
            found.append(Entry(line, kernel._cache.name(arguments, kernel.targetctx)))
    return found


def start_process() -> subprocess.Popen[str]:
    """A process that compiles; Ctrl-C on a terminal is none of its business."""
    own_group: dict[str, Any] = {"process_group": 0}
    if sys.platform == "win32":
        own_group = {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *sys.path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        **own_group,
    )


class Compilers:
    """Processes that compile what is wanted, in this order, unless something is waited for."""

    def __init__(
        self,
        n_processes: int,
        start: Callable[[], subprocess.Popen[str]] = start_process,
        complain: Callable[[object], None] = CACHE.trouble,
    ) -> None:
        self._most = n_processes
        self._start, self._complain = start, complain
        self._pending: list[Entry] = []
        self._running: set[str] = set()
        self._known: set[str] = set()
        self._done = 0
        self._changed = threading.Condition()
        self._closed = False
        self._processes: list[subprocess.Popen[str]] = []
        self._threads: list[threading.Thread] = []
        self._n_serving = 0

    @property
    def count(self) -> Count:
        """How many of all that were wanted are there."""
        return Count(self._done, len(self._known))

    @property
    def next_name(self) -> str | None:
        """What is compiled next, by its name in the cache."""
        with self._changed:
            return self._pending[0].name if self._pending else None

    def want(self, lines: Iterable[str]) -> None:
        """Compile these kernels too, unless they are there."""
        self.add(missing(lines))

    def add(self, entries: Iterable[Entry]) -> None:
        """Compile these, unless that is wanted already."""
        entries = [entry for entry in entries if entry.name not in self._known]
        with self._changed:
            self._known |= {entry.name for entry in entries}
            self._pending += entries
            most = min(
                self._most,
                MOST_PROCESSES,
                -(-len(self._pending) // KERNELS_OF_PROCESS),
                available_memory() // BYTES_OF_PROCESS,
            )
            for _ in range(most - self._n_serving):
                self._n_serving += 1
                self._threads.append(threading.Thread(target=self._serve, daemon=True))
                self._threads[-1].start()
            self._changed.notify_all()

    def wait_for(self, name: str) -> bool:
        """Wait for the code of a kernel; False if nobody brings it."""
        with self._changed:
            if name not in self._known:
                return False
            # What is needed now comes first.
            self._pending.sort(key=lambda entry: entry.name != name)
            while self._is_coming(name):
                self._changed.wait()
            return CACHE.has(name)

    def finish(self, tell: Callable[[Count], None]) -> None:
        """Wait for all that is wanted."""
        with self._changed:
            while self._n_serving and (self._pending or self._running):
                self._changed.wait()
                tell(self.count)

    def close(self) -> None:
        """End the processes, and with them what nobody waits for."""
        with self._changed:
            self._closed = True
            self._pending.clear()
            for process in self._processes:
                process.kill()
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _is_coming(self, name: str) -> bool:
        pending = any(entry.name == name for entry in self._pending)
        return not self._closed and (name in self._running or (pending and self._n_serving > 0))

    def _serve(self) -> None:
        """Hand entries to a process, one at a time, until it is ended."""
        try:
            with self._start() as process:
                with self._changed:
                    self._processes.append(process)
                while (entry := self._next()) is not None:
                    said = ask(process, entry.line)
                    with self._changed:
                        self._running.discard(entry.name)
                        self._done += said is not None
                        self._changed.notify_all()
                    if said is None:
                        break
                    if said:
                        kernel = entry.line.partition("(")[0]
                        self._complain(f"{kernel} was not compiled ahead: {said}")
                process.kill()
        except OSError as error:  # there may be no room for a process
            self._complain(error)
        finally:
            with self._changed:
                self._n_serving -= 1
                self._changed.notify_all()

    def _next(self) -> Entry | None:
        with self._changed:
            while not self._pending and not self._closed:
                self._changed.wait()
            if self._closed:
                return None
            entry = self._pending.pop(0)
            self._running.add(entry.name)
            return entry


def ask(process: subprocess.Popen[str], line: str) -> str | None:
    """Have a kernel compiled: what went wrong, if anything; None if the process is no more."""
    to, back = cast(IO[str], process.stdin), cast(IO[str], process.stdout)  # both are pipes
    said = ""
    with suppress(BrokenPipeError):
        to.write(line + "\n")
        to.flush()
        said = back.readline()
    return said.strip() if said else None


@contextmanager
def compilers(n_processes: int) -> Iterator[Compilers]:
    """Processes that compile, for as long as this lasts."""
    own = Compilers(n_processes)
    before, CACHE.wait_for = CACHE.wait_for, own.wait_for
    try:
        yield own
    finally:
        CACHE.wait_for = before
        own.close()
