"""Whether what was taken off is white."""

import numpy as np
import pytest

from evoem.images.residual import LAGS, autocorrelation, expected, whiteness


@pytest.mark.parametrize("missing", [False, True])
def test_autocorrelation_is_that_of_loops_over_pairs(missing):
    rng = np.random.default_rng(0)
    residual = rng.normal(1, 2, (9, 7))
    if missing:
        residual[rng.random(residual.shape) < 0.3] = np.nan
    centred = residual - np.nanmean(residual)
    slow = np.zeros((5, 5))
    for down in range(-2, 3):
        for right in range(-2, 3):
            products = [
                centred[i, j] * centred[i + down, j + right]
                for i in range(9)
                for j in range(7)
                if 0 <= i + down < 9 and 0 <= j + right < 7
            ]
            slow[2 + down, 2 + right] = np.nanmean(products) / np.nanmean(centred**2)
    found, n_values = autocorrelation(residual, 2)
    np.testing.assert_allclose(found, slow, atol=1e-12)
    assert n_values == np.isfinite(residual).sum()


def test_white_residuals_are_told_from_others():
    rng = np.random.default_rng(1)
    white, smooth = rng.normal(0, 5, (2, 40, 40))
    smooth[1:] += smooth[:-1].copy()
    assert "It is white" in whiteness(*autocorrelation(white, LAGS))
    told = whiteness(*autocorrelation(smooth, LAGS))
    assert "distance (1, 0) are correlated by 0." in told
    assert told.endswith("or part of the picture was removed with it.")


def test_noise_that_stayed_is_told_from_a_picture_that_was_taken_off():
    noise = np.random.default_rng(2).normal(0, 5, (60, 60))
    noise -= 0.2 * (np.roll(noise, 1, axis=0) + np.roll(noise, -1, axis=0))
    told = whiteness(*autocorrelation(noise, LAGS))
    assert "distance (1, 0) are correlated by -0." in told
    assert told.endswith("some of the noise stayed in the picture.")


def test_residuals_of_correlated_noise_are_to_be_as_the_noise_is():
    noise = np.random.default_rng(3).normal(0, 5, (80, 81))
    noise = noise[:, 1:] + noise[:, :-1]  # neighbours of a row are correlated by a half
    of_noise = np.array([[0.5, 1.0, 0.5]])
    found = autocorrelation(noise, LAGS)
    assert "It is correlated as the noise is" in whiteness(*found, of_noise)
    assert "was correlated, or part" in whiteness(*found)
    white = autocorrelation(np.random.default_rng(4).normal(0, 5, (80, 80)), LAGS)
    told = whiteness(*white, of_noise)
    assert "those of the noise by 0.50: some of the noise stayed" in told


@pytest.mark.parametrize("shape", [(1, 3), (9, 5), (7, 7)])
def test_lags_of_noise_and_of_a_residual_have_the_same_middle(shape):
    of_noise = np.random.default_rng(5).random(shape)
    of_noise[shape[0] // 2, shape[1] // 2] = 1.0
    found = expected(of_noise, 7)
    for down in range(-3, 4):
        for right in range(-3, 4):
            row, column = shape[0] // 2 + down, shape[1] // 2 + right
            inside = 0 <= row < shape[0] and 0 <= column < shape[1]
            assert found[3 + down, 3 + right] == (of_noise[row, column] if inside else 0.0)
