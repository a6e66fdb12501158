"""Subspaces row by row: rows beside others, and promising additions."""

import numpy as np
import pytest
import reference
from subspace_problems import (
    MISSING,
    MODEL,
    SIZES,
    make_problem,
    seen,
)

from evoem import states
from evoem.models.base import Posterior
from evoem.models.scratch import FEW
from evoem.models.subspace import kernels
from evoem.models.subspace.by_feature import SubspacesByFeature
from evoem.ranking import NONE
from evoem.states import Genomes, pack

G, N = 70, 7
# Active latents by row: those whose patterns need more room come amid others.
ACTIVE = [1, 2, FEW // 2 + 1, FEW, 3, G, 2]


def make_states():
    """Three states of each row, the last of so many active latents."""
    rng = np.random.default_rng(0)
    dense = rng.random((N, 3, G)) < 0.03
    for row, size in zip(dense, ACTIVE, strict=True):
        row[2] = rng.permutation(G) < size
    return dense


@pytest.mark.parametrize("missing", [0.0, 0.4])
@pytest.mark.parametrize("model", [MODEL, SubspacesByFeature()])
def test_moments_ranks_and_sums_do_not_depend_on_the_rows_beside(model, missing):
    sizes = np.random.default_rng(1).integers(1, 4, G)
    params, X, observed = make_problem(missing, sizes=sizes, n_rows=N)
    derived = model.prepare(params, X.dtype)
    packed, weights = pack(make_states()), np.random.default_rng(2).dirichlet(np.ones(3), N)

    def results(own):
        mask = None if observed is None else observed[own]
        rows = model.prepare_rows(derived, X[own], mask)
        genomes = Genomes(packed[own], np.full(len(rows.X), 3))
        ranks = model.best_additions(derived, rows, genomes, 5)
        posterior = Posterior(packed[own], weights[own])
        stats = model.empty_statistics(params)
        model.accumulate(stats, params, derived, rows, posterior)
        return (ranks, *model.reconstruct(params, derived, rows, posterior)), stats

    together, whole = results(slice(None))
    sums = [np.zeros_like(field) for field in (*whole.linear, *whole[1:3])]
    for n in range(N):
        alone, stats = results(slice(n, n + 1))
        for mine, other in zip(together, alone, strict=True):
            np.testing.assert_allclose(mine[n], other[0], rtol=1e-10, atol=1e-12)
        for total, field in zip(sums, (*stats.linear, *stats[1:3]), strict=True):
            total += field
    for total, field in zip(sums, (*whole.linear, *whole[1:3]), strict=True):
        np.testing.assert_allclose(field, total, rtol=1e-9, atol=1e-9)


def exact_gains(params, x, mask, s):
    """What activating each inactive latent adds, without the prior's log-odds."""
    gains = np.full(len(s), -np.inf)
    for g in np.flatnonzero(~s):
        with_g = s.copy()
        with_g[g] = True
        pi = params.activation_probs[g]
        gains[g] = reference.subspace_log_joint(params, x, mask, with_g)
        gains[g] -= reference.subspace_log_joint(params, x, mask, s) + np.log(pi / (1 - pi))
    return gains


@pytest.mark.parametrize("own_features", [False, True])
def test_additions_are_ranked_by_their_gains_where_latents_are_orthogonal(own_features):
    """With values missing they stay orthogonal if each pattern has a feature of its own."""
    missing = 0.4 if own_features else 0.0
    params, X, observed = make_problem(missing, n_features=16, n_rows=12, seed=10)
    rng = np.random.default_rng(10)
    basis = np.eye(16) if own_features else np.linalg.qr(rng.normal(size=(16, 16)))[0]
    W = np.empty_like(params.components)
    for g, size in enumerate(SIZES):
        own = slice(params.groups[g], params.groups[g + 1])
        mixed = np.eye(size) if own_features else np.eye(size) + rng.normal(size=(size, size))
        W[own] = rng.uniform(0.5, 3.0, (size, 1)) * (mixed @ basis[own])
    params = params._replace(components=W)
    dense = rng.random((len(X), 3, len(SIZES))) < 0.4
    derived = MODEL.prepare(params, X.dtype)
    rows = MODEL.prepare_rows(derived, X, observed)
    genomes = Genomes(states.pack(dense), np.full(len(X), 3))
    ranks = MODEL.best_additions(derived, rows, genomes, len(SIZES))
    for n, p in np.ndindex(dense.shape[:2]):
        found = ranks[n, p][ranks[n, p] != NONE]
        assert set(found) == set(np.flatnonzero(~dense[n, p]))
        gains = exact_gains(params, X[n], seen(X, observed)[n], dense[n, p])
        assert (np.diff(gains[found]) < 1e-9).all()  # equal where nothing was observed


@pytest.mark.parametrize("missing", MISSING)
def test_additions_are_never_active_and_mostly_the_best(missing):
    params, X, observed = make_problem(missing, n_rows=150, seed=11)
    dense = np.random.default_rng(11).random((len(X), 1, len(SIZES))) < 0.4
    dense[dense.all(-1)[:, 0], 0, 0] = False
    derived = MODEL.prepare(params, X.dtype)
    rows = MODEL.prepare_rows(derived, X, observed)
    genomes = Genomes(states.pack(dense), np.ones(len(X), np.int64))
    ranks = MODEL.best_additions(derived, rows, genomes, 2)[:, 0]
    hits = []
    for n in range(len(X)):
        found = ranks[n][ranks[n] != NONE]
        assert len(found) == min(2, (~dense[n, 0]).sum())
        assert not dense[n, 0, found].any()
        gains = exact_gains(params, X[n], seen(X, observed)[n], dense[n, 0])
        hits.append(gains[found[0]] == gains.max())
    assert np.mean(hits) > 0.6


@pytest.mark.parametrize("largest", [3.0, 1e36])
def test_latents_are_ranked_by_the_gains_of_all_their_patterns(largest):
    sizes = np.array([2, 20, 1, 9, 8, 2])  # products of twenty such squares overflow
    groups = np.concatenate([[0], np.cumsum(sizes)])
    tiers = kernels.tiers_of(groups)
    assert sorted(tiers.patterns) == list(range(groups[-1]))
    rng = np.random.default_rng(0)
    squares, shift = rng.uniform(0, largest, (3, groups[-1])), rng.normal(size=groups[-1])
    correlations = rng.normal(size=(3, 4, groups[-1])) * np.sqrt(1 + squares)[:, None] * 4
    dense = rng.random((3, 4, len(sizes))) < 0.3
    genomes = Genomes(states.pack(dense), np.full(3, 4))
    ranks = np.empty(dense.shape, np.int32)
    kernels.rank_additions(
        tiers, shift[tiers.patterns], squares[:, tiers.patterns], np.arange(3),
        correlations[:, :, tiers.patterns], genomes, ranks,
    )  # fmt: skip
    for n, p in np.ndindex(dense.shape[:2]):
        gains = np.full(len(sizes), -np.inf)
        for g in np.flatnonzero(~dense[n, p]):
            own = slice(groups[g], groups[g + 1])
            z = correlations[n, p, own] + shift[own]
            terms = z**2 / (1 + squares[n, own]) - np.log1p(squares[n, own]) - shift[own] ** 2
            gains[g] = 0.5 * terms.sum()
        expected = np.argsort(-gains)
        expected = np.where(np.isneginf(gains[expected]), NONE, expected)
        np.testing.assert_array_equal(ranks[n, p], expected)
