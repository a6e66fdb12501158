"""Twins of the evolutionary operators, which enumerate all outcomes, and problems for them."""

from collections import Counter
from functools import partial
from itertools import chain, combinations, permutations, product

import numpy as np
from hypothesis import settings
from scipy import stats

from evoem import streams
from evoem.evolution import (
    Breeding,
)
from evoem.ranking import rank_inactive
from evoem.states import Genomes, Population

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
