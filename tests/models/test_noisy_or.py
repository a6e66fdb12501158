"""Noisy-OR: its statistics and the printed update, against slow twins."""

import numpy as np
import pytest
import reference
from posteriors import MISSING, collect_statistics, packed_all
from problems import make_problem, seen


@pytest.mark.interpreted
@pytest.mark.parametrize("missing", MISSING)
def test_noisy_or_statistics_are_expected_attempts(missing):
    problem = make_problem("noisy_or", missing=missing, seed=9)
    dense, kept = packed_all(problem)
    stats = collect_statistics(problem, kept)
    H, D = problem.params.components.shape
    activation, chances, causes = np.zeros(H), np.zeros((H, D)), np.zeros((H, D))
    for x, mask in zip(problem.X, seen(problem), strict=True):
        weights, _ = reference.posterior(problem.log_joint, problem.params, x, mask, dense)
        for weight, s in zip(weights, dense, strict=True):
            N = 1 - np.prod(1 - problem.params.components[s], axis=0)
            for h in np.flatnonzero(s):
                activation[h] += weight
                chances[h] += weight * mask
                causes[h] += weight * mask * x / N
    np.testing.assert_allclose(stats.activation, activation, rtol=1e-9)
    np.testing.assert_allclose(stats.chances, chances, rtol=1e-9)
    np.testing.assert_allclose(stats.causes, causes, rtol=1e-9)


def test_noisy_or_printed_update_is_appendix_d():
    problem = make_problem("noisy_or", seed=10, updates="printed")
    dense, kept = packed_all(problem)
    W = problem.params.components
    numerator, denominator = np.zeros(W.shape), np.zeros(W.shape)
    for x in problem.X:
        weights, _ = reference.posterior(
            problem.log_joint, problem.params, x, np.ones(len(x), bool), dense
        )
        for weight, s in zip(weights, dense, strict=True):
            N = 1 - np.prod(1 - W[s], axis=0)
            for h in np.flatnonzero(s):
                others = s.copy()
                others[h] = False
                tilde = np.prod(1 - W[others], axis=0)
                D_dh = tilde / (N * (1 - N))
                numerator[h] += (x - 1) * weight * D_dh
                denominator[h] += weight * tilde * D_dh
    new = problem.model.update(problem.params, collect_statistics(problem, kept))
    expected = np.clip(1 + numerator / denominator, 1e-6, 1 - 1e-6)
    np.testing.assert_allclose(new.components, expected, rtol=1e-9)
