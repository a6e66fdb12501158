"""NumPy, PyTorch and JAX do the same for a user's functions."""

import re
import sys
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from black_box_problems import ALL, D, H, W, gauss, held, make_data, unit_gauss
from scipy.special import logsumexp

from evoem import BlackBox


@pytest.mark.parametrize("kind", ["torch", "jax"])
def test_statistics_of_any_library_add_up_over_rows_however_many(kind):
    """JAX grows arrays to powers of two for log-joints, but not for what is added."""
    X = make_data(71)
    make = torch.tensor if kind == "torch" else jnp.asarray
    with jax.enable_x64(True):
        start = {"W": make(W), "rows": make(0.0), "first": make(np.zeros(H))}

    def statistics(params, X, observed, states, weights):
        assert type(X) is type(params["W"]) is type(weights)
        return {"rows": len(X), "first": (weights[:, :, None] * states).sum((0, 1))}

    def update(params, sums):
        return {"W": params["W"], "rows": sums["rows"], "first": sums["first"]}

    def sampler(params, n, rng):
        states = rng.random((n, H)) < 0.5
        return make(states.astype(float)) @ params["W"], states

    model = BlackBox(unit_gauss, start, H, n_states="all", max_iter=1, tol=0, random_state=0,
                     statistics=statistics, update=update, sampler=sampler,
                     mean=lambda params, states: states @ params["W"]).fit(X)  # fmt: skip
    log_joints = -0.5 * ((X[:, None] - ALL @ W) ** 2).sum(-1)
    weights = np.exp(log_joints - logsumexp(log_joints, axis=1)[:, None])
    assert float(model.params_["rows"]) == 71
    np.testing.assert_allclose(np.asarray(model.params_["first"]), (weights @ ALL).sum(0))
    np.testing.assert_allclose(model.reconstruct(X), weights @ ALL @ W, atol=1e-8)
    drawn, states = model.sample(5)
    np.testing.assert_allclose(drawn, states @ W)


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


def test_the_number_of_threads_of_pytorch_is_left_as_it_was():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        BlackBox(
            unit_gauss, {"W": torch.tensor(W)}, H, n_states=5, max_iter=8, tol=0, n_jobs=4
        ).fit(make_data(1000))
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(torch.get_num_threads).result() == 2
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


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


@pytest.mark.parametrize(("library", "package"), [("torch", "PyTorch"), ("jax", "JAX")])
def test_a_missing_package_is_told_by_the_extra_that_brings_it(library, package, monkeypatch):
    monkeypatch.setitem(sys.modules, library, None)
    words = re.escape(f"{package} must be installed for this: pip install 'evoem[{library}]'")
    with pytest.raises(ImportError, match=words):
        held(gauss, library=library).fit(make_data(20))
