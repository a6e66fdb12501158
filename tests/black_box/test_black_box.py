"""A user's own log-joint: what goes wrong, what is asked of it, and what comes of it."""

import inspect
import io
import pickle
import re
from collections import namedtuple
from concurrent.futures import ThreadPoolExecutor
from itertools import product

import jax
import jax.numpy as jnp
import numba
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import estimator_checks_generator

from evoem import BlackBox, LogJointError
from evoem.black_box import array_libraries, parameters
from evoem.black_box.constraints import TRANSFORMS
from evoem.black_box.quadrature import support_of
from evoem.black_box.specification import is_vectorized
from evoem.black_box.vectorized_log_joint import VectorizedLogJoint
from evoem.runtime.atomic_files import FileError
from evoem.states import Population, unpack

H, D = 3, 4
ALL = np.array(list(product([0.0, 1.0], repeat=H)))
W = np.array([[4.0, 4, 0, 0], [0, 3, 3, 0], [0, 0, 0, 5]])
GAUSS = {"W": W, "noise": 1.0, "pi": 0.4}


# --------------------------------------------------------------------- a model written three times


def gauss(params, X, states, observed):
    residual = np.where(observed[:, None], X[:, None] - states @ params["W"], 0.0)
    density = (residual**2 / params["noise"]).sum(-1)
    density += observed.sum(1)[:, None] * np.log(2 * np.pi * params["noise"])
    active = states.sum(-1)
    pi = params["pi"]
    prior = active * np.log(pi) + (states.shape[-1] - active) * np.log(1 - pi)
    return prior - 0.5 * density


def gauss_without_missing_values(params, X, states):
    return gauss(params, X, states, np.ones(X.shape, bool))


def gauss_one(params, x, observed, state):
    total = 0.0
    for h in range(len(state)):
        total += np.log(params.pi) if state[h] else np.log(1 - params.pi)
    for d in range(len(x)):
        if observed[d]:
            residual = x[d]
            for h in range(len(state)):
                if state[h]:
                    residual -= params.W[h, d]
            total -= 0.5 * (residual**2 / params.noise + np.log(2 * np.pi * params.noise))
    if x[0] == 99.0 and state[0] and not state[1] and state[2]:
        total = np.nan
    return total


def gauss_prepared(params, x, observed, active):
    """x is W x / σ², and last what no latent changes."""
    total = x[-1] + len(active) * np.log(params.pi / (1 - params.pi))
    for i in range(len(active)):
        total += x[active[i]] - 0.5 * params.gram[active[i], active[i]]
        for j in range(i):
            total -= params.gram[active[i], active[j]]
    return total


def products(params, X, observed):
    base = np.log(1 - params.pi) * len(params.W) - 0.5 * (X**2).sum(1) / params.noise
    base -= 0.5 * X.shape[1] * np.log(2 * np.pi * params.noise)
    return np.column_stack([X @ params.W.T / params.noise, base])


def gauss_statistics(params, X, observed, states, weights):
    return {
        "rows": len(X),
        "activation": np.einsum("ns,nsh->h", weights, states),
        "second": np.einsum("ns,nsh,nsg->hg", weights, states, states),
        "cross": np.einsum("ns,nsh,nd->hd", weights, states, X),
        "square": np.square(X).sum(),
    }


def gauss_update(params, sums):
    size = len(sums["activation"])
    second = sums["second"] + 1e-9 * np.eye(size)
    new = np.linalg.solve(second, sums["cross"])
    noise = (sums["square"] - np.vdot(new, sums["cross"])) / (sums["rows"] * new.shape[1])
    pi = sums["activation"].sum() / sums["rows"] / size
    return {"W": new, "noise": max(noise, 1e-3), "pi": np.clip(pi, 1e-3, 1 - 1e-3)}


def gauss_mean(params, states):
    return states @ params["W"]


def gauss_sampler(params, n, rng):
    states = rng.random((n, len(params["W"]))) < params["pi"]
    noise = np.sqrt(params["noise"]) * rng.normal(size=(n, params["W"].shape[1]))
    return states @ params["W"] + noise, states


