"""Spike-and-slab coding with subspaces, against its slow twin and its limits."""

import itertools
import pickle

import numpy as np
import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import subspace_angles
from subspace_problems import (
    GUIDED,
    MISSING,
    MODEL,
    SIZES,
    UNIFORM,
    for_all,
    log_joints,
    make_problem,
    posterior_over,
    precision,
    reconstruction,
    run_with_params,
    seen,
    statistics,
)

from evoem import SubspaceCoding, em, posterior, states
from evoem.models import SpikeSlabModel, SubspaceModel
from evoem.models.spike_slab.model import SpikeSlabParams
from evoem.models.subspace import kernels, small_systems
from evoem.models.subspace import model as subspace_model
from evoem.models.subspace.start import Clusters, cluster
from evoem.ranking import NONE
from evoem.runtime.linalg import symmetric
from evoem.states import Genomes


@pytest.fixture(params=[True, False], ids=["tables", "no tables"])
def tables(request, monkeypatch):
    """With the tables of pairs of latents and, as if they were too large, without them."""
    if not request.param:
        monkeypatch.setattr(small_systems, "LARGEST_TABLES", 0)


# ------------------------------------------------------------------------------- the slow twin


@pytest.mark.parametrize("missing", MISSING)
@pytest.mark.parametrize("placed", [False, True])
def test_states_of_one_latent_are_scored_by_their_log_joints(missing, placed):
    """Those of incomplete rows without inner products of different patterns."""
    params, X, observed = make_problem(missing)
    if placed:
        probs = np.random.default_rng(1).uniform(0.1, 0.6, (2, 3, len(SIZES)))
        params = params._replace(field=probs)
    derived = MODEL.prepare(params, X.dtype)
    positions = np.random.default_rng(2).uniform(0, 1, (len(X), 2)) if placed else None
    rows = MODEL.prepare_rows(derived, X, observed, positions)
    found = MODEL.single_scores(derived, rows)
    single = for_all(X, np.eye(len(SIZES), dtype=bool))
    expected = posterior.evaluate(MODEL, derived, rows, single)
    np.testing.assert_allclose(found[rows.complete], expected[rows.complete], rtol=1e-12)
    for r in np.flatnonzero(~rows.complete):
        for g, (begin, end) in enumerate(itertools.pairwise(derived.groups)):
            V = derived.scaled[begin:end] * observed[r]
            gram = 1 + np.square(V).sum(1)
            eta = V @ X[r] / np.sqrt(derived.noise_variance) + derived.shift[begin:end]
            bias = derived.bias[0] if rows.bias is None else rows.bias[r]
            value = rows.base[r] + bias[g] + 0.5 * (eta**2 / gram - np.log(gram)).sum()
            assert found[r, g] == pytest.approx(value, rel=1e-10)
            if end - begin == 1:  # nothing was left out
                assert found[r, g] == pytest.approx(expected[r, g], rel=1e-10)


@pytest.mark.parametrize("missing", MISSING)
@pytest.mark.parametrize("n_best", [1, 3, 12])
def test_rows_start_from_their_best_states_of_one_latent(missing, n_best):
    """Of incomplete rows, from the best of those that seem so."""
    params, X, observed = make_problem(missing, sizes=(2, 1, 3) * 10, n_rows=40)
    derived = MODEL.prepare(params, X.dtype)
    rows = MODEL.prepare_rows(derived, X, observed)
    single = for_all(X, np.eye(30, dtype=bool))
    log_joints = posterior.evaluate(MODEL, derived, rows, single)
    scores = MODEL.single_scores(derived, rows)
    first = states.unpack(MODEL.first_states(derived, rows, n_best), 30)
    assert (first.sum(-1) == 1).all()
    for r, found in enumerate(first.argmax(-1)):
        candidates = np.arange(30)
        if not rows.complete[r]:
            candidates = np.argsort(-scores[r])[: 4 * n_best]
        best = candidates[np.argsort(-log_joints[r, candidates])[:n_best]]
        assert list(found) == sorted(best)


@pytest.mark.interpreted
@pytest.mark.usefixtures("tables")
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("missing", MISSING)
def test_log_joints_are_those_of_the_textbook(missing, dtype):
    """Of all states: those of one latent and of two are solved once for all complete rows."""
    params, X, observed = make_problem(missing)
    dense = reference.all_states(len(SIZES))
    fast = log_joints(params, X.astype(dtype), observed, for_all(X, dense))
    slow = [
        [reference.subspace_log_joint(params, x, mask, s) for s in dense]
        for x, mask in zip(X, seen(X, observed), strict=True)
    ]
    np.testing.assert_allclose(fast, slow, **precision(dtype))


