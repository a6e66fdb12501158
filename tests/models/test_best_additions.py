"""What the models say about flips that guided mutation may propose."""

import numpy as np
import pytest
import reference
from problems import make_problem

from evoem.models.base import flip_gains
from evoem.ranking import NONE, rank_inactive
from evoem.states import Genomes, pack

LINEAR = ["binary", "spike_slab_diagonal", "spike_slab_full"]


def ranks_and_gains(name, missing, dense, n_best=None):
    """Latents ranked, and exact gains of activating them without the prior's log-odds."""
    n_latents = dense.shape[2]
    problem = make_problem(name, H=n_latents, D=7, N=len(dense), missing=missing, seed=3)
    observed = problem.observed if missing else None
    derived = problem.model.prepare(problem.params, problem.X.dtype)
    rows = problem.model.prepare_rows(derived, problem.X, observed)
    genomes = Genomes(pack(dense), np.full(len(dense), dense.shape[1]))
    pi = problem.params.activation_probs
    gains = flip_gains(problem.model, derived, rows, genomes) - np.log(pi / (1 - pi))
    n_best = n_latents if n_best is None else n_best
    return problem.model.best_additions(derived, rows, genomes, n_best), gains


def ranked(scores, dense):
    """Inactive latents by their scores, best first, then NONE: the obvious way."""
    order = np.argsort(-np.where(dense, -np.inf, scores), axis=-1, kind="stable")
    places = np.arange(dense.shape[2])
    return np.where(places < (~dense).sum(-1, keepdims=True), order, NONE)


@pytest.mark.parametrize("n_latents", [3, 16, 17, 70, 130])
@pytest.mark.parametrize("n_best", [1, 2, 20])
def test_the_best_scores_of_inactive_latents_are_found_in_their_order(n_latents, n_best):
    rng = np.random.default_rng(n_latents)
    dense = rng.random((20, 3, n_latents)) < rng.choice([0.1, 0.5, 1.0], (20, 3, 1))
    scores = rng.standard_normal(dense.shape).astype(np.float32)
    genomes = Genomes(pack(dense), np.full(20, 3))
    wanted = np.full((20, 3, n_best), NONE)
    expected = ranked(scores, dense)[:, :, :n_best]
    wanted[:, :, : expected.shape[2]] = expected
    np.testing.assert_array_equal(rank_inactive(scores, genomes, n_best), wanted)


@pytest.mark.interpreted
def test_binary_sparse_coding_ranks_additions_by_their_exact_gains():
    dense = np.random.default_rng(0).random((12, 4, 5)) < 0.4
    ranks, gains = ranks_and_gains("binary", 0.0, dense)
    np.testing.assert_array_equal(ranks, ranked(gains, dense))


@pytest.mark.parametrize("name", LINEAR)
@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_ranks_are_exact_where_nothing_is_active(name, missing):
    dense = np.zeros((12, 1, 5), np.bool_)
    ranks, gains = ranks_and_gains(name, missing, dense)
    assert (np.sort(ranks, -1) == np.arange(5)).all()
    in_order = np.take_along_axis(gains, ranks, -1)  # equal where nothing was observed
    assert (np.diff(in_order, axis=-1) < 1e-9).all()


@pytest.mark.interpreted
@pytest.mark.parametrize("name", ["spike_slab_diagonal", "spike_slab_full"])
def test_spike_slabs_rank_additions_as_if_the_dictionary_were_orthogonal(name):
    rng = np.random.default_rng(2)
    dense = rng.random((12, 3, 5)) < 0.5
    problem = make_problem(name, H=5, D=7, N=12, seed=3)
    params, variance = problem.params, float(problem.params.noise_variance)
    psi = reference.full_covariance(params)
    scores = np.zeros(dense.shape)
    for n, p in np.ndindex(dense.shape[:2]):
        s = np.flatnonzero(dense[n, p])
        W, mu, prior = params.components[s], params.slab_means[s], psi[np.ix_(s, s)]
        precision = np.linalg.inv(prior) + W @ W.T / variance
        z = np.linalg.solve(precision, W @ problem.X[n] / variance + np.linalg.inv(prior) @ mu)
        residual = problem.X[n] - z @ W
        for h in range(5):  # the evidence of one more latent alone, for the residual
            w, m, v = params.components[h], params.slab_means[h], psi[h, h]
            pivot = 1 / v + w @ w / variance
            scores[n, p, h] = 0.5 * ((w @ residual / variance + m / v) ** 2 / pivot)
            scores[n, p, h] -= 0.5 * (np.log(pivot * v) + m**2 / v)
    ranks, _ = ranks_and_gains(name, 0.0, dense)
    np.testing.assert_array_equal(ranks, ranked(scores, dense))


@pytest.mark.parametrize("name", LINEAR)
@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_ranks_follow_the_gains(name, missing):
    rng = np.random.default_rng(1)
    dense = rng.random((200, 1, 5)) < 0.4
    dense = dense[dense.sum(-1)[:, 0] < 4]
    ranks, gains = ranks_and_gains(name, missing, dense, n_best=1)
    best = np.take_along_axis(gains, ranks, -1)[..., 0]
    average = np.where(dense, 0.0, gains).sum(-1) / (~dense).sum(-1)
    assert (best - average).mean() > 0
    assert (np.where(dense, -np.inf, gains).argmax(-1) == ranks[..., 0]).mean() > 0.6
