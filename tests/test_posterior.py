"""Keeping the best states, weighing them, and the variational E-step, against slow twins."""

import re
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.special import logsumexp, softmax

from evoem import posterior, streams
from evoem.errors import LogJointError
from evoem.evolution import OPERATORS, Evolution, Pool
from evoem.models import BinarySparseCodingModel, NoisyOrModel
from evoem.models.binary_sparse_coding import BinarySparseCodingParams
from evoem.models.noisy_or import NoisyOrParams
from evoem.states import Genomes, draw_distinct, enumerate_all, n_words

repeatable = settings(deadline=None, derandomize=True, max_examples=60)

# ------------------------------------------------------------------------------ the best states


def pool_of(values, n_states):
    """A pool whose state m of a row is the integer m; rows hold as many as they have values."""
    n_rows, longest = len(values), max(map(len, values))
    numbers = np.tile(np.arange(longest, dtype=np.uint64)[:, None], (n_rows, 1, 1))
    pool = Pool(numbers[:, :n_states].copy(), longest - n_states)
    pool.admit(Genomes(numbers[:, n_states:].copy(), np.array([len(v) - n_states for v in values])))
    for r, row in enumerate(values):
        pool.kept.log_joints[r] = row[:n_states]
        pool.log_joints[r, : len(row) - n_states] = row[n_states:]
    return pool


def keep_best(values, n_states):
    """Integers and values that are kept, and how many of them are new."""
    pool = pool_of(values, n_states)
    log_joints = np.full((len(values), n_states), np.nan)
    replaced = posterior.keep_best(pool, log_joints)
    return pool.kept.states[..., 0].tolist(), log_joints, replaced


def best_by_sorting(row, n_states):
    """Of equally good ones the older."""
    return sorted(range(len(row)), key=lambda m: (-row[m], m))[:n_states]


def assert_best_are_kept(values, n_states):
    states, log_joints, replaced = keep_best(values, n_states)
    n_new = 0
    for row, kept, kept_values in zip(values, states, log_joints, strict=True):
        best = best_by_sorting(row, n_states)
        assert sorted(kept) == sorted(best)
        assert kept_values.tolist() == [row[m] for m in kept]
        survivors = [m for m in best if m < n_states]
        assert all(kept[m] == m for m in survivors)
        n_new += n_states - len(survivors)
    assert replaced == n_new


tied_values = st.sampled_from([-np.inf, -3.0, -2.0, 0.0, 1.0])
any_values = st.floats(-1e6, 1e6)


@repeatable
@given(st.data(), st.sampled_from([tied_values, any_values]))
def test_the_best_distinct_states_are_kept_and_the_older_of_equal_ones_stay(data, value):
    n_states = data.draw(st.integers(1, 8))
    row = st.lists(value, min_size=n_states, max_size=n_states + 20)
    values = data.draw(st.lists(row, min_size=1, max_size=3))
    assert_best_are_kept(values, n_states)


@pytest.mark.parametrize(
    "values",
    [
        np.arange(500.0),
        np.arange(500.0)[::-1],
        np.zeros(500),
        np.abs(np.arange(500.0) - 250),
        -np.abs(np.arange(500.0) - 250),
        np.arange(500.0) % 7,
        np.random.default_rng(0).normal(size=500),
    ],
    ids=["rising", "falling", "equal", "valley", "peak", "saw", "random"],
)
@pytest.mark.parametrize("n_states", [1, 200, 499, 500])
def test_the_best_states_are_kept_whatever_order_they_come_in(values, n_states):
    assert_best_are_kept([values.tolist()], n_states)


def test_a_row_without_children_keeps_its_states():
    states, log_joints, replaced = keep_best([[-1.0, -np.inf, -2.0], [0.0, 0.0, 0.0]], 3)
    assert states == [[0, 1, 2]] * 2
    assert log_joints.tolist() == [[-1.0, -np.inf, -2.0], [0.0, 0.0, 0.0]]
    assert replaced == 0


