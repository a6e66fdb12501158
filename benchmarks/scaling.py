"""How long iterations take by rows, states, latents, features, threads and processes.

    python benchmarks/scaling.py                  measure, and write docs/scaling.json
    python benchmarks/scaling.py --plot           and docs/scaling.png, which needs matplotlib
    python benchmarks/scaling.py --only growth    one part of it

Parts: `growth` is processor time of one process over two decades of N, S, H and D. `processes` is
the rate of one, two and more processes on the rows of one (strong), or on as many each (weak), and
the rate of processes that know nothing of each other. `reduction` is the time to add buffers up,
`memory` the peak of each process. `exact` compares exact sums with plain ones in one process.
Predictions for more cores than there are follow from these, see `predict`.
"""

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from memory import resident_bytes
from scipy.optimize import nnls

from evoem import distributed, em
from evoem.models import SpikeSlabModel
from evoem.runtime.communicator import ALONE, OneProcess
from evoem.runtime.threads import blocks
from evoem.shares import share_in_blocks

RESULT = Path(__file__).parents[1] / "docs" / "scaling.json"
EVOLUTION = em.Evolution(n_parents=15, n_children=2, n_generations=1)
USUAL = {"N": 4000, "S": 60, "H": 128, "D": 64}
DECADES = {
    "N": (500, 1600, 5000, 16_000, 50_000),
    "S": (16, 50, 160, 500, 1600),
    "H": (16, 50, 160, 500, 1600),
    "D": (4, 12, 40, 120, 400),
}
HOUSE = {"N": 60_000, "S": 60, "H": 512, "D": 144}  # about the paper's largest task
GIGAPIXEL = HOUSE | {"N": 300_000_000}
TURNS = 5
BUFFERS = (1 << 10, 1 << 14, 1 << 17, 1 << 20, 1 << 23)  # numbers of 8 bytes
CORES = (64, 256, 1024, 4096)
PROCESSORS = 2  # of the machine that this was measured on
# Seconds for each doubling of the number of processes, and for a byte: assumed for a cluster whose
# network brings 10 GB/s to each node.
ASSUMED_NETWORK = 20e-6, 1e-10


class PlainSums(OneProcess):
    """One process that adds without exactness, to compare with."""

    exact = False


def rows_of(n_rows, n_features, seed=0):
    """Data with something to learn in them, in single precision."""
    rng = np.random.default_rng(seed)
    causes = rng.normal(size=(n_rows, 8)) * (rng.random((n_rows, 8)) < 0.3)
    noise = 0.3 * rng.normal(size=(n_rows, n_features))
    return (causes @ rng.normal(size=(8, n_features)) + noise).astype(np.float32)


class Run:
    """A run, of which iterations are timed."""

    def __init__(self, N, S, H, D, comm=ALONE, n_jobs=1, seed=0):
        self.given = SpikeSlabModel(), em.Data(rows_of(N, D, seed))
        self.options = {"n_jobs": n_jobs, "comm": comm}
        self.state = em.init(*self.given, n_latents=H, n_states=S, **self.options)

    def seconds(self, clock):
        """Of one more iteration."""
        began = clock()
        self.state, _ = em.step(*self.given, self.state, EVOLUTION, **self.options)
        return clock() - began

    def times(self):
        """Seconds of one more iteration, and of a processor but for talking to others."""
        talked = self.options["comm"].processor_seconds
        wall, own = time.perf_counter(), time.process_time()
        self.seconds(time.perf_counter)
        talked = self.options["comm"].processor_seconds - talked
        return time.perf_counter() - wall, time.process_time() - own - talked


class Timed:
    """A communicator that counts the processor's seconds that it takes: MPI waits busily."""

    def __init__(self, comm):
        self.comm, self.processor_seconds = comm, 0.0

    def __getattr__(self, name):
        found = getattr(self.comm, name)
        if not callable(found):
            return found

        def call(*arguments):
            began = time.process_time()
            result = found(*arguments)
            self.processor_seconds += time.process_time() - began
            return result

        return call


def growth():
    """Processor seconds per iteration over two decades of each size."""
    found = {}
    for name, values in DECADES.items():
        found[name] = []
        for value in values:
            run = Run(**(USUAL | {name: value}))
            run.seconds(time.process_time)
            seconds = min(run.seconds(time.process_time) for _ in range(3))
            found[name].append((value, seconds))
            print(f"{name} = {value}: {seconds:.4f} s", flush=True)
    return found


