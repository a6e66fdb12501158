"""Processes that are threads of this one: what they tell each other, without MPI."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np


class ThreadProcess:
    """One of several, which meet wherever they tell each other something."""

    def __init__(self, rank, desk, barrier, exact):
        self.rank, self.size, self.exact = rank, len(desk), exact
        self._desk, self._barrier = desk, barrier

    def collect(self, item):
        self._desk[self.rank] = item
        self._barrier.wait()
        found = list(self._desk)
        self._barrier.wait()  # nobody may lay down the next item before all have looked
        return found

    def gather(self, item):
        found = self.collect(item)
        return found if self.rank == 0 else None

    def exchange(self, items):
        return [others[self.rank] for others in self.collect(list(items))]

    def add(self, buffer):
        buffer[...] = np.sum(self.collect(buffer.copy()), axis=0)

    def largest(self, buffer):
        buffer[...] = np.max(self.collect(buffer.copy()), axis=0)


def together(n, program, exact=True):
    """What `program(comm)` returns in each of n processes, in their order."""
    desk, barrier = [None] * n, threading.Barrier(n, timeout=600)

    def run(rank):
        try:
            return program(ThreadProcess(rank, desk, barrier, exact))
        except BaseException:
            barrier.abort()  # the others would wait for this one
            raise

    with ThreadPoolExecutor(n) as pool:
        started = [pool.submit(run, rank) for rank in range(n)]
    errors = [one.exception() for one in started]
    own = [e for e in errors if e is not None and not isinstance(e, threading.BrokenBarrierError)]
    if own:
        raise own[0]
    return [one.result() for one in started]
