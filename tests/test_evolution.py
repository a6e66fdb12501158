"""Every operator of the table by its distribution, against twins that enumerate all outcomes."""

from collections import Counter
from functools import partial
from itertools import chain, combinations, permutations, product
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from evoem import posterior, streams
from evoem.evolution import (
    OPERATORS,
    Breeding,
    Evolution,
    Pool,
    breed,
    cross_all_pairs,
    flip_sparsely,
    flip_uniformly,
    select_best,
    select_by_fitness,
    select_uniformly,
    sparse_flip_probabilities,
)
from evoem.models import BinarySparseCodingModel
from evoem.models.base import Model, log_joint
from evoem.models.binary_sparse_coding import BinarySparseCodingParams
from evoem.ranking import rank_inactive
from evoem.states import Genomes, Population, draw_distinct, enumerate_all, n_words, pack, unpack

IMPROBABLE = 1e-4
repeatable = settings(deadline=None, derandomize=True, max_examples=60)


def no_gains(genomes):
    raise AssertionError("This operator has no use for the model.")


def later_is_better(genomes, n_best, n_latents):
    scores = np.arange(float(n_latents))
    return rank_inactive(np.tile(scores, (*genomes.states.shape[:2], 1)), genomes, n_best)


def breeding(n_rows, n_latents, log_constant=0.0, expected_active=1.0, seed=0):
    return Breeding(
        n_latents=n_latents,
        streams=streams.start(seed, 0, np.arange(n_rows, dtype=np.uint64)),
        log_constants=np.full(n_rows, log_constant),
        expected_active=expected_active,
        flip_gains=no_gains,
        best_additions=partial(later_is_better, n_latents=n_latents),
    )


def population_of(states, log_joints, n_rows, start=0):
    """The same population for every row, with `start` places in front that are no part of it."""
    stop = start + len(states)
    packed = np.full((n_rows, stop, 1), 2**64 - 1, np.uint64)
    packed[:, start:, 0] = states
    values = np.full((n_rows, stop), 1e6)
    values[:, start:] = log_joints
    return Population(packed, values, np.full(n_rows, start), np.full(n_rows, stop))


def genomes_of(states, n_rows):
    """The same genomes, given as integers, for every row."""
    packed = np.tile(np.array(states, np.uint64)[:, None], (n_rows, 1, 1))
    return Genomes(packed, np.full(n_rows, len(states)))


def assert_follows(outcomes, probabilities):
    """Chi-square of a list of outcomes; those that are rare count as one."""
    counts = Counter(outcomes)
    possible = {outcome for outcome, p in probabilities.items() if p > 0}
    assert counts.keys() <= possible
    expected = {outcome: len(outcomes) * probabilities[outcome] for outcome in possible}
    np.testing.assert_allclose(sum(expected.values()), len(outcomes))
    common = [outcome for outcome in possible if expected[outcome] >= 5]
    observed = [counts[outcome] for outcome in common]
    wanted = [expected[outcome] for outcome in common]
    if len(common) < len(possible):
        observed.append(len(outcomes) - sum(observed))
        wanted.append(len(outcomes) - sum(wanted))
    assert len(wanted) == 1 or stats.chisquare(observed, wanted).pvalue > IMPROBABLE


def assert_rates(counts, n, probabilities):
    """Each of many independent binomial counts, by the sum of their squared z-scores."""
    chi_square = (
        (counts - n * probabilities) ** 2 / (n * probabilities * (1 - probabilities))
    ).sum()
    assert stats.chi2.sf(chi_square, len(counts)) > IMPROBABLE


# ------------------------------------------------------------- the table, each entry by its twin

N_LATENTS = 4
PROBLEM_STATES = [0b0000, 0b0110, 0b1011, 0b1111]
PROBLEM_LOG_JOINTS = [-1.0, -4.0, -7.0, -2.5]
LOG_CONSTANT = -0.5
EXPECTED_ACTIVE = 1.6
N_ROWS = 30_000


