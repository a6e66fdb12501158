"""Images with the noise of detectors, and with white noise, which is left alone."""

from dataclasses import replace

import numpy as np
import pytest
from noisy_pictures import autoregressive, compressed

from evoem import Noise, denoise, restore
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
    assert not any("outliers" in note for note in found.notes)
    assert np.abs(found.image - CLEAN - dots).max() < 20


def test_pictures_that_jpeg_compressed_have_more_noise_than_flat_places_show():
    rng = np.random.default_rng(4)
    noisy = np.clip(CLEAN + 10 * autoregressive(CLEAN.shape, 0.5, rng), 0, 255)
    lags = 0.5 ** np.abs(np.arange(-3, 4))
    # Half of the variance that there was, as flat places might have it.
    left = Noise(read_variance=50.0, correlation=np.outer(lags, lags))
    image = compressed(noisy[..., None], 85)[..., 0]
    plain = restore(image, noise=left, **SMALL)
    found = restore(image, noise=replace(left, compressed=True), **SMALL)
    assert found.noise_level > 1.05 * plain.noise_level
    assert psnr(CLEAN, found.image) > psnr(CLEAN, plain.image) + 0.2


def test_scale_and_offset_of_the_picture_change_nothing_else():
    image = photons(12.0)
    first, second = restore(image, **SMALL), restore(0.004 * image - 3.0, **SMALL)
    assert second.noise.gain == pytest.approx(0.004 * first.noise.gain, rel=1e-3)
    np.testing.assert_allclose((second.image + 3.0) / 0.004, first.image, atol=0.5)
    np.testing.assert_allclose(second.std / 0.004, first.std, rtol=0.1, atol=0.1)


def test_wide_areas_without_noise_do_not_make_the_rest_keep_it():
    clean = np.where(x < 60, CLEAN, 100.0)
    image = np.where(x < 60, CLEAN + np.random.default_rng(7).normal(0, 15, CLEAN.shape), 100.0)
    found = restore(image, **SMALL)
    assert found.noise.kind == "gaussian"
    assert found.noise_level == pytest.approx(15, rel=0.15)
    assert psnr(clean, found.image) > psnr(clean, denoise(image, noise="gaussian", **SMALL)) + 4


def test_pictures_of_few_photons_are_restored_although_most_values_are_zero():
    mean = 0.1 * CLEAN / CLEAN.mean()
    image = np.random.default_rng(6).poisson(mean).astype(float)
    assert (image == 0).mean() > 0.9
    found = restore(image, **SMALL)
    assert psnr(mean, found.image, mean.max()) > psnr(mean, image, mean.max()) + 12


def test_a_note_says_that_the_noise_could_not_be_told():
    dark = np.zeros(CLEAN.shape)
    dark[::7, ::5] = np.random.default_rng(5).poisson(3, dark[::7, ::5].shape)
    found = restore(dark, **SMALL)
    assert not found.noise.told
    assert found.notes == (
        "The noise could not be estimated and was assumed to be white: "
        "nearly all of the picture is clipped or constant.",
    )
    assert restore(dark, noise="gaussian", **SMALL).notes == ()


def test_observed_values_that_are_kept_need_no_noise():
    mask = np.zeros(CLEAN.shape, bool)
    mask[40:44, 30:50] = True
    found = restore(photons(12.0), mask=mask, keep_observed=True, **SMALL)
    assert found.noise is None


@pytest.mark.parametrize("noise", ["white", 3, ""])
def test_what_says_nothing_about_noise_is_refused(noise):
    with pytest.raises(ValueError, match=r"^noise must be one of 'auto', 'gaussian', "):
        restore(CLEAN, noise=noise)