def gauss_start(X, n_latents, rng):
    """Parameters from the data, in which values may be missing."""
    mean, spread = np.nanmean(X, axis=0), np.nanstd(X) + 1e-3
    return {
        "W": mean + spread * rng.normal(size=(n_latents, X.shape[1])),
        "noise": spread**2,
        "pi": 0.5,
    }


def make_data(n=200, seed=0):
    rng = np.random.default_rng(seed)
    return gauss_sampler(GAUSS, n, rng)[0]


def held(log_joint=gauss, params=GAUSS, **options):
    """A model whose parameters stay as they are."""
    options = {"n_latents": H, "n_states": "all", "max_iter": 1, "tol": 0} | options
    return BlackBox(log_joint, params, update=False, random_state=0, **options)


def learning(**options):
    options = {"n_latents": H, "n_states": 5, "max_iter": 6, "tol": 0, "random_state": 0} | options
    return BlackBox(
        gauss, gauss_start, statistics=gauss_statistics, update=gauss_update, **options
    )  # fmt: skip


def exact(X, observed=None, params=GAUSS):
    """Posterior weights of all states and log p(x) of each row."""
    seen = np.ones(X.shape, bool) if observed is None else observed
    states = np.broadcast_to(ALL, (len(X), *ALL.shape))
    log_joints = gauss(params, np.where(seen, X, 0.0), states, seen)
    bounds = logsumexp(log_joints, axis=1)
    return np.exp(log_joints - bounds[:, None]), bounds


# ----------------------------------------------------------------------------- what it comes to