# ----------------------------------------------------------------------------- weights and bound


@pytest.mark.interpreted
@repeatable
@given(
    st.tuples(st.integers(1, 4), st.integers(1, 9)).flatmap(
        lambda shape: arrays(float, shape, elements=any_values | st.just(-np.inf))
    )
)
def test_weights_and_bound_are_softmax_and_logsumexp(log_joints):
    weights, bounds = posterior.weigh(log_joints)
    possible = (log_joints > -np.inf).any(1)
    np.testing.assert_allclose(bounds[possible], logsumexp(log_joints[possible], axis=1))
    expected = softmax(log_joints[possible], axis=1)
    np.testing.assert_allclose(weights[possible], expected, rtol=1e-9, atol=1e-300)
    assert (weights[~possible] == 0).all()
    assert (bounds[~possible] == -np.inf).all()


def test_a_row_of_impossible_states_has_no_weights_and_leaves_other_rows_alone():
    log_joints = np.array([[0.0, 0.0], [-np.inf, -np.inf], [-np.inf, 5.0]])
    weights, bounds = posterior.weigh(log_joints)
    assert weights.tolist() == [[0.5, 0.5], [0.0, 0.0], [0.0, 1.0]]
    np.testing.assert_allclose(bounds, [np.log(2.0), -np.inf, 5.0])


@pytest.mark.parametrize("n_states", [1, 7, 60, 500, 2_000, 100_000])
def test_rows_are_worked_on_in_eights(n_states):
    n_rows = posterior.rows_at_once(n_states)
    assert n_rows % 8 == 0
    assert 8 <= n_rows <= posterior.ROWS_AT_ONCE
    assert n_rows == 8 or n_rows * n_states <= posterior.STATES_AT_ONCE


# ----------------------------------------------------------------------------------- the E-step


class Problem(NamedTuple):
    """A model with parameters, a few rows, and distinct first states."""

    X: np.ndarray
    model: object
    derived: object
    rows: object
    streams: np.ndarray
    states: np.ndarray
    log_joints: np.ndarray


def sparse_coding(rng, n_latents):
    params = BinarySparseCodingParams(
        rng.normal(size=(n_latents, 4)), np.full(n_latents, 1.5 / n_latents), np.array(0.3)
    )
    return BinarySparseCodingModel(), params


def noisy_or(rng, n_latents):
    """For which s = 0 is impossible if anything is on."""
    params = NoisyOrParams(
        rng.uniform(0.05, 0.9, (n_latents, 4)), rng.uniform(0.05, 0.4, n_latents)
    )
    return NoisyOrModel(), params


def problem_of(make, seed, n_latents, n_states, n_rows=5):
    rng = np.random.default_rng(seed)
    model, params = make(rng, n_latents)
    X = np.asarray(model.sample(params, n_rows, rng)[0], np.float64)
    derived = model.prepare(params, X.dtype)
    rows = model.prepare_rows(derived, X, None)
    row_streams = streams.start(seed, 0, np.arange(n_rows, dtype=np.uint64))
    states = np.empty((n_rows, n_states, n_words(n_latents)), np.uint64)
    draw_distinct(n_latents, n_states, row_streams, states)
    log_joints = posterior.evaluate(model, derived, rows, states)
    return Problem(X, model, derived, rows, row_streams, states, log_joints)


def improve(problem, evolution, **options):
    """The problem after one E-step, and what it did; the one given is left as it was."""
    after = problem._replace(
        streams=problem.streams.copy(),
        states=problem.states.copy(),
        log_joints=np.full_like(problem.log_joints, np.nan),
    )
    if options.get("current"):
        after.log_joints[:] = problem.log_joints
    _, model, derived, rows, *arrays_in_place = after
    done = posterior.improve(model, derived, rows, evolution, *arrays_in_place, **options)
    return after, done


def as_sets(states):
    return [{tuple(s) for s in row} for row in states.tolist()]


