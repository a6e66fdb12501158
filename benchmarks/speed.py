"""How fast `evoem` is: time per state, threads, start-up and memory.

    python benchmarks/speed.py
    python benchmarks/speed.py --only sssc-diagonal bsc --rows 5000 --json speed.json

The unit is the microsecond × core per state evaluated: the seconds of a whole iteration (E-step,
statistics, M-step) times the threads, over the states whose log-joints it asked for (those kept
from before, and their new children). The same iteration in plain NumPy is timed beside it on a few
of the rows, in one thread, so that the figure can be read on any machine; both are first checked to
compute the same log-joints and statistics. For the same reason the speed-up by threads stands
beside the machine's own: that of as many processes of one thread each. Speed-ups compare iterations
that follow each other, since load comes and goes. All is measured in several processes, since where
in memory a process has its arrays makes a difference of some percent that stays as long as it runs.
"""

import argparse
import json
import multiprocessing
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pictures
import plain_numpy
from threadpoolctl import threadpool_limits

from evoem import em, posterior
from evoem.models import BinarySparseCodingModel, NoisyOrModel, Posterior, SpikeSlabModel
from evoem.states import unpack

WARM_UP_ITERATIONS = 10
PLAIN_ROWS = 40
PLAIN_REPEATS = 3
# Plain NumPy computes in double precision, evoem's Gram matrices and projections have that of the
# data, single. With data in double precision the two agree to 1e-10 nats.
LOG_JOINT_TOLERANCE = 0.02  # nats
STATISTICS_TOLERANCE = 1e-3  # of the largest entry
EMPTY_STARTS, FILLED_STARTS = 2, 3

START_UP_TARGETS = {"empty_cache_seconds": 10.0, "filled_cache_seconds": 2.0}
MEMORY_TARGET = 3.0
START_UP_PROGRAM = """
import numpy as np
from evoem import em
from evoem.models import SpikeSlabModel
X = np.random.default_rng(0).normal(128, 60, (300, 144)).astype(np.float32)
model = SpikeSlabModel()
data = em.Data(X)
state = em.init(model, data, n_latents=512, n_states=60)
em.step(model, data, state, em.Evolution(n_parents=60, n_children=1, n_generations=1))
"""


class Setting(NamedTuple):
    """One line of the benchmark."""

    model: Any
    plain: Any  # the same model in plain NumPy
    patch_width: int
    n_latents: int
    n_states: int
    evolution: em.Evolution
    target: float  # µs × core per state
    binary: bool = False


SETTINGS = {
    "sssc-diagonal": Setting(
        SpikeSlabModel(),
        plain_numpy.SpikeSlab,
        patch_width=12,
        n_latents=512,
        n_states=60,
        evolution=em.Evolution(n_parents=60, n_children=1, n_generations=1),
        target=0.30,
    ),
    "sssc-diagonal-300": Setting(
        SpikeSlabModel(),
        plain_numpy.SpikeSlab,
        patch_width=12,
        n_latents=512,
        n_states=300,
        evolution=em.Evolution(n_parents=12, n_children=10, n_generations=1),
        target=0.30,
    ),
    "sssc-full": Setting(
        SpikeSlabModel(slab="full"),
        plain_numpy.SpikeSlab,
        patch_width=12,
        n_latents=512,
        n_states=60,
        evolution=em.Evolution(n_parents=60, n_children=1, n_generations=1),
        target=0.45,
    ),
    "bsc": Setting(
        BinarySparseCodingModel(),
        plain_numpy.BinarySparseCoding,
        patch_width=8,
        n_latents=256,
        n_states=200,
        evolution=em.Evolution(n_parents=10, n_children=9, n_generations=4),
        target=0.10,
    ),
    "noisy-or": Setting(
        NoisyOrModel(),
        plain_numpy.NoisyOr,
        patch_width=10,
        n_latents=100,
        n_states=120,
        evolution=em.Evolution(n_parents=8, crossover=True, mutation="sparse", n_generations=2),
        target=1.0,
        binary=True,
    ),
}
PROCESSES = ("start-up", "memory")


