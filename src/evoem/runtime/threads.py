"""Share parts of the work among threads.

Parts do not depend on the number of threads, and what comes of them is taken in their order, so the
number of threads changes nothing in the result.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property
from threading import Lock
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from threadpoolctl import ThreadpoolController, threadpool_limits

from evoem.runtime import interrupts

T = TypeVar("T")
U = TypeVar("U")

# Blocks are what threads take and what statistics are summed by. Their size depends on the number
# of rows and the size of statistics alone: enough of them to keep threads busy, few enough that
# summing them, and filling caches with what belongs to each, costs little.
BLOCKS = 24
FEWEST_BLOCKS = 12  # if statistics are large
LAST_SHARE = 3  # of what is left, the most that a block takes
SMALLEST_BLOCK = 64
LARGEST_BLOCK = 2048
BYTES_PER_ROW = 1 << 10  # of statistics, for which a block has one row, if there are enough rows
MOST_BYTES_PER_ROW = 1 << 15  # for which it has at least one in any case


class _Crew(NamedTuple):
    """Threads that help another."""

    helpers: ThreadPoolExecutor
    size: int


# Who helps this thread and is free: models are not told so by their arguments.
_CREW: ContextVar[_Crew | None] = ContextVar("crew", default=None)


class _OneBlasThread:
    """BLAS in one thread: ours are busy already, and its sums must not depend on their number.

    That number is one for the whole process. So the first who wants this sets it, and the last sets
    it back: otherwise it would be set back too early, or to one. Only BLAS by OpenMP has a number
    for each thread.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._users = 0
        self._before: list[int] = []

    @cached_property
    def _libraries(self) -> tuple[list[Any], list[Any]]:
        """Those that are loaded when this is first needed: of the process, and of each thread."""
        found = ThreadpoolController().select(user_api="blas").lib_controllers
        by_thread = [one for one in found if getattr(one, "threading_layer", "") == "openmp"]
        return [one for one in found if one not in by_thread], by_thread

    @contextmanager
    def __call__(self) -> Iterator[None]:
        shared, own = self._libraries
        with self._lock:
            self._users += 1
            if self._users == 1:
                self._before = _limit(shared, [1] * len(shared))
        before = _limit(own, [1] * len(own))
        try:
            yield
        finally:
            _limit(own, before)
            with self._lock:
                self._users -= 1
                if self._users == 0:
                    _limit(shared, self._before)


def _limit(libraries: list[Any], numbers: list[int]) -> list[int]:
    """Set their numbers of threads, and return those before."""
    before = []
    for library, number in zip(libraries, numbers, strict=True):
        before.append(library.num_threads)
        # threadpoolctl 3.8 lets one thread alone set them, until it is told that this has changed.
        let_go = getattr(library, "clear_controlling_thread", lambda force: None)
        let_go(force=True)
        library.set_num_threads(number)
        let_go(force=True)
    return before


one_blas_thread = _OneBlasThread()


@contextmanager
def one_library_thread() -> Iterator[None]:
    """BLAS in one thread, and OpenMP, whose number of threads each of ours has for itself."""
    with one_blas_thread(), threadpool_limits(1, user_api="openmp"):
        yield


def split(n_rows: int, size: int) -> list[slice]:
    """Consecutive slices of at most `size` rows."""
    return [slice(start, min(start + size, n_rows)) for start in range(0, n_rows, size)]


class _InOrder(Generic[T]):
    """Hands results on in the order of their numbers, one at a time.

    The thread that brings the next one does so, and hands on what others left: none waits for
    another, and no further thread has to be woken.
    """

    def __init__(self, take: Callable[[T], Any]) -> None:
        self._take = take
        self._left: dict[int, T] = {}
        self._next = 0
        self._busy = False
        self._lock = Lock()

    def bring(self, number: int, result: T) -> None:
        """Hand on a result, now or when its turn has come."""
        with self._lock:
            self._left[number] = result
            if self._busy:
                return
            self._busy = True
        while True:
            with self._lock:
                self._busy = self._next in self._left
                if not self._busy:
                    return
                result = self._left.pop(self._next)
                self._next += 1
            self._take(result)


