"""What a user's own log-joint costs, against a built-in model and against plain NumPy.

    python benchmarks/black_box.py
    python benchmarks/black_box.py --latents 64 --rows 1000 --json black_box.json

The model is binary sparse coding, on noisy picture patches. As in `speed.py` the unit is the
microsecond × core per state evaluated, in one thread. Three parts of an iteration are timed:
log-joints alone, the E-step (log-joints, breeding, selection), and the whole with statistics and
M-step. The black boxes are

- "active": a compiled log-joint of the active latents, with the Gram matrix among its parameters
  and `prepare_rows`;
- "state": a compiled log-joint of a boolean state, as it comes to mind;
- "NumPy": a vectorised log-joint, for which every state is a dense vector.

All of them are first checked to compute the log-joints of the built-in model. The E-step is timed
in plain NumPy too: by a loop over rows in Python, see `plain_numpy.py`, and by one over rows and
states, for those who have but a log-joint of one state.
"""

import argparse
import json
import os
import platform
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pictures
import plain_numpy
from speed import aligned, cpu_model, require_close, verdict

from evoem import em, posterior, streams
from evoem.black_box.array_libraries import NumpyArrays
from evoem.black_box.model import BlackBoxModel, BlackBoxParams, Functions
from evoem.black_box.scalar_log_joint import ScalarLogJoint
from evoem.black_box.vectorized_log_joint import VectorizedLogJoint
from evoem.models import BinarySparseCodingModel
from evoem.runtime.threads import one_blas_thread
from evoem.states import unpack

PATCH_WIDTH = 8
N_STATES = 200
EVOLUTION = em.Evolution(n_parents=10, n_children=9, n_generations=4)
WARM_UP_ITERATIONS = 10
SLOW_ROWS = 20  # of what takes long
TOLERANCE = 0.02  # nats; rows are in single precision
NEGLIGIBLE = 1e-7
COMPILED_TARGET = 1.3  # times the built-in model
VECTORISED_TARGET = 20.0  # times faster than a loop over rows and states


# --------------------------------------------------------------------------- the user's functions


def products(params, X, observed):
    """What all states of a row need: W x / σ², and what no latent changes."""
    projections = X @ params.W.T / params.noise
    base = params.constant - 0.5 * np.square(X).sum(1, keepdims=True) / params.noise
    return np.concatenate([projections, base], axis=1)


def log_joint_of_active(params, x, observed, active):
    """The square |x - W s|² multiplied out."""
    value = x[-1] + params.log_odds * len(active)
    for i in range(len(active)):
        h = active[i]
        value += x[h] - 0.5 * params.gram[h, h]
        for j in range(i):
            value -= params.gram[h, active[j]]
    return value


def log_joint_of_state(params, x, observed, state):
    """|x - W s|² itself, from a row as it is."""
    residual = x.copy()
    n_active = 0
    for h in range(len(state)):
        if state[h]:
            n_active += 1
            for d in range(len(x)):
                residual[d] -= params.W[h, d]
    square = 0.0
    for d in range(len(x)):
        square += residual[d] * residual[d]
    return params.constant + params.log_odds * n_active - 0.5 * square / params.noise


def log_joint_of_states(params, X, states):
    """Vectorised."""
    residual = states @ params["W"]
    residual -= X[:, None]
    square = np.einsum("nsd,nsd->ns", residual, residual)
    prior = params["log_odds"] * states.sum(-1)
    return params["constant"] + prior - 0.5 * square / params["noise"]


def log_joint_in_python(params, x, state):
    """One state at a time."""
    square = np.square(x - state @ params["W"]).sum()
    return params["constant"] + params["log_odds"] * state.sum() - 0.5 * square / params["noise"]


@numba.njit(nogil=True)
def add_moments(states, weights, first, second):
    """Σ⟨s⟩ of each row and Σ⟨s sᵀ⟩ of all."""
    active = np.empty(states.shape[2], np.int64)
    for n in range(states.shape[0]):
        for m in range(states.shape[1]):
            weight = weights[n, m]
            if weight > NEGLIGIBLE:
                k = 0
                for h in range(states.shape[2]):
                    if states[n, m, h]:
                        active[k] = h
                        k += 1
                for i in range(k):
                    first[n, active[i]] += weight
                    for j in range(k):
                        second[active[i], active[j]] += weight


def statistics(params, X, observed, states, weights):
    """Those of the M-step, by a helper of the user's own that Numba compiles."""
    H = states.shape[2]
    first, second = np.zeros((len(X), H)), np.zeros((H, H))
    add_moments(states, weights, first, second)
    return {
        "first": first.sum(0),
        "second": second,
        "cross": first.T @ X,
        "square": np.square(X).sum(),
        "count": X.size,
        "rows": len(X),
    }


def update(params, sums):
    """W, σ² and π in closed form."""
    H = len(sums["first"])
    system = sums["second"] + 1e-6 * np.eye(H)
    W = np.linalg.solve(system, sums["cross"])
    noise = (sums["square"] - np.vdot(W, sums["cross"])) / sums["count"]
    return made_of(W, noise, np.clip(sums["first"].sum() / sums["rows"] / H, 1e-6, 0.5))


