"""Which latents promise most: by what a state leaves of the data, and by the models' own gains."""

import numpy as np
import pytest
import reference
from problems import make_problem

from evoem.models.base import flip_gains
from evoem.models.residual_ranking import Guide, rank_by_residual
from evoem.ranking import GROUPS
from evoem.runtime.compile import kernel
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


@pytest.mark.interpreted
def test_binary_sparse_coding_ranks_additions_by_their_exact_gains():
    dense = np.random.default_rng(0).random((12, 4, 5)) < 0.4
    ranks, gains = ranks_and_gains("binary", 0.0, dense)
    np.testing.assert_array_equal(ranks, reference.ranked(gains, dense))


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
    np.testing.assert_array_equal(ranks, reference.ranked(scores, dense))


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


@kernel
def ranked_by_residual(guide, gram, projections, coefficients, active, sizes, out):
    n_latents = len(gram)
    room = np.empty(n_latents), np.empty(n_latents), np.empty(GROUPS)
    for r in range(len(out)):
        rank_by_residual(
            guide, gram, projections, coefficients[r], active[r], sizes[r], r, 0, room, out
        )


@pytest.mark.parametrize("n_own", [1, 12])
def test_latents_are_ranked_by_what_they_explain_of_the_rest(n_own):
    """`n_own` rows of the guide: one for all rows of the data, or one for each."""
    rng = np.random.default_rng(n_own)
    V = rng.normal(size=(9, 30))
    gram, projections = V @ V.T, rng.normal(size=(12, 9))
    guide = Guide(rng.normal(size=9), *rng.random((3, n_own, 9)), 0.3)
    active = np.array([np.sort(rng.permutation(9)) for _ in range(12)])
    sizes = rng.integers(0, 9, 12)
    coefficients = rng.normal(size=(12, 9))
    out = np.empty((12, 1, 9), np.int32)
    ranked_by_residual(guide, gram, projections, coefficients, active, sizes, out)
    dense, scores = np.zeros((12, 1, 9), bool), np.zeros((12, 1, 9))
    for r in range(12):
        on, own = active[r, : sizes[r]], r if n_own > 1 else 0
        dense[r, 0, on] = True
        z = projections[r] + guide.start
        z = z - (coefficients[r, : sizes[r]] * guide.shares[own, on]) @ gram[on]
        scores[r, 0] = (guide.curvatures[own] * z + guide.slope) * z - guide.constants[own]
    np.testing.assert_array_equal(out, reference.ranked(scores, dense))
