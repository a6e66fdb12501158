"""Distributions of noise, without scipy.stats, which takes a second to import."""

import math

import numpy as np
from numpy.typing import NDArray
from scipy import special

Array = NDArray[np.float64]


def normal_density(x: Array) -> Array:
    """Of a standard normal variable."""
    density: Array = np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
    return density


def normal_below(x: Array) -> Array:
    """Probability of a standard normal variable to be below x; above it, that of -x."""
    below: Array = special.ndtr(x)
    return below


def poisson_probabilities(counts: NDArray[np.integer], mean: Array) -> Array:
    """Probabilities of counts around means, which may be none."""
    probabilities: Array = np.exp(special.xlogy(counts, mean) - mean - special.gammaln(counts + 1))
    return probabilities
