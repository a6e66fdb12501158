"""Log-joints where σ² has all but vanished, against exact arithmetic and the density of noise."""

import numpy as np
import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import MODELS, make_model, random_params

from evoem import em
from evoem.models.linear_moments import NOISE_FLOORS
from evoem.posterior import evaluate
from evoem.states import pack, unpack

LINEAR = [name for name in MODELS if name != "noisy_or"]
EPS = np.finfo(float).eps


def make_row(name, seed, share, orders, missing, explained):
    """Parameters, a row that a state explains wholly or not at all, its mask, and that state.

    σ² has this share of the row's mean square; latents differ by so many orders of magnitude.
    """
    rng = np.random.default_rng(seed)
    H, D = int(rng.integers(1, 9)), int(rng.integers(1, 7))
    params = random_params(name, H, D, rng)
    patterns = len(params.components)
    params = params._replace(
        components=params.components * 10 ** rng.uniform(-orders / 2, orders / 2, (patterns, 1))
    )
    if hasattr(params, "slab_covariance"):
        unit = 10 ** rng.uniform(-orders, 0, patterns)
        psi = params.slab_covariance
        psi = psi * (np.outer(unit, unit) if psi.ndim == 2 else unit**2)
        params = params._replace(slab_covariance=psi, slab_means=np.ones(patterns))
    s = rng.random(len(params.activation_probs)) < 0.6
    on = np.repeat(s, np.diff(params.groups)) if hasattr(params, "groups") else s
    amounts = on.astype(float)
    if hasattr(params, "slab_means"):
        root = np.linalg.cholesky(reference.full_covariance(params))
        amounts = on * (params.slab_means + root @ rng.normal(size=patterns))
    x = amounts @ params.components if explained else rng.normal(size=D)
    seen = rng.random(D) >= missing
    x = np.where(seen, x, 0.0)
    scale = np.mean(x[seen] ** 2) if np.any(x[seen]) else 1.0
    return params._replace(noise_variance=np.array(share * scale)), x, seen, s


def log_joints(name, params, x, seen, dense, dtype):
    """Of one row."""
    model = make_model(name)
    derived = model.prepare(params, dtype)
    observed = None if seen.all() else seen[None]
    rows = model.prepare_rows(derived, x[None].astype(dtype), observed)
    return evaluate(model, derived, rows, pack(dense)[None])[0]


@settings(max_examples=300)
@given(
    st.sampled_from(LINEAR),
    st.integers(0, 2**32 - 1),
    st.floats(-18, 0),
    st.floats(0, 8),
    st.sampled_from([0.0, 0.3]),
    st.booleans(),
    st.sampled_from([np.float32, np.float64]),
)
def test_no_log_joint_is_above_the_prior_and_the_density_of_noise(
    name, seed, share, orders, missing, explained, dtype
):
    params, x, seen, s = make_row(name, seed, 10**share, orders, missing, explained)
    dense = np.stack([s, np.ones_like(s), np.zeros_like(s), *np.eye(len(s), dtype=bool)])
    found = log_joints(name, params, x, seen, dense, dtype)
    noise = 0.5 * seen.sum() * np.log(2 * np.pi * float(params.noise_variance))
    for value, state in zip(found, dense, strict=True):
        highest = reference.log_prior(params, state) - noise
        assert value <= highest + 1e-13 * (abs(highest) + abs(noise) + len(s))


@settings(max_examples=150)
@given(
    st.sampled_from(LINEAR),
    st.integers(0, 2**32 - 1),
    st.floats(np.log10(NOISE_FLOORS[np.dtype(np.float64)]), 0),
    st.floats(0, 4),
    st.sampled_from([0.0, 0.3]),
    st.booleans(),
)
def test_log_joints_are_exact_but_for_the_rounding_of_the_data(
    name, seed, share, orders, missing, explained
):
    params, x, seen, s = make_row(name, seed, 10**share, orders, missing, explained)
    found = log_joints(name, params, x, seen, s[None], np.float64)[0]
    wanted = reference.exact_log_joint(params, x, seen, s)
    assert abs(found - wanted) <= 20 * EPS * magnitude(params, x, seen, s) + 1e-11


def magnitude(params, x, seen, s):
    """How large the terms are that log p(s, y) is the sum of."""
    on = np.repeat(s, np.diff(params.groups)) if hasattr(params, "groups") else s
    amounts = np.ones(on.sum())
    total = 0.0
    if hasattr(params, "slab_means"):
        psi = reference.full_covariance(params)[np.ix_(on, on)]
        amounts = np.abs(params.slab_means[on]) + 3 * np.sqrt(np.diag(psi))
        unit = np.sqrt(np.diag(psi))
        correlations = psi / np.outer(unit, unit)
        certain = np.abs(np.linalg.inv(correlations)).sum() if len(psi) else 0.0
        total += certain * ((amounts / unit) ** 2).max(initial=0.0)
    parts = amounts[:, None] * np.abs(params.components[on][:, seen])
    total += ((np.abs(x[seen]) + parts.sum(0)) ** 2).sum() / float(params.noise_variance)
    return total + len(s) * len(x)


def test_the_states_of_a_run_that_explains_its_data_stay_exact():
    """Fewer rows than latents, so that σ² falls to its floor, and a full slab with it."""
    rng = np.random.default_rng(10)
    W = rng.normal(size=(10, 12))
    X = ((rng.random((8, 10)) < 0.3) * rng.normal(1, 1, (8, 10))) @ W
    model, data = make_model("spike_slab_full", init="data"), em.Data(X)
    state = em.init(model, data, n_latents=10, n_states=20, seed=10)
    evolution = em.Evolution(n_parents=5, n_children=4, n_generations=2)
    state, infos = em.run(model, data, state, evolution, max_iter=40)
    assert float(state.params.noise_variance) < 2e-10 * np.mean(X**2)
    assert np.diff([info.free_energy for info in infos]).min() > -1e-4
    state, _, _ = em.e_step(model, data, state, evolution)
    seen = np.ones(12, bool)
    for x, kept, found in zip(X, unpack(state.states, 10), state.log_joints, strict=True):
        wanted = reference.exact_log_joint(state.params, x, seen, kept[0])
        assert found[0] == pytest.approx(wanted, abs=1e-2)