@pytest.mark.parametrize("missing", MISSING)
def test_log_joints_with_many_active_latents_over_several_words(missing):
    rng = np.random.default_rng(1)
    params, X, observed = make_problem(missing, sizes=rng.integers(1, 4, 70), n_rows=4)
    dense = rng.random((4, 70)) < np.array([0.03, 0.2, 0.5, 1.1])[:, None]
    fast = log_joints(params, X, observed, for_all(X, dense))
    slow = [
        [reference.subspace_log_joint(params, x, mask, s) for s in dense]
        for x, mask in zip(X, seen(X, observed), strict=True)
    ]
    np.testing.assert_allclose(fast, slow, rtol=1e-9)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("missing", MISSING)
def test_reconstructions_are_posterior_moments(missing, dtype):
    params, X, observed = make_problem(missing, seed=2)
    every = reference.all_states(len(SIZES))
    some = every[5:25]  # a truncated posterior, not the exact one
    mean, variance = reconstruction(params, X.astype(dtype), observed, for_all(X, some))
    for n, (x, mask) in enumerate(zip(X, seen(X, observed), strict=True)):
        slow_mean, slow_variance = reference.linear_reconstruction(
            reference.subspace_log_joint,
            reference.subspace_moments,
            params,
            x,
            mask,
            some if mask.any() else every,  # the prior is known exactly
        )
        np.testing.assert_allclose(mean[n], slow_mean, **precision(dtype))
        np.testing.assert_allclose(variance[n], slow_variance, **precision(dtype))


@pytest.mark.interpreted
@pytest.mark.usefixtures("tables")
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("missing", MISSING)
def test_gathered_statistics_are_sums_of_exact_moments(missing, dtype):
    params, X, observed = make_problem(missing, seed=3)
    some = reference.all_states(len(SIZES))[3:28]
    stats = statistics(params, X.astype(dtype), observed, for_all(X, some))
    sums = stats.linear
    C, D = params.components.shape
    W = params.components
    activation, first, second = np.zeros(len(SIZES)), np.zeros(C), np.zeros((C, C))
    cross, square = np.zeros((C, D)), 0.0
    for x, mask in zip(X, seen(X, observed), strict=True):
        a, m1, m2 = reference.row_moments(
            reference.subspace_log_joint, reference.subspace_moments, params, x, mask, some
        )
        activation, first, second = activation + a, first + m1, second + m2
        for d in range(D):  # a missing y_d has ⟨y_d cᵀ⟩ = W_d ⟨c cᵀ⟩
            cross[:, d] += m1 * x[d] if mask[d] else m2 @ W[:, d]
            square += x[d] ** 2 if mask[d] else W[:, d] @ m2 @ W[:, d]
    close = precision(dtype)
    np.testing.assert_allclose(sums.activation, np.repeat(activation, SIZES), **close)
    np.testing.assert_allclose(sums.first, first, **close)
    whole = symmetric(kernels.spread(params.groups, stats.second))
    np.testing.assert_allclose(whole, second, **close)
    np.testing.assert_allclose(sums.cross, cross, **close)
    np.testing.assert_allclose(float(sums.data_square), square, **close)
    assert float(sums.n_observed) == seen(X, observed).sum()
    assert float(sums.n_rows) == len(X)


@pytest.mark.parametrize("missing", MISSING)
def test_codes_are_the_probabilities_of_latents(missing):
    params, X, observed = make_problem(missing, seed=4)
    dense = reference.all_states(len(SIZES))
    fast = MODEL.codes(params, *posterior_over(params, X, observed, for_all(X, dense)))
    for n, (x, mask) in enumerate(zip(X, seen(X, observed), strict=True)):
        weights, _ = reference.posterior(reference.subspace_log_joint, params, x, mask, dense)
        np.testing.assert_allclose(fast[n], weights @ dense, rtol=1e-9)


# -------------------------------------------------------------------------------------- limits


