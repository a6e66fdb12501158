"""What launchers of MPI tell the processes that they start, by variables of the environment."""

import os

# How many processes there are, the most specific first.
SIZES_OF_STEPS = (
    "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS",
    "SLURM_STEP_NUM_TASKS", "FLUX_JOB_SIZE", "JSM_NAMESPACE_SIZE",
)  # fmt: skip
SIZES = (*SIZES_OF_STEPS, "SLURM_NTASKS")  # the last one of a job, also where it starts only one


def told_size() -> int:
    """How many processes a launcher says that it has started; 1 if it says nothing."""
    return _first_of(SIZES_OF_STEPS)[1]


def check_size(size: int) -> None:
    """Refuse to be one of several programs that each think they are alone."""
    name, told = _first_of(SIZES)
    if size == 1 and told > 1:
        raise RuntimeError(
            f"MPI must see the {told} processes that {name} tells of; it sees 1: the "
            "launcher belongs to another MPI than mpi4py, or started this program only once "
            "(use its own mpiexec, or srun --mpi=pmi2 or pmix)."
        )


def _first_of(names: tuple[str, ...]) -> tuple[str, int]:
    name = next((name for name in names if name in os.environ), "")
    said = os.environ.get(name, "")
    return name, int(said) if said.isdigit() else 1
