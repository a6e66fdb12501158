"""Small runs that are killed at random moments and resumed: nothing is lost.

    python tests/faults.py 1000 --eight

Each run is stopped by SIGKILL, SIGTERM or SIGINT at random moments, several times over, and resumed
from its checkpoint. After each fault every file is whole or not there, and the checkpoint is no
earlier than before. In the end the results have the bits of a run that was never stopped, and no
temporary file is left. Most runs are forks of one process that has everything loaded, so that the
moments are those of the run; some are programs of their own, whose start can be hit too.
"""

import argparse
import collections
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from evoem import SpikeSlabCoding, checkpoints, em
from evoem.__main__ import main as command_line
from evoem.models import BinarySparseCodingModel
from evoem.runtime.atomic_files import write_whole

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
MOST_FAULTS = 6  # of a run, before it is left to end
LONGEST = 900.0  # seconds that a run may take to end, on a machine that others use too
PROGRAMS_OF_THEIR_OWN = 1 / 20
# Beside the end by itself: killed, or as an interrupted program ends; SIGTERM ends those at once
# that do not ask for it.
ENDINGS = {
    signal.SIGKILL: {-9},
    signal.SIGTERM: {-15, 143},
    signal.SIGINT: {-2, 130},
}
# What Python says if an interrupt comes before it can run any program.
NOT_STARTED = ("Fatal Python error: init_import_site", "Could not import runpy module")
KEPT = "run"  # name of the checkpoint


class Victim(NamedTuple):
    """A program that keeps itself in a checkpoint, and the files that it makes."""

    name: str
    prepare: Callable[[], None]
    run: Callable[[bool], object]  # whether it is kept and resumed
    results: tuple[str, ...]
    command: tuple[str, ...] = ()  # of the program, if it can be one of its own


def save(path, *arrays):
    write_whole(Path(path), lambda file: np.savez(file, *arrays), force=True)


def table(missing):
    rng = np.random.default_rng(0)
    X = (rng.random((300, 5)) < 0.4) @ rng.normal(size=(5, 6)) * 4 + rng.normal(size=(300, 6))
    X[rng.random(X.shape) < missing] = np.nan
    return X


def run_em(kept):
    model, data = BinarySparseCodingModel(), em.Data(table(0.0))
    state = em.init(model, data, n_latents=6, n_states=8)
    options = {"checkpoint": KEPT, "every": 0.0, "resume": True} if kept else {}
    evolution = em.Evolution(3, 2)
    state, infos = em.run(model, data, state, evolution, max_iter=15, n_parts=2, **options)
    save("out.npz", state.params.components, state.states, [info.free_energy for info in infos])


def run_estimator(kept):
    options = {"checkpoint": KEPT, "every": 0.0, "resume": True} if kept else {}
    model = SpikeSlabCoding(5, n_states=8, max_iter=12, tol=0, batch_size=150, random_state=1)
    model.fit(table(0.2), **options)
    save("out.npz", model.components_, model.free_energies_)


QUICK = (
    *("--preset", "fast", "--n-latents", "6", "--n-states", "8", "--n-parents", "4"),
    *("--n-jobs", "1", "--quiet", "--force"),
)
DENOISE = ("denoise", "in.npy", "-o", "out.npy", "--uncertainty", "std.npy", *QUICK)
INPAINT = (
    *("inpaint", "in.npy", "-o", "out.npy", "--mask", "mask.npy", "--model", "es3c"),
    *("--start", "mean", "--max-iter", "4", *QUICK),
)


