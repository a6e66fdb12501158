"""What is made of the variables of launchers."""

import pytest

from evoem.runtime import launchers


@pytest.fixture
def launcher(monkeypatch):
    """Set variables of launchers, beside none."""
    for name in launchers.SIZES:
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
    launchers.check_size(3)  # whoever sees others is not alone
    if size == 1:
        launchers.check_size(1)
        return
    with pytest.raises(RuntimeError, match=f"MPI must see the {size} processes that .* sees 1"):
        launchers.check_size(1)


@pytest.mark.parametrize(
    ("said", "size"),
    [({}, 1), ({"PMI_SIZE": "3"}, 3), ({"PMI_SIZE": "many"}, 1), ({"SLURM_NTASKS": "4"}, 1)],
)
def test_a_job_of_several_tasks_may_start_a_program_once(said, size, launcher):
    launcher(**said)
    assert launchers.told_size() == size