def ordered_draws(weights, n):
    """Probability of every n draws without replacement; uniform once no weight is left."""
    result = {}
    for sequence in permutations(range(len(weights)), n):
        probability, left = 1.0, list(range(len(weights)))
        for index in sequence:
            total = sum(weights[i] for i in left)
            probability *= weights[index] / total if total > 0 else 1 / len(left)
            left.remove(index)
        result[sequence] = probability
    return result


def fitness(log_joints, log_constant):
    """lpj + |2 min lpj|, and nothing for a state that cannot be."""
    lpj = np.array(log_joints) - log_constant
    least = lpj[np.isfinite(lpj)].min()
    return np.where(np.isfinite(lpj), lpj + abs(2 * least), 0.0)


def parents_by_fitness():
    draws = ordered_draws(fitness(PROBLEM_LOG_JOINTS, LOG_CONSTANT), 2)
    return {tuple(PROBLEM_STATES[i] for i in key): p for key, p in draws.items()}


def parents_at_random():
    return {pair: 1 / 12 for pair in permutations(PROBLEM_STATES, 2)}


def swap_tails(a, b, cut):
    """Both children of two integers that keep their first `cut` bits."""
    low = (1 << cut) - 1
    return [(a & low) | (b & ~low), (b & low) | (a & ~low)]


def crossed():
    pairs = list(combinations(PROBLEM_STATES[1:], 2))
    cuts = list(product(range(1, N_LATENTS), repeat=len(pairs)))
    result = Counter()
    for chosen in cuts:
        children = [swap_tails(*pair, cut) for pair, cut in zip(pairs, chosen, strict=True)]
        result[tuple(sorted(chain(*children)))] += 1 / len(cuts)
    return result


def flipped_uniformly():
    choices = list(combinations(range(N_LATENTS), 2))
    result = Counter()
    for bits in product(choices, repeat=2):
        key = tuple(
            tuple(sorted(parent ^ (1 << h) for h in chosen))
            for parent, chosen in zip(PROBLEM_STATES[1:3], bits, strict=True)
        )
        result[key] += 1 / len(choices) ** 2
    return result


def printed_probabilities(n_active, n_latents, expected_active):
    """app:eem_sparseflips as printed, with p_bf = 1 / H."""
    flips = n_latents * (1 / n_latents)
    alpha = (n_latents - n_active) * (flips - expected_active + n_active)
    alpha /= (expected_active - n_active + flips) * n_active
    p0 = flips / (n_latents + (alpha - 1) * n_active)
    return p0, alpha * p0


def sparse_child_of(parent, expected_active):
    """Probability of every child of an integer."""
    p0, p1 = printed_probabilities(parent.bit_count(), N_LATENTS, expected_active)
    result = {}
    for child in range(2**N_LATENTS):
        result[child] = 1.0
        for h in range(N_LATENTS):
            p = p1 if parent >> h & 1 else p0
            result[child] *= p if (parent ^ child) >> h & 1 else 1 - p
    return result


def flipped_sparsely():
    child = sparse_child_of(PROBLEM_STATES[1], EXPECTED_ACTIVE)
    return {(a, b): child[a] * child[b] for a, b in product(child, repeat=2)}


GUIDED_PARENT = 0b00010010
N_GUIDED = 8


def guided_pairs():
    """Two children of a parent: additions are drawn from the four best, each at most once."""

    def next_child(best):
        result = Counter()
        for h in best:
            result[h, tuple(g for g in best if g != h)] += 0.5 / len(best)
        for h in (1, 4):  # dropped
            result[h, best] += 0.25 / 2
        for h in range(N_GUIDED):
            result[h, best] += 0.25 / N_GUIDED
        return result

    pairs = Counter()
    for (first, best), p in next_child((7, 6, 5, 3)).items():
        for (second, _), q in next_child(best).items():
            pairs[GUIDED_PARENT ^ (1 << first), GUIDED_PARENT ^ (1 << second)] += p * q
    return pairs


def run_guided(operator):
    parents = genomes_of([GUIDED_PARENT], N_ROWS)
    children = operator(parents, 2, breeding(N_ROWS, N_GUIDED))
    return [tuple(row) for row in children.states[..., 0].tolist()]