KINDS = {
    "compiled": {"log_joint": gauss_one},
    "python": {"log_joint": gauss_one, "compiled": False},
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
    for log_joint in (gauss, gauss_one):
        model = held(log_joint, compiled=log_joint is gauss_one).fit(with_nan)
        weights, bounds = exact(X, observed)
        np.testing.assert_allclose(model.score_samples(with_nan), bounds, atol=1e-10)
        np.testing.assert_allclose(model.transform(with_nan), weights @ ALL, atol=1e-10)


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


@pytest.mark.parametrize("kind", ["torch", "jax"])
def test_statistics_of_any_library_add_up_over_rows_however_many(kind):
    """JAX grows arrays to powers of two for log-joints, but not for what is added."""
    X = make_data(71)
    make = torch.tensor if kind == "torch" else jnp.asarray
    with jax.enable_x64(True):
        start = {"W": make(W), "rows": make(0.0), "first": make(np.zeros(H))}

    def log_joint(params, X, states):
        return -0.5 * ((X[:, None] - states @ params["W"]) ** 2).sum(-1)

    def statistics(params, X, observed, states, weights):
        assert type(X) is type(params["W"]) is type(weights)
        return {"rows": len(X), "first": (weights[:, :, None] * states).sum((0, 1))}

    def update(params, sums):
        return {"W": params["W"], "rows": sums["rows"], "first": sums["first"]}

    def sampler(params, n, rng):
        states = rng.random((n, H)) < 0.5
        return make(states.astype(float)) @ params["W"], states

    model = BlackBox(log_joint, start, H, n_states="all", max_iter=1, tol=0, random_state=0,
                     statistics=statistics, update=update, sampler=sampler,
                     mean=lambda params, states: states @ params["W"]).fit(X)  # fmt: skip
    log_joints = -0.5 * ((X[:, None] - ALL @ W) ** 2).sum(-1)
    weights = np.exp(log_joints - logsumexp(log_joints, axis=1)[:, None])
    assert float(model.params_["rows"]) == 71
    np.testing.assert_allclose(np.asarray(model.params_["first"]), (weights @ ALL).sum(0))
    np.testing.assert_allclose(model.reconstruct(X), weights @ ALL @ W, atol=1e-8)
    drawn, states = model.sample(5)
    np.testing.assert_allclose(drawn, states @ W)


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


# ------------------------------------------------------------------------------- wrong log-joints


def broken_vectorised(value):
    """`value` for one state of one row alone, which has the first value 99."""

    def log_joint(params, X, states, observed):
        result = gauss(params, X, states, observed)
        marked = (X[:, None, 0] == 99.0) & (states == [1, 0, 1]).all(-1)
        return np.where(marked, value, result)

    return log_joint


BROKEN = {
    "compiled": {"log_joint": gauss_one},
    "python": {"log_joint": gauss_one, "compiled": False},
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


def changes_its_data(params, x, observed, state):
    x -= 1.0
    return -x[0]


def changes_all_data(params, X, states):
    X -= 1.0
    return -states.sum(-1)


@pytest.mark.parametrize(
    ("log_joint", "options", "error"),
    [
        (changes_its_data, {}, TypeError),
        (changes_its_data, {"compiled": False}, ValueError),
        (changes_all_data, {}, ValueError),
    ],
)
def test_a_log_joint_cannot_change_the_data(log_joint, options, error):
    X = make_data(20)
    before = X.copy()
    with pytest.raises(error, match=r"read-?only"):
        held(log_joint, **options).fit(X)
    np.testing.assert_array_equal(X, before)


def test_pytorch_is_given_a_copy_it_may_change():
    def log_joint(params, X, states):
        X -= 1.0
        return -((X[:, None] - states @ params["W"]) ** 2).sum(-1)

    X = make_data(20)
    before = X.copy()
    held(log_joint, {"W": torch.tensor(W)}).fit(X)
    np.testing.assert_array_equal(X, before)


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


@pytest.mark.parametrize(("library", "package"), [("torch", "PyTorch"), ("jax", "JAX")])
def test_a_missing_package_is_told_by_the_extra_that_brings_it(library, package, monkeypatch):
    def import_nothing(name):
        raise ImportError(name)

    monkeypatch.setattr(array_libraries.importlib, "import_module", import_nothing)
    words = re.escape(f"{package} must be installed for this: pip install 'evoem[{library}]'")
    with pytest.raises(ImportError, match=words):
        held(gauss, library=library).fit(make_data(20))


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
        ({"log_joint": gauss_one, "library": "jax"}, "log_joint must be vectorised"),
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


def sum_joint(params, X, states):
    return -(params["W"] ** 2).sum() - states.sum(-1)


@pytest.mark.parametrize(
    ("constraints", "words"),
    [
        ({"V": "positive"}, "constraints must name parameters, W; got 'V'."),
        ({"W": "positive"}, r"params\['W'\] must be positive by its constraint 'positive'; got"),
        ({"W": "unit"}, r"params\['W'\] must lie between 0 and 1 by"),
        ({"W": "simplex"}, r"params\['W'\] must be at least 0 and sum to one along the last"),
    ],
)
def test_parameters_must_start_within_their_constraints(constraints, words):
    model = BlackBox(sum_joint, {"W": torch.tensor(W - 1)}, H, constraints=constraints)
    with pytest.raises(ValueError, match=words):
        model.fit(make_data(20))


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


@pytest.mark.parametrize("made", [np.ones(20), np.ones((19, 2)), np.full((20, 2), "x")])
def test_prepared_rows_must_be_rows(made):
    model = held(gauss_prepared, GAUSS | {"gram": W}, prepare_rows=lambda *_: made)
    with pytest.raises(ValueError, match=r"prepare_rows must return real numbers of the shape"):
        model.fit(make_data(20))


def test_missing_values_need_a_log_joint_that_knows_of_them():
    X = make_data(20)
    X[2:4, 1] = np.nan
    words = "X must have no missing values for a log_joint without .* `observed`; got 2 of them."
    with pytest.raises(ValueError, match=words):
        held(gauss_without_missing_values).fit(X)
    assert np.isfinite(held(gauss).fit(X).free_energy_)


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


# ------------------------------------------------------------------------------------- an estimator


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
        model = held(gauss_one).fit(X)
    else:
        make = torch.tensor if kind == "torch" else jnp.asarray
        model = BlackBox(
            torch_joint, {"W": make(W)}, H, n_states=5, max_iter=2, tol=0, random_state=0
        ).fit(X)
    again = pickle.loads(pickle.dumps(model))
    new = make_data(10, seed=1)
    np.testing.assert_array_equal(again.score_samples(new), model.score_samples(new))


def torch_joint(params, X, states):
    return -0.5 * ((X[:, None] - states @ params["W"]) ** 2).sum(-1)


def test_the_number_of_threads_of_pytorch_is_left_as_it_was():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        BlackBox(
            torch_joint, {"W": torch.tensor(W)}, H, n_states=5, max_iter=8, tol=0, n_jobs=4
        ).fit(make_data(1000))
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(torch.get_num_threads).result() == 2
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


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
            torch_joint, {"W": make(W[::-1].copy())}, H, n_states=5, tol=0, random_state=0,
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
    np.testing.assert_array_equal(seen[-1].params.values["W"], model.params_["W"])


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


# ---------------------------------------------------------------------------- files of parameters


def test_saved_parameters_come_back_in_their_form(tmp_path):
    Prior = namedtuple("Prior", "pi n")
    start = {"layers": [torch.tensor(W), np.ones(2)], "prior": Prior(0.4, 3)}

    def log_joint(params, X, states):
        return torch_joint({"W": params["layers"][0]}, X, states)

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
        with pytest.raises(FileError, match=r"model.npz must be a file of parameters; "):
            model.load_params(path)
    with pytest.raises(FileError, match="must be a file of parameters"):
        model.load_params(tmp_path / "other.npz")


# ------------------------------------------------------------------------- estimates and samples


def bernoulli(params, X, states, observed):
    logits = states @ params["W"] - 1
    each = X[:, None] * logits - np.log1p(np.exp(logits))
    return (each * observed[:, None]).sum(-1)


def bernoulli_mean(params, states):
    return 1 / (1 + np.exp(1 - states @ params["W"]))


def poisson(params, X, states, observed):
    """Up to log x!, of which a user may forget: no; it changes the mean of a missing value."""
    rate = 0.5 + states @ params["W"]
    factorials = np.array([np.log(np.arange(1, k + 1)).sum() for k in range(400)])
    each = X[:, None] * np.log(rate) - rate - factorials[X.astype(int)][:, None]
    return (each * observed[:, None]).sum(-1)


def poisson_mean(params, states):
    return 0.5 + states @ params["W"]


RECONSTRUCTED = {
    "gauss": (gauss, gauss_mean, lambda mean, rng: mean + rng.normal(size=mean.shape)),
    "bernoulli": (bernoulli, bernoulli_mean, lambda mean, rng: rng.random(mean.shape) < mean),
    "poisson": (poisson, poisson_mean, lambda mean, rng: rng.poisson(mean)),
}


@pytest.mark.parametrize("missing", [0.0, 0.3], ids=["complete", "missing"])
@pytest.mark.parametrize("name", RECONSTRUCTED)
def test_means_by_integration_are_those_of_the_formula_and_of_enumeration(name, missing):
    log_joint, mean, draw = RECONSTRUCTED[name]
    rng = np.random.default_rng(0)
    X = draw(mean(GAUSS, (rng.random((60, H)) < 0.4) * 1.0), rng).astype(float)
    observed = rng.random(X.shape) >= missing
    observed[0] = True
    filled = np.where(observed, X, 0.0)
    states = np.broadcast_to(ALL, (60, *ALL.shape))
    log_joints = log_joint(GAUSS, filled, states, observed)
    weights = np.exp(log_joints - logsumexp(log_joints, axis=1)[:, None])
    means = mean(GAUSS, ALL)
    expected = weights @ means
    std = np.sqrt(weights @ means**2 - expected**2 + 1e-15)
    with_nan = np.where(observed, X, np.nan)
    by_formula = held(log_joint, mean=mean).fit(with_nan).reconstruct(with_nan, return_std=True)
    np.testing.assert_allclose(by_formula[0], expected, atol=1e-9)
    np.testing.assert_allclose(by_formula[1], std, atol=1e-6)
    # States of a weight below one in a thousand are left out of the integrals.
    found, spread = held(log_joint).fit(with_nan).reconstruct(with_nan, return_std=True)
    np.testing.assert_allclose(found, expected, atol=5e-3 * np.ptp(means))
    np.testing.assert_allclose(spread, std, atol=0.05 * np.ptp(means))


def test_narrow_densities_are_found_by_refinement():
    """The grid's points are fifty standard deviations apart before."""
    narrow = GAUSS | {"noise": 1e-4}
    X = np.random.default_rng(0).integers(0, 2, (30, H)) @ W + 0.01
    found = held(params=narrow).fit(X).reconstruct(X)
    np.testing.assert_allclose(found, X - 0.01, atol=1e-4)


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


# ------------------------------------------------------------------------------------- the parts


@pytest.mark.parametrize("name", TRANSFORMS)
def test_gradients_of_constrained_parameters_are_slopes(name):
    transform = TRANSFORMS[name]
    free = np.random.default_rng(0).normal(scale=2, size=(3, 4))
    slopes = np.random.default_rng(1).normal(size=free.shape)

    def objective(free):
        return np.vdot(slopes, transform.constrained(free) ** 2)

    values = transform.constrained(free)
    found = transform.gradient(values, 2 * slopes * values)
    h = 1e-6
    for place in np.ndindex(free.shape):
        up, down = free.copy(), free.copy()
        up[place] += h
        down[place] -= h
        slope = (objective(up) - objective(down)) / (2 * h)
        assert found[place] == pytest.approx(slope, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("positive", [1e-9, 1.0, 1e9]),
        ("unit", [1e-8, 0.3, 1 - 1e-8]),
        ("simplex", [[0.2, 0.3, 0.5], [1e-8, 1e-8, 1 - 2e-8]]),
    ],
)
def test_constrained_values_come_back_from_free_ones(name, values):
    transform = TRANSFORMS[name]
    values = np.array(values)
    np.testing.assert_allclose(transform.constrained(transform.free(values)), values, rtol=1e-6)


@pytest.mark.parametrize("name", TRANSFORMS)
def test_free_values_of_any_size_stay_within_the_constraint(name):
    transform = TRANSFORMS[name]
    for scale in (1.0, 1e3, 1e8):
        values = transform.constrained(scale * np.array([[-3.0, 0.0, 1.0, 2.0]]))
        assert np.isfinite(values).all()
        assert transform.holds(values)
        assert np.isfinite(transform.free(values)).all()


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("positive", [0.0, 1.0]),
        ("unit", [-0.1, 0.5]),
        ("unit", [0.5, 1.1]),
        ("simplex", [0.5, 0.6]),
        ("simplex", [-0.5, 1.5]),
        ("simplex", 1.0),
    ],
)
def test_values_outside_of_a_constraint_are_noticed(name, values):
    assert not TRANSFORMS[name].holds(np.array(values))


