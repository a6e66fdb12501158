"""A first guess at the noise."""

import numpy as np
import pytest

from evoem.images.noise import share_of_noise


@pytest.mark.parametrize("channels", [1, 3])
def test_the_share_of_noise_is_found_beside_edges(channels):
    rng = np.random.default_rng(channels)
    clean = np.kron(rng.uniform(0, 200, (8, 8, channels)), np.ones((12, 12, 1)))
    for noise in (0.0, 5.0, 20.0, 80.0):
        values = clean + noise * rng.normal(size=clean.shape)
        expected = noise / np.sqrt(clean.var(axis=(0, 1)).mean())
        assert share_of_noise(values) == pytest.approx(expected, rel=0.1, abs=0.01)
    assert share_of_noise(values[:1]) == 0  # nothing to tell it from
    assert share_of_noise(np.zeros((5, 5, 1))) == np.inf
