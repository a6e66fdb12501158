"""Mutation of `evolution`: which bits are flipped, how often, and independently."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from operator_twins import (
    IMPROBABLE,
    N_LATENTS,
    PROBLEM_STATES,
    assert_rates,
    breeding,
    genomes_of,
    printed_probabilities,
    repeatable,
)
from scipy import stats

from evoem.evolution import (
    OPERATORS,
    flip_sparsely,
    flip_uniformly,
    sparse_flip_probabilities,
)
from evoem.states import Genomes, pack, unpack


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
