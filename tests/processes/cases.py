"""What is run on any number of processes: every case gives arrays that must be the same on all."""

import itertools

import numpy as np
from problems import BY_FEATURE, MODELS, make_problem

from evoem import (
    TVAE,
    BinarySparseCoding,
    BlackBox,
    NoisyOr,
    SpikeSlabCoding,
    SubspaceCoding,
    em,
)
from evoem.runtime.communicator import ALONE

N_ROWS = 300
EVOLUTION = em.Evolution(3, 2, 2)


def cuts(n_rows, size, kind):
    """Where the shares of processes end: even, or uneven ones, of which the second has no rows."""
    if kind == "even":
        return np.linspace(0, n_rows, size + 1).astype(int)
    return np.array([0, *[n_rows // 7 + 1] * (size - 1), n_rows])


def share(values, comm, kind):
    """The rows of this process."""
    ends = cuts(len(values), comm.size, kind)
    return values[ends[comm.rank] : ends[comm.rank + 1]]


def whole(values, comm):
    """The rows of all processes, in the first one."""
    pieces = comm.gather(values)
    return np.concatenate(pieces) if pieces is not None else np.empty(0)


def flat(record, name=""):
    """Arrays of a nested record, by name."""
    if isinstance(record, dict):
        record = tuple(record.values())
    if isinstance(record, tuple | list):
        fields = getattr(record, "_fields", range(len(record)))
        found = {}
        for field, value in zip(fields, record, strict=True):
            found |= flat(value, f"{name}.{field}")
        return found
    return {} if record is None or isinstance(record, str) else {name: np.asarray(record)}


def data_of_share(problem, comm, kind):
    observed = problem.observed
    return em.Data(
        share(problem.X, comm, kind), None if observed is None else share(observed, comm, kind)
    )


def result_of(case, **where):
    """The arrays of a case."""
    function, *arguments = RUNS[case]
    return function(*arguments, **where)


def run_of_model(name, missing, n_parts, comm=ALONE, kind="even", n_jobs=1):
    """From initial values of all rows through some iterations."""
    problem = make_problem(name, H=6, D=8, N=N_ROWS, missing=missing, seed=5)
    data = data_of_share(problem, comm, kind)
    given = problem.model, data
    state = em.init(*given, n_latents=6, n_states=8, seed=3, n_jobs=n_jobs, comm=comm)
    found = flat(state.params, "first")
    state, infos = em.run(
        *given, state, EVOLUTION, max_iter=4, n_parts=n_parts, n_jobs=n_jobs, comm=comm
    )
    return (
        found
        | flat(state.params, "params")
        | {
            "states": whole(state.states, comm),
            "log_joints": whole(state.log_joints, comm),
            "bounds": np.array([info.free_energy for info in infos]),
            "evaluated": np.array([info.states_evaluated for info in infos]),
        }
    )


def run_of_estimator(name, comm=ALONE, kind="even", n_jobs=1):
    """A fit with mini-batches, and what it says of this process's rows."""
    estimator = ESTIMATORS[name]()
    estimator.set_params(n_jobs=n_jobs, max_iter=4, tol=0, random_state=1, batch_size=100)
    X = rows_for(name)
    mine = share(X, comm, kind)
    estimator.fit(mine, comm=comm)
    estimate = estimator.reconstruct(mine) if len(mine) else mine
    return flat(estimator.state_.params) | {
        "states": whole(estimator.state_.states, comm),
        "bounds": estimator.free_energies_,
        "estimate": whole(estimate, comm),
    }


def rows_for(name):
    if name == "by_feature":
        X = rows_for("binary")
        return np.where(np.random.default_rng(5).random(X.shape) < 0.5, X, np.nan)
    rng = np.random.default_rng(4)
    causes = rng.random((N_ROWS, 3)) < 0.4
    dictionary = np.kron(np.eye(3), np.ones(2))
    if name == "noisy_or":
        return (rng.random((N_ROWS, 6)) < 0.9 * np.minimum(causes @ dictionary, 1)).astype(float)
    return causes @ (4 * dictionary) + rng.normal(size=(N_ROWS, 6))


def log_joint(params, X, states):
    return -0.5 * ((X[:, None] - states @ params["W"]) ** 2).sum(-1)


def statistics(params, X, observed, states, weights):
    expected = np.einsum("ns,nsh->nh", weights, states)
    return {
        "sx": expected.T @ X,
        "ss": np.einsum("ns,nsh,nsg->hg", weights, states, states),
    }


def update(params, sums):
    return {"W": np.linalg.solve(sums["ss"] + 1e-6 * np.eye(3), sums["sx"])}


def first_params(X, n_latents, rng):
    return {"W": X[rng.choice(len(X), n_latents)] + rng.normal(size=(n_latents, X.shape[1]))}


def gradient_of_torch(**options):
    import torch

    W = torch.tensor(np.random.default_rng(1).normal(size=(3, 6)))
    return BlackBox(log_joint, {"W": W}, n_latents=3, **options)


ESTIMATORS = {
    "noisy_or": lambda: NoisyOr(3, init="data"),
    "binary": lambda: BinarySparseCoding(3, init="data"),
    "by_feature": lambda: BinarySparseCoding(3, init="data"),
    "spike_slab": lambda: SpikeSlabCoding(3, slab="full"),
    "subspace": lambda: SubspaceCoding(3),
    "own_m_step": lambda: BlackBox(
        log_joint, first_params, n_latents=3, statistics=statistics, update=update
    ),
}
# Those that need PyTorch, which takes long to import.
OF_TORCH = {
    "gradient": gradient_of_torch,
    "decoder": lambda: TVAE(3, hidden=(4,)),
}
ESTIMATORS |= OF_TORCH

RUNS = (
    {
        f"{name}-{missing}-{n_parts}": (run_of_model, name, missing, n_parts)
        for name, (missing, n_parts) in itertools.product(MODELS, [(0.0, 3), (0.3, 1)])
    }
    | {f"{name}-0.6-3": (run_of_model, name, 0.6, 3) for name in BY_FEATURE}
    | {name: (run_of_estimator, name) for name in ESTIMATORS}
)