@pytest.mark.parametrize("missing", MISSING)
def test_latents_of_one_pattern_are_spike_and_slab_coding(missing):
    params, X, observed = make_problem(missing, sizes=(1,) * 5, seed=5)
    kept = for_all(X, reference.all_states(5)[2:29])
    problem, other = (params, X, observed, kept), SpikeSlabModel(slab="diagonal")
    same = (SpikeSlabParams(*params[:5]), X, observed, kept, other)
    np.testing.assert_allclose(log_joints(*problem), log_joints(*same), rtol=1e-10)
    np.testing.assert_allclose(reconstruction(*problem), reconstruction(*same), rtol=1e-9)
    updated = MODEL.update(params, statistics(*problem))
    expected = other.update(same[0], statistics(*same))
    for name in expected._fields:
        np.testing.assert_allclose(getattr(updated, name), getattr(expected, name), rtol=1e-8)


def test_a_mask_of_ones_is_no_mask():
    params, X, _ = make_problem(seed=6)
    kept = for_all(X, reference.all_states(len(SIZES)))
    ones = np.ones(X.shape, bool)
    for function in (log_joints, reconstruction):
        np.testing.assert_array_equal(
            function(params, X, ones, kept), function(params, X, None, kept)
        )
    for masked, plain in zip(
        statistics(params, X, ones, kept).linear,
        statistics(params, X, None, kept).linear,
        strict=True,
    ):
        np.testing.assert_array_equal(masked, plain)
    derived = MODEL.prepare(params, X.dtype)
    genomes = Genomes(kept, np.full(len(X), kept.shape[1]))
    ranks = [
        MODEL.best_additions(derived, MODEL.prepare_rows(derived, X, mask), genomes, len(SIZES))
        for mask in (ones, None)
    ]
    np.testing.assert_array_equal(*ranks)


def test_patterns_of_a_latent_can_be_rotated():
    """Amounts of unit variance look the same from everywhere, if their mean is rotated too."""
    params, X, observed = make_problem(0.4, seed=7)
    params = params._replace(slab_covariance=np.ones(sum(SIZES)))
    W, means = params.components.copy(), params.slab_means.copy()
    rng = np.random.default_rng(7)
    for g, size in enumerate(SIZES):
        own = slice(params.groups[g], params.groups[g + 1])
        rotation = np.linalg.qr(rng.normal(size=(size, size)))[0]
        W[own], means[own] = rotation @ W[own], rotation @ means[own]
    kept = for_all(X, reference.all_states(len(SIZES)))
    np.testing.assert_allclose(
        log_joints(params._replace(components=W, slab_means=means), X, observed, kept),
        log_joints(params, X, observed, kept),
        rtol=1e-10,
    )


@pytest.mark.parametrize("missing", MISSING)
def test_all_states_kept_is_exact_em(missing):
    params, X, observed = make_problem(missing, n_rows=30, seed=8)
    dense = reference.all_states(len(SIZES))
    data = em.Data(X, observed)
    state = em.init(MODEL, data, n_states=len(dense), params=params)
    state, info = em.step(MODEL, data, state, UNIFORM)
    likelihoods = [
        reference.free_energy(
            reference.subspace_log_joint, theta, X, seen(X, observed), [dense] * len(X)
        )
        for theta in (params, state.params)
    ]
    assert info.free_energy == pytest.approx(likelihoods[0], rel=1e-10)
    assert likelihoods[1] > likelihoods[0]


@pytest.mark.parametrize("missing", MISSING)
def test_the_number_of_threads_changes_nothing(missing):
    params, X, observed = make_problem(missing, n_rows=300, seed=9)
    results = []
    for n_jobs in (1, 2):
        data = em.Data(X, observed)
        state = em.init(MODEL, data, n_states=4, params=params, n_jobs=n_jobs)
        state, infos = em.run(MODEL, data, state, GUIDED, max_iter=4, n_jobs=n_jobs)
        results.append((state, [info.free_energy for info in infos]))
    (one, bounds), (two, others) = results
    assert bounds == others
    np.testing.assert_array_equal(one.states, two.states)
    np.testing.assert_array_equal(one.log_joints, two.log_joints)
    for mine, other in zip(one.params, two.params, strict=True):
        np.testing.assert_array_equal(mine, other)


@pytest.mark.parametrize("missing", MISSING)
def test_statistics_of_parts_add_up_to_those_of_all_rows(missing):
    """The first iteration with mini-batches is one without; from then on parts keep their own."""
    params, X, observed = make_problem(missing, n_rows=50, seed=25)
    results = []
    for n_parts in (1, 4):
        data = em.Data(X, observed)
        state = em.init(MODEL, data, n_states=32, params=params)
        results.append(run_with_params(MODEL, data, state, UNIFORM, max_iter=8, n_parts=n_parts))
    for whole, parts in zip(*(params[0][:-1] for _, params in results), strict=True):
        np.testing.assert_allclose(parts, whole, rtol=1e-8)
    assert (np.diff(results[1][0]) > 0).all()


