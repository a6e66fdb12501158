"""Processes that are not about to do the same end, and one of them says why."""

import threading
from types import SimpleNamespace

import numpy as np
import pytest

from evoem.runtime import meeting
from evoem.runtime.meeting import ADDS, COLLECTS, LEAVES, Meeting

MPI = SimpleNamespace(IN_PLACE="in place", MAX=np.maximum, Is_finalized=lambda: False)


class Ended(BaseException):
    """What MPI ends all processes with."""


class Calls:
    """The calls of processes that are threads, which match by their numbers."""

    def __init__(self, size):
        self.size, self.given, self.lock = size, {}, threading.Lock()
        self.ended = False

    def of(self, rank):
        return Comm(rank, self)


class Comm:
    def __init__(self, rank, calls):
        self.rank, self.size, self.calls, self.number = rank, calls.size, calls, 0

    def _begun(self, own, take):
        self.number += 1
        with self.calls.lock:
            given = self.calls.given.setdefault(self.number, {})
            given[self.rank] = own.copy()

        def test():
            if len(given) == self.size:
                take([given[rank] for rank in range(self.size)])
                return True
            if self.calls.ended:
                raise Ended
            return False

        return SimpleNamespace(Test=test)

    def Iallreduce(self, send, buffer, operation):
        assert send == "in place"

        def take(all_given):
            buffer[...] = operation.reduce(all_given)

        return self._begun(buffer, take)

    def Iallgather(self, own, buffer):
        def take(all_given):
            buffer[...] = all_given

        return self._begun(own, take)

    def Abort(self, code):
        self.calls.ended = True
        raise Ended(code)


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch):
    monkeypatch.setattr(meeting, "PASSING_ON", 0.0)
    monkeypatch.setattr(meeting, "LONGEST_WAIT", 0.3)
    monkeypatch.setattr(meeting, "TURN", 20.0)


def results(*programs):
    """What each process came to, of as many as there are programs; None if it had to end."""
    calls, found = Calls(len(programs)), {}

    def run(rank):
        try:
            found[rank] = programs[rank](Meeting(MPI, calls.of(rank)))
        except Ended:
            found[rank] = None

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(len(programs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    return [found[rank] for rank in range(len(programs))]


def adds(n_bytes, times=1):
    def program(where):
        for _ in range(times):
            with where.of_all(ADDS, n_bytes):
                pass
        where.leave()
        return "done"

    return program


def leaves_after(times):
    def program(where):
        for _ in range(times):
            with where.of_all(ADDS, 8):
                pass
        where.leave()

    return program


def first_words(capsys):
    return capsys.readouterr().err.splitlines()[0]


def test_processes_that_do_the_same_go_on(capsys):
    assert results(adds(8, 3), adds(8, 3), adds(8, 3)) == ["done"] * 3
    assert results(adds(8, 2)) == ["done"]
    assert capsys.readouterr().err == ""


def test_one_that_has_left_is_told_to_those_that_wait_for_it(capsys):
    assert results(adds(8, 2), leaves_after(1), adds(8, 2)) == [None] * 3
    assert first_words(capsys) == (
        "evoem: process 0 of 3: processes must make the same calls in the same order; "
        "process 1 has left while process 2 adds 8 bytes."
    )


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (adds(16), "process 0 adds 8 bytes while process 1 adds 16 bytes."),
        (
            lambda where: where.of_all(COLLECTS).__enter__(),
            "process 0 adds 8 bytes while process 1 collects.",
        ),
    ],
)
def test_what_does_not_belong_together_is_not_added_up(other, said, capsys):
    assert results(adds(8), other) == [None, None]
    assert first_words(capsys).endswith(said)


def test_of_those_that_failed_the_first_has_the_say(capsys):
    def fails(where):
        return where.has_the_say()

    assert results(adds(8), fails, fails) == [None, True, False]
    assert first_words(capsys) == "evoem: process 0 of 3: process 1 has failed."
    assert results(fails, fails) == [True, False]


def test_one_that_failed_does_not_wait_for_ever_for_others(monkeypatch):
    monkeypatch.setattr(meeting, "TURN", 0.2)
    calls = Calls(2)  # of which the other one never calls
    assert Meeting(MPI, calls.of(1)).has_the_say()


def test_one_that_was_torn_out_of_a_call_cannot_leave_in_silence(capsys):
    def torn(where):
        with where.of_all(ADDS, 8):
            raise KeyboardInterrupt

    def leaves(where):
        try:
            torn(where)
        except KeyboardInterrupt:
            where.leave()

    assert results(leaves, adds(8)) == [None, None]
    assert first_words(capsys) == "evoem: process 0 of 2: left while others waited for it."


def test_one_that_took_part_in_nothing_leaves_at_once():
    calls = Calls(2)
    Meeting(MPI, calls.of(0)).leave()
    assert not calls.given


def test_one_that_has_ended_all_need_not_wait_for_them():
    where = Meeting(MPI, Calls(1).of(0))
    with where.of_all(ADDS, 8):
        pass
    with pytest.raises(Ended):
        where.end("no more rows")
    where.leave()


def test_waiting_and_talking_are_told_apart():
    where = Meeting(MPI, Calls(1).of(0))
    with where.of_all(LEAVES):
        pass
    assert where.seconds_talked > 0
    assert where.seconds_waited >= 0
