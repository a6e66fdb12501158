"""Rows of data are checked once, and some of them are a part of the same."""

import numpy as np
import pytest
from problems import MODELS, data_of, make_problem

from evoem import em, posterior

GOOD = np.zeros((5, 3)) + np.arange(3.0)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"X": np.ones((5, 3), int)}, "X must be a 2-D array of float32 or float64; got int64"),
        ({"X": np.ones(5)}, "X must be a 2-D array of float32 or float64; got float64 of shape"),
        ({"X": [[1.0]]}, "X must be a 2-D array of float32 or float64; got <class 'list'>"),
        ({"X": GOOD + np.nan}, "X must be finite, with missing values False in observed"),
        ({"observed": np.ones((5, 3))}, "observed must be a boolean array or None; got"),
        ({"observed": np.ones((5, 2), bool)}, "observed must have the shape of X"),
        (
            {"observed": GOOD < 2},
            "X must be finite, with missing values False in observed and zero here; got 2.0.",
        ),
        (
            {"rows": np.arange(3, dtype=np.uint64)},
            r"rows must be a uint64 array of shape \(5,\); got uint64 of shape \(3,\).",
        ),
        ({"rows": np.arange(5.0)}, r"rows must be a uint64 array of shape \(5,\); got float64"),
        ({"rows": [1, 2, 3, 4, 5]}, r"rows must be a uint64 array .*; got \[1, 2, 3, 4, 5\]."),
        (
            {"positions": np.zeros((4, 2))},
            r"positions must have the shape \(5, 2\); got \(4, 2\).",
        ),
    ],
)
def test_bad_data_get_one_sentence(changes, sentence):
    with pytest.raises(ValueError, match=sentence):
        em.Data(**{"X": GOOD} | changes)


def test_a_mask_of_ones_is_dropped_and_rows_are_numbered():
    data = em.Data(GOOD, np.ones(GOOD.shape, bool))
    assert data.observed is None
    np.testing.assert_array_equal(data.numbers, np.arange(5))


@pytest.mark.parametrize("which", [slice(1, 3), np.array([4, 0]), np.arange(5) > 2])
def test_some_rows_are_those_of_the_whole(which):
    observed, positions = GOOD < 2, np.random.default_rng(0).random((5, 2))
    rows = np.arange(10, 15, dtype=np.uint64)
    some = em.Data(np.where(observed, GOOD, 0.0), observed, positions, rows).take(which)
    np.testing.assert_array_equal(some.observed, observed[which])
    np.testing.assert_array_equal(some.positions, positions[which])
    np.testing.assert_array_equal(some.numbers, rows[which])
    assert len(some) == len(observed[which])


@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize("name", MODELS)
def test_prepared_rows_are_those_of_their_own_chunk(name, missing):
    problem = make_problem(name, N=20, missing=missing, seed=3)
    derived = problem.model.prepare(problem.params, np.float64)
    kept = em.init(problem.model, data_of(problem), n_states=5, params=problem.params).states
    found = []
    for part in (slice(0, 20), slice(5, 9)):
        rows = data_of(problem).take(part).prepare(problem.model, derived)
        found.append(posterior.evaluate(problem.model, derived, rows, kept[part]))
    np.testing.assert_array_equal(found[0][5:9], found[1])


def test_data_are_shown_by_their_size_and_what_is_missing():
    assert repr(em.Data(GOOD)) == "Data(5 rows of 3 features, float64)"
    observed = np.ones((5, 3), bool)
    observed[0] = False
    some = em.Data(np.where(observed, GOOD, 0.0).astype(np.float32), observed)
    assert repr(some) == "Data(5 rows of 3 features, float32, 20.0% missing)"