def made_of(W: np.ndarray, noise: float, pi: float) -> dict[str, Any]:
    """Parameters, and what follows from them once for all states."""
    H, D = W.shape
    return {
        "W": W,
        "gram": W @ W.T / noise,
        "noise": float(noise),
        "log_odds": float(np.log(pi / (1 - pi))),
        "constant": float(H * np.log1p(-pi) - 0.5 * D * np.log(2 * np.pi * noise)),
    }


# ----------------------------------------------------------------------------------- measurement


def black_boxes(template: dict[str, Any]) -> dict[str, BlackBoxModel]:
    """The same model in the ways a user may write it."""
    functions = Functions(statistics, update)
    libraries = NumpyArrays()
    log_joints = {
        "active": ScalarLogJoint(log_joint_of_active, True, products),
        "state": ScalarLogJoint(log_joint_of_state, True),
        "NumPy": VectorizedLogJoint(log_joint_of_states, libraries),
    }
    return {
        name: BlackBoxModel(log_joint, template, libraries, functions)
        for name, log_joint in log_joints.items()
    }


def evaluate(model: Any, X: np.ndarray, state: em.EMState) -> np.ndarray:
    """Log-joints of the kept states."""
    derived = model.prepare(state.params, X.dtype)
    rows = model.prepare_rows(derived, X, None)
    return posterior.evaluate(model, derived, rows, state.states)


def time_log_joints(model: Any, X: np.ndarray, state: em.EMState) -> float:
    """µs per state of the log-joints alone."""
    started = time.perf_counter()
    log_joints = evaluate(model, X, state)
    return 1e6 * (time.perf_counter() - started) / log_joints.size


def time_e_step(model: Any, X: np.ndarray, state: em.EMState) -> float:
    """µs per state of breeding, evaluating and keeping the best, without statistics."""
    derived = model.prepare(state.params, X.dtype)
    evaluated = 0
    started = time.perf_counter()
    for part in posterior.chunks(slice(0, len(X)), N_STATES + EVOLUTION.n_bred):
        rows = model.prepare_rows(derived, X[part], None)
        numbers = np.arange(len(X), dtype=np.uint64)[part]
        own = streams.start(state.seed, state.iteration, numbers)
        kept, log_joints = state.states[part].copy(), state.log_joints[part].copy()
        evaluated += posterior.improve(
            model, derived, rows, EVOLUTION, own, kept, log_joints
        ).evaluated
    return 1e6 * (time.perf_counter() - started) / evaluated


def time_iteration(model: Any, X: np.ndarray, state: em.EMState) -> float:
    """µs per state of a whole iteration."""
    own = state._replace(states=state.states.copy(), log_joints=state.log_joints.copy())
    _, info = em.step(model, em.Data(X), own, EVOLUTION)
    return 1e6 * info.seconds / info.states_evaluated


PARTS: dict[str, Callable[..., float]] = {
    "log_joints": time_log_joints,
    "e_step": time_e_step,
    "iteration": time_iteration,
}


class InPython(plain_numpy.BinarySparseCoding):
    """Plain NumPy, with the log-joint of one state called for each of them."""

    def __init__(self, learnt: Any, X: np.ndarray, params: dict[str, Any]) -> None:
        super().__init__(learnt, X)
        self.rows, self.params = X, params

    def log_joints(self, n: int, states: np.ndarray) -> np.ndarray:
        """log p(s, y) of the states of row n."""
        return np.array([log_joint_in_python(self.params, self.rows[n], s) for s in states])


def time_plain_e_step(plain: Any, X: np.ndarray, dense: np.ndarray) -> float:
    """µs per state of an E-step that loops over rows in Python."""
    rng = np.random.default_rng(0)
    started = time.perf_counter()
    evaluated = sum(
        plain_numpy.improve(plain, n, states, EVOLUTION, rng)[2] for n, states in enumerate(dense)
    )
    return 1e6 * (time.perf_counter() - started) / evaluated


def time_plain(X: np.ndarray, state: em.EMState, params: dict[str, Any]) -> dict[str, float]:
    """The same E-step by loops over rows, and over rows and states."""
    dense = unpack(state.states, len(params["W"]))
    plain = {
        "rows": plain_numpy.BinarySparseCoding(state.params, X.astype(np.float64)),
        "rows_and_states": InPython(state.params, X, params),
    }
    wanted = log_joints_of(X, state)
    for some in plain.values():
        require_close("Log-joints", some.log_joints(0, dense[0]), wanted[0], TOLERANCE)
    return {name: time_plain_e_step(some, X, dense) for name, some in plain.items()}


def log_joints_of(X: np.ndarray, state: em.EMState) -> np.ndarray:
    """By the built-in model."""
    return evaluate(BinarySparseCodingModel(), X, state)