def run_parents(operator):
    population = population_of(PROBLEM_STATES, PROBLEM_LOG_JOINTS, N_ROWS)
    parents = operator(population, 2, breeding(N_ROWS, N_LATENTS, LOG_CONSTANT))
    return [tuple(row) for row in parents.states[..., 0].tolist()]


def run_crossover(operator):
    parents = genomes_of(PROBLEM_STATES[1:], N_ROWS)
    children = operator(parents, breeding(N_ROWS, N_LATENTS))
    return [tuple(sorted(row)) for row in children.states[..., 0].tolist()]


def run_uniform(operator):
    parents = genomes_of(PROBLEM_STATES[1:3], N_ROWS)
    children = operator(parents, 2, breeding(N_ROWS, N_LATENTS))
    return [
        (tuple(sorted(row[:2])), tuple(sorted(row[2:]))) for row in children.states[..., 0].tolist()
    ]


def run_sparse(operator):
    parents = genomes_of(PROBLEM_STATES[1:2], N_ROWS)
    children = operator(parents, 2, breeding(N_ROWS, N_LATENTS, expected_active=EXPECTED_ACTIVE))
    return [tuple(row) for row in children.states[..., 0].tolist()]


TWINS = {
    ("parents", "fit"): (run_parents, parents_by_fitness),
    ("parents", "random"): (run_parents, parents_at_random),
    ("parents", "best"): (run_parents, lambda: {(0b0000, 0b1111): 1.0}),
    ("crossover", "all_pairs"): (run_crossover, crossed),
    ("mutation", "uniform"): (run_uniform, flipped_uniformly),
    ("mutation", "sparse"): (run_sparse, flipped_sparsely),
    ("mutation", "guided"): (run_guided, guided_pairs),
}


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


# ------------------------------------------------------------------------------------ mutation


def mutate(operator, parent, n_children, n_rows, expected_active=1.0):
    """Changed bits (n_rows, n_children, n_latents) of children of one boolean parent."""
    n_latents = len(parent)
    parents = Genomes(np.tile(pack(parent), (n_rows, 1, 1)), np.ones(n_rows, np.int64))
    rules = breeding(n_rows, n_latents, expected_active=expected_active)
    children = operator(parents, n_children, rules)
    assert (children.counts == n_children).all()
    np.testing.assert_array_equal(pack(unpack(children.states, n_latents)), children.states)
    return unpack(children.states, n_latents) ^ parent


@pytest.mark.parametrize("n_latents", [1, 2, 64, 65, 130])
@pytest.mark.parametrize("n_children", [1, 2, 40])
def test_uniform_flips_change_one_bit_each_a_different_one_for_each_child(n_latents, n_children):
    n_children = min(n_children, n_latents)
    n_rows = 4_000
    parent = np.arange(n_latents) % 3 == 0
    changed = mutate(flip_uniformly, parent, n_children, n_rows)
    assert (changed.sum(2) == 1).all()
    assert changed.any(1).sum(1).tolist() == [n_children] * n_rows
    if n_children < n_latents:
        included = changed.any(1).sum(0)
        p = n_children / n_latents
        # Counts of bits drawn without replacement: their covariance takes one degree of freedom.
        chi_square = ((included - n_rows * p) ** 2).sum() / (n_rows * p * (1 - p))
        chi_square *= (n_latents - 1) / n_latents
        assert stats.chi2.sf(chi_square, n_latents - 1) > IMPROBABLE


@pytest.mark.parametrize("name", OPERATORS["mutation"])
def test_mutated_children_stand_in_the_order_of_their_parents(name):
    dense = np.zeros((1, 3, 200), bool)
    dense[0, 1, :100] = True
    dense[0, 2, 100:] = True
    rules = breeding(1, 200, expected_active=67.0)
    children = OPERATORS["mutation"][name](Genomes(pack(dense), np.array([3])), 5, rules)
    distances = (unpack(children.states, 200)[0, :, None] ^ dense).sum(2)
    assert distances.argmin(1).tolist() == [0] * 5 + [1] * 5 + [2] * 5


