"""Denoising and inpainting of small synthetic pictures."""

import numpy as np
import pytest
from sample_images import (
    GREY,
    MASK,
    MODELS,
    SIGMA,
    SMALL,
    TINY,
    as_dtype,
    assert_same,
    colour,
    holes_at,
    nearest,
    noisy,
    noisy_run,
    picture,
    tiny_run,
)

import evoem
from evoem import denoise, inpaint, restore
from evoem.images.quality import psnr


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(("model", "gain"), [("es3c", 8.0), ("ebsc", 6.0)])
def test_denoising_brings_a_picture_nearer_to_the_clean_one(model, gain, seed):
    clean = picture()
    before, after = noisy(clean, seed), noisy_run(model, seed).image
    assert psnr(clean, after) > psnr(clean, before) + gain


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("model", MODELS)
def test_the_noise_level_is_learnt(model, seed):
    assert noisy_run(model, seed).noise_level == pytest.approx(SIGMA, rel=0.15)


@pytest.mark.parametrize("sigma", [10.0, 50.0])
def test_other_noise_levels_are_told_apart(sigma):
    image = noisy(picture(), sigma=sigma)
    assert restore(image, **SMALL).noise_level == pytest.approx(sigma, rel=0.3)


@pytest.mark.parametrize(
    ("model", "nonlocal_passes"),
    [("subspaces", 3), ("es3c", 3), ("es3c", 0), ("ebsc", 0)],
)
def test_the_standard_deviation_is_as_large_as_the_error(model, nonlocal_passes):
    """That of the model: nonlocal passes make errors smaller, but not what is said about them."""
    options = SMALL | {"model": model, "nonlocal_passes": nonlocal_passes}
    result = restore(noisy(picture()), **options)
    error = np.sqrt(np.mean((result.image - picture()) ** 2))
    assert (result.std > 0).all()
    assert error / 1.5 < np.sqrt(np.mean(result.std**2)) < error * 1.5


def test_colours_are_denoised_together():
    clean = colour(32)
    image = noisy(clean)
    together = restore(image, channel_axis=-1, **SMALL).image
    apart = [restore(image[..., k], **SMALL).image for k in range(3)]
    assert psnr(clean, together) > psnr(clean, np.stack(apart, -1)) + 1
    assert psnr(clean, together) > psnr(clean, image) + 8


def test_denoise_is_the_image_of_restore():
    np.testing.assert_array_equal(denoise(GREY, **TINY), tiny_run().image)


def test_the_package_offers_restoration():
    from evoem.images import restore as module

    assert evoem.restore is module.restore
    assert evoem.denoise is module.denoise
    assert evoem.inpaint is module.inpaint
    assert isinstance(tiny_run(), evoem.Restoration)


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(("model", "gain"), [("es3c", 8.0), ("ebsc", 2.0)])
def test_half_of_the_pixels_are_filled_in_better_than_by_mean_or_neighbour(model, gain, seed):
    clean = picture()
    mask = holes_at(clean.shape, 0.5, seed)
    image = inpaint(np.where(mask, -1.0, clean), mask, seed=seed, **SMALL | {"model": model})
    np.testing.assert_array_equal(image[~mask], clean[~mask])
    mean = np.where(mask, clean[~mask].mean(), clean)
    assert psnr(clean, image) > psnr(clean, nearest(clean, mask)) + gain
    assert psnr(clean, image) > psnr(clean, mean) + 10


@pytest.mark.parametrize("model", MODELS)
def test_noisy_and_incomplete_pictures_are_denoised_and_filled(model):
    clean = picture()
    image, mask = noisy(clean), holes_at(clean.shape)
    result = restore(image, mask=mask, keep_observed=False, **SMALL | {"model": model})
    assert psnr(clean[~mask], result.image[~mask]) > psnr(clean[~mask], image[~mask]) + 4
    filled = nearest(image, mask)
    assert psnr(clean[mask], result.image[mask]) > psnr(clean[mask], filled[mask]) + 4
    assert result.noise_level == pytest.approx(SIGMA, rel=0.3)
    assert (result.std > 0).all()
    assert result.std[mask].mean() > 1.05 * result.std[~mask].mean()


