"""What compiles for another process."""

import numpy as np

from evoem import streams
from evoem.runtime.compiling_process import answer

START = "evoem.streams._start(uint64, uint64, uint64[1, C], uint64[1, C])"


def test_a_kernel_is_compiled():
    assert answer(START) == ""
    numbers, out = np.arange(3, dtype=np.uint64), np.zeros(3, np.uint64)
    streams._start(np.uint64(1), np.uint64(2), numbers, out)
    assert len(streams._start.signatures) == 1


def test_what_goes_wrong_is_told_in_a_line():
    assert answer("evoem.streams._start(none)").startswith("TypeError: ")
    assert "\n" not in answer("evoem.streams._start(none, none, none, none)")
    assert answer("evoem.streams.nothing(none)").startswith("AttributeError: ")
