"""Kernels and types of their arguments as text."""

import numba
import numpy as np
import pytest

from evoem import streams
from evoem.models.base import Posterior
from evoem.runtime.signatures import signature_of, text_of

POSTERIOR = Posterior(np.zeros((1, 2, 3), np.uint64), np.zeros((1, 2)))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.uint64(1), "uint64"),
        (True, "bool"),
        (None, "none"),
        (np.zeros((2, 3), np.float32), "float32[2, C]"),
        (np.zeros((2, 3)).T, "float64[2, F]"),
        (np.zeros((4, 6))[::2, ::2], "float64[2, A]"),
        (np.zeros(2, bool), "bool[1, C]"),
        ((1, 2), "(int64, int64)"),
        ((1,), "(int64,)"),
        (POSTERIOR, "evoem.models.base.Posterior(uint64[3, C], float64[2, C])"),
    ],
)
def test_types_are_written_and_read(value, text):
    one = numba.typeof(value)
    line = text_of(streams._start.py_func, (one, one))
    assert line == f"evoem.streams._start({text}, {text})"
    kernel, arguments = signature_of(line)
    assert kernel is streams._start
    assert arguments == (one, one)
    assert repr(arguments) == repr((one, one))  # the cache goes by that


def test_arrays_that_cannot_be_written_to_have_no_text():
    frozen = np.zeros(3)
    frozen.flags.writeable = False
    with pytest.raises(ValueError, match="usual arrays"):
        text_of(streams._start.py_func, (numba.typeof(frozen),))


@pytest.mark.parametrize("line", ["evoem.streams._start", "evoem.streams._start(1 + 1)"])
def test_other_text_is_refused(line):
    with pytest.raises(ValueError, match="must be"):
        signature_of(line)