@pytest.mark.parametrize("name", OPERATORS["mutation"])
def test_rows_with_fewer_parents_have_fewer_mutated_children(name):
    parents = genomes_of(PROBLEM_STATES, 3)
    parents.counts[:] = [4, 1, 0]
    children = OPERATORS["mutation"][name](parents, 2, breeding(3, N_LATENTS))
    assert children.counts.tolist() == [8, 2, 0]


@pytest.mark.parametrize(
    ("n_latents", "n_active", "expected_active"),
    [(10, 3, 2.5), (10, 3, 3.9), (10, 3, 3.0), (100, 7, 6.2), (4, 2, 1.5), (130, 66, 65.9)],
)
def test_sparse_flip_probabilities_are_those_printed_in_appendix_b(
    n_latents, n_active, expected_active
):
    probabilities = sparse_flip_probabilities.py_func(n_active, n_latents, expected_active)
    printed = printed_probabilities(n_active, n_latents, expected_active)
    np.testing.assert_allclose(probabilities, printed, rtol=1e-12)


@repeatable
@given(st.integers(1, 200), st.data())
def test_sparse_flips_keep_both_averages_unless_a_probability_had_to_be_clipped(n_latents, data):
    n_active = data.draw(st.integers(0, n_latents))
    expected_active = data.draw(st.floats(0, n_latents))
    p0, p1 = sparse_flip_probabilities.py_func(n_active, n_latents, expected_active)
    assert 0 <= p0 <= 1
    assert 0 <= p1 <= 1
    if 0 < p0 < 1 and 0 < p1 < 1:
        born, lost = p0 * (n_latents - n_active), p1 * n_active
        np.testing.assert_allclose(born + lost, 1.0)
        np.testing.assert_allclose(n_active + born - lost, expected_active, atol=1e-9)


def test_sparse_flip_probability_of_the_empty_state_is_the_limit_of_the_formula():
    few = 1e-9
    p0, p1 = sparse_flip_probabilities.py_func(0, 20, 0.7)
    np.testing.assert_allclose(p0, printed_probabilities(few, 20, 0.7)[0], rtol=1e-6)
    assert p1 == 0.0


def test_sparse_flips_only_add_bits_far_below_the_expected_activity_and_only_remove_far_above():
    p0, p1 = sparse_flip_probabilities.py_func(2, 50, 8.0)
    assert p0 > 0.0
    assert p1 == 0.0
    p0, p1 = sparse_flip_probabilities.py_func(8, 50, 2.0)
    assert p0 == 0.0
    assert p1 > 0.0


@pytest.mark.parametrize(
    ("n_latents", "n_active", "expected_active"),
    [(70, 5, 5.4), (70, 0, 0.6), (70, 70, 69.5), (130, 20, 20.9), (64, 8, 2.0), (64, 2, 9.0)],
)
def test_sparse_flips_change_every_bit_independently_with_its_own_probability(
    n_latents, n_active, expected_active
):
    n_rows = 10_000
    parent = np.zeros(n_latents, bool)
    parent[np.random.default_rng(1).permutation(n_latents)[:n_active]] = True
    changed = mutate(flip_sparsely, parent, 2, n_rows, expected_active).reshape(-1, n_latents)
    p0, p1 = sparse_flip_probabilities.py_func(n_active, n_latents, expected_active)
    p = np.where(parent, p1, p0)
    assert not changed[:, p == 0].any()
    drawn = (p > 0) & (p < 1)
    assert_rates(changed[:, drawn].sum(0), len(changed), p[drawn])
    # Were the bits not independent, the variance of their number would not be the sum of theirs.
    numbers = changed.sum(1)
    variance = (p * (1 - p)).sum()
    fourth = (p * (1 - p) * (1 - 6 * p * (1 - p))).sum() + 3 * variance**2
    error = np.sqrt((fourth - variance**2) / len(numbers))
    assert abs(numbers.var() - variance) < 4 * error


def test_sparse_flips_lead_to_the_expected_activity_on_average():
    parent = np.arange(70) < 5
    activity = (mutate(flip_sparsely, parent, 2, 10_000, 5.6) ^ parent).sum(2)
    error = activity.std() / np.sqrt(activity.size)
    assert abs(activity.mean() - 5.6) < 4 * error


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
