"""Log-joints of many rows and states at once."""

import numpy as np
import pytest
from black_box_problems import (
    GAUSS,
    H,
    W,
    gauss,
    gauss_statistics,
    gauss_update,
    gauss_without_missing_values,
    held,
    make_data,
)

from evoem import BlackBox
from evoem.black_box import array_libraries
from evoem.black_box.vectorized_log_joint import VectorizedLogJoint
from evoem.states import Population


def test_rows_without_states_are_not_evaluated_whatever_their_memory_holds():
    seen = []

    def log_joint(params, X, states):
        seen.append((X[:, 0].tolist(), states.tolist()))
        return X[:, :1] + states.sum(-1)

    states = np.full((3, 4, 1), 2**64 - 1, np.uint64)  # more latents than there are
    states[1, 1:3, 0] = [0b101, 0b010]
    out = np.zeros((3, 4))
    X = np.arange(3.0)[:, None]
    evaluate = VectorizedLogJoint(log_joint, array_libraries.NumpyArrays())
    rows = evaluate.rows({}, X, None)
    starts, stops = np.array([0, 1, 4]), np.array([0, 3, 4])
    evaluate.evaluate({}, rows, H, Population(states, out, starts, stops))
    assert seen == [([1.0], [[[1, 0, 1], [0, 1, 0]]])]
    np.testing.assert_array_equal(out, [[0, 0, 0, 0], [0, 3, 2, 0], [0, 0, 0, 0]])


def test_states_without_weight_are_not_shown_to_statistics():
    widths = []

    def statistics(params, X, observed, states, weights):
        widths.append(states.shape[1])
        np.testing.assert_allclose(weights.sum(1), 1.0, rtol=1e-12)
        return gauss_statistics(params, X, observed, states, weights)

    X = np.tile(100 * W, (5, 1))  # each row has one state, and no doubt
    sharp = GAUSS | {"W": 100 * W}
    BlackBox(gauss, sharp, H, n_states="all", max_iter=1, tol=0, random_state=0,
             statistics=statistics, update=gauss_update).fit(X)  # fmt: skip
    assert set(widths) == {1}


def test_missing_values_need_a_log_joint_that_knows_of_them():
    X = make_data(20)
    X[2:4, 1] = np.nan
    words = "X must have no missing values for a log_joint without .* `observed`; got 2 of them."
    with pytest.raises(ValueError, match=words):
        held(gauss_without_missing_values).fit(X)
    assert np.isfinite(held(gauss).fit(X).free_energy_)
