"""Patterns that are rotated stay the same model, and become orthogonal however unequal they are."""

import numpy as np
import pytest
import reference
from subspace_problems import for_all, log_joints, random_params

from evoem.models.subspace.rotation import not_orthogonal, rotate, rotate_pairs


def unequal_params(rng):
    """A narrow slab about a large mean, beside wide ones: two patterns are nearly parallel."""
    params = random_params((3, 2), 8, rng)
    W = params.components.copy()
    W[0] = 1e5 * rng.normal(size=8)
    W[1] = W[0] + 0.1 * rng.normal(size=8)
    W[2] = 1e5 * rng.normal(size=8)
    return params._replace(
        components=W,
        slab_means=np.array([1.0, -6.0, 0.0, 1.0, 0.0]),
        slab_covariance=np.array([1e-5, 1e-6, 40.0, 1.0, 1.0]),
        noise_variance=np.array(1.0),
    )


@pytest.mark.parametrize("seed", range(5))
def test_log_joints_of_unequal_patterns_are_exact(seed):
    rng = np.random.default_rng(seed)
    params = unequal_params(rng)
    amounts = params.slab_means + np.sqrt(params.slab_covariance) * rng.normal(size=5)
    X = (amounts[:3] @ params.components[:3] + rng.normal(size=8))[None]
    dense = np.array([[True, False], [True, True]])
    fast = log_joints(params, X, None, for_all(X, dense))[0]
    slow = [reference.exact_log_joint(params, X[0], np.ones(8, bool), s) for s in dense]
    np.testing.assert_allclose(fast, slow, atol=2e-2)  # |y|²/2σ² is 1e12


def test_rotations_keep_covariance_and_mean_and_give_orthogonal_patterns():
    rng = np.random.default_rng(0)
    params = unequal_params(rng)
    spread = np.sqrt(params.slab_covariance)
    V, t = params.components * spread[:, None], params.slab_means / spread
    scaled, shift = V.copy(), t.copy()
    back = rotate(params.groups, scaled, shift, spread)
    for own in (slice(0, 3), slice(3, 5)):
        wanted = V[own].T @ V[own]
        np.testing.assert_allclose(
            scaled[own].T @ scaled[own], wanted, atol=1e-12 * np.abs(wanted).max()
        )
        mean = t[own] @ V[own]
        np.testing.assert_allclose(shift[own] @ scaled[own], mean, rtol=1e-9)
        sizes = np.linalg.norm(scaled[own], axis=1)
        products = scaled[own] @ scaled[own].T
        cosines = products / np.outer(sizes, sizes)
        np.testing.assert_allclose(cosines, np.eye(len(sizes)), atol=1e-14)
        turn = back[own, : len(sizes)] / spread[own, None]
        np.testing.assert_allclose(turn @ turn.T, np.eye(len(sizes)), atol=1e-12)


def test_pairs_are_rotated_where_eigenvectors_leave_inner_products_and_only_there():
    V = np.array([[[1.0, 0, 0], [1e-9, 1, 0]], [[1.0, 0, 0], [0, 1, 0]]])
    t = np.full((2, 2), 1e3)
    assert not_orthogonal(V, t).tolist() == [True, False]
    vectors = np.broadcast_to(np.eye(2), (2, 2, 2)).copy()
    rotate_pairs(V, t, vectors)
    assert not not_orthogonal(V, t).any()
