"""Noise becomes white and of unit variance, and images come back without bias."""

from dataclasses import replace

import numpy as np
import pytest

from evoem import Noise
from evoem.images.noise_transform import (
    LEAST_POWER,
    Law,
    NoiseTransform,
    expected_stable,
    noise_levels,
    positive,
    spectrum,
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


@pytest.mark.parametrize("law", [Law(1.0, 0.0, 0.0), Law(20.0, 3.0, 0.1), Law(0.0, 0.0, 4.0)])
def test_expected_transforms_are_the_way_back_from_expectations(law):
    expected = 3.0 + 20.0 * np.array([0.0, 0.01, 1.0, 30.0, 59.9, 60.1, 200.0, 1e5])
    back = unstabilise(expected_stable(expected, law), law)
    np.testing.assert_allclose(back, expected, rtol=1e-4, atol=1e-9)


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


def test_places_without_a_photon_have_a_deviation_and_correlated_noise_a_larger_one():
    image = np.random.default_rng(6).normal(0, 2, (40, 40, 3))
    photons_alone = NoiseTransform(Noise(gain=4.0), np.maximum(image, 0))
    found = photons_alone.deviations(np.full(image.shape, 0.5), np.zeros(image.shape))
    np.testing.assert_allclose(found, 0.5 * 4.0 * np.sqrt(0.5))
    correlated = NoiseTransform(CORRELATED, image)
    found = correlated.deviations(np.full(image.shape, 0.5), image)
    np.testing.assert_allclose(found, 2 * 0.5 * 2.0)


def test_the_floor_grows_with_what_is_left_of_correlation_and_with_what_jpeg_took():
    image = np.random.default_rng(6).normal(0, 2, (40, 40, 3))
    independent = Noise(read_variance=4.0)
    floors = [
        NoiseTransform(noise, image).floor
        for noise in (independent, CORRELATED, replace(CORRELATED, compressed=True))
    ]
    assert floors[0] == 1.0
    assert floors == sorted(set(floors))


def test_levels_are_those_of_the_noise_beside_edges():
    rng = np.random.default_rng(4)
    image = 50.0 * (np.arange(100) // 20 % 2)[:, None, None] + np.zeros((100, 120, 2))
    noisy = image + rng.normal(0, [1.0, 3.0], image.shape)
    np.testing.assert_allclose(noise_levels(noisy), [1.0, 3.0], rtol=0.1)


def channels_apart(shape, rng):
    """Red's neighbours along rows are correlated, green's are not; green has what red has."""
    first, second = rng.normal(size=(2, shape[0], shape[1] + 1))
    red = (first[:, 1:] + 0.4 * first[:, :-1]) / np.sqrt(1.16)
    green = (second[:, 1:] + first[:, 1:]) / np.sqrt(2)
    return np.stack([red, green], axis=2)


CHANNELS_APART = np.zeros((2, 2, 1, 3))
CHANNELS_APART[0, 0, 0] = np.array([0.4, 1.16, 0.4]) / 1.16
CHANNELS_APART[1, 1, 0, 1] = 1
# What green has at x red has at x and, less of it, at x + 1.
CHANNELS_APART[0, 1, 0, :2] = np.array([0.4, 1]) / np.sqrt(2 * 1.16)
CHANNELS_APART[1, 0, 0, 1:] = np.array([1, 0.4]) / np.sqrt(2 * 1.16)


def test_noise_whose_channels_differ_becomes_white():
    noise = Noise(read_variance=9.0, cross_correlation=CHANNELS_APART)
    image = 3.0 * channels_apart((200, 210), np.random.default_rng(5))
    white = NoiseTransform(noise, image).forward(image)[20:-20, 20:-20]
    np.testing.assert_allclose(np.cov(white.reshape(-1, 2).T), np.eye(2), atol=0.05)
    pairs = white[:, 1:].reshape(-1, 2).T @ white[:, :-1].reshape(-1, 2)
    assert np.abs(pairs).max() < 0.05 * white.size / 2


def test_spectra_are_those_of_the_transform_of_lags():
    lags = np.zeros((2, 2, 8, 8))
    lags[:, :, 0, :2] = CHANNELS_APART[..., 0, 1:]
    lags[:, :, 0, -1] = CHANNELS_APART[..., 0, 0]
    expected = np.moveaxis(np.fft.fft2(lags).conj(), (0, 1), (2, 3))
    frequencies = np.fft.fftfreq(8)
    np.testing.assert_allclose(spectrum(CHANNELS_APART, frequencies, frequencies), expected)


@pytest.mark.parametrize("rho", [0.0, 0.3, 0.6])
def test_correlations_are_tapered_only_as_far_as_needed(rho):
    along = rho ** np.abs(np.arange(-2, 3))
    frequencies = np.fft.fftfreq(64)
    short = np.outer(along, along)[None, None]
    tapered = positive(short)
    powers = spectrum(tapered, frequencies, frequencies)
    assert powers.min() >= LEAST_POWER
    assert tapered[0, 0, 2, 2] == 1
    if spectrum(short, frequencies, frequencies).min() >= LEAST_POWER:
        np.testing.assert_array_equal(tapered, short)
    else:
        assert 0 < tapered[0, 0, 2, 3] < short[0, 0, 2, 3]
