"""Log-joints of one row and one state, compiled or in plain Python."""

import inspect

import numpy as np
import pytest
from black_box_problems import ALL, GAUSS, D, H, W, gauss_prepared, held, make_data
from scipy.special import logsumexp

from evoem import BlackBox


def does_not_compile(params, x, observed, state):
    total = 0.0
    names = {str(value): value for value in params.W.tolist()}  # the line that is to blame
    return total - len(names) - state.sum()


def test_what_does_not_compile_is_told_by_its_line_and_runs_as_plain_python():
    lines, first = inspect.getsourcelines(does_not_compile)
    number = first + next(i for i, line in enumerate(lines) if "to blame" in line)
    with pytest.raises(TypeError, match=rf"line {number} \(names = .*tolist") as caught:
        held(does_not_compile).fit(make_data(20))
    message = str(caught.value)
    assert "compiled=False" in message
    assert "attribute 'tolist'" in message
    assert len(message.splitlines()) == 1
    X = make_data(20)
    model = held(does_not_compile, compiled=False).fit(X)
    expected = logsumexp([-len(W) - state.sum() for state in ALL])
    assert model.free_energy_ == pytest.approx(expected)


def test_plain_python_may_read_parameters_like_the_dict_they_were():
    def log_joint(params, x, observed, state):
        assert params.noise == params["noise"] == params[1]
        return -float(((x - state @ params["W"]) ** 2).sum())

    X = np.random.default_rng(0).normal(size=(12, D))
    options = {"n_latents": H, "update": False, "max_iter": 1, "tol": 0, "random_state": 0}
    with pytest.raises(TypeError, match=r"reads a dict of parameters as params\.name"):
        BlackBox(log_joint, GAUSS, **options).fit(X)
    model = BlackBox(log_joint, GAUSS, compiled=False, n_states="all", **options).fit(X)
    squares = ((X[:, None] - ALL @ W) ** 2).sum(-1)
    np.testing.assert_allclose(model.score_samples(X), logsumexp(-squares, axis=1))


@pytest.mark.parametrize("made", [np.ones(20), np.ones((19, 2)), np.full((20, 2), "x")])
def test_prepared_rows_must_be_rows(made):
    model = held(gauss_prepared, GAUSS | {"gram": W}, prepare_rows=lambda *_: made)
    with pytest.raises(ValueError, match=r"prepare_rows must return real numbers of the shape"):
        model.fit(make_data(20))
