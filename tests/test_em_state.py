"""What passes between steps is all that they need, and what is told of them is little."""

import pickle

import numpy as np
import pytest
from em_runs import OPERATORS, assert_same, start
from problems import data_of, make_problem

from evoem import em
from evoem.em_state import EStepInfo


@pytest.mark.parametrize("n_parts", [1, 3])
def test_a_state_that_went_through_a_file_has_all_that_the_next_steps_need(n_parts):
    problem = make_problem("spike_slab_diagonal", N=30, seed=3)
    given = problem.model, data_of(problem)
    state, _ = em.step(*given, start(problem), OPERATORS[0], n_parts=n_parts)
    other = pickle.loads(pickle.dumps(state))
    for _ in range(2):
        state, info = em.step(*given, state, OPERATORS[0], n_parts=n_parts)
        other, same = em.step(*given, other, OPERATORS[0], n_parts=n_parts)
        assert info._replace(seconds=0) == same._replace(seconds=0)
    assert_same(state.params, other.params)
    np.testing.assert_array_equal(state.states, other.states)


def test_a_step_overwrites_the_states_it_was_given():
    problem = make_problem("binary", N=30, H=6, seed=3)
    state = start(problem)
    before = state.states.copy()
    after, info = em.step(problem.model, data_of(problem), state, OPERATORS[0])
    assert info.states_replaced > 0
    assert (before != after.states).any()
    np.testing.assert_array_equal(state.states, after.states)
    np.testing.assert_array_equal(state.log_joints, after.log_joints)


def test_what_e_steps_of_parts_tell_adds_up_to_what_one_of_all_tells():
    problem = make_problem("spike_slab_diagonal", N=20, seed=3)
    whole = start(problem)
    parts = [slice(7), slice(7, 20)]
    found = EStepInfo()
    for part in parts:
        data = em.Data(problem.X[part], rows=np.arange(20, dtype=np.uint64)[part])
        own = whole._replace(
            states=whole.states[part].copy(), log_joints=whole.log_joints[part].copy()
        )
        found = found.plus(em.e_step(problem.model, data, own, OPERATORS[0])[2])
    _, _, expected = em.e_step(problem.model, data_of(problem), whole, OPERATORS[0])
    assert found.bound == pytest.approx(expected.bound, rel=1e-12)
    assert found[1:] == expected[1:]


def test_what_is_told_of_a_step_does_not_grow_with_the_model():
    """Thousands of them are kept."""
    problem = make_problem("spike_slab_full", H=60, D=100, N=10, seed=3)
    state, info = em.step(problem.model, data_of(problem), start(problem), OPERATORS[0])
    assert len(pickle.dumps(state.params)) > 30_000
    assert len(pickle.dumps(info)) < 500
