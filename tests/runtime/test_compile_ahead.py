"""Kernels are compiled by other processes, and the result is what one process has alone."""

import json
import os
import subprocess
import sys
import threading
import time

from evoem.runtime.compile_ahead import Compilers, Count, Entry

START = "evoem.streams._start(uint64, uint64, uint64[1, C], uint64[1, C])"
PACK = "evoem.states._pack(bool[2, C], uint64[3, C])"
WEIGH = "evoem.posterior._weigh(float64[2, C], float64[2, C], float64[1, C])"

# What a process does whose cache is empty, and what it says of that.
RUN = """
import json, sys
import numpy as np
from evoem.runtime.compile import CACHE
from evoem.runtime.compile_ahead import compilers, missing
from evoem.runtime.signatures import signature_of
n, lines, wanted = json.loads(sys.argv[1])
counts = []
with compilers(n) as ahead:
    ahead.want(lines[:1])
    ahead.want(lines)
    for line in wanted:
        kernel, arguments = signature_of(line)
        kernel.compile(arguments)
        counts += [line] * (kernel.stats.cache_hits[arguments] > 0)
    ahead.finish(lambda count: None)
    print(json.dumps([counts, ahead.count, len(missing(lines))]))
"""


def run(folder, n_processes, lines, wanted=(), **environment):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", RUN, json.dumps([n_processes, lines, wanted])],
        env=os.environ | {"NUMBA_CACHE_DIR": str(folder)} | environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return *json.loads(done.stdout), done.stderr


def test_processes_compile_what_is_wanted_and_others_load_it(tmp_path):
    lines = [START, PACK, WEIGH]
    loaded, count, left, said = run(tmp_path, 2, lines, [WEIGH])
    assert loaded == [WEIGH]
    assert (count, left, said) == ([3, 3], 0, "")
    assert run(tmp_path, 2, lines)[1:] == ([0, 0], 0, "")  # all is there


def test_without_processes_kernels_are_compiled_here(tmp_path):
    loaded, count, left, said = run(tmp_path, 0, [START, PACK], [START])
    assert (loaded, count, left, said) == ([], [0, 2], 1, "")


def compilers_that_run(program):
    """Another program in place of the one that compiles, and what is complained about."""
    complaints = []

    def start():
        return subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    return Compilers(1, start, complaints.append), complaints


ENTRIES = [Entry(f"module.kernel_{number}(none)", f"name {number}") for number in range(3)]


def test_what_cannot_be_compiled_is_told_and_the_rest_goes_on():
    program = "for line in iter(input, None): print('bad' if '_1' in line else '', flush=True)"
    ahead, complaints = compilers_that_run(program)
    counts = []
    ahead.add(ENTRIES)
    ahead.finish(counts.append)
    assert counts[-1] == ahead.count == Count(3, 3)
    ahead.close()
    assert complaints == ["module.kernel_1 was not compiled ahead: bad"]


def test_a_process_that_ends_is_not_waited_for():
    ahead, complaints = compilers_that_run("input()")
    ahead.add(ENTRIES)
    assert not any(ahead.wait_for(entry.name) for entry in ENTRIES)
    assert ahead.count == Count(0, 3)
    ahead.close()
    assert complaints == []


def test_what_is_waited_for_comes_next(tmp_path):
    log = tmp_path / "log"
    program = f"""
import time
for line in iter(input, None):
    open({str(log)!r}, "a").write(line + "\\n")
    while not open({str(log)!r}).read().count("go"): time.sleep(0.01)
    print(flush=True)
"""
    ahead, _ = compilers_that_run(program)
    ahead.add(ENTRIES)
    while not log.exists() or not log.read_text():
        time.sleep(0.01)
    waiting = threading.Thread(target=ahead.wait_for, args=["name 2"])
    waiting.start()
    while ahead.next_name != "name 2":
        time.sleep(0.01)
    with log.open("a") as file:
        file.write("go\n")
    waiting.join()
    ahead.finish(lambda count: None)
    ahead.close()
    assert [line for line in log.read_text().split() if "kernel" in line] == [
        ENTRIES[number].line for number in (0, 2, 1)
    ]


def test_nobody_is_waited_for_after_the_end():
    ahead, _ = compilers_that_run("input()")
    ahead.close()
    ahead.add(ENTRIES)
    assert not ahead.wait_for("name 0")
    assert not ahead.wait_for("of no entry")
