"""Every operator of the table by its distribution, against twins that enumerate all outcomes."""

from collections import Counter
from itertools import combinations, permutations, product
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from operator_twins import (
    IMPROBABLE,
    N_LATENTS,
    PROBLEM_LOG_JOINTS,
    PROBLEM_STATES,
    TWINS,
    assert_follows,
    breeding,
    fitness,
    genomes_of,
    ordered_draws,
    population_of,
    repeatable,
    swap_tails,
)
from scipy import stats

from evoem import posterior, streams
from evoem.evolution import (
    OPERATORS,
    Evolution,
    Pool,
    breed,
    cross_all_pairs,
    select_best,
    select_by_fitness,
    select_uniformly,
)
from evoem.models import BinarySparseCodingModel
from evoem.models.base import Model, log_joint
from evoem.models.binary_sparse_coding import BinarySparseCodingParams
from evoem.states import Genomes, draw_distinct, enumerate_all, n_words, pack, unpack


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind, names in OPERATORS.items() for name in names]
)
def test_every_operator_of_the_table_follows_its_definition(kind, name):
    run, twin = TWINS[kind, name]
    assert_follows(run(OPERATORS[kind][name]), twin())


# ---------------------------------------------------------------------------- parent selection


@pytest.mark.parametrize("n_parents", [1, 3, 7, 9])
@pytest.mark.parametrize("start", [0, 2])
def test_the_best_states_are_parents_and_the_first_of_equals(n_parents, start):
    rng = np.random.default_rng(n_parents)
    for _ in range(20):
        log_joints = rng.choice([-np.inf, -3.0, -2.0, -1.0, 0.5], 7)
        population = population_of(range(7), log_joints, 2, start)
        parents = select_best(population, n_parents, breeding(2, 5))
        order = np.argsort(-log_joints, kind="stable")[:n_parents]
        assert (parents.counts == min(n_parents, 7)).all()
        assert parents.states[1, : len(order), 0].tolist() == sorted(order.tolist())


def select_fit(log_joints, n_parents, n_rows=20_000, log_constant=0.0, start=0):
    """Places, in the population, of the parents of each row."""
    population = population_of(range(len(log_joints)), log_joints, n_rows, start)
    rules = breeding(n_rows, 5, log_constant)
    parents = select_by_fitness(population, n_parents, rules)
    assert (parents.counts == min(n_parents, len(log_joints))).all()
    return [tuple(row) for row in parents.states[..., 0].tolist()]


@pytest.mark.parametrize(
    ("log_joints", "log_constant"),
    [
        ([-5.0, -2.0, -1.0, -9.0], -3.0),  # some above the constant
        ([3.0, 1.0, 8.0], 0.0),  # all above it
        ([1.0, 0.0, 2.0], 0.0),  # the least has no fitness
        ([-100.0, -101.0, -102.0, -103.0, -104.0], 250.0),
        ([100.0, 0.01, 0.01, 0.02], 0.0),  # almost all draws hit the first
    ],
)
@pytest.mark.parametrize("n_parents", [1, 2])
def test_fit_parents_are_drawn_by_fitness_without_replacement(log_joints, log_constant, n_parents):
    weights = fitness(log_joints, log_constant)
    chosen = select_fit(log_joints, n_parents, log_constant=log_constant)
    assert_follows(chosen, ordered_draws(weights, n_parents))


def test_fit_parents_come_from_the_current_generation_alone():
    log_joints = [-5.0, -2.0, -1.0, -9.0]
    assert_follows(select_fit(log_joints, 2, start=3), ordered_draws(fitness(log_joints, 0.0), 2))


def test_inclusion_of_fit_parents_matches_weighted_draws_one_after_another():
    log_joints = np.linspace(-8.0, -1.0, 6)
    chosen = np.array(select_fit(log_joints, 3))
    inclusion = np.zeros(6)
    for sequence, probability in ordered_draws(fitness(log_joints, 0.0), 3).items():
        inclusion[list(sequence)] += probability
    counts = np.bincount(chosen.ravel(), minlength=6)
    z = (counts - len(chosen) * inclusion) / np.sqrt(len(chosen) * inclusion * (1 - inclusion))
    assert np.abs(z).max() < stats.norm.isf(IMPROBABLE / 12)