def test_kept_pixels_have_no_standard_deviation():
    options = TINY | {"nonlocal_passes": 0}  # they use what is kept as if it had no noise
    kept = restore(GREY, mask=MASK, keep_observed=True, **options)
    free = restore(GREY, mask=MASK, keep_observed=False, **options)
    assert (kept.std[~MASK] == 0).all()
    assert (kept.std[MASK] > 0).all()
    np.testing.assert_array_equal(kept.std[MASK], free.std[MASK])
    np.testing.assert_array_equal(kept.image[MASK], free.image[MASK])
    assert (free.image != GREY)[~MASK].all()


def test_all_of_a_complete_image_may_be_kept():
    result = restore(GREY, keep_observed=True, **TINY)
    np.testing.assert_array_equal(result.image, GREY)
    assert (result.std == 0).all()
    assert result.noise_level == tiny_run().noise_level
    np.testing.assert_array_equal(inpaint(GREY, **TINY), GREY)


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int32", "bool", "float32", "float64"])
def test_observed_pixels_of_every_type_come_back_unchanged(dtype):
    image = as_dtype(picture(24), dtype)
    filled = inpaint(image, MASK, **TINY)
    assert filled.dtype == image.dtype
    np.testing.assert_array_equal(filled[~MASK], image[~MASK])
    mean = np.where(MASK, image[~MASK].astype(float).mean(), image)
    peak = float(image.max())
    assert psnr(image, filled, peak) > psnr(image.astype(float), mean, peak) + 3


def test_a_mask_of_nothing_is_no_mask():
    assert_same(restore(GREY, mask=np.zeros(GREY.shape, bool), **TINY), tiny_run())


def test_nan_is_missing_and_adds_to_the_mask():
    masked = restore(GREY, mask=MASK, **TINY)
    assert_same(restore(np.where(MASK, np.nan, GREY), **TINY), masked)
    upper = MASK & (np.arange(24)[:, None] < 12)
    assert_same(restore(np.where(upper, np.nan, GREY), mask=MASK & ~upper, **TINY), masked)


def test_what_is_under_the_mask_does_not_matter():
    masked = restore(GREY, mask=MASK, **TINY)
    for wrong in (0.0, 1e9, np.inf, np.nan):
        assert_same(restore(np.where(MASK, wrong, GREY), mask=MASK, **TINY), masked)


def test_masks_of_integers_are_masks():
    masked = restore(GREY, mask=MASK, **TINY)
    for mask in (255 * MASK.astype(np.uint8), -MASK.astype(np.int64), MASK.tolist()):
        assert_same(restore(GREY, mask=mask, **TINY), masked)


def test_a_pixel_that_is_missing_is_missing_in_every_channel():
    image = noisy(colour())
    per_pixel = restore(image, mask=MASK, channel_axis=-1, **TINY)
    every = np.repeat(MASK[..., None], 3, axis=-1)
    assert_same(restore(image, mask=every, channel_axis=-1, **TINY), per_pixel)
    holed = np.where(every, np.nan, image)
    assert_same(restore(holed, channel_axis=-1, **TINY), per_pixel)


def test_single_values_of_a_pixel_may_be_missing():
    clean = colour()
    mask = holes_at(clean.shape, 0.4)
    filled = inpaint(np.where(mask, np.nan, clean), channel_axis=-1, **SMALL)
    np.testing.assert_array_equal(filled[~mask], clean[~mask])
    alone = [nearest(clean[..., k], mask[..., k]) for k in range(3)]
    assert psnr(clean, filled) > psnr(clean, np.stack(alone, -1)) + 6


def test_a_channel_is_filled_from_the_others():
    clean = colour()
    mask = np.zeros(clean.shape, bool)
    mask[..., 0] = holes_at(GREY.shape, 0.8)
    together = inpaint(clean, mask, channel_axis=-1, **SMALL)[..., 0]
    alone = inpaint(clean[..., 0], mask[..., 0], **SMALL)
    assert psnr(clean[..., 0], together) > psnr(clean[..., 0], alone) + 6


def test_two_observed_pixels_are_enough():
    image = np.full((12, 12), np.nan)
    image[1, 1], image[9, 9] = 5.0, 7.0
    result = restore(image, keep_observed=True, **TINY)
    assert (result.image[1, 1], result.image[9, 9]) == (5.0, 7.0)
    assert np.isfinite(result.image).all()
    assert -10 < result.image.min() <= result.image.max() < 30


def test_the_mask_of_a_masked_array_is_not_forgotten():
    masked = np.ma.masked_array(GREY, MASK)
    try:
        result = restore(masked, **TINY)
    except ValueError:
        return  # to refuse it is as good
    assert_same(result, restore(GREY, mask=MASK, **TINY))