# ------------------------------------------------------------------------------ time per state


def make_rows(setting: Setting, image: Path | None, n_rows: int) -> np.ndarray:
    """The data of a setting."""
    _, picture = pictures.read_picture(image)
    X = pictures.random_patches(pictures.add_noise(picture), setting.patch_width, n_rows)
    return pictures.binary(X) if setting.binary else X


def warm_up(setting: Setting, data: em.Data, n_jobs: int) -> em.EMState:
    """The state after the first iterations, which compile, and whose states are not typical."""
    state = em.init(
        setting.model, data, n_latents=setting.n_latents, n_states=setting.n_states, n_jobs=n_jobs
    )
    return em.run(
        setting.model, data, state, setting.evolution, max_iter=WARM_UP_ITERATIONS, n_jobs=n_jobs
    )[0]


def time_iterations(
    setting: Setting, data: em.Data, state: em.EMState, threads: list[int], repeats: int
) -> tuple[em.EMState, dict[int, list[em.StepInfo]]]:
    """Iterations with each number of threads in turn, so that all meet the same other load."""
    infos: dict[int, list[em.StepInfo]] = {n_jobs: [] for n_jobs in threads}
    for _ in range(repeats):
        for n_jobs in threads:
            state, info = em.step(setting.model, data, state, setting.evolution, n_jobs=n_jobs)
            infos[n_jobs].append(info)
    return state, infos


def summarise(infos: dict[int, list[em.StepInfo]], n_jobs: int) -> dict[str, float]:
    """Figures of the iterations with one number of threads."""
    seconds = [info.seconds for info in infos[n_jobs]]
    costs = [1e6 * info.seconds * n_jobs / info.states_evaluated for info in infos[n_jobs]]
    reference = [info.seconds for info in infos[min(infos)]]
    rounds = [before / now for before, now in zip(reference, seconds, strict=True)]
    return {
        "seconds_best": min(seconds),
        "seconds_median": statistics.median(seconds),
        "us_core_best": min(costs),
        "us_core_median": statistics.median(costs),
        "speed_up_best": min(reference) / min(seconds),
        "speed_up_median": statistics.median(rounds),
    }


def run_beside(
    name: str, image: Path | None, n_rows: int, repeats: int, number: int, together: Any, out: Any
) -> None:
    """One of several processes: iterations of one thread, first of one process, then of all."""
    setting = SETTINGS[name]
    data = em.Data(make_rows(setting, image, n_rows))
    state = warm_up(setting, data, 1)
    seconds: tuple[list[float], list[float]] = [], []
    for all_run in (False, True):
        for _ in range(repeats):
            together.wait()
            if all_run or number == 0:
                state, info = em.step(setting.model, data, state, setting.evolution)
                seconds[all_run].append(info.seconds)
    out.put((number, seconds))