problems = st.builds(
    problem_of,
    st.sampled_from([sparse_coding, noisy_or]),
    seed=st.integers(0, 1000),
    n_latents=st.sampled_from([4, 6, 70]),
    n_states=st.integers(1, 15),
)
combinations = [
    (parents, mutation, crossover)
    for parents in OPERATORS["parents"]
    for mutation in OPERATORS["mutation"]
    for crossover in (False, True)
]


@pytest.mark.parametrize(("parents", "mutation", "crossover"), combinations)
@settings(deadline=None, derandomize=True, max_examples=20)
@given(problem=problems, data=st.data())
def test_an_e_step_never_lowers_a_bound_and_keeps_states_distinct(
    parents, mutation, crossover, problem, data
):
    n_states = problem.states.shape[1]
    evolution = Evolution(
        n_parents=data.draw(st.integers(1, n_states)),
        n_children=data.draw(st.integers(1, 4)),
        n_generations=data.draw(st.integers(1, 3)),
        parents=parents,
        mutation=mutation,
        crossover=crossover,
    )
    after, done = improve(problem, evolution)
    assert [len(row) for row in as_sets(after.states)] == [n_states] * len(after.states)
    assert (np.sort(after.log_joints) >= np.sort(problem.log_joints)).all()
    assert (posterior.weigh(after.log_joints)[1] >= posterior.weigh(problem.log_joints)[1]).all()
    np.testing.assert_array_equal(
        after.log_joints,
        posterior.evaluate(after.model, after.derived, after.rows, after.states),
    )
    pairs = zip(as_sets(after.states), as_sets(problem.states), strict=True)
    assert done.replaced == sum(len(new - old) for new, old in pairs)
    n_kept = problem.log_joints.size
    assert n_kept <= done.evaluated <= n_kept + len(after.states) * evolution.n_bred


@pytest.mark.interpreted
@pytest.mark.parametrize("known_children", [False, True])
@pytest.mark.parametrize("crossover", [False, True])
def test_an_e_step_keeps_the_best_of_all_it_has_bred_generation_by_generation(
    monkeypatch, crossover, known_children
):
    populations, children = [], []

    def select(population, n_parents, breeding):
        spans = zip(population.states, population.starts, population.stops, strict=True)
        populations.append([{tuple(s) for s in row[a:b].tolist()} for row, a, b in spans])
        return OPERATORS["parents"]["fit"](population, n_parents, breeding)

    def mutate(parents, n_children, breeding):
        bred = OPERATORS["mutation"]["uniform"](parents, n_children, breeding)
        counted = zip(bred.states, bred.counts, strict=True)
        children.append([{tuple(s) for s in row[:n].tolist()} for row, n in counted])
        return bred

    monkeypatch.setitem(OPERATORS["parents"], "watched", select)
    monkeypatch.setitem(OPERATORS["mutation"], "watched", mutate)
    problem = problem_of(sparse_coding, 1, n_latents=8, n_states=6, n_rows=20)
    before = as_sets(problem.states)
    after, done = improve(
        problem, Evolution(4, 3, 3, "watched", "watched", crossover, known_children)
    )

    assert populations[0] == before
    every = [set(row) for row in before]
    for g in range(3):
        new = [bred - seen for bred, seen in zip(children[g], every, strict=True)]
        if g < 2:
            assert populations[g + 1] == (children[g] if known_children else new)
            assert any(map(set.__and__, children[g], every)), "some must be known"
        every = [seen | more for seen, more in zip(every, new, strict=True)]
    assert done.evaluated == sum(map(len, every))
    all_values = posterior.evaluate(
        problem.model, problem.derived, problem.rows, np.tile(enumerate_all(8), (20, 1, 1))
    )
    for r, seen in enumerate(every):
        best = sorted(seen, key=lambda s: -all_values[r, s[0]])[:6]
        assert as_sets(after.states)[r] == set(best)


