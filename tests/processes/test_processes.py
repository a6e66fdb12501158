"""The same bits on any number of processes, and an end of all if one of them fails."""

import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import cases
import numpy as np
import pytest

PROGRAM = Path(__file__).with_name("program.py")
LONGEST = 400  # seconds for a program that computes
PATH = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
# Threads would not wait for each other's processors, nor PyTorch for its own.
ENVIRONMENT = os.environ | {
    "OMP_NUM_THREADS": "1",
    "PYTHONUNBUFFERED": "1",
    "PYTHONPATH": os.pathsep.join(map(str, [*Path(__file__).parents[:2], *PATH])),
}


@cache
def launcher():
    """The mpiexec that belongs to this Python, else the first one there is."""
    beside = shutil.which("mpiexec", path=str(Path(sys.executable).parent))
    return beside or shutil.which("mpiexec")


def start(n, *arguments):
    command = [launcher(), "-n", str(n), sys.executable, str(PROGRAM), *map(str, arguments)]
    options = {"capture_output": True, "text": True, "env": ENVIRONMENT}
    return subprocess.run(command, timeout=LONGEST, check=False, **options)


@cache
def why_not():
    """Why no processes can be started here; None if they can."""
    if launcher() is None:
        return "there is no mpiexec"
    code = "from evoem import distributed; print(distributed.world().size)"
    command = [launcher(), "-n", "2", sys.executable, "-c", code]
    try:
        found = subprocess.run(
            command, capture_output=True, text=True, timeout=LONGEST, check=False
        )
    except subprocess.TimeoutExpired:
        return "mpiexec does not come back"
    said = "".join(found.stdout.split())  # they may speak at the same time
    return None if said == "22" else f"mpiexec failed: {found.stderr[-300:]}"


@pytest.fixture(autouse=True)
def _processes():
    if why_not() is not None:
        pytest.skip(f"MPI cannot start: {why_not()}")


@pytest.mark.parametrize("n", [1, 2, 3])
def test_any_number_of_processes_and_threads_has_the_bits_of_one(n, tmp_path):
    done = start(n, "results", tmp_path)
    assert done.returncode == 0, done.stderr
    written = sorted(tmp_path.glob("*.npz"))
    n_cases = len(cases.RUNS) - (0 if n == 2 else len(cases.OF_TORCH))
    assert len(written) == 2 * n_cases
    for path in written:
        expected = of_one(path.stem.split()[0])
        with np.load(path) as found:
            assert set(found.files) == set(expected)
            for name, values in expected.items():
                np.testing.assert_array_equal(found[name], values, err_msg=f"{path.stem}: {name}")


@cache
def of_one(case):
    return cases.result_of(case)


@pytest.mark.parametrize(
    ("what", "told"),
    [
        ("raise", r"evoem: process 2 of 3: OSError: no more rows To continue, resume from .*run"),
        ("memory", r"evoem: process 2 of 3: .*MemoryError: .* To continue, resume from .*run"),
        ("left", r"process 2 has left while process [01] takes"),
        ("killed", r"(?i)rank 2|killed|signal 9"),
    ],
)
def test_what_ends_one_process_ends_all(what, told, tmp_path):
    done = start(3, "long_run", tmp_path / "run", 10**9, what)  # it comes back, that is
    assert done.returncode != 0
    assert re.search(told, done.stdout + done.stderr)
    assert done.stderr.count("evoem: process") == (what != "killed")


def test_a_run_that_was_terminated_goes_on_with_the_same_bits_on_fewer_and_more(tmp_path):
    start(1, "long_run", tmp_path / "whole", 8, "nothing")
    done = start(3, "long_run", tmp_path / "run", 8, "terminated")
    assert done.returncode == 143
    assert not (tmp_path / "run.npz").exists()
    with np.load(tmp_path / "whole.npz") as whole:
        for n in (2, 4):
            again = tmp_path / f"run{n}"
            shutil.copy(tmp_path / "run", again)
            done = start(n, "long_run", again, 8, "nothing", "resume")
            assert done.returncode == 0, done.stderr
            with np.load(f"{again}.npz") as found:
                for name in whole.files:
                    np.testing.assert_array_equal(found[name], whole[name])


def test_processes_that_would_wait_for_each_other_are_refused(tmp_path):
    done = start(2, "different_settings")
    assert done.returncode != 0
    assert "ValueError: max_iter must be the same in all processes; got 3 and 4." in done.stderr
    assert done.stderr.count("evoem: process") == 1


def test_the_same_error_everywhere_is_told_once():
    done = start(2, "different_rows")
    assert done.returncode != 0
    expected = "X must have the same features and type in all processes; got 3 of float64, 4 of"
    assert done.stderr.count(f"ValueError: {expected}") <= 2  # its traceback, and the last word
    assert done.stderr.count("evoem: process") == 1


def restored(n, command, picture, output, *more):
    """What the command line makes of a picture, and what the processes said."""
    program = [sys.executable, "-m", "evoem", command, picture, "-o", output, *more]
    options = ["--model", "ebsc", "--preset", "fast", "--max-iter", "2", "--n-jobs", "1"]
    command = [launcher(), "-n", str(n), *program, *options, "--n-latents", "16"]
    done = subprocess.run(
        list(map(str, command)), env=ENVIRONMENT, capture_output=True, text=True, timeout=LONGEST,
        check=False,
    )  # fmt: skip
    return (np.load(output) if done.returncode == 0 else None), done


@pytest.mark.parametrize(
    ("command", "n_slices"), [("denoise", None), ("inpaint", None), ("inpaint", 3)]
)
def test_a_picture_is_the_same_by_one_process_and_by_several(command, n_slices, tmp_path):
    rng = np.random.default_rng(0)
    picture = 100 * (np.add.outer(np.arange(30), np.arange(28)) > 25) + rng.normal(size=(30, 28))
    if command == "inpaint":
        picture[5:9, 3:20] = np.nan
    if n_slices:
        picture = picture + rng.normal(size=(n_slices, *picture.shape))
        picture[1] = 50.0  # of which there is nothing to learn
    np.save(tmp_path / "given.npy", picture.astype(np.float32))
    alone, _ = restored(1, command, tmp_path / "given.npy", tmp_path / "one.npy")
    several, done = restored(3, command, tmp_path / "given.npy", tmp_path / "three.npy")
    assert several is not None, done.stderr
    np.testing.assert_array_equal(several, alone)
    assert done.stdout.count("three.npy") == 1  # the first one tells


def test_a_picture_that_cannot_be_read_is_told_once(tmp_path):
    _, done = restored(2, "denoise", tmp_path / "none.npy", tmp_path / "out.npy")
    assert done.returncode != 0
    assert done.stderr.count("evoem: process 0 of 2: ") == 1
    assert done.stderr.count("evoem: ") == 1


@pytest.mark.parametrize("variable", ["SLURM_NTASKS", "SLURM_STEP_NUM_TASKS"])
def test_a_launcher_of_another_mpi_is_told(variable):
    code = "from evoem import distributed; distributed.world()"
    environment = os.environ | {variable: "4"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=LONGEST, check=False
    )
    assert done.returncode == 1
    assert f"RuntimeError: MPI must see the 4 processes that {variable} tells of; it sees 1" in (
        done.stderr
    )
