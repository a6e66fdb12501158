"""M-steps of the slab, and the convention of its scale."""

import numpy as np
import pytest
import reference
from problems import make_problem, random_covariance

from evoem.models.base import log_joint
from evoem.models.spike_slab.update import positive_definite, unit_second_moments


def test_the_scale_convention_changes_nothing_but_the_scale():
    for name in ("spike_slab_diagonal", "spike_slab_full"):
        problem = make_problem(name, missing=0.3, seed=18)
        scaled = unit_second_moments(problem.params)
        second = np.diag(reference.full_covariance(scaled)) + scaled.slab_means**2
        np.testing.assert_allclose(second, 1.0, rtol=1e-12)
        for s in reference.all_states(4):
            args = problem.X[1], problem.observed[1], s
            expected = log_joint(problem.model, problem.params, *args)
            assert log_joint(problem.model, scaled, *args) == pytest.approx(expected, rel=1e-10)


def test_low_eigenvalues_are_raised_to_the_floor_and_the_others_kept():
    rng = np.random.default_rng(0)
    units = rng.uniform(0.5, 2.0, 6)
    matrix = random_covariance(6, rng) - 2.0 * np.eye(6)
    values, vectors = np.linalg.eigh(matrix / np.outer(units, units))
    assert values[0] < 0 < values[-1]
    wanted = (vectors * np.maximum(values, 0.1)) @ vectors.T * np.outer(units, units)
    np.testing.assert_allclose(positive_definite(matrix, units, 0.1), wanted, atol=1e-5)
    good = random_covariance(6, rng)
    np.testing.assert_array_equal(positive_definite(good, np.ones(6), 1e-5), 0.5 * (good + good.T))
