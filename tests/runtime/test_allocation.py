"""Memory that was freed is used again."""

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import resource
import numpy as np
from evoem.runtime.allocation import keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        np.ones(200_000)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

before = faults()
keep_freed_memory()
faults()
print(before, faults())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc learns")
def test_arrays_that_come_and_go_take_no_new_pages():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    before, after = map(int, done.stdout.split())
    assert after < 400  # pages of one of 20 arrays
    assert after <= before