def measure_machine(
    name: str, image: Path | None, n_rows: int, repeats: int, n_processes: int
) -> dict[str, float]:
    """How many times as much as one process do several get done that share nothing."""
    fresh = multiprocessing.get_context("spawn")
    together, out = fresh.Barrier(n_processes), fresh.Queue()
    arguments = (name, image, n_rows // n_processes, repeats)
    processes = [
        fresh.Process(target=run_beside, args=(*arguments, number, together, out))
        for number in range(n_processes)
    ]
    for process in processes:
        process.start()
    seconds = dict(out.get() for _ in processes)
    for process in processes:
        process.join()
    alone = seconds[0][False]
    beside = [
        statistics.mean(times)
        for times in zip(*(own[True] for own in seconds.values()), strict=True)
    ]
    return {
        "best": n_processes * min(alone) / min(beside),
        "median": n_processes * statistics.median(alone) / statistics.median(beside),
    }


# --------------------------------------------------------------------------------- plain NumPy


def require_close(what: str, plain: np.ndarray, ours: np.ndarray, tolerance: float) -> None:
    """Raise unless two arrays agree to an absolute tolerance, infinities included."""
    if not np.allclose(plain, ours, rtol=0.0, atol=tolerance):
        difference = np.abs(plain - ours).max()
        raise RuntimeError(f"{what} of plain NumPy and evoem differ by up to {difference}.")


def leaves(name: str, values: Any) -> list[tuple[str, np.ndarray]]:
    """The arrays of nested NamedTuples with their names."""
    if isinstance(values, np.ndarray):
        return [(name, values)]
    fields = zip(values._fields, values, strict=True)
    return [leaf for field, value in fields for leaf in leaves(field, value)]


def check_plain(setting: Setting, X: np.ndarray, state: em.EMState) -> None:
    """Raise unless plain NumPy and evoem find the same log-joints and statistics."""
    model, params = setting.model, state.params
    derived = model.prepare(params, X.dtype)
    rows = model.prepare_rows(derived, X, None)
    log_joints = posterior.evaluate(model, derived, rows, state.states)
    stats = model.empty_statistics(params)
    weights, _ = posterior.weigh(log_joints)
    model.accumulate(stats, params, derived, rows, Posterior(state.states, weights))

    plain = setting.plain(params, X.astype(np.float64))
    plain_stats = model.empty_statistics(params)
    for n, states in enumerate(unpack(state.states, setting.n_latents)):
        plain_log_joints = plain.log_joints(n, states)
        require_close("Log-joints", plain_log_joints, log_joints[n], LOG_JOINT_TOLERANCE)
        plain_numpy.add_row(plain, plain_stats, n, states, plain_log_joints)
    both = zip(leaves("", plain_stats), leaves("", stats), strict=True)
    for (name, value), (_, ours) in both:
        largest = np.abs(ours).max(initial=0.0)
        require_close(f"Statistics ({name})", value, ours, STATISTICS_TOLERANCE * largest)


def time_plain(setting: Setting, X: np.ndarray, state: em.EMState, n_rows: int) -> float:
    """µs × core per state of the same iteration in plain NumPy.

    E-step and statistics are timed on the few rows `X`. The M-step does not depend on the number of
    rows, so its time is shared among the states of `n_rows` rows, those that evoem was timed on. It
    is evoem's own, which is NumPy, without the evaluation that guards a full slab: that one
    replaces the evaluation of the kept states in the next E-step.
    """
    model, params = setting.model, state.params
    kept = unpack(state.states, setting.n_latents)
    costs = []
    for repeat in range(PLAIN_REPEATS):
        states = kept.copy()
        stats = model.empty_statistics(params)
        started = time.perf_counter()
        plain = setting.plain(params, X.astype(np.float64))
        evaluated = plain_numpy.e_step(
            plain, stats, states, setting.evolution, np.random.default_rng(repeat)
        )
        e_step_done = time.perf_counter()
        model.update(params, stats)
        m_step_done = time.perf_counter()
        m_step_share = (m_step_done - e_step_done) * len(X) / n_rows
        costs.append(1e6 * (e_step_done - started + m_step_share) / evaluated)
    return min(costs)


def compare_with_plain(setting: Setting, X: np.ndarray, state: em.EMState) -> float:
    """Check and time plain NumPy on the first rows."""
    first = slice(0, PLAIN_ROWS)
    few = state._replace(states=state.states[first], log_joints=state.log_joints[first])
    with threadpool_limits(1):
        check_plain(setting, X[first], few)
        return time_plain(setting, X[first], few, len(X))


class Measured(NamedTuple):
    """What one process found."""

    n_rows: int
    infos: dict[int, list[em.StepInfo]]
    active_latents: float
    plain_us_core: float


def measure_in_this_process(
    name: str, image: Path | None, n_rows: int, threads: list[int], repeats: int
) -> Measured:
    """Timed iterations of one setting."""
    setting = SETTINGS[name]
    X = make_rows(setting, image, n_rows)
    data = em.Data(X)
    state = warm_up(setting, data, max(threads))
    state, infos = time_iterations(setting, data, state, threads, repeats)
    active = float(np.bitwise_count(state.states).sum(-1).mean())
    return Measured(len(X), infos, active, compare_with_plain(setting, X, state))


def measure_setting(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """All figures of one setting."""
    threads, image, n_rows = arguments.threads, arguments.image, arguments.rows
    fresh = multiprocessing.get_context("spawn")
    runs: list[Measured] = []
    for _ in range(arguments.processes):
        with ProcessPoolExecutor(1, mp_context=fresh) as pool:
            task = pool.submit(
                measure_in_this_process, name, image, n_rows, threads, arguments.repeats
            )
            runs.append(task.result())
    infos = {n_jobs: [info for run in runs for info in run.infos[n_jobs]] for n_jobs in threads}
    by_threads = {n_jobs: summarise(infos, n_jobs) for n_jobs in threads}
    plain = min(run.plain_us_core for run in runs)
    setting = SETTINGS[name]
    return {
        "model": type(setting.model).__name__,
        "options": vars(setting.model),
        "rows": runs[-1].n_rows,
        "n_features": setting.patch_width**2,
        "n_latents": setting.n_latents,
        "n_states": setting.n_states,
        "evolution": setting.evolution._asdict(),
        "target_us_core": setting.target,
        "active_latents": runs[-1].active_latents,
        "states_evaluated_per_row": infos[threads[0]][-1].states_evaluated / runs[-1].n_rows,
        "threads": by_threads,
        "speed_ups_by_process": [
            {n_jobs: summarise(run.infos, n_jobs)["speed_up_best"] for n_jobs in threads}
            for run in runs
        ],
        "machine": measure_machine(name, image, n_rows, arguments.repeats, max(threads)),
        "plain_us_core": plain,
        "plain_ratio": plain / by_threads[min(threads)]["us_core_best"],
    }


# ------------------------------------------------------------------------------- new processes


def time_start(cache: str) -> float:
    """Seconds of a new process that imports evoem and runs one iteration."""
    # Numba's variable, which evoem heeds, moves the cache on every platform.
    environment = {**os.environ, "NUMBA_CACHE_DIR": cache}
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", START_UP_PROGRAM], env=environment, check=True)
    return time.perf_counter() - started


def measure_start_up() -> dict[str, float]:
    """Time to the first iteration without and with cached kernels."""
    empty = []
    for _ in range(EMPTY_STARTS):
        with tempfile.TemporaryDirectory() as cache:
            empty.append(time_start(cache))
            filled = min(time_start(cache) for _ in range(FILLED_STARTS))
    return {"empty_cache_seconds": min(empty), "filled_cache_seconds": filled}


def measure_memory(n_rows: int, n_jobs: int, image: Path | None) -> dict[str, float]:
    """What `memory.py` finds in a process of its own."""
    command = [sys.executable, str(Path(__file__).with_name("memory.py"))]
    command += ["--rows", str(n_rows), "--threads", str(n_jobs)]
    command += [] if image is None else ["--image", str(image)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return dict(json.loads(done.stdout))


# -------------------------------------------------------------------------------------- report

HEADINGS = (
    "setting", "threads", "s/iteration", "(median)", "speed-up", "(median)", "machine",
    "(median)", "µs×core", "(median)", "target", "met", "active", "plain NumPy", "ratio",
)  # fmt: skip


def verdict(value: float, target: float) -> str:
    """Whether a figure meets its target."""
    return "yes" if value <= target else "no"


def setting_lines(name: str, figures: dict[str, Any]) -> list[list[str]]:
    """A line of the table per number of threads; what does not depend on it stands in the first."""
    lines = []
    for n_jobs, some in figures["threads"].items():
        line = [name, str(n_jobs)]
        line += [f"{some['seconds_best']:.3f}", f"{some['seconds_median']:.3f}"]
        line += [f"{some['speed_up_best']:.2f}", f"{some['speed_up_median']:.2f}"]
        machine = figures["machine"] if n_jobs == max(figures["threads"]) else {}
        line += [f"{machine[kind]:.2f}" if machine else "" for kind in ("best", "median")]
        line += [f"{some['us_core_best']:.3f}", f"{some['us_core_median']:.3f}"]
        line += [f"{figures['target_us_core']:.2f}"]
        line += [verdict(some["us_core_best"], figures["target_us_core"])]
        line += [f"{figures['active_latents']:.1f}"]
        line += [f"{figures['plain_us_core']:.1f}", f"{figures['plain_ratio']:.0f}×"]
        lines.append(line if not lines else ["", *line[1:-3], "", "", ""])
    return lines


def aligned(lines: list[list[str]]) -> str:
    """Columns, the first to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    rows = []
    for first, *others in lines:
        cells = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        rows.append("  ".join([first.ljust(widths[0]), *cells]).rstrip())
    return "\n".join(rows)


def process_lines(report: dict[str, Any]) -> list[list[str]]:
    """Lines about start-up and memory."""
    lines = []
    for name, target in START_UP_TARGETS.items():
        if "start-up" in report:
            seconds = report["start-up"][name]
            what = f"start-up, {name.split('_')[0]} cache"
            lines.append([what, f"{seconds:.2f} s", f"{target:.0f} s", verdict(seconds, target)])
    if "memory" in report:
        ratio = report["memory"]["ratio"]
        what = "peak memory / (data + states)"
        lines.append([what, f"{ratio:.2f}", f"{MEMORY_TARGET:.0f}", verdict(ratio, MEMORY_TARGET)])
    return lines


def print_report(report: dict[str, Any]) -> None:
    """The figures as text."""
    machine, versions = report["machine"], report["versions"]
    print(f"{machine['cpu']}, {machine['cores']} cores, picture: {report['picture']}")
    print(", ".join(f"{name} {number}" for name, number in versions.items()))
    if report["settings"]:
        lines = [list(HEADINGS)]
        for name, figures in report["settings"].items():
            lines += setting_lines(name, figures)
        print("\n" + aligned(lines))
        print("\nBest of the timed iterations; speed-up and ratio against the fewest threads,")
        print("its median that of iterations which follow each other.")
        print("machine: how much more as many processes of one thread get done than one.")
        print("active: latents per kept state; plain NumPy in µs×core per state, one thread.")
    lines = process_lines(report)
    if lines:
        print("\n" + aligned([["process", "measured", "target", "met"], *lines]))


def cpu_model() -> str:
    """What the processor calls itself."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [*SETTINGS, *PROCESSES]
    parser.add_argument(
        "--only", nargs="+", choices=names, default=names, metavar="NAME", help=", ".join(names)
    )
    parser.add_argument(
        "--rows", type=int, default=20_000, help="patches (%(default)s); twice as many for memory"
    )
    parser.add_argument(
        "--repeats", type=int, default=9, help="timed iterations of each (%(default)s)"
    )
    parser.add_argument(
        "--processes", type=int, default=3, help="new processes that measure (%(default)s)"
    )
    parser.add_argument("--image", type=Path, help="picture to cut patches from")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures to this file")
    return parser.parse_args()


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Everything that was asked for."""
    name, _ = pictures.read_picture(arguments.image)
    report: dict[str, Any] = {
        "versions": {package: version(package) for package in ("evoem", "numpy", "numba")},
        "machine": {"cpu": cpu_model(), "cores": os.cpu_count()},
        "picture": name,
        "repeats": arguments.repeats,
        "processes": arguments.processes,
        "settings": {},
    }
    report["versions"]["python"] = platform.python_version()
    for name in SETTINGS:
        if name in arguments.only:
            report["settings"][name] = measure_setting(name, arguments)
    if "start-up" in arguments.only:
        report["start-up"] = {**measure_start_up(), "targets": START_UP_TARGETS}
    if "memory" in arguments.only:
        figures = measure_memory(2 * arguments.rows, max(arguments.threads), arguments.image)
        report["memory"] = {**figures, "target_ratio": MEMORY_TARGET}
    return report


def main() -> None:
    """Measure, print, write."""
    arguments = parse_arguments()
    report = measure(arguments)
    print_report(report)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
