"""Distributions of noise against those of scipy.stats."""

import numpy as np
from scipy import stats

from evoem.images.distributions import normal_below, normal_density, poisson_probabilities

X = np.linspace(-30, 30, 121)


def test_normal_variables():
    np.testing.assert_allclose(normal_density(X), stats.norm.pdf(X), rtol=1e-12)
    np.testing.assert_allclose(normal_below(X), stats.norm.cdf(X), rtol=1e-12)
    np.testing.assert_allclose(normal_below(-X), stats.norm.sf(X), rtol=1e-12)


def test_counts_of_photons():
    counts, means = np.arange(400), np.array([0.0, 1e-300, 0.3, 7.0, 250.0])[:, None]
    expected = stats.poisson.pmf(counts, means)
    np.testing.assert_allclose(poisson_probabilities(counts, means), expected, rtol=1e-10)