def picture(*shape):
    steps = 100.0 + 60 * (np.add.outer(np.arange(shape[-2]) // 6, np.arange(shape[-1]) // 6) % 2)
    return steps + np.random.default_rng(0).normal(0, 10, shape)


def prepare_denoise():
    np.save("in.npy", picture(26, 26))


def prepare_inpaint():
    np.save("in.npy", picture(2, 22, 22))
    np.save("mask.npy", (np.random.default_rng(1).random((22, 22)) < 0.3).astype(np.uint8))


def run_command(*command):
    def run(kept):
        sys.argv = ["evoem", *command, *(keeping() if kept else ())]
        command_line()

    return run


def keeping():
    return "--checkpoint", KEPT, "--every", "0", "--resume"


VICTIMS = (
    Victim("em.run", lambda: None, run_em, ("out.npz",)),
    Victim("fit", lambda: None, run_estimator, ("out.npz",)),
    Victim("denoise", prepare_denoise, run_command(*DENOISE), ("out.npy", "std.npy"), DENOISE),
    Victim("inpaint", prepare_inpaint, run_command(*INPAINT), ("out.npy",), INPAINT),
)


# --------------------------------------------------------------------------------- processes


def forked(victim, kept):
    """The process number of a run in a fork of this process."""
    sys.stdout.flush()
    usual = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # until the child can handle them
    child = os.fork()
    if child:
        signal.pthread_sigmask(signal.SIG_SETMASK, usual)
        return child
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        output = os.open("said", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(output, 1)
        os.dup2(output, 2)
        signal.pthread_sigmask(signal.SIG_SETMASK, usual)
        victim.run(kept)
        code = 0
    except SystemExit as end:
        code = end.code or 0
    except KeyboardInterrupt:
        code = 130
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def started(victim):
    """The same of a program of its own."""
    program = [sys.executable, "-m", "evoem", *victim.command, *keeping()]
    said = (os.POSIX_SPAWN_OPEN, 1, "said", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    both = (os.POSIX_SPAWN_DUP2, 1, 2)
    return os.posix_spawn(sys.executable, program, os.environ, file_actions=[said, both])


def ended(child, seconds):
    """How a process ended, as `subprocess` has it; None if it goes on after so many seconds."""
    until = time.monotonic() + seconds
    while True:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() >= until:
            return None
        time.sleep(min(0.002, max(until - time.monotonic(), 0.0)))


# ------------------------------------------------------------------------------------ checks


def look(victim, given, before):
    """All files are whole or not there, and the checkpoint is no earlier than it was."""
    for path in Path().iterdir():
        name = path.name
        if name in given or name == "said":
            continue
        if name == KEPT:
            seconds = checkpoints.read(path).seconds
            assert seconds >= before, f"the checkpoint is of {seconds} s, after one of {before} s"
            before = seconds
        elif name in victim.results:
            loaded = np.load(path)
            for array in loaded.values() if hasattr(loaded, "values") else [loaded]:
                assert np.isfinite(array).all()
        else:
            assert name.startswith(".evoem-"), f"{name} was left"
            assert name.endswith(".tmp"), f"{name} was left"
    return before


class Suite:
    """Faults, counted, with runs that were never stopped to compare with."""

    def __init__(self, folder, seed):
        self.rng = np.random.default_rng(seed)
        self.folder = folder
        self.counts, self.faults = collections.Counter(), 0
        self.expected, self.seconds = {}, {}
        for victim in VICTIMS:
            own = folder / victim.name
            own.mkdir()
            os.chdir(own)
            victim.prepare()
            with contextlib.suppress(SystemExit):
                victim.run(False)  # in this process: everything is compiled and loaded now
            self.expected[victim] = {name: Path(name).read_bytes() for name in victim.results}
            began = time.monotonic()
            assert ended(forked(victim, True), LONGEST) == 0
            self.seconds[victim] = time.monotonic() - began

    def chain(self, victim, faults, own):
        """One run, stopped so many times unless it ends before, and then left to end."""
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        os.chdir(folder)
        victim.prepare()
        given, before, said = {path.name for path in folder.iterdir()}, 0.0, ""
        Path("said").touch()
        length = self.seconds[victim] + (1.0 if own else 0.0)
        while True:
            if faults == 0:
                code = ended(forked(victim, True), LONGEST)
                assert code == 0, f"the resumed run ended with {code}"
                break
            kind = SIGNALS[self.rng.integers(len(SIGNALS))]
            child = started(victim) if own else forked(victim, True)
            code = ended(child, self.rng.uniform(0.0, length))
            if code is None:
                os.kill(child, kind)
                code = ended(child, LONGEST)
                assert code is not None, f"it goes on after {kind.name}"
                told, said = len(said), Path("said").read_text()
                not_started = own and any(what in said[told:] for what in NOT_STARTED)
                expected = {1} if not_started else {0, *ENDINGS[kind]}
                assert code in expected, f"it ended with {code} after {kind.name}"
                self.faults += 1
                self.counts[victim.name, kind.name] += 1
                self.counts["temporary files left"] += len(list(folder.glob(".evoem-*")))
            else:
                assert code == 0, f"it ended with {code}"
                self.counts["ended before the fault"] += 1
                break
            before = look(victim, given, before)
            faults -= 1
        look(victim, given, before)
        assert {path.name for path in folder.iterdir()} - {"said"} == given | {
            KEPT, *victim.results
        }, "something is left or missing"  # fmt: skip
        for name, content in self.expected[victim].items():
            assert Path(name).read_bytes() == content, f"{name} has other bits"
        os.chdir(self.folder)
        shutil.rmtree(folder)

    def run(self, number, seconds):
        """Chains until there were so many faults, or the time is over."""
        until = time.monotonic() + seconds
        while self.faults < number and time.monotonic() < until:
            victim = VICTIMS[self.rng.integers(len(VICTIMS))]
            own = bool(victim.command) and self.rng.random() < PROGRAMS_OF_THEIR_OWN
            faults = min(int(self.rng.integers(1, MOST_FAULTS + 1)), number - self.faults)
            try:
                self.chain(victim, faults, own)
            except Exception:
                said = Path("said").read_text() if Path("said").exists() else ""
                sys.stderr.write(f"{victim.name}, in {Path.cwd()}:\n{said[-2000:]}\n")
                raise
            self.counts["chains"] += 1


def eight_at_once(folder):
    """Eight programs that start together with an empty cache of compiled code end alike."""
    cache, running = folder / "cache", []
    for number in range(8):
        own = folder / f"program {number}"
        own.mkdir()
        os.chdir(own)
        prepare_denoise()
        program = [sys.executable, "-m", "evoem", *DENOISE]
        environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
        running.append((own, subprocess.Popen(program, cwd=own, env=environment)))
    results = set()
    for own, program in running:
        assert program.wait() == 0, f"it ended with {program.returncode}, in {own}"
        results.add((own / "out.npy").read_bytes())
    assert len(results) == 1, "results have other bits"
    assert not list(cache.rglob("*.tmp")), f"something is left in {cache}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("number", type=int, help="of faults")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin none after that")
    parser.add_argument("--eight", action="store_true", help="start with an empty cache, eightfold")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="evoem-faults-"))
    if given.eight:
        eight_at_once(folder)
    suite = Suite(folder, given.seed)
    suite.run(given.number, given.seconds)
    os.chdir("/")
    shutil.rmtree(folder)
    counts = {" ".join(name) if isinstance(name, tuple) else name: number
              for name, number in sorted(suite.counts.items(), key=str)}  # fmt: skip
    told = {"seed": given.seed, "faults": suite.faults, **counts}
    sys.stdout.write(json.dumps(told, indent=2) + "\n")


if __name__ == "__main__":
    main()
