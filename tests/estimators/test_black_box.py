"""A user's own model in the manner of scikit-learn."""

import io
import pickle
from collections import namedtuple

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from black_box_problems import (
    ALL,
    GAUSS,
    H,
    W,
    exact,
    gauss,
    gauss_prepared,
    gauss_scalar,
    gauss_start,
    gauss_statistics,
    gauss_update,
    held,
    learning,
    make_data,
    products,
    unit_gauss,
)
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import estimator_checks_generator

from evoem import BlackBox
from evoem.runtime.atomic_files import FileError
from evoem.states import unpack

KINDS = {
    "compiled": {"log_joint": gauss_scalar},
    "python": {"log_joint": gauss_scalar, "compiled": False},
    "numpy": {"log_joint": gauss},
    "prepared": {
        "log_joint": gauss_prepared,
        "params": GAUSS | {"gram": W @ W.T},
        "prepare_rows": products,
    },
    "prepared-python": {
        "log_joint": gauss_prepared,
        "params": GAUSS | {"gram": W @ W.T},
        "prepare_rows": products,
        "compiled": False,
    },
}


@pytest.mark.parametrize("kind", KINDS)
def test_all_states_kept_is_exact_inference_also_of_new_rows(kind):
    X, new = make_data(20), make_data(9, seed=1)
    model = held(**KINDS[kind]).fit(X)
    assert model.free_energy_ == pytest.approx(exact(X)[1].mean(), rel=1e-10)
    both = np.concatenate([new[:4], X[:3], new[4:]])
    weights, bounds = exact(both)
    np.testing.assert_allclose(model.score_samples(both), bounds, rtol=1e-10)
    np.testing.assert_allclose(model.transform(both), weights @ ALL, atol=1e-10)


def test_missing_values_are_left_out():
    X = make_data(30)
    observed = np.random.default_rng(3).random(X.shape) > 0.3
    observed[4] = False
    with_nan = np.where(observed, X, np.nan)
    for log_joint in (gauss, gauss_scalar):
        model = held(log_joint, compiled=log_joint is gauss_scalar).fit(with_nan)
        weights, bounds = exact(X, observed)
        np.testing.assert_allclose(model.score_samples(with_nan), bounds, atol=1e-10)
        np.testing.assert_allclose(model.transform(with_nan), weights @ ALL, atol=1e-10)


def test_the_kept_states_of_a_fit_are_those_of_the_best_log_joints():
    """Found by evolution, they are the best of all states for rows with few good ones."""
    X = make_data(40)
    model = held(n_states=4, n_parents=3, max_iter=20).fit(X)
    weights, _ = exact(X)
    best = np.sort(weights, axis=1)[:, -4:].sum(1)
    kept = unpack(model.state_.states, H).astype(float)
    found = [
        sum(weights[n, np.flatnonzero((s == ALL).all(1))[0]] for s in row)
        for n, row in enumerate(kept)
    ]
    np.testing.assert_allclose(found, best, rtol=1e-9)


def nothing(*arguments):
    raise AssertionError("never called")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"log_joint": 3}, "log_joint must be callable; got 3."),
        ({"mean": "x"}, "mean must be callable; got 'x'."),
        ({"update": True}, "update must be callable, None or False; got True."),
        ({"update": nothing}, "statistics must be given together with update; got None."),
        ({"statistics": nothing}, "update must be given together with statistics; got None."),
        ({"update": None}, "update must be given, with statistics, for a log_joint of NumPy"),
        ({"constraints": {"noise": "round"}}, r"constraints\['noise'\] must be one of 'positive'"),
        ({"constraints": {"noise": "positive"}}, "constraints and optimizer must be None"),
        ({"compiled": "no"}, "compiled must be True or False; got 'no'."),
        ({"vectorized": 1}, "vectorized must be True or False; got 1."),
        ({"library": "cupy"}, "library must be one of 'numpy', 'torch', 'jax'; got 'cupy'."),
        ({"prepare_rows": products}, "prepare_rows must be None for a vectorised log_joint"),
        ({"log_joint": gauss_scalar, "library": "jax"}, "log_joint must be vectorised"),
        ({"params": {}}, "params must hold at least one array; got {}."),
        ({"params": {"W": W * np.nan}}, "params must be finite; got nan in 'W'."),
        ({"params": {"W": ["a"]}}, "params must hold real numbers; got 'a' for 'W.0'."),
        ({"params": {"W": W * 1j}}, "params must hold real numbers"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else None,
)
def test_a_bad_argument_gets_one_sentence(options, words):
    options = {"log_joint": gauss, "params": GAUSS, "update": False, "n_latents": H} | options
    with pytest.raises(ValueError, match=words):
        BlackBox(**options).fit(make_data(20))


