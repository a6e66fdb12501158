"""What kind of log-joint a user has given."""

import numba
import pytest
from black_box_problems import exact, gauss_without_missing_values, held, make_data

from evoem.black_box.specification import is_vectorized


@pytest.mark.parametrize(
    ("parameters_", "expected"),
    [
        ("params, x, observed, state", False),
        ("params, x, observed, active", False),
        ("a, b, c, d", False),
        ("params, X, states", True),
        ("params, X, states, observed", True),
        ("a, b, c", True),
        ("a, b, c, states, e", True),
    ],
)
def test_names_or_number_of_parameters_tell_what_is_vectorised(parameters_, expected):
    function = eval(f"lambda {parameters_}: 0.0")
    assert is_vectorized(function) is expected
    assert is_vectorized(numba.njit(function)) is expected


def test_a_log_joint_of_other_parameters_is_refused_unless_one_says_what_it_is():
    with pytest.raises(ValueError, match=r"log_joint must have the parameters .*; got \(a, b\)\."):
        is_vectorized(lambda a, b: 0)

    def unusual(params, *arrays):
        return gauss_without_missing_values(params, *arrays)

    X = make_data(20)
    model = held(unusual, vectorized=True).fit(X)
    assert model.free_energy_ == pytest.approx(exact(X)[1].mean())
