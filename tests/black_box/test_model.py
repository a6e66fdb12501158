"""The model behind a user's functions: what is asked of them, and what comes of it."""

import numpy as np
import pytest
from black_box_problems import (
    H,
    W,
    exact,
    gauss,
    gauss_sampler,
    gauss_scalar,
    gauss_statistics,
    gauss_update,
    held,
    learning,
    make_data,
)

from evoem import BlackBox, LogJointError


def test_a_user_s_own_m_step_learns_the_dictionary():
    X = make_data(300)
    model = learning(n_states="all", max_iter=60).fit(X)
    assert np.diff(model.free_energies_).min() >= 0
    assert model.free_energy_ > exact(X)[1].mean() - 0.05
    assert model.params_["noise"] == pytest.approx(1.0, abs=0.15)
    np.testing.assert_allclose(model.activation_probs_.mean(), model.params_["pi"], rtol=0.02)


def test_an_m_step_that_lowers_the_bound_is_not_taken():
    def update(params, sums):
        return gauss_update(params, sums) | {"noise": 50.0}

    start = {"W": W, "noise": 1.0, "pi": 0.4}
    model = BlackBox(gauss, start, H, n_states="all", max_iter=4, tol=0, random_state=0,
                     statistics=gauss_statistics, update=update).fit(make_data(50))  # fmt: skip
    assert np.diff(model.free_energies_).min() >= 0
    assert model.params_["noise"] == 1.0
    np.testing.assert_array_equal(model.params_["W"], W)


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (
            {"W": W[:2], "noise": 1.0, "pi": 0.4},
            r"update must give params of the shapes .*\(2, 4\)",
        ),
        ({"W": W, "noise": 1.0}, "update must give params of the shapes"),
        ({"W": W, "noise": np.nan, "pi": 0.4}, "params must be finite; got nan in 'noise'."),
    ],
)
def test_an_update_must_give_parameters_like_those_it_was_given(made, words):
    model = held().set_params(statistics=gauss_statistics, update=lambda params, sums: made)
    with pytest.raises(ValueError, match=words):
        model.fit(make_data(20))


def test_statistics_must_be_a_dict():
    model = held().set_params(statistics=lambda *_: np.ones(3), update=gauss_update)
    with pytest.raises(TypeError, match=r"statistics must return a dict of arrays; got .*ndarray"):
        model.fit(make_data(20))


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_guided_mutation_finds_the_best_states(n_jobs):
    rng = np.random.default_rng(0)
    size = 9
    dictionary = 3 * rng.normal(size=(size, 12))
    X = (rng.random((70, size)) < 0.3) @ dictionary + rng.normal(size=(70, 12))
    params = {"W": dictionary, "noise": 1.0, "pi": 0.3}
    options = {"update": False, "tol": 0, "random_state": 0, "n_jobs": n_jobs}
    every = BlackBox(gauss, params, size, n_states="all", max_iter=1, **options).fit(X)
    guided = BlackBox(
        gauss, params, size, n_states=8, n_parents=4, n_children=3, max_iter=12,
        parents="best", mutation="guided", **options,
    ).fit(X)  # fmt: skip
    best = np.sort(every.state_.log_joints)[:, -1]
    np.testing.assert_allclose(guided.state_.log_joints.max(1), best)


def test_a_mean_of_another_shape_is_refused():
    model = held(mean=lambda params, states: states).fit(make_data(20))
    with pytest.raises(ValueError, match=r"mean must return the shape \(n, s, d\), here .*; got"):
        model.reconstruct(make_data(20))


def test_samples_are_drawn_by_the_user_s_sampler():
    model = held(sampler=gauss_sampler).fit(make_data(20))
    X, states = model.sample(4000)
    np.testing.assert_allclose(states.mean(0), 0.4, atol=0.04)
    np.testing.assert_allclose((X - states @ W).std(), 1.0, atol=0.03)
    np.testing.assert_array_equal(model.sample(5)[0], model.sample(5)[0])
    with pytest.raises(TypeError, match="sampler must be given to draw data"):
        held().fit(make_data(20)).sample(3)


def broken_vectorised(value):
    """`value` for one state of one row alone, which has the first value 99."""

    def log_joint(params, X, states, observed):
        result = gauss(params, X, states, observed)
        marked = (X[:, None, 0] == 99.0) & (states == [1, 0, 1]).all(-1)
        return np.where(marked, value, result)

    return log_joint


BROKEN = {
    "compiled": {"log_joint": gauss_scalar},
    "python": {"log_joint": gauss_scalar, "compiled": False},
    "numpy": {"log_joint": broken_vectorised(np.nan)},
}


@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize("kind", BROKEN)
def test_a_wrong_log_joint_is_told_by_the_row_in_the_user_s_data_and_the_state(kind, n_jobs):
    X = make_data(200)
    X[150, 0] = 99.0
    with pytest.raises(LogJointError, match=r"nan, for row 150 and .* latents \[0, 2\]") as caught:
        held(**BROKEN[kind], n_jobs=n_jobs).fit(X)
    assert (caught.value.row, caught.value.active) == (150, [0, 2])


@pytest.mark.parametrize("kind", BROKEN)
def test_so_it_is_for_new_rows_among_those_seen_before(kind):
    X, new = make_data(40), make_data(40, seed=1)
    model = held(**BROKEN[kind]).fit(X)
    new[33, 0] = 99.0
    both = np.concatenate([X[:10], new])
    for method in (model.transform, model.score_samples, model.reconstruct):
        with pytest.raises(LogJointError, match="row 43"):
            method(both)


def test_infinity_is_as_wrong_but_minus_infinity_is_not():
    X = make_data(20)
    X[3, 0] = 99.0
    with pytest.raises(LogJointError, match=r"got inf, for row 3 and .* \[0, 2\]"):
        held(broken_vectorised(np.inf)).fit(X)
    model = held(broken_vectorised(-np.inf)).fit(X)
    np.testing.assert_allclose(model.score_samples(X)[:3], exact(X)[1][:3])
    assert np.isfinite(model.free_energy_)


counter = {"calls": 0}


def counts_calls(params, x, observed, state):
    counter["calls"] += 1
    return -float(counter["calls"])


def normalises_the_batch(params, X, states):
    return gauss(params, X - X.mean(0), states, np.ones(X.shape, bool))


def complex_number(params, x, observed, state):
    return 1j * x[0]


def an_array(params, x, observed, state):
    return x * 2.0


def too_many_axes(params, X, states):
    return states * 1.0


def complex_array(params, X, states):
    return states.sum(-1) + 1j


@pytest.mark.parametrize(
    ("log_joint", "options", "words"),
    [
        (counts_calls, {"compiled": False}, "must not depend on earlier calls"),
        (normalises_the_batch, {}, "or on other rows and states"),
        (complex_number, {"compiled": False}, "must return a real number; got"),
        (complex_number, {}, "must return a real number; it returns complex128"),
        (an_array, {"compiled": False}, r"real number; got the shape \(4,\), for row 0"),
        (an_array, {}, r"must return a real number; it returns array\(float64"),
        (too_many_axes, {}, r"the shape \(n, s\), here \(8, 8\); got \(8, 8, 3\)"),
        (complex_array, {}, "must return real numbers; got complex128"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_other_things_that_are_no_log_joints(log_joint, options, words):
    with pytest.raises(LogJointError, match=words):
        held(log_joint, **options).fit(make_data(20))
