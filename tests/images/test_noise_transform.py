"""Noise becomes white and of unit variance, and images come back without bias."""

import numpy as np
import pytest

from evoem import Noise
from evoem.images.noise_transform import (
    Law,
    NoiseTransform,
    noise_levels,
    stabilise,
    unstabilise,
)


def photons(mean, law, n, rng):
    """Values of an instrument whose noise follows a law."""
    counts = rng.poisson((mean - law.offset) / law.gain, n)
    return law.offset + law.gain * counts + rng.normal(0, np.sqrt(law.read_variance), n)


@pytest.mark.parametrize("law", [Law(1.0, 0.0, 0.0), Law(20.0, 3.0, 0.1), Law(4.0, -10.0, 30.0)])
@pytest.mark.parametrize("n_photons", [0.5, 2.0, 10.0, 55.0, 65.0, 300.0])
def test_the_mean_of_stabilised_values_comes_back_as_their_mean(law, n_photons):
    """The algebraic inverse would be a quarter of a photon too low."""
    rng = np.random.default_rng(0)
    mean = law.offset + law.gain * n_photons
    stable = stabilise(photons(mean, law, 400_000, rng), law).mean()
    found = unstabilise(np.array([stable]), law)[0]
    spread = np.sqrt(law.gain * (mean - law.offset) + law.read_variance)
    assert abs(found - mean) < 5 * spread / np.sqrt(400_000) + 1e-3 * law.gain


@pytest.mark.parametrize("n_photons", [4.0, 20.0, 200.0])
def test_stabilised_noise_has_unit_variance(n_photons):
    law = Law(7.0, 2.0, 5.0)
    values = photons(2.0 + 7.0 * n_photons, law, 200_000, np.random.default_rng(1))
    assert stabilise(values, law).var() == pytest.approx(1.0, abs=0.06)


def correlated_noise(shape, rng):
    """Noise of unit variance, neighbours correlated by 0.4, and channels by 0.6."""
    white = rng.normal(size=(shape[0] + 1, shape[1] + 1, shape[2]))
    smooth = white[1:] + 0.5 * white[:-1]
    smooth = (smooth[:, 1:] + 0.5 * smooth[:, :-1]) / 1.25
    mixing = np.linalg.cholesky(np.full((shape[2],) * 2, 0.6) + 0.4 * np.eye(shape[2]))
    return smooth @ mixing.T


CORRELATED = Noise(
    read_variance=4.0,
    correlation=np.outer([0.4, 1.0, 0.4], [0.4, 1.0, 0.4]),
    channel_correlation=np.full((3, 3), 0.6) + 0.4 * np.eye(3),
)


def test_correlated_noise_becomes_white():
    rng = np.random.default_rng(2)
    image = 2.0 * correlated_noise((200, 220, 3), rng)
    white = NoiseTransform(CORRELATED, image).forward(image)
    middle = white[20:-20, 20:-20]
    np.testing.assert_allclose(np.cov(middle.reshape(-1, 3).T), np.eye(3), atol=0.08)
    for neighbour in (middle[1:, :] * middle[:-1, :], middle[:, 1:] * middle[:, :-1]):
        assert abs(neighbour.mean()) < 0.1


@pytest.mark.parametrize("noise", [CORRELATED, Noise(gain=2.0, offset=-5.0, read_variance=3.0)])
def test_what_is_transformed_comes_back(noise):
    rng = np.random.default_rng(3)
    y, x = np.mgrid[0:70, 0:90]
    image = np.stack([200 + 50 * np.sin(x / 9 + y / 7 + c) for c in range(3)], axis=2)
    transform = NoiseTransform(noise, image + 2 * correlated_noise(image.shape, rng))
    # The inverse is that of expectations: of values without noise it is off by a quarter of a gain.
    back = transform.backward(transform.forward(image))
    np.testing.assert_allclose(back[8:-8, 8:-8], image[8:-8, 8:-8], atol=1.0)
    np.testing.assert_allclose(back, image, atol=2.0)  # edges are mirrored twice


def test_deviations_are_those_of_the_noise_where_the_model_says_nothing():
    noise = Noise(gain=3.0, offset=1.0, read_variance=2.0)
    image = np.full((20, 20, 1), 31.0)
    found = NoiseTransform(noise, image).deviations(np.ones(image.shape), image)
    np.testing.assert_allclose(found, np.sqrt(3.0 * 30.0 + 2.0))


def test_levels_are_those_of_the_noise_beside_edges():
    rng = np.random.default_rng(4)
    image = 50.0 * (np.arange(100) // 20 % 2)[:, None, None] + np.zeros((100, 120, 2))
    noisy = image + rng.normal(0, [1.0, 3.0], image.shape)
    np.testing.assert_allclose(noise_levels(noisy), [1.0, 3.0], rtol=0.1)