def exact():
    """Processor seconds of an iteration with exact and with plain sums, in turns, at the sizes of
    House in the paper: of some of its rows, and of all."""
    found = []
    for n_rows, turns in ((10_000, 2 * TURNS), (HOUSE["N"], TURNS)):
        sizes = HOUSE | {"N": n_rows}
        runs = {"exact": Run(**sizes), "plain": Run(**sizes, comm=PlainSums())}
        spent = {name: [] for name in runs}
        for _ in range(turns):
            for name, run in runs.items():
                spent[name].append(run.seconds(time.process_time))
        found.append((n_rows, *(min(seconds[1:]) for seconds in spent.values())))
        print("{} rows: {:.4f} s with exact sums, {:.4f} s with plain ones".format(*found[-1]))
    return found


def worker(rows, n_jobs, kind):
    """What each process of `processes` and `reduction` runs; the first one prints."""
    comm = ALONE if kind == "unrelated" else distributed.world()
    if kind == "reduction":
        found = []
        for size in BUFFERS:
            buffer, spent = np.ones(size), []
            for _ in range(20):
                began = time.perf_counter()
                comm.add(buffer)
                spent.append(time.perf_counter() - began)
                buffer[:] = 1.0
            found.append((buffer.nbytes, min(spent)))
    elif kind == "memory":
        few, H = rows_of(1000, USUAL["D"]), USUAL["H"]
        params = SpikeSlabModel().initialize(few, None, H, np.random.default_rng(0))
        own = share_in_blocks(SpikeSlabModel(), params, rows * comm.size, comm)
        run = Run(**(USUAL | {"N": own.stop - own.start}), comm=comm, seed=comm.rank)
        run.seconds(time.perf_counter)
        found = comm.collect(resident_bytes()[1])
    else:
        run = Run(**(USUAL | {"N": rows}), comm=Timed(comm), n_jobs=n_jobs, seed=comm.rank)
        run.times()
        found = np.median([run.times() for _ in range(TURNS)], axis=0).tolist()
        walls, own = zip(*comm.collect(found), strict=True)
        found = [max(walls), float(np.mean(own))]
    if comm.rank == 0:
        print(json.dumps(found))


def started(n, rows, n_jobs, kind):
    """Start processes, and say how to wait for what they find."""
    own = [sys.executable, __file__, "--worker", str(rows), str(n_jobs), kind]
    beside = shutil.which("mpiexec", path=str(Path(sys.executable).parent)) or "mpiexec"
    command = own if kind == "unrelated" else [beside, "-n", str(n), *own]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    copies = n if kind == "unrelated" else 1
    running = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        for _ in range(copies)
    ]
    return [json.loads(one.communicate()[0]) for one in running]


