"""What is said to a library of MPI, and what is made of its launchers' variables.

Real processes are in `processes/`.
"""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from evoem import distributed
from evoem.distributed import Processes
from evoem.runtime import meeting
from evoem.runtime.communicator import ALONE
from evoem.runtime.launchers import SIZES
from evoem.runtime.meeting import Meeting

MPI = SimpleNamespace(IN_PLACE="in place", SUM=np.add, MAX=np.maximum)
DONE = SimpleNamespace(Test=lambda: True)


class World:
    """A communicator of MPI whose second process always says the same."""

    rank, size = 0, 2

    def __init__(self, other=None):
        self.other, self.ended = other, []

    def Iallreduce(self, send, buffer, operation):
        return DONE  # the other one is about to do the same

    def Allreduce(self, send, buffer, operation):
        assert send == "in place"
        buffer[...] = operation(buffer, self.other)

    def allgather(self, item):
        return [item, self.other]

    def gather(self, item):
        return [item, self.other]

    def alltoall(self, items):
        return [items[0], self.other]

    def Abort(self, code):
        self.ended.append(code)


def processes(world):
    return Processes(MPI, world, Meeting(MPI, world), exact=True)


def test_sums_and_largest_values_are_left_in_the_buffer():
    other = np.array([1.0, -2.0, 5.0])
    comm = processes(World(other))
    for reduce, expected in ((comm.add, [4.0, 0.0, 7.0]), (comm.largest, [3.0, 2.0, 5.0])):
        buffer = np.array([3.0, 2.0, 2.0])
        reduce(buffer)
        np.testing.assert_array_equal(buffer, expected)


def test_bytes_of_arrays_are_counted_however_they_are_sent():
    world = World(np.zeros(10))
    comm = processes(world)
    comm.add(np.zeros(10))
    assert comm.bytes_sent == 80
    comm.gather([np.zeros(3), (np.zeros(2, np.int8), "a word")])
    assert comm.bytes_sent == 80 + 24 + 2
    comm.exchange([np.zeros(1), np.zeros(4)])
    assert comm.bytes_sent == 80 + 26 + 40


def test_what_is_told_is_how_long_others_were_waited_for_and_what_was_sent():
    where = Meeting(MPI, World())
    comm = Processes(MPI, World(), where, exact=True)
    comm.bytes_sent, where.seconds_waited, where.seconds_talked = 2_500_000, 1.25, 0.5
    assert comm.report() == ", waited 1.2 s for 1 others, 2.5 MB sent in 0.5 s"


@pytest.fixture
def launcher(monkeypatch):
    """Set variables of launchers, beside none."""
    for name in SIZES:
        monkeypatch.delenv(name, raising=False)
    return lambda **said: [monkeypatch.setenv(name, value) for name, value in said.items()]


@pytest.mark.parametrize(
    "said", [{}, {"PMI_SIZE": "1"}, {"PMI_SIZE": "many"}, {"SLURM_NTASKS": "4"}]
)
def test_nobody_looks_for_mpi_unless_a_launcher_started_several_processes(said, launcher):
    launcher(**said)  # a job of several tasks may have started this program once
    assert distributed.launched() is ALONE


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (OSError("no more rows"), 1, "OSError: no more rows The run can go on."),
        (KeyboardInterrupt(), 130, "KeyboardInterrupt The run can go on."),
    ],
)
def test_an_error_that_nobody_handles_ends_all_processes_in_one_line(
    error, code, said, monkeypatch, capsys
):
    monkeypatch.setattr(sys, "excepthook", sys.__excepthook__)
    monkeypatch.setattr(meeting, "PASSING_ON", 0.0)
    world = World()
    distributed.end_all_on_error(Meeting(MPI, world))
    error.add_note("The run can go on.")
    sys.excepthook(type(error), error, None)
    assert world.ended == [code]
    *_, last = capsys.readouterr().err.splitlines()
    assert last == f"evoem: process 0 of 2: {said}"
