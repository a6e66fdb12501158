"""What the models say about flips that guided mutation may propose."""

import numpy as np
import pytest
from problems import make_problem

from evoem.states import Genomes, pack

LINEAR = ["binary", "spike_slab", "spike_slab_full"]


def scores_and_gains(name, missing, dense):
    """Scores of adding latents to states, and exact gains without the prior's log-odds."""
    problem = make_problem(name, H=5, D=7, N=len(dense), missing=missing, seed=3)
    observed = problem.observed if missing else None
    derived = problem.model.prepare(problem.params, problem.X.dtype)
    rows = problem.model.prepare_rows(derived, problem.X, observed)
    genomes = Genomes(pack(dense), np.full(len(dense), dense.shape[1]))
    pi = problem.params.activation_probs
    gains = problem.model.flip_gains(derived, rows, genomes) - np.log(pi / (1 - pi))
    return problem.model.addition_scores(derived, rows, genomes), gains


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_scores_of_binary_sparse_coding_are_exact_gains(missing):
    dense = np.random.default_rng(0).random((12, 4, 5)) < 0.4
    scores, gains = scores_and_gains("binary", missing, dense)
    np.testing.assert_allclose(scores[~dense], gains[~dense], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", LINEAR)
@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_scores_are_exact_where_nothing_is_active(name, missing):
    dense = np.zeros((12, 1, 5), np.bool_)
    scores, gains = scores_and_gains(name, missing, dense)
    np.testing.assert_allclose(scores, gains, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", LINEAR)
@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_scores_rank_additions_much_as_their_gains_do(name, missing):
    rng = np.random.default_rng(1)
    dense = rng.random((200, 1, 5)) < 0.4
    dense = dense[dense.sum(-1)[:, 0] < 4]
    scores, gains = scores_and_gains(name, missing, dense)
    hidden = np.where(dense, -np.inf, gains)
    chosen = np.where(dense, -np.inf, scores).argmax(-1)
    # The addition of the best score gains more than the average addition does.
    best = np.take_along_axis(gains, chosen[..., None], -1)[..., 0]
    average = np.where(dense, 0.0, gains).sum(-1) / (~dense).sum(-1)
    assert (best - average).mean() > 0
    assert (hidden.argmax(-1) == chosen).mean() > 0.6