def test_impossible_states_become_parents_only_when_no_possible_one_is_left():
    log_joints = [-np.inf, -2.0, -np.inf, -5.0, -np.inf]
    possible_first = ordered_draws(fitness(log_joints, 0.0), 3)
    assert {key[2] for key, p in possible_first.items() if p > 0} == {0, 2, 4}
    assert_follows(select_fit(log_joints, 3), possible_first)


def test_a_possible_state_of_no_fitness_goes_before_impossible_ones():
    assert set(select_fit([-np.inf, 0.0, -np.inf], 1)) == {(1,)}
    assert set(select_fit([-np.inf, 0.0, 3.0, -np.inf], 2)) == {(2, 1)}


@pytest.mark.parametrize("log_joints", [[0.0] * 4, [-np.inf] * 4, [-7.5] * 4])
def test_parents_of_equal_fitness_are_drawn_uniformly(log_joints):
    uniform = {pair: 1 / 12 for pair in permutations(range(4), 2)}
    assert_follows(select_fit(log_joints, 2), uniform)


@pytest.mark.parametrize("name", OPERATORS["parents"])
@pytest.mark.parametrize("n_parents", [4, 6])
def test_every_state_is_a_parent_once_if_as_many_are_asked_for(name, n_parents):
    population = population_of(PROBLEM_STATES, PROBLEM_LOG_JOINTS, 10, start=2)
    parents = OPERATORS["parents"][name](population, n_parents, breeding(10, N_LATENTS))
    assert parents.counts.tolist() == [4] * 10
    assert [sorted(row[:4]) for row in parents.states[..., 0].tolist()] == [PROBLEM_STATES] * 10


def test_random_parents_do_not_depend_on_log_joints():
    population = population_of(range(5), [-np.inf, -1.0, -500.0, 3.0, 0.0], 20_000, start=1)
    parents = select_uniformly(population, 3, breeding(20_000, 5))
    uniform = {triple: 1 / 60 for triple in permutations(range(5), 3)}
    assert_follows([tuple(row) for row in parents.states[..., 0].tolist()], uniform)


@pytest.mark.parametrize("name", OPERATORS["parents"])
def test_a_row_without_a_population_has_no_parents(name):
    population = population_of(PROBLEM_STATES, PROBLEM_LOG_JOINTS, 3)
    population.stops[1] = 0
    parents = OPERATORS["parents"][name](population, 2, breeding(3, N_LATENTS))
    assert parents.counts.tolist() == [2, 0, 2]


# ----------------------------------------------------------------------------------- crossover


@pytest.mark.parametrize("n_latents", [2, 63, 64, 65, 130, 200])
def test_cuts_are_uniform_between_the_first_and_the_last_latent(n_latents):
    n_rows = 200 * (n_latents - 1)
    full = np.zeros((n_rows, 2, n_latents), bool)
    full[:, 1] = True
    parents = Genomes(pack(full), np.full(n_rows, 2))
    children = unpack(cross_all_pairs(parents, breeding(n_rows, n_latents)).states, n_latents)
    np.testing.assert_array_equal(children[:, 0], ~children[:, 1])
    heads = np.where(children[:, :, 0], children.sum(2), n_latents - children.sum(2))
    assert_follows(heads[:, 0].tolist(), {c: 1 / (n_latents - 1) for c in range(1, n_latents)})


@pytest.mark.parametrize("n_latents", [2, 5, 64, 65, 130])
def test_children_of_a_pair_swap_their_tails_behind_one_cut(n_latents):
    n_rows, n_parents = 20, 4
    dense = np.random.default_rng(0).random((n_rows, n_parents, n_latents)) < 0.5
    parents = Genomes(pack(dense), np.full(n_rows, n_parents))
    children = cross_all_pairs(parents, breeding(n_rows, n_latents))
    assert children.counts.tolist() == [n_parents * (n_parents - 1)] * n_rows
    for row, crossed_row in zip(dense, unpack(children.states, n_latents), strict=True):
        firsts, seconds = crossed_row[::2].tolist(), crossed_row[1::2].tolist()
        unmatched = [{tuple(a), tuple(b)} for a, b in zip(firsts, seconds, strict=True)]
        for a, b in combinations(row.tolist(), 2):
            possible = [{(*a[:cut], *b[cut:]), (*b[:cut], *a[cut:])} for cut in range(1, n_latents)]
            unmatched.remove(next(pair for pair in unmatched if pair in possible))
        assert not unmatched


