"""Images with the noise of detectors, and with white noise, which is left alone."""

import numpy as np
import pytest

from evoem import Noise, denoise, restore
from evoem.images import canonical_arrays, noise_stage
from evoem.images.noise_estimation import estimate
from evoem.images.quality import psnr

y, x = np.mgrid[0:112, 0:120]
CLEAN = 60 + 50 * np.sin(x / 7.0) * (y > 50) + 60 * (x + y > 120) + 0.3 * y
SMALL = {"preset": "fast", "patch_size": 6, "n_latents": 24, "max_iter": 2, "n_jobs": 1}


def photons(gain, seed=0):
    return gain * np.random.default_rng(seed).poisson(CLEAN / gain).astype(float)


def test_noise_that_grows_with_the_signal_is_found_and_removed_better():
    image = photons(12.0)
    found = restore(image, **SMALL)
    assert found.noise.kind == "poisson-gaussian"
    assert found.noise.gain == pytest.approx(12.0, rel=0.25)
    plain = denoise(image, noise="gaussian", **SMALL)
    assert psnr(CLEAN, found.image) > psnr(CLEAN, plain) + 0.5


def test_white_noise_is_left_to_the_model():
    image = CLEAN + np.random.default_rng(1).normal(0, 15, CLEAN.shape)
    found = restore(image, **SMALL)
    assert found.noise.kind == "gaussian"
    np.testing.assert_array_equal(found.image, denoise(image, noise="gaussian", **SMALL))


def test_noise_may_be_given_and_its_scale_is_that_of_the_image():
    image = photons(12.0)
    noise = Noise(gain=12.0, read_variance=0.1)
    first = restore(image, noise=noise, **SMALL)
    assert first.noise is noise
    scaled = noise.scaled(100.0, 0.01)  # of 100 times the image less 100
    second = restore((image - 100.0) / 0.01, noise=scaled, **SMALL)
    np.testing.assert_allclose(second.image * 0.01 + 100.0, first.image, atol=0.05)
    np.testing.assert_allclose(second.std * 0.01, first.std, rtol=1e-2, atol=1e-3)


def test_the_standard_deviation_grows_with_the_signal_like_the_noise():
    noise = Noise(gain=12.0, read_variance=0.1)
    std = restore(photons(12.0), noise=noise, **SMALL).std
    bright, dark = std[CLEAN > 150].mean(), std[CLEAN < 60].mean()
    assert bright > 1.2 * dark


def test_outliers_are_treated_as_missing_and_counted():
    rng = np.random.default_rng(2)
    image = CLEAN + rng.normal(0, 6, CLEAN.shape)
    hot = rng.random(CLEAN.shape) < 0.01
    found = restore(np.where(hot, 600.0, image), **SMALL)
    assert any("outliers were treated as missing" in note for note in found.notes)
    assert np.abs(found.image - CLEAN)[hot].mean() < 15


def test_details_of_a_picture_without_noise_are_no_outliers():
    dots = np.zeros(CLEAN.shape)
    dots[::9, ::11] = 80.0
    found = restore(CLEAN + dots + np.random.default_rng(3).normal(0, 0.5, CLEAN.shape), **SMALL)
    assert found.notes == ()
    assert np.abs(found.image - CLEAN - dots).max() < 20


def test_of_a_large_image_the_noise_is_that_of_its_middle(monkeypatch):
    monkeypatch.setattr(noise_stage, "LARGEST", 100)
    image = photons(12.0)
    image[:4] = 1000.0  # beyond the middle
    found, outliers = noise_stage.told(canonical_arrays.read(image, None, None, True))
    expected, _ = estimate(image[6:106, 10:110, None])
    assert found == expected
    assert outliers is None


def test_observed_values_that_are_kept_need_no_noise():
    mask = np.zeros(CLEAN.shape, bool)
    mask[40:44, 30:50] = True
    found = restore(photons(12.0), mask=mask, keep_observed=True, **SMALL)
    assert found.noise is None


@pytest.mark.parametrize("noise", ["white", 3, None])
def test_what_says_nothing_about_noise_is_refused(noise):
    with pytest.raises(ValueError, match=r"^noise must be one of 'auto', 'gaussian', "):
        restore(CLEAN, noise=noise)
