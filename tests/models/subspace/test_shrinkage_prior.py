"""The prior by which subspaces resemble each other."""

import numpy as np
import reference
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as distributions
from subspace_problems import (
    UNIFORM,
    for_all,
    make_problem,
    reconstruction,
    seen,
    statistics,
)

from evoem import em
from evoem.models.subspace.by_feature import SubspacesByFeature
from evoem.models.subspace.shrinkage_prior import average_covariance, pseudo_observations
from evoem.models.subspace.start import Clusters


def own_patterns(params):
    return [slice(*params.groups[g : g + 2]) for g in range(len(params.groups) - 1)]


def rows_of(X, observed):
    return zip(X, seen(X, observed), strict=True)


def targets(params):
    """Covariance that the prior has for each latent: the average, of the same trace."""
    noise = float(params.noise_variance) * np.eye(params.components.shape[1])
    each = []
    for patterns in own_patterns(params):
        W = params.components[patterns]
        each.append(W.T @ np.diag(params.slab_covariance[patterns]) @ W + noise)
    average = np.average(each, axis=0, weights=params.activation_probs)
    return each, [np.trace(own) / np.trace(average) * average for own in each]


def log_prior(params, old, number):
    """Of W; the rest as before the M-step."""
    _, wanted = targets(old)
    covariances, _ = targets(old._replace(components=params.components))
    values = [
        np.linalg.slogdet(C)[1] + np.trace(np.linalg.solve(C, S))
        for C, S in zip(covariances, wanted, strict=True)
    ]
    return -0.5 * number * sum(values)


def test_pseudo_observations_are_distributed_as_said():
    params, _, _ = make_problem(seed=11)
    second, cross = pseudo_observations(params, 7.0)
    average = np.average(targets(params)[0], axis=0, weights=params.activation_probs)
    np.testing.assert_allclose(average_covariance(params), average)
    for patterns, C, S in zip(own_patterns(params), *targets(params), strict=True):
        W, psi = params.components[patterns], np.diag(params.slab_covariance[patterns])
        estimator = psi @ W @ np.linalg.inv(C)  # regression of c on e
        left = psi - estimator @ W.T @ psi
        size = len(W)
        expected = 7.0 * (left + estimator @ S @ estimator.T)
        np.testing.assert_allclose(second[patterns, :size], expected, rtol=1e-9)
        assert not second[patterns, size:].any()
        np.testing.assert_allclose(cross[patterns], 7.0 * estimator @ S, rtol=1e-9)


@settings(max_examples=30)
@given(
    st.sampled_from([0.0, 0.5]),
    st.floats(0.1, 30.0),
    st.integers(0, 10_000),
)
def test_the_bound_and_the_prior_never_fall_together(missing, number, seed):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 4, rng.integers(2, 6))
    params, X, observed = make_problem(missing, sizes=sizes, n_rows=20, seed=seed)
    model, dense = SubspacesByFeature(prior_rows=number), reference.all_states(len(sizes))
    new = model.update(params, statistics(params, X, observed, for_all(X, dense), model))
    values = [
        len(X)
        * reference.free_energy(
            reference.subspace_log_joint, theta, X, seen(X, observed), [dense] * len(X)
        )
        + log_prior(theta, params, number)
        for theta in (params, new)
    ]
    assert values[1] >= values[0] - 1e-8 * abs(values[0])


def test_a_strong_prior_makes_latents_alike_and_none_leaves_them():
    params, X, observed = make_problem(0.3, sizes=(3, 3, 3), n_rows=40, seed=12)
    kept = for_all(X, reference.all_states(3))

    def unlikeness(number):
        theta, model = params, SubspacesByFeature(prior_rows=number)
        for _ in range(30):
            theta = model.update(theta, statistics(theta, X, observed, kept, model))
        each, _ = targets(theta)
        shapes = [C / np.trace(C) for C in each]
        return max(np.linalg.norm(a - b) for a in shapes for b in shapes)

    weak, strong = unlikeness(0.0), unlikeness(1000.0)
    assert strong < 0.3 * weak


def test_with_a_prior_few_rows_tell_more():
    """Directions of few rows, most of them missing, come nearer to those that rows differ in."""
    rng = np.random.default_rng(13)
    D, n_kinds = 16, 4
    shared = np.exp(-np.abs(np.subtract.outer(np.arange(D), np.arange(D))) / 4)
    kinds = rng.integers(n_kinds, size=160)
    X = distributions.multivariate_normal(cov=shared).rvs(len(kinds), random_state=13)
    X += 6.0 * np.eye(n_kinds)[kinds] @ np.kron(np.eye(n_kinds), np.ones(D // n_kinds))
    observed = rng.random(X.shape) < 0.4
    truth, X = X, np.where(observed, X, 0.0)
    means = np.array([truth[kinds == kind].mean(0) for kind in range(n_kinds)])
    filled = np.where(observed, X, means[kinds])
    errors = []
    for number in (0.0, 10.0):
        model = SubspacesByFeature(6, number)
        params = model.from_clusters(filled, Clusters(means, kinds), noise_variance=0.05)
        data = em.Data(X, observed)
        state = em.init(model, data, n_states=4, params=params)
        state, _ = em.run(model, data, state, UNIFORM, max_iter=25)
        mean, _ = reconstruction(state.params, X, observed, state.states, model)
        errors.append(np.square(mean - truth)[~observed].mean())
    assert errors[1] < 0.9 * errors[0]