def test_rows_with_fewer_parents_have_fewer_crossed_children():
    parents = genomes_of(PROBLEM_STATES, 4)
    parents.counts[:] = [4, 3, 1, 0]
    children = cross_all_pairs(parents, breeding(4, N_LATENTS))
    assert children.counts.tolist() == [12, 6, 0, 0]
    parents.states[1, 3] ^= np.uint64(0b1111)  # no parent of this row
    again = cross_all_pairs(parents, breeding(4, N_LATENTS))
    np.testing.assert_array_equal(again.states[1, :6], children.states[1, :6])


# ------------------------------------------------------------------------------ one generation


@pytest.mark.parametrize("crossover", [False, True])
@pytest.mark.parametrize("mutation", OPERATORS["mutation"])
@pytest.mark.parametrize("parents", OPERATORS["parents"])
def test_a_generation_has_as_many_children_as_the_paper_counts(parents, mutation, crossover):
    evolution = Evolution(3, 2, 4, parents, mutation, crossover)
    population = population_of(PROBLEM_STATES, PROBLEM_LOG_JOINTS, 5)
    children = breed(population, evolution, breeding(5, N_LATENTS))
    per_generation = 3 * 2
    assert evolution.children_per_generation == per_generation
    assert evolution.n_bred == 4 * per_generation
    assert children.counts.tolist() == [per_generation] * 5


def test_children_of_a_crossover_undergo_one_flip_each():
    n_rows = 20_000
    population = population_of([0b0000, 0b1111], [-1.0, -1.0], n_rows)
    evolution = Evolution(2, 3, 1, "random", "uniform", crossover=True)
    children = breed(population, evolution, breeding(n_rows, 4)).states[:, :, 0].tolist()
    twin = Counter()
    for cut, g, h in product(range(1, 4), range(4), range(4)):
        a, b = swap_tails(0b0000, 0b1111, cut)
        twin[tuple(sorted((a ^ (1 << g), b ^ (1 << h))))] += 1 / 48
    assert_follows([tuple(sorted(row)) for row in children], twin)


# ------------------------------------------------------------------- the set of distinct states


@repeatable
@given(st.data())
def test_a_pool_takes_every_new_state_once_and_loses_none(data):
    n_rows = data.draw(st.integers(1, 3))
    state = st.tuples(st.integers(0, 5), st.sampled_from([0, 1, 2**40]))
    n_states = data.draw(st.integers(1, 6))
    kept = [data.draw(st.lists(state, min_size=n_states, max_size=n_states, unique=True))
            for _ in range(n_rows)]  # fmt: skip
    pool = Pool(np.array(kept, np.uint64), n_bred=24)
    seen = [list(row) for row in kept]
    for _ in range(2):
        children = [data.draw(st.lists(state, max_size=12)) for _ in range(n_rows)]
        packed = np.full((n_rows, 12, 2), 77, np.uint64)
        for r, row in enumerate(children):
            packed[r, : len(row)] = np.array(row, np.uint64).reshape(-1, 2)
        population = pool.admit(Genomes(packed, np.array([len(row) for row in children])))
        for r, row in enumerate(children):
            new = [s for s in dict.fromkeys(row) if s not in seen[r]]
            held = population.states[r, population.starts[r] : population.stops[r]]
            assert [tuple(s) for s in held.tolist()] == new
            seen[r] += new
    for r in range(n_rows):
        held = np.concatenate([pool.kept.states[r], pool.states[r, : pool.sizes[r]]])
        assert [tuple(s) for s in held.tolist()] == seen[r]


@repeatable
@given(st.data())
def test_known_children_are_parents_too_each_once_with_their_log_joints(data):
    state = st.tuples(st.integers(0, 5), st.sampled_from([0, 1, 2**40]))
    kept = [data.draw(st.lists(state, min_size=3, max_size=3, unique=True)) for _ in range(2)]
    pool = Pool(np.array(kept, np.uint64), n_bred=24)
    worth = dict[tuple[int, ...], float]()

    def log_joints_of(states):
        for one in states:
            worth.setdefault(tuple(one), float(len(worth)))
        return [worth[tuple(one)] for one in states]

    for r, row in enumerate(kept):
        pool.kept.log_joints[r] = log_joints_of(row)
    for _ in range(2):
        children = [data.draw(st.lists(state, max_size=12)) for _ in range(2)]
        packed = np.full((2, 12, 2), 77, np.uint64)
        for r, row in enumerate(children):
            packed[r, : len(row)] = np.array(row, np.uint64).reshape(-1, 2)
        genomes = Genomes(packed, np.array([len(row) for row in children]))
        new = pool.admit(genomes)
        for r in range(2):
            own = slice(new.starts[r], new.stops[r])
            new.log_joints[r, own] = log_joints_of(new.states[r, own].tolist())
        found = pool.all_of(genomes)
        for r, row in enumerate(children):
            own = slice(found.starts[r], found.stops[r])
            assert [tuple(s) for s in found.states[r, own].tolist()] == list(dict.fromkeys(row))
            assert found.log_joints[r, own].tolist() == [worth[s] for s in dict.fromkeys(row)]


