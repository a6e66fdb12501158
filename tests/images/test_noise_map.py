"""Noise whose variance is given for each value."""

import numpy as np
import pytest

from evoem import denoise, restore
from evoem.images.noise_map import VarianceMap, pilot
from evoem.images.quality import psnr

y, x = np.mgrid[0:60, 0:64]
CLEAN = 60 + 50 * np.sin(x / 7.0) * (y > 30) + 60 * (x + y > 60) + 0.3 * y
DEVIATION = np.where(x < 32, 4.0, 36.0)
NOISY = CLEAN + np.random.default_rng(0).normal(0, DEVIATION)
SMALL = {"preset": "fast", "patch_size": 6, "n_latents": 24, "max_iter": 2, "n_jobs": 1}


def test_the_pilot_is_a_weighted_mean_of_what_is_around():
    rng = np.random.default_rng(1)
    values, precision = rng.normal(size=(20, 20, 1)), rng.uniform(0.1, 2, (20, 20, 1))
    found = pilot(values, precision)
    rows, columns = np.mgrid[0:20, 0:20]
    distance = (rows - 10) ** 2 + (columns - 9) ** 2
    weight = np.exp(-distance / 8.0) * precision[..., 0] * (distance < 1e9)
    expected = (weight * values[..., 0]).sum() / weight.sum()
    assert found[10, 9, 0] == pytest.approx(expected, abs=2e-3)


def test_noise_has_unit_variance_and_the_way_back_is_exact():
    image, variance = NOISY[..., None], DEVIATION[..., None] ** 2
    transform = VarianceMap(variance, image, None)
    white = transform.forward(image)
    np.testing.assert_allclose(transform.backward(white), image, rtol=1e-12)
    noise = white - transform.forward(CLEAN[..., None])
    for half in (noise[:, :32], noise[:, 32:]):
        assert half.std() == pytest.approx(1.0, rel=0.06)


def test_a_map_restores_better_than_one_level_for_all():
    found = restore(NOISY, noise_variance=DEVIATION**2, **SMALL)
    plain = denoise(NOISY, noise="gaussian", **SMALL)
    assert psnr(CLEAN, found.image) > psnr(CLEAN, plain) + 1
    assert found.std[:, 40:].mean() > 3 * found.std[:, :24].mean()
    assert "given for each value" in found.noise.describe()


def test_scale_and_offset_of_the_image_change_nothing_else():
    first = restore(NOISY, noise_variance=DEVIATION**2, **SMALL)
    second = restore(1000 + 0.02 * NOISY, noise_variance=(0.02 * DEVIATION) ** 2, **SMALL)
    np.testing.assert_allclose((second.image - 1000) / 0.02, first.image, atol=0.5)


def test_values_without_a_variance_are_missing():
    variance = DEVIATION**2
    variance[20:22, 40:44] = np.inf
    damaged = NOISY.copy()
    damaged[20:22, 40:44] = 1e4
    found = restore(damaged, noise_variance=variance, **SMALL)
    assert np.abs(found.image - CLEAN)[20:22, 40:44].max() < 60


def test_slices_of_a_stack_may_share_a_map_or_have_their_own():
    stack = np.stack([NOISY, NOISY[::-1]])
    shared = denoise(stack, noise_variance=DEVIATION**2, **SMALL)
    own = denoise(stack, noise_variance=np.stack([DEVIATION**2] * 2), **SMALL)
    np.testing.assert_array_equal(shared, own)
    alone = denoise(NOISY, noise_variance=DEVIATION**2, **SMALL)  # one model learns from both
    assert psnr(CLEAN, shared[0]) > psnr(CLEAN, alone) - 0.3


@pytest.mark.parametrize(
    ("variance", "message"),
    [
        (np.zeros(NOISY.shape), "noise_variance must be positive, or .*; got 0"),
        (np.full(NOISY.shape, -1.0), "noise_variance must be positive, or .*; got -1"),
        (np.ones((3, 3)), r"noise_variance must have the shape \(60, 64\) .*; got \(3, 3\)"),
        (np.full(NOISY.shape, "a"), "noise_variance must hold real numbers; got <U1"),
    ],
)
def test_bad_maps_are_refused(variance, message):
    with pytest.raises(ValueError, match=message):
        restore(NOISY, noise_variance=variance, **SMALL)


def test_noise_and_its_variance_are_not_both_given():
    with pytest.raises(ValueError, match="noise must be 'auto' beside noise_variance"):
        restore(NOISY, noise="correlated", noise_variance=DEVIATION**2, **SMALL)