@repeatable
@given(problems)
def test_log_joints_that_are_current_need_not_be_evaluated_again(problem):
    evolution = Evolution(min(3, problem.states.shape[1]), 2, 2)
    evaluated, _ = improve(problem, evolution)
    trusted, _ = improve(problem, evolution, current=True)
    np.testing.assert_array_equal(trusted.states, evaluated.states)
    np.testing.assert_array_equal(trusted.log_joints, evaluated.log_joints)


def test_log_joints_of_older_parameters_are_not_trusted():
    problem = problem_of(sparse_coding, 2, n_latents=6, n_states=5)
    misled = problem._replace(states=problem.states.copy(), log_joints=problem.log_joints + 1e6)
    _, model, derived, rows, *arrays_in_place = misled
    posterior.improve(model, derived, rows, Evolution(3, 2, 1), *arrays_in_place)
    np.testing.assert_array_equal(
        misled.log_joints, posterior.evaluate(model, derived, rows, misled.states)
    )


def test_a_row_does_not_depend_on_the_rows_it_is_improved_with():
    problem = problem_of(sparse_coding, 3, n_latents=70, n_states=10, n_rows=6)
    evolution = Evolution(4, 3, 2, "fit", "sparse")
    together, _ = improve(problem, evolution)
    part = slice(2, 5)
    alone, _ = improve(
        problem._replace(
            rows=problem.model.prepare_rows(problem.derived, problem.X[part], None),
            streams=problem.streams[part],
            states=problem.states[part],
            log_joints=problem.log_joints[part],
        ),
        evolution,
    )
    np.testing.assert_array_equal(alone.states, together.states[part])
    np.testing.assert_array_equal(alone.log_joints, together.log_joints[part])


@pytest.mark.interpreted
def test_nothing_is_bred_when_all_states_are_kept(monkeypatch):
    def refuse(*_):
        raise AssertionError("There is no other state to be found.")

    for kind, names in OPERATORS.items():
        for name in names:
            monkeypatch.setitem(OPERATORS[kind], name, refuse)
    problem = problem_of(noisy_or, 4, n_latents=4, n_states=16)
    after, done = improve(problem, Evolution(4, 2, 2))
    np.testing.assert_array_equal(after.states, problem.states)
    np.testing.assert_array_equal(after.log_joints, problem.log_joints)
    assert done == posterior.Improvement(evaluated=5 * 16, replaced=0)


def test_enough_e_steps_find_the_best_states_there_are():
    problem = problem_of(sparse_coding, 5, n_latents=6, n_states=8)
    exact = posterior.evaluate(
        problem.model, problem.derived, problem.rows, np.tile(enumerate_all(6), (5, 1, 1))
    )
    for _ in range(40):
        problem, _ = improve(problem, Evolution(8, 6, 2))
    np.testing.assert_allclose(np.sort(problem.log_joints), np.sort(exact)[:, -8:])


@pytest.mark.parametrize(
    ("kept_values", "bred_value", "latents"),
    [([-1.0, np.nan], -1.0, [1]), ([-1.0, -2.0], np.inf, [0, 1])],
)
def test_a_log_joint_that_is_not_a_number_is_refused_and_nothing_is_overwritten(
    kept_values, bred_value, latents
):
    kept = np.array([[[1], [2]]], np.uint64)
    pool = Pool(kept.copy(), 1)
    pool.admit(Genomes(np.array([[[3]]], np.uint64), np.ones(1, np.int64)))
    pool.kept.log_joints[:] = kept_values
    pool.log_joints[:] = bred_value
    log_joints = np.array([[-3.0, -4.0]])
    with pytest.raises(
        LogJointError, match=rf"(nan|inf), for row 0 .* latents {re.escape(str(latents))}"
    ):
        posterior.keep_best(pool, log_joints)
    np.testing.assert_array_equal(pool.kept.states, kept)
    np.testing.assert_array_equal(log_joints, [[-3.0, -4.0]])
