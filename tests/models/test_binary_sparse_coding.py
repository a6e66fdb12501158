"""The M-step of binary sparse coding, against its formulas."""

import numpy as np
import pytest
import reference
from posteriors import collect_statistics, packed_all
from problems import make_problem


def test_the_update_is_that_of_linear_regression_on_the_moments():
    """W = ⟨s sᵀ⟩⁻¹ ⟨s⟩ yᵀ, σ² what is left, π the share of latents that are on."""
    problem = make_problem("binary", N=60, seed=5)
    dense, kept = packed_all(problem)
    first, second = np.zeros(4), np.zeros((4, 4))
    cross = np.zeros(problem.params.components.shape)
    for x in problem.X:
        weights, _ = reference.posterior(
            problem.log_joint, problem.params, x, np.ones(len(x), bool), dense
        )
        mean = weights @ dense
        first += mean
        second += np.einsum("m,mg,mh->gh", weights, dense, dense)
        cross += np.outer(mean, x)
    W = np.linalg.solve(second, cross)
    left = np.square(problem.X).sum() - 2 * (W * cross).sum() + np.trace(W.T @ second @ W)
    new = problem.model.update(problem.params, collect_statistics(problem, kept))
    np.testing.assert_allclose(new.components, W, rtol=1e-6)
    assert float(new.noise_variance) == pytest.approx(left / problem.X.size, rel=1e-9)
    np.testing.assert_allclose(new.activation_probs, first.sum() / (60 * 4), rtol=1e-9)