def in_threads(
    work: Callable[[slice], T],
    parts: list[slice],
    n_jobs: int,
    take: Callable[[T], Any] = lambda result: None,
) -> None:
    """`work` on every part, by `n_jobs` threads; `take` gets the results in the parts' order."""
    n_jobs = min(n_jobs, len(parts))  # a system has room for some thousands of threads
    if n_jobs <= 1:
        for part in parts:
            interrupts.check()
            take(work(part))
        return
    numbered, results = iter(enumerate(parts)), _InOrder(take)

    def go_on() -> None:
        try:
            for number, part in numbered:
                interrupts.check()
                results.bring(number, work(part))
        except BaseException:  # an error or an interrupt need not wait for the other parts
            for _ in numbered:
                pass
            raise

    with crew(n_jobs), _busy_crew() as helpers:
        others = [helpers.submit(go_on) for _ in range(n_jobs - 1)]
        try:
            go_on()  # this thread is one of them
        finally:
            wait(others)
    for other in others:
        other.result()


@contextmanager
def crew(n_jobs: int) -> Iterator[None]:
    """Threads for all that this one does next, it being one of them; kept if there are enough.

    Threads that are started anew for every part of the work would cost time, and so would their
    memory, which no cache holds yet.
    """
    at_hand = _CREW.get()
    if n_jobs == 1 or (at_hand is not None and at_hand.size >= n_jobs):
        yield
        return
    with ThreadPoolExecutor(n_jobs - 1) as helpers:  # threads start when they are first needed
        before = _CREW.set(_Crew(helpers, n_jobs))
        try:
            yield
        finally:
            _CREW.reset(before)


@contextmanager
def _busy_crew() -> Iterator[ThreadPoolExecutor]:
    """The crew at hand, which is not at hand meanwhile."""
    at_hand = _CREW.get()
    if at_hand is None:
        raise RuntimeError("there is no crew")
    before = _CREW.set(None)
    try:
        yield at_hand.helpers
    finally:
        _CREW.reset(before)


def both(first: Callable[[], T], second: Callable[[], U]) -> tuple[T, U]:
    """What two functions return, side by side if there is a crew that is not busy."""
    if _CREW.get() is None:
        return first(), second()
    with _busy_crew() as helpers:
        other = helpers.submit(first)
        try:
            result = second()
        finally:
            wait([other])  # nothing goes on behind an error
    return other.result(), result


def blocks(part: slice, n_bytes: int) -> list[slice]:
    """The blocks of a part of the data, with statistics of `n_bytes` each.

    The last ones are smaller and smaller: a thread that finds nothing left to do waits less long.
    """
    n_rows = part.stop - part.start
    smallest = max(SMALLEST_BLOCK, n_bytes // MOST_BYTES_PER_ROW)
    usual = min(-(-n_rows // BLOCKS), LARGEST_BLOCK)
    size = max(usual, min(n_bytes // BYTES_PER_ROW, -(-n_rows // FEWEST_BLOCKS)), smallest)
    sizes = []
    while n_rows > 0:
        sizes.append(min(max(min(size, -(-n_rows // LAST_SHARE)), smallest), n_rows))
        n_rows -= sizes[-1]
    ends = part.start + np.cumsum(sizes, dtype=int)
    return [slice(int(end) - length, int(end)) for end, length in zip(ends, sizes, strict=True)]


def map_blocks(
    work: Callable[[slice], T],
    part: slice,
    n_jobs: int,
    n_bytes: int = 0,
    take: Callable[[T], Any] = lambda result: None,
) -> None:
    """`work` on every block of a part of the data; `take` gets the results in their order."""
    in_threads(work, blocks(part, n_bytes), n_jobs, take)
