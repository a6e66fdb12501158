"""Correlations are those that made the noise, and powers those of its covariance matrix."""

import numpy as np
import pytest
from noisy_pictures import autoregressive
from scipy.fft import dct

from evoem.images.noise_blocks import cut_blocks
from evoem.images.noise_correlation import (
    N_LAGS,
    SIDE,
    STEP,
    block_spectrum,
    covariances,
    kernel,
    measure_flattest,
    power_of_lags,
    solve_lags,
    unit_variance,
)


def test_powers_of_lags_are_those_of_coefficients():
    correlation = np.outer([1, 0.5, 0.2], [1, 0.3, 0.1])
    rows = np.array([0.2, 0.5, 1, 0.5, 0.2])
    columns = np.array([0.1, 0.3, 1, 0.3, 0.1])

    def covariance(along):
        lags = np.abs(np.subtract.outer(np.arange(8), np.arange(8)))
        return np.where(lags <= 2, along[np.minimum(lags, 2) + 2], 0)

    basis = dct(np.eye(8), axis=0, norm="ortho")
    expected = np.outer(
        np.diag(basis @ covariance(rows) @ basis.T), np.diag(basis @ covariance(columns) @ basis.T)
    )
    power = np.einsum("ijab,ab->ij", power_of_lags(8, 2), correlation)
    np.testing.assert_allclose(power, expected)
    np.testing.assert_allclose(
        solve_lags(power[..., None, None])[0, 0, :3, :3], correlation, atol=0.02
    )


def test_kernel_leaves_out_lags_that_are_negligible():
    correlation = np.zeros((4, 4))
    correlation[:2, :2] = [[1, 0.5], [0.4, 0.2]]
    np.testing.assert_array_equal(
        kernel(correlation), [[0.2, 0.4, 0.2], [0.5, 1, 0.5], [0.2, 0.4, 0.2]]
    )


def flattest(channels):
    everywhere = np.ones(channels[0].shape, bool)
    blocks = [cut_blocks(one, everywhere, ~everywhere, SIDE, STEP) for one in channels]
    return measure_flattest(blocks, [np.ones(len(one.mean)) for one in blocks])


def test_correlations_of_channels_and_neighbours_are_those_of_the_noise():
    rng = np.random.default_rng(0)
    first = autoregressive((256, 256), 0.5, rng)
    shared = autoregressive((256, 256), 0.5, rng)
    channels = [2 * first, 3 * (0.6 * first + 0.8 * shared)]
    found = covariances(flattest(channels).powers)
    variances = found[..., 0, 0]
    np.testing.assert_allclose(variances, [[4, 3.6], [3.6, 9]], rtol=0.1)
    lags = 0.5 ** np.arange(4)
    correlation = unit_variance(found)
    for a, b, between in ((0, 0, 1), (1, 1, 1), (0, 1, 0.6)):
        expected = between * np.outer(lags, lags)
        np.testing.assert_allclose(correlation[a, b, :4, :4], expected, atol=0.07)


def test_stripes_finer_than_what_blocks_are_chosen_by_are_hardly_taken_for_noise():
    y, x = np.mgrid[:256, :256]
    stripes = np.sin(2 * np.pi * (x / 3.2 + y / 40)) * (x < 64)
    noise = autoregressive(x.shape, 0.6, np.random.default_rng(0))
    correlation = unit_variance(covariances(flattest([noise + stripes]).powers))[0, 0]
    assert correlation[1, 0] == pytest.approx(0.6, abs=0.07)
    assert correlation[0, 1] == pytest.approx(0.6, abs=0.07)


def test_covariances_are_those_of_some_noise_even_if_channels_are_the_same():
    one = autoregressive((128, 128), 0.3, np.random.default_rng(1))
    nearly = one + 1e-3 * np.random.default_rng(2).standard_normal(one.shape)
    found = covariances(flattest([one, nearly, one + nearly]).powers)[..., 0, 0]
    assert np.linalg.eigvalsh(found)[0] > -1e-9 * found.max()


def test_powers_that_fall_too_steeply_are_of_no_noise():
    frequency = np.add.outer(np.arange(SIDE), np.arange(SIDE))
    steep = 1 / np.maximum(frequency, 1.0) ** 12
    found = covariances(steep[..., None, None])
    assert found is None or unit_variance(found)[0, 0, 0, 1] > 0.8


def test_smooth_pictures_have_next_to_nothing_but_low_frequencies():
    ramp = np.add.outer(np.arange(128.0), np.arange(128.0)) ** 2 / 20_000
    assert flattest([ramp]).smooth
    assert not flattest([ramp + np.random.default_rng(0).standard_normal(ramp.shape)]).smooth


def test_bands_of_white_noise_have_the_same_power():
    white = np.random.default_rng(3).standard_normal((256, 256))
    np.testing.assert_allclose(flattest([white]).high_powers, 1.0, atol=0.1)
    correlated = flattest([autoregressive((256, 256), 0.6, np.random.default_rng(3))])
    middle, high, highest = correlated.high_powers
    assert middle > high > highest


@pytest.mark.parametrize("side", [4, 16])
def test_the_spectrum_of_a_block_is_one_for_white_noise_and_one_on_average(side):
    white = np.zeros((N_LAGS + 1, N_LAGS + 1))
    white[0, 0] = 1
    np.testing.assert_allclose(block_spectrum(white, side), 1.0)
    correlated = np.outer(0.5 ** np.arange(20), 0.5 ** np.arange(20))
    spectrum = block_spectrum(correlated, side)
    assert spectrum.mean() == pytest.approx(1, abs=0.01)  # the variance, by Parseval
    assert spectrum[0, 0] == spectrum.max()