Pair = namedtuple("Pair", "left right")
leaf_values = st.one_of(
    st.floats(-5, 5),
    st.integers(-5, 5),
    st.lists(st.floats(-5, 5), min_size=1, max_size=3).map(np.array),
)
names = st.text("abc", min_size=1, max_size=2)
trees = st.recursive(
    leaf_values,
    lambda parts: st.one_of(
        st.lists(parts, min_size=1, max_size=3),
        st.lists(parts, min_size=1, max_size=2).map(tuple),
        st.dictionaries(names, parts, min_size=1, max_size=3),
        st.builds(Pair, parts, parts),
    ),
    max_leaves=6,
)


def same(a, b):
    if isinstance(a, dict):
        return type(b) is dict and list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return np.array_equal(a, b) and np.asarray(a).dtype == np.asarray(b).dtype


@settings(max_examples=60)
@given(trees)
def test_parameters_of_any_form_come_back_as_they_were(tree):
    values = parameters.flatten(tree)
    assert same(tree, parameters.unflatten(tree, values))
    doubled = parameters.unflatten(tree, {name: 2 * value for name, value in values.items()})
    again = parameters.flatten(doubled)
    assert list(again) == list(values)
    for name, value in values.items():
        np.testing.assert_array_equal(again[name], 2 * value)
        value[...] = 7  # a copy
    assert same(doubled, parameters.unflatten(tree, again))


