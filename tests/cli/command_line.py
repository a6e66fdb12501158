"""Runs of the command line on small pictures."""

import signal

import numpy as np
from typer.testing import CliRunner

from evoem import cli

SIZE = (24, 22)


TINY = ["--preset", "fast", "--start", "mean", "--n-parts", "1", "--max-iter", "2", "--n-jobs", "1"]


SAME = {"preset": "fast", "start": "mean", "n_parts": 1, "max_iter": 2, "n_jobs": 1}


FEW_CHANNELS = ["--patch-size", "4", "--n-latents", "12"]


def noisy(shape=SIZE, dtype=np.uint8, seed=0):
    rows, columns = shape[:2]
    steps = 100.0 + 60 * (np.add.outer(np.arange(rows) // 6, np.arange(columns) // 6) % 2)
    steps = steps.reshape(rows, columns, *[1] * (len(shape) - 2))
    return (steps + np.random.default_rng(seed).normal(0, 10, shape)).astype(dtype)


def invoke(*arguments):
    return CliRunner().invoke(cli.app, [str(argument) for argument in arguments])


def refused(folder, *arguments):
    """The sentence of a command that fails and leaves the folder as it was."""
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    result = invoke(*arguments, *TINY)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.startswith("evoem: ")
    assert result.stderr.endswith(".\n")
    assert result.stderr.count("\n") == 1
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    return result.stderr


def press_ctrl_c():
    signal.raise_signal(signal.SIGINT)