def test_a_pool_holds_all_states_there_are():
    kept = np.tile(enumerate_all(8)[:100], (3, 1, 1))
    pool = Pool(kept, n_bred=256)
    pool.admit(Genomes(np.tile(enumerate_all(8)[::-1], (3, 1, 1)), np.full(3, 256)))
    assert pool.sizes.tolist() == [156] * 3
    bred = pool.states[:, :156, 0].tolist()
    assert [sorted(row) for row in bred] == [list(range(100, 256))] * 3


# -------------------------------------------------------------------- an operator of one's own


class CountParams(NamedTuple):
    activation_probs: np.ndarray


class CountDerived(NamedTuple):
    probs: np.ndarray
    n_latents: int
    expected_active: float


class CountModel(Model):
    """Data explained by the number of active latents alone, in NumPy."""

    def prepare(self, params, dtype):
        pi = params.activation_probs
        return CountDerived(pi, len(pi), float(pi.sum()))

    def prepare_rows(self, derived, X, observed):
        return X[:, 0]

    def dense_log_joints(self, derived, rows, states):
        pi = derived.probs
        prior = states @ np.log(pi / (1 - pi)) + np.log1p(-pi).sum()
        return prior - 0.5 * (rows[:, None] - states.sum(-1)) ** 2


def count_problem(rng, n_rows):
    return CountModel(), CountParams(rng.uniform(0.1, 0.9, 7)), rng.uniform(0, 7, (n_rows, 1))


def sparse_coding_problem(rng, n_rows):
    params = BinarySparseCodingParams(rng.normal(size=(7, 4)), np.full(7, 0.3), np.array(0.5))
    model = BinarySparseCodingModel()
    return model, params, model.sample(params, n_rows, rng)[0]


def flip_best(parents, n_children, rules):
    """The flips that gain most."""
    gains = rules.flip_gains(parents)
    best = np.argsort(-gains, axis=2, kind="stable")[:, :, :n_children]
    single = pack(np.eye(rules.n_latents, dtype=bool))
    children = parents.states[:, :, None] ^ single[best]
    n_rows, _, width = parents.states.shape
    return Genomes(children.reshape(n_rows, -1, width), parents.counts * n_children)


@pytest.mark.parametrize("problem", [count_problem, sparse_coding_problem])
def test_an_operator_that_asks_the_model_can_be_added_to_the_table(monkeypatch, problem):
    monkeypatch.setitem(OPERATORS["mutation"], "best", flip_best)
    n_rows, n_states, n_children = 6, 5, 2
    model, params, X = problem(np.random.default_rng(3), n_rows)
    derived = model.prepare(params, X.dtype)
    rows = model.prepare_rows(derived, X, None)
    every = unpack(enumerate_all(7), 7)
    value = [[log_joint(model, params, x, None, s) for s in every] for x in X]
    states = np.empty((n_rows, n_states, n_words(7)), np.uint64)
    row_streams = streams.start(0, 0, np.arange(n_rows, dtype=np.uint64))
    draw_distinct(7, n_states, row_streams, states)
    expected = []
    for r, kept in enumerate(states[..., 0].tolist()):
        pool = set(kept)
        for s in kept:
            flips = sorted((s ^ (1 << h) for h in range(7)), key=lambda c: -value[r][c])
            pool.update(flips[:n_children])
        expected.append(sorted((value[r][s] for s in pool), reverse=True)[:n_states])

    log_joints = np.empty((n_rows, n_states))
    evolution = Evolution(n_states, n_children, 1, "fit", "best")
    posterior.improve(model, derived, rows, evolution, row_streams, states, log_joints)

    np.testing.assert_allclose(np.sort(log_joints)[:, ::-1], expected, atol=1e-9)
    kept_values = [[value[r][s] for s in row] for r, row in enumerate(states[..., 0].tolist())]
    np.testing.assert_allclose(log_joints, kept_values, atol=1e-9)
