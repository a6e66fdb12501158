"""Streams are keyed by (seed, iteration, row) alone, and what they give is uniform."""

import numpy as np
import pytest
from scipy import stats

from evoem import streams
from evoem.runtime.compile import kernel

IMPROBABLE = 1e-4
ROWS = np.arange(50_000, dtype=np.uint64)


@kernel
def _words(state, n_draws, out):
    for row in range(state.shape[0]):
        for i in range(n_draws):
            out[row, i] = streams.next_word(state, row)


@kernel
def _floats(state, n_draws, out):
    for row in range(state.shape[0]):
        for i in range(n_draws):
            out[row, i] = streams.next_float(state, row)


@kernel
def _integers(state, n, n_draws, out):
    for row in range(state.shape[0]):
        for i in range(n_draws):
            out[row, i] = streams.next_below(state, row, n)


def words(state, n_draws):
    out = np.empty((len(state), n_draws), np.uint64)
    _words(state.copy(), n_draws, out)
    return out


def floats(state, n_draws=1):
    out = np.empty((len(state), n_draws))
    _floats(state.copy(), n_draws, out)
    return out


def integers(state, n, n_draws=1):
    out = np.empty((len(state), n_draws), np.int64)
    _integers(state.copy(), n, n_draws, out)
    return out


def start_each(keys):
    """One stream of each (seed, iteration, row)."""
    return np.concatenate([streams.start(s, i, np.array([r], np.uint64)) for s, i, r in keys])


def test_words_are_those_of_splitmix64():
    published = [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]
    assert words(np.array([1234567], np.uint64), 5)[0].tolist() == published


def test_the_same_key_gives_the_same_stream():
    np.testing.assert_array_equal(streams.start(3, 5, ROWS), streams.start(3, 5, ROWS))


def test_a_stream_does_not_depend_on_the_rows_it_is_started_with():
    order = np.random.default_rng(0).permutation(len(ROWS))
    together = streams.start(3, 5, ROWS)
    np.testing.assert_array_equal(streams.start(3, 5, ROWS[order]), together[order])
    np.testing.assert_array_equal(streams.start(3, 5, ROWS[17:18]), together[17:18])


def test_streams_differ_when_seed_iteration_or_row_changes():
    keys = [(s, i, r) for s in range(12) for i in range(12) for r in range(12)]
    keys += [(2**63, 1, 1), (1, 2**63, 1), (1, 1, 2**63)]
    assert len(np.unique(start_each(keys))) == len(keys)


def test_drawing_advances_the_stream_of_one_row_alone():
    state = streams.start(0, 0, ROWS[:3])
    before = state.copy()
    _words(state[1:2], 4, np.empty((1, 4), np.uint64))
    assert (state != before).tolist() == [False, True, False]


KEYED = {
    "along one stream": lambda: floats(streams.start(1, 2, ROWS[:1]), 50_000),
    "over rows": lambda: floats(streams.start(1, 2, ROWS)),
    "over iterations": lambda: floats(start_each([(1, i, 7) for i in range(5_000)])),
    "over seeds": lambda: floats(start_each([(s, 2, 7) for s in range(5_000)])),
}


@pytest.mark.parametrize("draw", KEYED.values(), ids=KEYED.keys())
def test_floats_are_uniform(draw):
    u = draw().ravel()
    assert u.min() >= 0.0
    assert u.max() < 1.0
    assert stats.kstest(u, "uniform").pvalue > IMPROBABLE


@pytest.mark.parametrize("n", [1, 2, 3, 7, 64, 1000])
def test_integers_are_uniform_below_n(n):
    counts = np.bincount(integers(streams.start(2, 0, ROWS), n, 2).ravel(), minlength=n)
    assert len(counts) == n
    assert n == 1 or stats.chisquare(counts).pvalue > IMPROBABLE


@pytest.mark.parametrize(
    "neighbours",
    [
        lambda: (
            integers(streams.start(4, 0, ROWS), 10),
            integers(streams.start(4, 0, ROWS + 1), 10),
        ),
        lambda: (integers(streams.start(4, 0, ROWS), 10), integers(streams.start(4, 1, ROWS), 10)),
        lambda: (integers(streams.start(4, 0, ROWS), 10), integers(streams.start(5, 0, ROWS), 10)),
        lambda: np.split(integers(streams.start(4, 0, ROWS), 10, 2), 2, axis=1),
    ],
    ids=["next row", "next iteration", "next seed", "next draw"],
)
def test_neighbours_are_independent(neighbours):
    first, second = neighbours()
    joint = np.bincount((10 * first + second).ravel(), minlength=100)
    assert stats.chisquare(joint).pvalue > IMPROBABLE


@pytest.fixture
def X():
    return np.random.default_rng(1).normal(size=(40, 5)).astype(np.float32).astype(np.float64)


@pytest.fixture
def observed():
    return np.random.default_rng(2).random((40, 5)) < 0.7


def test_row_keys_follow_their_rows(X, observed):
    order = np.random.default_rng(3).permutation(len(X))
    np.testing.assert_array_equal(
        streams.row_keys(X[order], observed[order]), streams.row_keys(X, observed)[order]
    )
    np.testing.assert_array_equal(
        streams.row_keys(X[5:9], observed[5:9]), streams.row_keys(X, observed)[5:9]
    )


def test_row_keys_of_different_rows_differ(X):
    X = np.concatenate([X, X[:, ::-1]])
    assert len(np.unique(streams.row_keys(X, None))) == len(X)


def test_row_keys_ignore_what_is_not_observed(X, observed):
    np.testing.assert_array_equal(
        streams.row_keys(np.where(observed, X, 0.0), observed), streams.row_keys(X, observed)
    )


def test_row_keys_tell_a_missing_value_from_a_zero(X):
    X[:, 2] = 0.0
    observed = np.ones(X.shape, bool)
    observed[:, 2] = False
    assert not np.any(streams.row_keys(X, observed) == streams.row_keys(X, None))


def test_row_keys_of_a_mask_of_ones_are_those_without_a_mask(X):
    np.testing.assert_array_equal(
        streams.row_keys(X, np.ones(X.shape, bool)), streams.row_keys(X, None)
    )


def test_row_keys_do_not_depend_on_precision(X):
    np.testing.assert_array_equal(
        streams.row_keys(X.astype(np.float32), None), streams.row_keys(X, None)
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_row_keys_take_both_zeros_as_one_value(X, dtype):
    X = X.astype(dtype)
    X[:, [0, 3]] = 0.0
    negative = X.copy()
    negative[:, 3] = -0.0
    np.testing.assert_array_equal(streams.row_keys(negative, None), streams.row_keys(X, None))
