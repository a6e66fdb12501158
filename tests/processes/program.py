"""What every process of a test runs: `mpiexec -n 3 python program.py TASK ...`."""

import os
import signal
import sys
import time
from pathlib import Path

import cases
import numpy as np
from problems import make_problem

from evoem import distributed, em


def results(folder):
    """Every case, once with each kind of shares; the first process writes what came of it."""
    comm = distributed.world()
    for case in cases.RUNS:
        if case in cases.OF_TORCH and comm.size != 2:
            continue
        for kind, n_jobs in (("even", 1), ("uneven", 2)):
            found = cases.result_of(case, comm=comm, kind=kind, n_jobs=n_jobs)
            if comm.rank == 0:
                np.savez(Path(folder) / f"{case} {kind}.npz", **found)


def long_run(checkpoint, max_iter, what, resume="", **options):
    """A run that is kept in a file, at whose third iteration something happens in one process."""
    comm = distributed.world()
    problem = make_problem("binary", H=6, D=8, N=cases.N_ROWS, seed=5)
    data = cases.data_of_share(problem, comm, "uneven")
    state = em.init(problem.model, data, n_latents=6, n_states=8, seed=3, comm=comm)

    def happen(info):
        if info.iteration != 3 or comm.rank != comm.size - 1:
            return
        if what == "raise":
            raise OSError("no more rows")
        if what == "memory":
            np.empty(1 << 60, np.uint8)
        if what == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if what == "left":
            sys.exit()
        if what == "terminated":
            os.kill(os.getpid(), signal.SIGTERM)

    state, infos = em.run(
        problem.model, data, state, cases.EVOLUTION, max_iter=int(max_iter), callback=happen,
        checkpoint=checkpoint, every=0, resume=resume == "resume", comm=comm,
    )  # fmt: skip
    states = cases.whole(state.states, comm)
    if comm.rank == 0:
        np.savez(f"{checkpoint}.npz", states=states, W=state.params.components, n=len(infos))


def different_rows():
    """Rows that no process should take: of another width in the second one."""
    comm = distributed.world()
    data = em.Data(np.ones((5, 3 + comm.rank)))
    em.init(make_problem("binary").model, data, n_latents=2, n_states=2, comm=comm)
    time.sleep(60)


def different_settings():
    """A run that is shorter in the first process."""
    comm = distributed.world()
    model, data = make_problem("binary").model, em.Data(np.eye(6))
    state = em.init(model, data, n_latents=2, n_states=2, comm=comm)
    em.run(model, data, state, em.Evolution(2, 1), max_iter=3 + comm.rank, comm=comm)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
