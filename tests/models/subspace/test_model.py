"""Spike-and-slab coding with subspaces, against its slow twin and its limits."""

import itertools

import numpy as np
import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st
from subspace_problems import (
    GUIDED,
    MISSING,
    MODEL,
    SIZES,
    UNIFORM,
    assert_that_the_bound_never_falls,
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

from evoem import em, posterior, states
from evoem.models import SpikeSlabModel
from evoem.models.spike_slab.model import SpikeSlabParams
from evoem.models.subspace import kernels, small_systems
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
    assert_that_the_bound_never_falls(MODEL, evolution, missing, seed)


# ------------------------------------------------------------------------------------ guidance


# --------------------------------------------------------------------------------------- start


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