def test_constraints_are_given_by_name():
    model = BlackBox(gauss, GAUSS, 3, update=False, constraints=3)
    with pytest.raises(ValueError, match=r"^constraints must be a dict .*; got 3.$"):
        model.fit(make_data(20))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    ("estimator", "check"),
    list(
        estimator_checks_generator(
            BlackBox(
                gauss, gauss_start, 3, statistics=gauss_statistics, update=gauss_update, max_iter=5
            )
        )
    ),
    # By default tests would be named by where functions lie in memory, by each process differently.
    ids=lambda value: getattr(getattr(value, "func", None), "__name__", "BlackBox"),
)
def test_scikit_learn_s_own_checks(estimator, check):
    check(estimator)


def test_threads_and_pickling_change_nothing():
    X, new = make_data(300), make_data(20, seed=1)
    one, two = learning(n_jobs=1).fit(X), learning(n_jobs=2).fit(X)
    np.testing.assert_array_equal(one.params_["W"], two.params_["W"])
    np.testing.assert_array_equal(one.free_energies_, two.free_energies_)
    again = pickle.loads(pickle.dumps(one))
    np.testing.assert_array_equal(again.transform(new), two.transform(new))
    np.testing.assert_array_equal(again.reconstruct(new), two.reconstruct(new))


@pytest.mark.parametrize("kind", ["compiled", "torch", "jax"])
def test_pickles_of_what_cannot_be_pickled_itself(kind):
    X = make_data(70)
    if kind == "compiled":
        model = held(gauss_scalar).fit(X)
    else:
        make = torch.tensor if kind == "torch" else jnp.asarray
        model = BlackBox(
            unit_gauss, {"W": make(W)}, H, n_states=5, max_iter=2, tol=0, random_state=0
        ).fit(X)
    again = pickle.loads(pickle.dumps(model))
    new = make_data(10, seed=1)
    np.testing.assert_array_equal(again.score_samples(new), model.score_samples(new))


def test_a_clone_starts_anew_with_the_same_parameters():
    X = make_data(60)
    model = learning(callback=None).fit(X)
    other = clone(model)
    assert not hasattr(other, "params_")
    assert other.get_params()["log_joint"] is gauss
    np.testing.assert_array_equal(other.fit(X).params_["W"], model.params_["W"])


@pytest.mark.parametrize("kind", ["statistics", "torch", "optax"])
def test_a_warm_start_on_the_same_data_is_a_run_that_never_stopped(kind):
    """What an optimiser remembers goes on as well."""
    X = make_data(60)

    def model(**options):
        if kind == "statistics":
            return learning(**options)
        make = torch.tensor if kind == "torch" else jnp.asarray
        return BlackBox(
            unit_gauss, {"W": make(W[::-1].copy())}, H, n_states=5, tol=0, random_state=0,
            **options,
        )  # fmt: skip

    whole = model(max_iter=7).fit(X)
    part = model(max_iter=3, warm_start=True).fit(X).set_params(max_iter=4).fit(X)
    np.testing.assert_array_equal(part.free_energies_, whole.free_energies_)
    np.testing.assert_array_equal(np.asarray(part.params_["W"]), np.asarray(whole.params_["W"]))


def test_a_warm_start_on_new_data_begins_with_the_learnt_parameters():
    model = learning(max_iter=20, n_states="all", warm_start=True).fit(make_data(100))
    new = make_data(50, seed=5)
    score = model.score(new)
    assert model.set_params(max_iter=1).fit(new).free_energies_[0] == pytest.approx(score, rel=1e-9)


