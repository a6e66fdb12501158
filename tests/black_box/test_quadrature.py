"""What values a model expects, by integration of its joint."""

import numpy as np
import pytest
from black_box_problems import ALL, GAUSS, H, W, gauss, gauss_mean, held
from scipy.special import logsumexp

from evoem.black_box.quadrature import support_of


def bernoulli(params, X, states, observed):
    logits = states @ params["W"] - 1
    each = X[:, None] * logits - np.log1p(np.exp(logits))
    return (each * observed[:, None]).sum(-1)


def bernoulli_mean(params, states):
    return 1 / (1 + np.exp(1 - states @ params["W"]))


def poisson(params, X, states, observed):
    """Up to log x!, of which a user may forget: no; it changes the mean of a missing value."""
    rate = 0.5 + states @ params["W"]
    factorials = np.array([np.log(np.arange(1, k + 1)).sum() for k in range(400)])
    each = X[:, None] * np.log(rate) - rate - factorials[X.astype(int)][:, None]
    return (each * observed[:, None]).sum(-1)


def poisson_mean(params, states):
    return 0.5 + states @ params["W"]


RECONSTRUCTED = {
    "gauss": (gauss, gauss_mean, lambda mean, rng: mean + rng.normal(size=mean.shape)),
    "bernoulli": (bernoulli, bernoulli_mean, lambda mean, rng: rng.random(mean.shape) < mean),
    "poisson": (poisson, poisson_mean, lambda mean, rng: rng.poisson(mean)),
}


@pytest.mark.parametrize("missing", [0.0, 0.3], ids=["complete", "missing"])
@pytest.mark.parametrize("name", RECONSTRUCTED)
def test_means_by_integration_are_those_of_the_formula_and_of_enumeration(name, missing):
    log_joint, mean, draw = RECONSTRUCTED[name]
    rng = np.random.default_rng(0)
    X = draw(mean(GAUSS, (rng.random((60, H)) < 0.4) * 1.0), rng).astype(float)
    observed = rng.random(X.shape) >= missing
    observed[0] = True
    filled = np.where(observed, X, 0.0)
    states = np.broadcast_to(ALL, (60, *ALL.shape))
    log_joints = log_joint(GAUSS, filled, states, observed)
    weights = np.exp(log_joints - logsumexp(log_joints, axis=1)[:, None])
    means = mean(GAUSS, ALL)
    expected = weights @ means
    std = np.sqrt(weights @ means**2 - expected**2 + 1e-15)
    with_nan = np.where(observed, X, np.nan)
    by_formula = held(log_joint, mean=mean).fit(with_nan).reconstruct(with_nan, return_std=True)
    np.testing.assert_allclose(by_formula[0], expected, atol=1e-9)
    np.testing.assert_allclose(by_formula[1], std, atol=1e-6)
    # States of a weight below one in a thousand are left out of the integrals.
    found, spread = held(log_joint).fit(with_nan).reconstruct(with_nan, return_std=True)
    np.testing.assert_allclose(found, expected, atol=5e-3 * np.ptp(means))
    np.testing.assert_allclose(spread, std, atol=0.05 * np.ptp(means))


def test_narrow_densities_are_found_by_refinement():
    """The grid's points are fifty standard deviations apart before."""
    narrow = GAUSS | {"noise": 1e-4}
    X = np.random.default_rng(0).integers(0, 2, (30, H)) @ W + 0.01
    found = held(params=narrow).fit(X).reconstruct(X)
    np.testing.assert_allclose(found, X - 0.01, atol=1e-4)


def test_the_support_is_that_of_the_values_with_room_around_them():
    X = np.array(
        [
            [0.0, 0.0, 0.0, -1.0, 0.5, 7.0],
            [1.0, 0.0, 3.0, 2.0, 1.5, 7.0],
            [9.0, 0.0, 1.0, 5.0, 0.7, 7.0],
        ]
    )
    observed = np.ones(X.shape, bool)
    observed[2, 0] = False
    observed[:, 5] = False
    support = support_of(np.where(observed, X, 0.0), observed)
    # 0 and 1; zero alone may be 0 or 1; counts; whole numbers of any sign; real numbers.
    np.testing.assert_array_equal(support.whole[:5], [True, True, True, True, False])
    np.testing.assert_array_equal(support.least[:5], [0, 0, 0, -4, 0.0])
    np.testing.assert_array_equal(support.largest[:5], [1, 1, 6, 11, 2.0])
    # A column nobody saw may be anywhere in the range of the others.
    assert support.least[5] <= -1
    assert support.largest[5] >= 5


def test_columns_with_too_many_whole_numbers_are_integrated_over():
    X = np.array([[0.0], [3000.0]])
    assert not support_of(X, None).whole[0]