def first_rows(state: em.EMState, n: int) -> em.EMState:
    """The state of the first rows."""
    return state._replace(states=state.states[:n].copy(), log_joints=state.log_joints[:n].copy())


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """All figures: the best of repeated measurements that take turns."""
    name, picture = pictures.read_picture(arguments.image)
    X = pictures.random_patches(pictures.add_noise(picture), PATCH_WIDTH, arguments.rows)
    built_in = BinarySparseCodingModel()
    data = em.Data(X)
    state = em.init(built_in, data, n_latents=arguments.latents, n_states=N_STATES)
    state, _ = em.run(built_in, data, state, EVOLUTION, max_iter=WARM_UP_ITERATIONS)
    learnt = state.params
    params = made_of(
        learnt.components, float(learnt.noise_variance), float(learnt.activation_probs[0])
    )
    models: dict[str, Any] = {"built-in": built_in, **black_boxes(params)}
    states = {"built-in": state}
    for kind, model in models.items():
        if kind != "built-in":
            own = model.initialize(X, None, arguments.latents, np.random.default_rng(0))
            own = BlackBoxParams(own.values, learnt.activation_probs, own.support, None)
            states[kind] = state._replace(params=own)
            few = slice(0, SLOW_ROWS)
            found = evaluate(model, X[few], first_rows(states[kind], SLOW_ROWS))
            wanted = log_joints_of(X[few], first_rows(state, SLOW_ROWS))
            require_close("Log-joints", found, wanted, TOLERANCE)
    figures: dict[str, dict[str, list[float]]] = {
        kind: {part: [] for part in PARTS} for kind in models
    }
    with one_blas_thread():
        for repeat in range(arguments.repeats + 1):  # the first compiles
            for kind, model in models.items():
                n = 4 * SLOW_ROWS if kind == "NumPy" else len(X)
                for part, timed in PARTS.items():
                    cost = timed(model, X[:n], first_rows(states[kind], n))
                    if repeat:
                        figures[kind][part].append(cost)
        rounds = [time_plain(X[:SLOW_ROWS], first_rows(state, SLOW_ROWS), params) for _ in range(3)]
    best = {kind: {part: min(costs) for part, costs in f.items()} for kind, f in figures.items()}
    plain = {loop: min(costs[loop] for costs in rounds) for loop in rounds[0]}
    return {
        "versions": {package: version(package) for package in ("evoem", "numpy", "numba")}
        | {"python": platform.python_version()},
        "machine": {"cpu": cpu_model(), "cores": os.cpu_count()},
        "picture": name,
        "rows": len(X),
        "repeats": arguments.repeats,
        "active_latents": float(np.bitwise_count(state.states).sum(-1).mean()),
        "us_core": best,
        "plain_us_core": plain,
        "ratios": {
            kind: {part: cost / best["built-in"][part] for part, cost in costs.items()}
            for kind, costs in best.items()
        },
        "faster_than_plain": {loop: cost / best["NumPy"]["e_step"] for loop, cost in plain.items()},
        "targets": {"compiled": COMPILED_TARGET, "vectorised": VECTORISED_TARGET},
    }


# ---------------------------------------------------------------------------------------- report


def print_report(report: dict[str, Any]) -> None:
    """The figures as text."""
    machine, versions = report["machine"], report["versions"]
    print(f"{machine['cpu']}, {machine['cores']} cores, picture: {report['picture']}")
    print(", ".join(f"{name} {number}" for name, number in versions.items()))
    lines = [["µs × core per state", "log-joints", "ratio", "E-step", "ratio", "whole", "ratio"]]
    for kind, costs in report["us_core"].items():
        cells = [kind]
        for part, cost in costs.items():
            cells += [f"{cost:.3f}", f"{report['ratios'][kind][part]:.2f}"]
        lines.append(cells)
    print("\n" + aligned(lines))
    ratio, faster = report["ratios"]["active"]["e_step"], report["faster_than_plain"]
    loop = faster["rows_and_states"]
    targets = [
        ["compiled / built-in", f"{ratio:.2f}", f"{COMPILED_TARGET}"],
        ["loop over rows and states / vectorised", f"{loop:.1f}", f"{VECTORISED_TARGET:.0f}"],
        ["loop over rows / vectorised", f"{faster['rows']:.1f}", "", ""],
    ]
    targets[0].append(verdict(ratio, COMPILED_TARGET))
    targets[1].append(verdict(VECTORISED_TARGET, loop))
    print("\n" + aligned([["ratio of E-steps", "measured", "target", "met"], *targets]))
    costs = report["plain_us_core"]
    print(f"\nactive latents per kept state: {report['active_latents']:.1f}; ", end="")
    print(f"loops over rows and states take {costs['rows_and_states']:.1f} µs per state,")
    print(f"those over rows, with Gram matrix and projections, {costs['rows']:.1f} µs.")


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=2000, help="patches (%(default)s)")
    parser.add_argument("--latents", type=int, default=256, help="of the model (%(default)s)")
    parser.add_argument("--repeats", type=int, default=5, help="timed rounds (%(default)s)")
    parser.add_argument("--image", type=Path, help="picture to cut patches from")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures to this file")
    return parser.parse_args()


def main() -> None:
    """Measure, print, write."""
    arguments = parse_arguments()
    report = measure(arguments)
    print_report(report)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
