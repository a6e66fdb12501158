"""One stream of random numbers per row, keyed by (seed, iteration, row).

A row's draws depend on nothing else: not on threads, blocks, batches or ranks. A stream is one
64-bit word of SplitMix64 (Steele, Lea and Flood, 2014), advanced in place by the kernels.
"""

import numpy as np
from numpy.typing import NDArray

from evoem.runtime.compile import inlined, kernel

LARGEST_WORD = 2**64 - 1
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
MIX1 = np.uint64(0xBF58476D1CE4E5B9)
MIX2 = np.uint64(0x94D049BB133111EB)


@inlined
def mix(word):
    """SplitMix64's finaliser: every bit of the input moves every bit of the output."""
    word = (word ^ (word >> np.uint64(30))) * MIX1
    word = (word ^ (word >> np.uint64(27))) * MIX2
    return word ^ (word >> np.uint64(31))


@inlined
def next_word(streams, row):
    """64 random bits."""
    streams[row] += GOLDEN
    return mix(streams[row])


@inlined
def next_float(streams, row):
    """Uniform on [0, 1)."""
    return (next_word(streams, row) >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@inlined
def next_below(streams, row, n):
    """Uniform integer in [0, n), n < 2**32: the bias is below n / 2**32."""
    return np.int64(((next_word(streams, row) >> np.uint64(32)) * np.uint64(n)) >> np.uint64(32))


@kernel
def _start(seed, iteration, rows, out):
    base = mix(mix(seed + GOLDEN) ^ (iteration * MIX1 + GOLDEN))
    for i in range(rows.shape[0]):
        out[i] = mix(base ^ mix(rows[i] + GOLDEN))


def start(seed: int, iteration: int, rows: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Streams of `rows` (their global numbers) for one iteration of a run with this seed."""
    out = np.empty(len(rows), np.uint64)
    _start(np.uint64(seed), np.uint64(iteration), rows, out)
    return out


@kernel
def _row_keys(X, observed, masked, out):
    for n in range(X.shape[0]):
        key = GOLDEN
        for d in range(X.shape[1]):
            if masked and not observed[n, d]:
                word = np.uint64(1)  # no finite double that is not denormal has these bits
            elif X[n, d] == 0:
                word = np.uint64(0)  # for both zeros
            else:
                word = np.float64(X[n, d]).view(np.uint64)
            key = mix(key * MIX2 + word)
        out[n] = key


def row_keys(X: NDArray[np.floating], observed: NDArray[np.bool_] | None) -> NDArray[np.uint64]:
    """A number per row that depends on its content alone.

    Rows met outside `fit` have no place in a data set; keyed by content, what is inferred about one
    of them does not depend on the rows it came with.
    """
    out = np.empty(len(X), np.uint64)
    _row_keys(X, _mask_or_dummy(observed), observed is not None, out)
    return out


def _mask_or_dummy(observed: NDArray[np.bool_] | None) -> NDArray[np.bool_]:
    """Kernels take an array in any case, so that they are compiled once."""
    return np.ones((0, 0), np.bool_) if observed is None else observed
