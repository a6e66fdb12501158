"""One iteration: monotone bounds, exact limits, an E-step and an M-step."""

import numpy as np
import pytest
import reference
from em_runs import OPERATORS, assert_same, bounds, run, start
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import MODELS, data_of, make_problem, seen

from evoem import em, states
from evoem import posterior as truncated


@pytest.mark.parametrize("evolution", OPERATORS, ids=lambda e: "-".join(map(str, e[3:])))
@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize("name", MODELS)
def test_the_bound_never_falls_in_any_step(name, missing, evolution):
    problem = make_problem(name, H=6, D=8, N=60, missing=missing, seed=21)
    _, infos = run(problem, start(problem), evolution, iterations=30)
    steps = np.diff(bounds(infos))
    assert steps.min() > -1e-9 * np.abs(bounds(infos)).max()
    assert bounds(infos)[-1] > bounds(infos)[0]


@settings(max_examples=25)
@given(
    st.sampled_from(MODELS),
    st.sampled_from(OPERATORS),
    st.sampled_from([0.0, 0.2, 0.7]),
    st.integers(0, 10_000),
)
def test_the_bound_never_falls_for_random_problems(name, evolution, missing, seed):
    rng = np.random.default_rng(seed)
    H, D, N = int(rng.integers(3, 9)), int(rng.integers(1, 10)), int(rng.integers(2, 40))
    problem = make_problem(name, H=H, D=D, N=N, missing=missing, seed=seed)
    noises = []

    def note(info, state):
        noises.append(float(getattr(state.params, "noise_variance", 1.0)))

    _, infos = run(problem, start(problem, seed=seed), evolution, iterations=12, callback=note)
    steps = np.diff(bounds(infos))
    tolerance = 1e-8 * max(1.0, np.abs(bounds(infos)).max())
    if name != "noisy_or":
        # Tiny data can be explained without noise; |y|²/σ² is then large, and so is its rounding.
        tolerance += 4e-15 * np.square(problem.X).sum(1).max() / min(noises)
    assert steps.min() > -tolerance


@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize("name", MODELS)
def test_the_reported_bound_is_that_of_the_kept_states(name, missing):
    problem = make_problem(name, missing=missing, seed=22)
    state = start(problem, n_states=5)
    before = problem.params
    state, info = em.step(problem.model, data_of(problem), state, OPERATORS[0])
    kept = states.unpack(state.states, 4)
    expected = reference.free_energy(problem.log_joint, before, problem.X, seen(problem), kept)
    assert info.free_energy == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize("name", MODELS)
def test_all_states_kept_is_exact_em(name, missing):
    """The bound is the likelihood, and no parameter in its neighbourhood has a higher Q."""
    problem = make_problem(name, N=30, missing=missing, seed=23)
    dense = reference.all_states(4)
    state = start(problem, n_states=16)
    state, info = em.step(problem.model, data_of(problem), state, OPERATORS[0])
    exact = reference.free_energy(
        problem.log_joint, problem.params, problem.X, seen(problem), [dense] * 30
    )
    assert info.free_energy == pytest.approx(exact, rel=1e-10)
    assert info.states_replaced == 0
    assert info.states_evaluated == 30 * 16 * (2 if name == "spike_slab_full" else 1)
    following = reference.free_energy(
        problem.log_joint, state.params, problem.X, seen(problem), [dense] * 30
    )
    assert following > exact


@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize("name", MODELS)
def test_a_step_is_an_e_step_and_an_m_step(name, missing):
    problem = make_problem(name, N=40, missing=missing, seed=42)
    model, data = problem.model, data_of(problem)
    whole, info = em.step(model, data, start(problem), OPERATORS[0])
    state, statistics, found = em.e_step(model, data, start(problem), OPERATORS[0])
    assert found.bound / 40 == info.free_energy
    weights = np.exp(state.log_joints - state.log_joints.max(1, keepdims=True))
    kept = [
        np.exp(
            truncated.evaluate(
                model,
                (derived := model.prepare(state.params, np.float64)),
                data.prepare(model, derived),
                state.states,
            )
            - state.log_joints.max(1, keepdims=True)
        )
    ]
    np.testing.assert_allclose(weights, kept[0])  # they belong to these parameters
    state, compared = em.m_step(model, data, state, statistics, found)
    assert found.evaluated + compared == info.states_evaluated
    assert_same(model.canonical(state.params), whole.params)
    np.testing.assert_array_equal(state.states, whole.states)