def processes():
    """Rows a second, and processor seconds of a process for an iteration without what it talks to
    others: the medians of iterations. Processor seconds are little changed by other programs."""
    rows, found = 2 * USUAL["N"], []
    plans = [
        ("together", 1, 1, rows), ("unrelated", 1, 1, rows), ("together", 1, 2, rows),
        ("together", 2, 1, rows // 2), ("together", 2, 1, rows), ("unrelated", 2, 1, rows),
        ("together", 4, 1, rows // 4), ("together", 8, 1, rows // 8),
    ]  # fmt: skip
    for kind, n, n_jobs, each in plans:
        times = started(n, each, n_jobs, kind)
        rate = sum(each / wall for wall, _ in times) * (n if kind == "together" else 1)
        own = float(np.mean([seconds for _, seconds in times]))
        found.append((kind, n, n_jobs, each, rate, own))
        print(
            f"{kind}, {n} processes of {n_jobs} threads, {each} rows each: {rate:.0f} rows/s, "
            f"{own:.4f} s of a processor",
            flush=True,
        )
    return found


def fitted(found):
    """Processor seconds of a process by rows and by iteration, and seconds that each further
    process adds where they share two processors: least squares, none below zero."""
    together = [one for one in found["processes"] if one[0] == "together" and one[2] == 1]
    work = np.array([[each, 1.0] for _, _, _, each, _, _ in together])
    own = np.array([seconds for *_, seconds in together])
    (row, iteration), _ = nnls(work, own)
    waits = np.array([[max(n - 1, 0)] for _, n, *_ in together], float)
    walls = np.array([n * each / rate for _, n, _, each, rate, _ in together])
    shared = np.array([max(n / PROCESSORS, 1.0) for _, n, *_ in together])
    (slower, further), _ = nnls(np.column_stack([shared * (work @ [row, iteration]), waits]), walls)
    out = {"row": row, "iteration": iteration, "slower": slower, "further": further}
    for (_, n, _, each, rate, seconds), expected in zip(
        together, work @ [row, iteration], strict=True
    ):
        wall = slower * max(n / PROCESSORS, 1.0) * expected + further * (n - 1)
        print(
            f"{n} processes, {each} rows each: {seconds:.4f} s of a processor, fitted "
            f"{expected:.4f}; {n * each / rate:.3f} s, fitted {wall:.3f}"
        )
    print({name: float(value) for name, value in out.items()})
    return {name: float(value) for name, value in out.items()}


def reduction():
    """Bytes and seconds of sums over two processes."""
    (found,) = started(2, 0, 1, "reduction")
    for size, seconds in found:
        print(f"{size} bytes: {seconds * 1e6:.0f} µs")
    return found


def memory():
    """Peak bytes of each process, of one with all rows and of two with half of them."""
    rows = 200_000
    found = [(n, max(started(n, rows // n, 1, "memory")[0])) for n in (1, 2)]
    for n, peak in found:
        print(f"{n} processes, {rows // n} rows each: at most {peak / 1e6:.0f} MB each")
    return found


def predict(found):
    """Seconds of an iteration on many cores, by what was measured of rows and iterations of House.

    A core works on whole blocks, at least one if there are enough. What processes add up has three
    slices for each number, and takes a latency and a time for each byte for every doubling of their
    number: as assumed of a network, and as measured between two processes of one machine. There are
    two sums in an iteration, the first of which agrees on slices, and processes meet before each.
    """
    (few, seconds_of_few, _), (many, seconds_of_many, _) = found["exact"]
    row = (seconds_of_many - seconds_of_few) / (many - few)
    iteration = max(seconds_of_few - few * row, 0.0)
    (small, latency), *_, (large, longest) = found["reduction"]
    here = latency, (longest - latency) / (large - small)
    print(f"{row * 1e6:.2f} µs a row, {iteration * 1e3:.1f} ms an iteration; sums {here}")
    out = {"row": row, "iteration": iteration, "here": here, "tasks": {}}
    for name, task in (("House", HOUSE), ("gigapixel", GIGAPIXEL)):
        n_rows, H, D = task["N"], task["H"], task["D"]
        n_bytes = 8 * (H * (H + 1) // 2 + H * D + 2 * H)
        sizes = [block.stop - block.start for block in blocks(slice(0, n_rows), n_bytes)]
        out["tasks"][name] = []
        for cores in CORES:
            at_work = min(cores, len(sizes))
            most = max(sizes) * math.ceil(len(sizes) / at_work)
            own = max(most, math.ceil(n_rows / at_work)) * row + iteration
            added = [
                math.log2(cores) * (4 * wait + 3 * n_bytes * per_byte)
                for wait, per_byte in (ASSUMED_NETWORK, here)
            ]
            out["tasks"][name].append((cores, own, *added))
            print(
                f"{name}, {cores} cores: {own:.4f} s of work, adding up {added[0]:.4f} s in the "
                f"assumed network, {added[1]:.4f} s as here"
            )
    return out


def plot(found):
    """The measured growth, one panel for each size."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 2.6), layout="constrained")
    for axes, (name, points) in zip(figure.subplots(1, 4), found["growth"].items(), strict=True):
        axes.loglog(*zip(*points, strict=True), "o-")
        axes.set(xlabel=name, title=f"seconds by {name}")
    figure.savefig(RESULT.with_suffix(".png"), dpi=100)


def main():
    """Measure what is asked for, and keep what was measured before of the rest."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=["growth", "exact", "processes", "reduction", "memory"])
    parser.add_argument("--plot", action="store_true")
    parser.add_argument("--worker", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        rows, n_jobs, kind = arguments.worker
        worker(int(rows), int(n_jobs), kind)
        return
    found = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    for part in (growth, exact, processes, reduction, memory):
        if arguments.only in (None, part.__name__):
            found[part.__name__] = part()
            RESULT.write_text(json.dumps(found, indent=1) + "\n")
    if "processes" in found:
        found["fitted"] = fitted(found)
    if {"exact", "reduction"} <= found.keys():
        found["predicted"] = predict(found)
        RESULT.write_text(json.dumps(found, indent=1) + "\n")
    if arguments.plot:
        plot(found)


if __name__ == "__main__":
    main()