def test_a_callback_sees_each_iteration_and_may_end_the_run():
    seen = []

    def callback(info):
        seen.append(info)
        return len(seen) == 3

    model = learning(callback=callback).fit(make_data(60))
    assert model.n_iter_ == 3
    assert [info.free_energy for info in seen] == list(model.free_energies_)
    assert [info.iteration for info in seen] == [1, 2, 3]


def test_single_precision_data_stays_single():
    seen = set()

    def log_joint(params, X, states, observed):
        seen.update((X.dtype, states.dtype, params["W"].dtype, params["noise"].dtype))
        return gauss(params, X, states, observed)

    X = make_data(60)
    double = held(log_joint).fit(X)
    assert seen == {np.dtype(np.float64)}
    seen.clear()
    single = held(log_joint).fit(X.astype(np.float32))
    assert seen == {np.dtype(np.float32)}
    assert single.transform(X.astype(np.float32)).dtype == np.float32
    assert single.free_energy_ == pytest.approx(double.free_energy_, rel=1e-5)
    np.testing.assert_array_equal(single.params_["W"], W)


def test_parameters_may_be_made_from_the_data():
    given_to = {}

    def make(X, n_latents, rng):
        given_to.update(X=X, n_latents=n_latents, draw=rng.random())
        return GAUSS

    X = make_data(20)
    X[3, 1] = np.nan
    first, again = held(params=make).fit(X), dict(given_to)
    np.testing.assert_array_equal(given_to["X"], X)
    assert given_to["n_latents"] == H
    clone(first).fit(X)
    assert given_to["draw"] == again["draw"]


def test_saved_parameters_come_back_in_their_form(tmp_path):
    Prior = namedtuple("Prior", "pi n")
    start = {"layers": [torch.tensor(W), np.ones(2)], "prior": Prior(0.4, 3)}

    def log_joint(params, X, states):
        return unit_gauss({"W": params["layers"][0]}, X, states)

    X = make_data(40)
    model = BlackBox(log_joint, start, H, max_iter=3, tol=0, random_state=0).fit(X)
    model.save_params(tmp_path / "model.npz")
    loaded = model.load_params(tmp_path / "model.npz")
    assert torch.equal(loaded["layers"][0], model.params_["layers"][0])
    assert not torch.equal(loaded["layers"][0], start["layers"][0])
    np.testing.assert_array_equal(loaded["layers"][1], np.ones(2))
    assert loaded["prior"] == Prior(0.4, 3)
    went_on = clone(model).set_params(params=loaded, update=False, n_states="all", max_iter=1)
    same = clone(went_on).set_params(params=model.params_)
    assert went_on.fit(X).free_energy_ == same.fit(X).free_energy_


def test_files_of_parameters_that_cannot_be_used(tmp_path):
    model = held().fit(make_data(20))
    path = tmp_path / "model.npz"
    model.save_params(path)
    with pytest.raises(FileError, match="must not exist yet unless force"):
        model.save_params(path)
    model.save_params(path, force=True)
    with pytest.raises(ValueError, match=r"must give params of the shapes .*'W': \(2, 4\)"):
        held(params=GAUSS | {"W": W[:2]}).load_params(path)
    made = held(params=gauss_start)
    with pytest.raises(NotFittedError):
        made.load_params(path)
    np.testing.assert_array_equal(made.fit(make_data(20)).load_params(path)["W"], W)
    whole = path.read_bytes()
    array = io.BytesIO()
    np.save(array, W)
    flipped = whole.replace(W.tobytes()[:8], b"\0" * 7 + b"\1")
    for damaged in (b"", b"no such thing", whole[: len(whole) // 2], array.getvalue(), flipped):
        path.write_bytes(damaged)
        with pytest.raises(FileError, match=r"model.npz must be a whole file that evoem wrote; "):
            model.load_params(path)
    with pytest.raises(FileError, match="must be an existing file"):
        model.load_params(tmp_path / "other.npz")
