"""Checks of arguments: one sentence with name, rule and value received."""

import re

import numpy as np
import pytest

from evoem import validation

NAN = np.nan
X = np.arange(6.0).reshape(3, 2)


@pytest.mark.parametrize(
    ("check", "given", "expected"),
    [
        (validation.integer, ("n", np.int32(3), 1), 3),
        (validation.integer, ("n", 3, 1, 3), 3),
        (validation.real, ("tol", np.float32(0.5), 0.0), 0.5),
        (validation.real, ("tol", 1, 0.0, 1.0), 1.0),
        (validation.boolean, ("flag", np.False_), False),
        (validation.choice, ("kind", "a", ("a", "b")), "a"),
        (validation.candidates, ("n", 4, None), (4,)),
        (validation.candidates, ("n", [4, np.int8(5)], "heldout"), (4, 5)),
        (validation.n_states, (None, 3), 8),
        (validation.n_states, (None, 100), 60),
        (validation.n_states, ("all", 5), 32),
        (validation.n_states, (7, 100), 7),
    ],
)
def test_what_is_right_comes_back(check, given, expected):
    found = check(*given)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("check", "given", "sentence"),
    [
        (validation.integer, ("n", True, 1), "n must be an integer at least 1; got True."),
        (validation.integer, ("n", 1.0, 1), "n must be an integer at least 1; got 1.0."),
        (
            validation.integer,
            ("n", 9, 1, 4, " (n_latents)"),
            "n must be an integer between 1 and 4 (n_latents); got 9.",
        ),
        (validation.real, ("tol", NAN, 0.0), "tol must be a number at least 0; got nan."),
        (validation.real, ("tol", "1", 0.0), "tol must be a number at least 0; got '1'."),
        (validation.real, ("q", 2, 0.0, 1.0), "q must be a number between 0 and 1; got 2."),
        (validation.boolean, ("flag", 1), "flag must be True or False; got 1."),
        (validation.choice, ("kind", "c", ("a", "b")), "kind must be one of 'a', 'b'; got 'c'."),
        (validation.choice, ("kind", None, ("a",)), "kind must be one of 'a'; got None."),
        (
            validation.candidates,
            ("n", [1, 2], None),
            "n must be one integer unless select is given; got [1, 2].",
        ),
        (validation.candidates, ("n", [], "x"), "n must have something to select from; got []."),
        (validation.restarts, (2, None), "restarts must be 1 unless select is given; got 2."),
        (validation.jobs, (0,), "n_jobs must be an integer other than 0; got 0."),
        (validation.unchanged, ("rank", 3, 2), "rank must stay 2 with warm_start=True; got 3."),
        (validation.integers, ("units", 3, 1), "units must be a sequence of integers; got 3."),
        (
            validation.integers,
            ("units", [2, 0], 1),
            "units[1] must be an integer at least 1; got 0.",
        ),
        (validation.function, ("log_joint", 3), "log_joint must be callable; got 3."),
        (validation.callback, ("x",), "callback must be callable or None; got 'x'."),
        (
            validation.communicator,
            (2,),
            "comm must be a communicator, such as evoem.distributed.world(); got 2.",
        ),
        (
            validation.n_states,
            ("most", 3),
            "n_states must be an integer, None or 'all'; got 'most'.",
        ),
        (validation.n_states, ("all", 21), "n_states='all' needs n_latents of at most 20; got 21."),
        (
            validation.n_states,
            (9, 3),
            "n_states must be an integer between 1 and 8 (2**n_latents); got 9.",
        ),
        (
            validation.data,
            (X.astype(int), None),
            "X must be a 2-D array of float32 or float64; got int64 of shape (3, 2).",
        ),
        (
            validation.data,
            (X, np.ones((3, 1), bool)),
            "observed must have the shape of X, (3, 2); got (3, 1).",
        ),
        (validation.positions, (X, 4), "positions must have the shape (4, 2); got (3, 2)."),
        (validation.positions, (X + NAN, 3), "positions must be finite; got nan."),
        (
            validation.no_dates,
            (np.array(["2020"], "M8[Y]"),),
            "X must hold numbers; got datetime64[Y].",
        ),
        (
            validation.moderate,
            validation.extremes(1e101 * X),
            "X must hold numbers of at most 1e+100 in size; got 5e+101.",
        ),
        (validation.varying, (2.0, 2.0, 6), "X must not be constant; got 2 everywhere."),
        (
            validation.varying,
            (*validation.extremes(X + NAN), 6),
            "X must have an observed value; got 6 missing ones.",
        ),
        (
            validation.varying,
            (*validation.extremes(1e-110 * X), 6),
            "X must hold a number of at least 1e-100 in size; got at most 5e-110.",
        ),
        (
            validation.binary,
            (X, "threshold=0.5"),
            "X must hold only 0, 1 and NaN (or threshold=0.5); got 2.",
        ),
        (
            validation.finite,
            (X, X > 3),
            "X must be finite, with missing values False in observed and zero here; got 1.0.",
        ),
    ],
)
def test_what_is_wrong_is_refused_in_one_sentence(check, given, sentence):
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        check(*given)


def test_missing_values_become_zeros_and_a_mask():
    filled, observed = validation.split_missing(np.array([[1.0, NAN], [3.0, 4.0]]))
    np.testing.assert_array_equal(filled, [[1.0, 0.0], [3.0, 4.0]])
    np.testing.assert_array_equal(observed, [[True, False], [True, True]])
    whole, nothing = validation.split_missing(X)
    assert nothing is None
    np.testing.assert_array_equal(whole, X)


def test_states_that_kernels_would_misread_are_refused():
    good = np.zeros((4, 3, 2), np.uint64)
    validation.kept_states("states", good, 4, 70)
    for wrong in (good.astype(np.int64), good[:3], good[..., :1], good[0], good.tolist()):
        with pytest.raises(ValueError, match=r"must be a uint64 array of shape \(4, n_states, 2\)"):
            validation.kept_states("states", wrong, 4, 70)
    good[1, 2, 1] = 1 << 6
    with pytest.raises(ValueError, match="must have no latent beyond the 70 there are"):
        validation.kept_states("states", good, 4, 70)