def test_numba_is_given_named_tuples_and_tuples():
    tree = {"a": [1.0, {"b": np.ones(2)}], "c": Pair(2, 3)}
    built = parameters.rebuild(tree, lambda name: name, for_numba=True)
    assert built.a[0] == "a.0"
    assert built.a[1].b == "a.1.b"
    assert type(built.a) is tuple
    assert built.c == Pair("c.left", "c.right")


def test_a_pytree_that_jax_knows_is_opened():
    @jax.tree_util.register_pytree_with_keys_class
    class Node:
        def __init__(self, weight, inner):
            self.weight, self.inner = weight, inner

        def tree_flatten_with_keys(self):
            key = jax.tree_util.GetAttrKey
            return ((key("weight"), self.weight), (key("inner"), self.inner)), None

        @classmethod
        def tree_unflatten(cls, _, parts):
            return cls(*parts)

    node = Node(jnp.ones(2), {"b": jnp.zeros(())})
    values = parameters.flatten(node)
    assert list(values) == ["weight", "inner.b"]
    again = parameters.unflatten(node, {"weight": np.full(2, 5.0), "inner.b": np.array(6.0)})
    assert isinstance(again, Node)
    np.testing.assert_array_equal(again.weight, [5, 5])
    assert float(again.inner["b"]) == 6


