"""What is said to a library of MPI, and what is made of its launchers' variables.

Real processes are in `processes/`.
"""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from evoem import distributed
from evoem.distributed import SIZES, Processes
from evoem.runtime.communicator import ALONE

MPI = SimpleNamespace(IN_PLACE="in place", SUM=np.add, MAX=np.maximum)


class World:
    """A communicator of MPI whose second process always says the same."""

    rank, size = 0, 2

    def __init__(self, other=None):
        self.other, self.ended = other, []

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


def test_sums_and_largest_values_are_left_in_the_buffer():
    other = np.array([1.0, -2.0, 5.0])
    comm = Processes(MPI, World(other), exact=True)
    for reduce, expected in ((comm.add, [4.0, 0.0, 7.0]), (comm.largest, [3.0, 2.0, 5.0])):
        buffer = np.array([3.0, 2.0, 2.0])
        reduce(buffer)
        np.testing.assert_array_equal(buffer, expected)


def test_bytes_of_arrays_are_counted_however_they_are_sent():
    world = World(np.zeros(10))
    comm = Processes(MPI, world, exact=True)
    comm.add(np.zeros(10))
    assert comm.bytes_sent == 80
    comm.gather([np.zeros(3), (np.zeros(2, np.int8), "a word")])
    assert comm.bytes_sent == 80 + 24 + 2
    comm.exchange([np.zeros(1), np.zeros(4)])
    assert comm.bytes_sent == 80 + 26 + 40
    comm.bytes_sent, comm.seconds_waited = 2_500_000, 1.25
    assert comm.report() == ", waited 1.2 s for 1 others, 2.5 MB sent"


@pytest.fixture
def launcher(monkeypatch):
    """Set variables of launchers, beside none."""
    for name in SIZES:
        monkeypatch.delenv(name, raising=False)
    return lambda **said: [monkeypatch.setenv(name, value) for name, value in said.items()]


@pytest.mark.parametrize(
    ("said", "size"),
    [
        ({}, 1),
        ({"SLURM_NTASKS": "4"}, 4),
        ({"SLURM_NTASKS": "1", "PMI_SIZE": "1"}, 1),
        ({"SLURM_NTASKS": "4(x2)"}, 1),  # not a number: nothing is told
        # A job of four, of which this step is one process: the more specific one counts.
        ({"SLURM_NTASKS": "4", "SLURM_STEP_NUM_TASKS": "1"}, 1),
        ({"SLURM_NTASKS": "4", "OMPI_COMM_WORLD_SIZE": "2"}, 2),
    ],
)
def test_a_process_that_was_started_as_several_must_not_be_alone(said, size, launcher):
    launcher(**said)
    distributed.check_launcher(3)  # whoever sees others is not alone
    if size == 1:
        distributed.check_launcher(1)
        return
    with pytest.raises(RuntimeError, match=f"MPI must see the {size} processes that .* sees 1"):
        distributed.check_launcher(1)


@pytest.mark.parametrize(
    "said", [{}, {"PMI_SIZE": "1"}, {"PMI_SIZE": "many"}, {"SLURM_NTASKS": "4"}]
)
def test_nobody_looks_for_mpi_unless_a_launcher_started_several_processes(said, launcher):
    launcher(**said)  # a job of several tasks may have started this program once
    assert distributed.launched() is ALONE


def test_an_error_that_nobody_handles_ends_all_processes_in_one_line(monkeypatch, capsys):
    monkeypatch.setattr(sys, "excepthook", sys.__excepthook__)
    world = World()
    distributed.end_all_on_error(Processes(MPI, world, exact=True))
    error = OSError("no more rows")
    error.add_note("The run can go on.")
    sys.excepthook(OSError, error, None)
    assert world.ended == [1]
    *_, last = capsys.readouterr().err.splitlines()
    assert last == "evoem: process 0 of 2: OSError: no more rows The run can go on."
