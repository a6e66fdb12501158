"""The spike-and-slab model and its limits."""

import numpy as np
import pytest
import reference
from problems import make_problem

from evoem.models import SpikeSlabModel
from evoem.models.base import log_joint


def test_spike_slab_with_vanishing_slab_variance_is_binary_sparse_coding():
    problem = make_problem("binary", missing=0.3, seed=16)
    slab = make_problem("spike_slab_diagonal", seed=16).model
    H = len(problem.params.activation_probs)
    for variance, tolerance in ((1e-4, 1e-2), (1e-8, 1e-6)):
        params = make_problem("spike_slab_diagonal", seed=16).params._replace(
            components=problem.params.components,
            activation_probs=problem.params.activation_probs,
            noise_variance=problem.params.noise_variance,
            slab_means=np.ones(H),
            slab_covariance=np.full(H, variance),
        )
        for s in reference.all_states(H):
            args = problem.X[1], problem.observed[1], s
            limit = log_joint(problem.model, problem.params, *args)
            assert log_joint(slab, params, *args) == pytest.approx(limit, rel=tolerance)


def test_a_diagonal_matrix_gives_the_full_slab_what_its_diagonal_gives():
    problem = make_problem("spike_slab_diagonal", missing=0.3, seed=17)
    full = make_problem("spike_slab_full", seed=17).model
    matrix = problem.params._replace(slab_covariance=np.diag(problem.params.slab_covariance))
    for s in reference.all_states(4):
        args = problem.X[1], problem.observed[1], s
        expected = log_joint(problem.model, problem.params, *args)
        assert log_joint(full, matrix, *args) == pytest.approx(expected, rel=1e-10)


def test_first_slab_means_of_the_paper_and_of_its_authors_programs():
    X = np.random.default_rng(0).normal(size=(20, 3))
    printed, authors = (
        SpikeSlabModel(init=init).initialize(X, None, 4000, np.random.default_rng(1))
        for init in ("mean", "authors")
    )
    np.testing.assert_array_equal(authors.components, printed.components)
    means = printed.slab_means
    assert (means.min() > 1, means.max() < 5, means.mean()) == (
        True,
        True,
        pytest.approx(3, abs=0.1),
    )
    assert authors.slab_means.mean() == pytest.approx(0, abs=0.1)
    assert authors.slab_means.std() == pytest.approx(1, abs=0.1)