def test_the_support_is_that_of_the_values_with_room_around_them():
    X = np.array(
        [
            [0.0, 0.0, 0.0, -1.0, 0.5, 7.0],
            [1.0, 0.0, 3.0, 2.0, 1.5, 7.0],
            [9.0, 0.0, 1.0, 5.0, 0.7, 7.0],
        ]
    )
    observed = np.ones(X.shape, bool)
    observed[2, 0] = False
    observed[:, 5] = False
    support = support_of(np.where(observed, X, 0.0), observed)
    # 0 and 1; zero alone may be 0 or 1; counts; whole numbers of any sign; real numbers.
    np.testing.assert_array_equal(support.whole[:5], [True, True, True, True, False])
    np.testing.assert_array_equal(support.least[:5], [0, 0, 0, -4, 0.0])
    np.testing.assert_array_equal(support.largest[:5], [1, 1, 6, 11, 2.0])
    # A column nobody saw may be anywhere in the range of the others.
    assert support.least[5] <= -1
    assert support.largest[5] >= 5


def test_columns_with_too_many_whole_numbers_are_integrated_over():
    X = np.array([[0.0], [3000.0]])
    assert not support_of(X, None).whole[0]


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


def test_jax_that_cannot_be_compiled_is_told_and_runs_without():
    def log_joint(params, X, states):
        sign = 1.0 if X[0, 0] > -np.inf else -1.0
        return -sign * ((X[:, None] - states @ params["W"]) ** 2).sum(-1)

    options = {"n_latents": H, "max_iter": 1, "tol": 0, "random_state": 0}
    params = {"W": jnp.asarray(W, np.float32)}
    X = np.random.default_rng(0).normal(size=(20, D))
    with pytest.raises(TypeError, match=r"log_joint must compile with jax.jit, or .* Attempted"):
        BlackBox(log_joint, params, **options).fit(X)
    plain = BlackBox(log_joint, params, compiled=False, **options).fit(X)
    assert np.isfinite(plain.free_energy_)


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


@pytest.mark.parametrize(
    ("optimizer", "words"),
    [
        ("adam", "optimizer must make one of torch.optim for these params; got 'adam'"),
        (torch.optim.LBFGS, "optimizer must need one gradient for a step; got LBFGS"),
    ],
)
def test_optimisers_that_cannot_be_used(optimizer, words):
    X = np.random.default_rng(0).normal(size=(12, D))
    params = {"W": torch.tensor(W)}

    def log_joint(params, X, states):
        return -((X[:, None] - states @ params["W"]) ** 2).sum(-1)

    with pytest.raises(ValueError, match=re.escape(words)):
        BlackBox(log_joint, params, H, optimizer=optimizer, random_state=0).fit(X)


def test_constraints_are_given_by_name():
    model = BlackBox(gauss, GAUSS, 3, update=False, constraints=3)
    with pytest.raises(ValueError, match=r"^constraints must be a dict .*; got 3.$"):
        model.fit(make_data(20))