# --------------------------------------------------------------------------------------- bound


@settings(max_examples=30)
@given(
    st.sampled_from([UNIFORM, GUIDED]),
    st.sampled_from([0.0, 0.2, 0.7]),
    st.integers(0, 10_000),
)
def test_the_bound_never_falls(evolution, missing, seed):
    """From few states, and from more than the best single ones; of wide latents and few features
    too."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 4, rng.integers(2, 7))
    shape = {"n_features": int(rng.integers(1, 9)), "n_rows": int(rng.integers(5, 40))}
    params, X, observed = make_problem(missing, sizes=sizes, seed=seed, **shape)
    n_states = int(rng.integers(1, min(9, 2 ** len(sizes))))
    data = em.Data(X, observed)
    state = em.init(MODEL, data, n_states=n_states, params=params, seed=seed)
    evolution = evolution._replace(n_parents=min(3, n_states))
    bounds, learnt = run_with_params(MODEL, data, state, evolution, max_iter=12)
    # Tiny data can be explained without noise; |y|²/σ² is then large, and so is its rounding.
    noise = min(float(params.noise_variance) for params in learnt)
    tolerance = 1e-8 * max(1.0, np.abs(bounds).max()) + 4e-15 * np.square(X).sum(1).max() / noise
    assert np.diff(bounds).min() > -tolerance


# ------------------------------------------------------------------------------------ guidance


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


# --------------------------------------------------------------------------------------- start


@pytest.mark.interpreted
@pytest.mark.parametrize("missing", MISSING)
@pytest.mark.parametrize("n_states", [1, 3, 5])
def test_rows_start_from_their_best_single_latents(n_states, missing):
    params, X, observed = make_problem(missing, n_rows=100, seed=12)
    data = em.Data(X, observed)
    state = em.init(MODEL, data, n_states=n_states, params=params, n_jobs=2)
    single = np.eye(len(SIZES), dtype=bool)
    for x, mask, kept in zip(X, seen(X, observed), state.states, strict=True):
        dense = states.unpack(kept, len(SIZES))
        values = [reference.subspace_log_joint(params, x, mask, s) for s in single]
        assert (dense.sum(1) == 1).all()
        assert set(dense.argmax(1)) == set(np.argsort(values)[-n_states:])


def test_rows_start_from_random_states_if_there_are_not_enough_single_ones():
    params, X, _ = make_problem(n_rows=20, seed=13)
    data = em.Data(X)
    state = em.init(MODEL, data, n_states=6, params=params, seed=3)
    other = SpikeSlabParams(params.components[:5], params.activation_probs, *params[2:3],
                            params.slab_means[:5], params.slab_covariance[:5])  # fmt: skip
    expected = em.init(SpikeSlabModel(), data, n_states=6, params=other, seed=3)
    np.testing.assert_array_equal(state.states, expected.states)


def planted(n_rows, rng, noise=0.1, n_kinds=3, n_features=8, rank=2):
    """Rows near one of some planes each: clean ones, noisy ones, kinds, means, directions."""
    means = 8 * np.linalg.qr(rng.normal(size=(n_features, n_features)))[0][:n_kinds]
    directions = rng.normal(size=(n_kinds, rank, n_features))
    kinds = rng.integers(n_kinds, size=n_rows)
    amounts = rng.normal(size=(n_rows, rank))
    clean = means[kinds] + np.einsum("ni,nid->nd", amounts, directions[kinds])
    return clean, clean + noise * rng.normal(size=clean.shape), kinds, means, directions


def patterns(params, g):
    return params.components[params.groups[g] : params.groups[g + 1]]


def test_clusters_of_noise_have_no_directions():
    rng = np.random.default_rng(14)
    _, X, kinds, means, _ = planted(900, rng, noise=0.5, rank=0)
    params = SubspaceModel(3).from_clusters(X, Clusters(means, kinds))
    np.testing.assert_array_equal(params.groups, [0, 1, 2, 3])
    for g in range(3):
        np.testing.assert_allclose(params.components[g], X[kinds == g].mean(0))
    assert float(params.noise_variance) == pytest.approx(0.25, rel=0.15)


@pytest.mark.parametrize("rank", [0, 1, 2, 4])
def test_directions_of_clusters_are_found_up_to_the_rank(rank):
    """Two are there: more are not taken, and of fewer the widest."""
    rng = np.random.default_rng(15)
    _, X, kinds, means, directions = planted(900, rng)
    params = SubspaceModel(rank).from_clusters(X, Clusters(means, kinds))
    taken = min(rank, 2)
    np.testing.assert_array_equal(np.diff(params.groups), 1 + taken)
    assert float(params.noise_variance) == pytest.approx(0.01, rel=0.15)
    for g in range(3):
        mean, *found = patterns(params, g)
        np.testing.assert_allclose(mean, X[kinds == g].mean(0))
        if not taken:
            continue
        assert np.rad2deg(subspace_angles(directions[g].T, np.array(found).T)).max() < 2
        widest = np.linalg.svd(directions[g])[1][:taken]
        np.testing.assert_allclose(np.linalg.norm(found, axis=1), widest, rtol=0.2)
    first = params.groups[:-1]
    np.testing.assert_array_equal(np.flatnonzero(params.slab_means), first)
    np.testing.assert_array_equal(params.slab_means[first], 1.0)


def test_a_weak_direction_is_taken_if_enough_rows_bear_it():
    rng = np.random.default_rng(16)
    X = rng.normal(size=(200, 8)) * np.sqrt([1.5, 1, 1, 1, 1, 1, 1, 1])
    X -= X.mean(0)
    clusters = Clusters(np.zeros((1, 8)), np.zeros(200, np.int64))
    widest = np.linalg.eigvalsh(X.T @ X / 200)[-1]
    gain = 0.5 * (widest - 1 - np.log(widest))  # nats a row: the other side is 2 × 8 parameters
    assert 200 * gain < 16 < 2000 * gain
    few = SubspaceModel(1).from_clusters(X, clusters, noise_variance=1.0)
    clusters = clusters._replace(labels=np.zeros(2000, np.int64))
    many = SubspaceModel(1).from_clusters(np.tile(X, (10, 1)), clusters, noise_variance=1.0)
    assert list(few.groups) == [0, 1]
    assert list(many.groups) == [0, 2]
    assert np.abs(many.components[1]).argmax() == 0


@pytest.mark.parametrize("seed", range(3))
def test_few_examples_do_not_make_directions_of_noise(seed, monkeypatch):
    """Clusters are found among some rows, but directions are those of all."""
    monkeypatch.setattr(subspace_model, "EXAMPLES", 50)
    X = np.random.default_rng(seed).normal(size=(20_000, 8)).astype(np.float32)
    params = SubspaceModel(4).initialize(X, None, 1, np.random.default_rng(0))
    assert len(params.components) == 1  # the mean


def test_with_fewer_rows_than_clusters_rows_are_the_centres():
    rows = np.random.default_rng(17).normal(size=(3, 4))
    centres, labels = cluster(rows, 5, seed=0)
    np.testing.assert_array_equal(centres, rows[[0, 1, 2, 0, 1]])
    np.testing.assert_array_equal(labels, [0, 1, 2])
    params = MODEL.from_clusters(rows, Clusters(centres, labels))
    np.testing.assert_array_equal(params.components, centres)  # empty clusters stay where they are
    assert float(params.noise_variance) > 0
    assert (params.activation_probs > 0).all()


def test_clusters_follow_from_the_seed():
    X = np.random.default_rng(18).normal(size=(300, 5))
    first, again, other = cluster(X, 6, 1), cluster(X, 6, 1), cluster(X, 6, 2)
    np.testing.assert_array_equal(first.centres, again.centres)
    np.testing.assert_array_equal(first.labels, again.labels)
    assert not np.array_equal(first.labels, other.labels)
    first, again, other = (
        MODEL.initialize(X, None, 6, np.random.default_rng(s)) for s in (1, 1, 2)
    )
    np.testing.assert_array_equal(first.components, again.components)
    assert not np.array_equal(first.components[0], other.components[0])


# ------------------------------------------------------------------------------ prior, samples


def test_the_prior_is_the_average_over_all_states():
    params, _, _ = make_problem(seed=19)
    mean, square = np.zeros(6), np.zeros(6)
    for s in reference.all_states(len(SIZES)):
        on = reference.active_patterns(params, s)
        W = params.components[on]
        of_state = params.slab_means[on] @ W
        weight = np.exp(reference.log_prior(params, s))
        mean += weight * of_state
        square += weight * (of_state**2 + params.slab_covariance[on] @ W**2)
    prior = MODEL.prior(params)
    np.testing.assert_array_equal(prior.codes, params.activation_probs)
    np.testing.assert_allclose(prior.mean, mean)
    np.testing.assert_allclose(prior.variance, square - mean**2)


def test_samples_have_the_moments_of_the_prior():
    params, _, _ = make_problem(seed=20)
    X, kept = MODEL.sample(params, 40_000, np.random.default_rng(20))
    prior = MODEL.prior(params)

    def deviation(values, expected):
        """In standard errors of the mean over the samples."""
        return (values.mean(0) - expected) / (values.std(0) / np.sqrt(len(values)))

    assert np.abs(deviation(kept, params.activation_probs)).max() < 4.5
    assert np.abs(deviation(X, prior.mean)).max() < 4.5
    squares = (X - prior.mean) ** 2
    assert np.abs(deviation(squares, prior.variance + params.noise_variance)).max() < 4.5
    # States and data belong together: what is left of the data is the noise and the slab's.
    on = np.repeat(kept, SIZES, axis=1)
    left = (X - (on * params.slab_means) @ params.components) ** 2
    spread = (on * params.slab_covariance) @ params.components**2 + params.noise_variance
    assert np.abs(deviation(left - spread, 0.0)).max() < 4.5


# ----------------------------------------------------------------------------------- estimator


def learn(X, **options):
    options = {"n_latents": 3, "n_states": 3, "max_iter": 60, "tol": 1e-3} | options
    return SubspaceCoding(**options).fit(X)


@pytest.fixture(scope="module", params=range(3))
def recovery(request):
    """The best of three starts: clusters may share a kind."""
    rng = np.random.default_rng(100 + request.param)
    problem = planted(800, rng)
    starts = [learn(problem[1], random_state=seed) for seed in range(3)]
    return rng, problem, max(starts, key=lambda model: model.free_energy_)


def test_planted_subspaces_are_recovered(recovery):
    _, (_, X, kinds, means, directions), model = recovery
    assert model.noise_variance_ == pytest.approx(0.01, rel=0.1)
    np.testing.assert_array_equal(np.diff(model.groups_), 3)
    codes = model.transform(X)
    for kind in range(3):
        g = codes[kinds == kind].mean(0).argmax()
        assert codes[kinds == kind, g].mean() > 0.99
        learnt = model.components_[model.groups_[g] : model.groups_[g + 1]]
        truth = np.concatenate([means[kind : kind + 1], directions[kind]])
        assert np.rad2deg(subspace_angles(truth.T, learnt.T)).max() < 3


def test_missing_values_are_filled_from_the_subspace(recovery):
    """Better than by the mean of all rows, and by that of the rows of their kind."""
    _, (clean, X, kinds, means, _), model = recovery
    hidden = np.random.default_rng(21).random(X.shape) < 0.2
    filled = model.reconstruct(np.where(hidden, np.nan, X))
    error = np.square(filled - clean)[hidden].mean()
    assert error < 0.1 * np.square(X.mean(0) - clean)[hidden].mean()
    assert error < 0.5 * np.square(means[kinds] - clean)[hidden].mean()


def test_subspaces_are_learnt_from_incomplete_rows():
    _, X, _, _, _ = planted(800, np.random.default_rng(22))
    X[np.random.default_rng(23).random(X.shape) < 0.15] = np.nan
    starts = [learn(X, n_states="all", random_state=seed) for seed in range(3)]
    model = max(starts, key=lambda model: model.free_energy_)
    assert model.noise_variance_ == pytest.approx(0.01, rel=0.25)


def test_a_warm_start_is_a_run_that_never_stopped_and_so_is_a_pickled_one():
    _, X, _, _, _ = planted(200, np.random.default_rng(24), noise=1.0)
    options = {"tol": 0, "random_state": 0, "warm_start": True}
    whole = learn(X, max_iter=6, **options)
    part = pickle.loads(pickle.dumps(learn(X, max_iter=2, **options)))
    part.set_params(max_iter=4).fit(X)
    np.testing.assert_array_equal(part.components_, whole.components_)
    np.testing.assert_array_equal(part.free_energies_, whole.free_energies_)
    np.testing.assert_array_equal(part.groups_, whole.groups_)


@pytest.mark.parametrize("rank", [-1, 1.5, True, "two", None])
def test_a_bad_rank_gets_one_sentence(rank):
    with pytest.raises(ValueError, match=f"^rank must be an integer at least 0; got {rank!r}.$"):
        learn(np.eye(4), rank=rank)
