"""Runs survive SIGKILL, SIGTERM and SIGINT at any moment; `make faults` tries more of them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked and killed")

RUN_A_KERNEL = """
import numpy as np
from evoem import streams
print(streams.row_keys(np.ones((1, 2)), None)[0])
"""


def test_a_hundred_faults_at_random_moments_lose_nothing():
    # One thread each, so that nothing but a run is forked.
    single = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    program = [sys.executable, "-W", "error", Path(__file__).with_name("faults.py"), "100"]
    done = subprocess.run(
        program, env={**os.environ, **single}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert sum(n for what, n in json.loads(done.stdout).items() if " SIG" in what) == 100


def test_eight_that_start_at_once_with_an_empty_cache_all_work(tmp_path):
    program = [sys.executable, "-W", "error", "-c", RUN_A_KERNEL]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    running = [subprocess.Popen(program, env=environment, **pipes) for _ in range(8)]
    said = {run.communicate(timeout=900) for run in running}
    assert [run.returncode for run in running] == [0] * 8
    assert len(said) == 1
    assert next(iter(said))[1] == ""
    assert not list(tmp_path.rglob("*.tmp"))
