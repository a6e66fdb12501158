"""Restoration of small synthetic pictures, and everything that may be asked of it."""

import functools
import signal
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import ndimage
from scipy.interpolate import RegularGridInterpolator

import evoem
from evoem import (
    BinarySparseCoding,
    SpikeSlabCoding,
    SubspaceCoding,
    denoise,
    inpaint,
    restore,
)
from evoem.images import budget as closing
from evoem.images import canonical_arrays as arrays
from evoem.images import coarse_start as sketch
from evoem.images import large_holes as holes
from evoem.images import looks, patches
from evoem.images import patch_model as learning
from evoem.images import settings as presets
from evoem.images.noise import share_of_noise
from evoem.images.quality import psnr
from evoem.images.restore import Shares
from evoem.images.settings import PRESETS, SUBSPACE_PRESETS
from evoem.models import SubspaceModel
from evoem.models.subspace.by_feature import SubspacesByFeature
from evoem.models.subspace.start import Clusters

MODELS = ("subspaces", "es3c", "ebsc")
SIGMA = 25.0
# Enough to restore the pictures below, and enough to run.
SMALL = {
    "model": "es3c",
    "patch_size": 5,
    "n_latents": 16,
    "n_states": 16,
    "n_parents": 8,
    "n_children": 2,
    "n_parts": 1,
    "parents": "fit",
    "start": "mean",
    "max_iter": 20,
    "n_jobs": 1,
}
TINY = SMALL | {"patch_size": 3, "n_latents": 6, "n_states": 8, "n_parents": 4, "max_iter": 3}


def picture(size=40, shift=0.0):
    """A soft-edged ellipse and slanted stripes on a slope, between 40 and 250."""
    row, column = np.mgrid[:size, :size] / size
    ellipse = soft(0.3 - np.hypot(column - 0.4 - shift, 1.4 * (row - 0.5)))
    stripes = soft(0.12 * np.sin(6 * np.pi * (row + column + shift))) * (column > 0.6)
    return 40 + 110 * ellipse + 80 * stripes + 30 * row


def soft(height):
    return 1 / (1 + np.exp(-40 * height))


def colour(size=24, n_channels=3):
    """Channels with the same edges, each with its own brightness."""
    grey = picture(size)
    return np.stack([grey * (1 - 0.15 * k) + 12 * k for k in range(n_channels)], axis=-1)


def noisy(clean, seed=0, sigma=SIGMA):
    return clean + sigma * np.random.default_rng(seed).standard_normal(clean.shape)


def holes_at(shape, share=0.5, seed=0):
    return np.random.default_rng(seed).random(shape) < share


def nearest(image, mask):
    """The image with each missing pixel as its nearest observed one."""
    places = ndimage.distance_transform_edt(mask, return_distances=False, return_indices=True)
    return image[tuple(places)]


def as_dtype(image, dtype):
    """The picture, with dark and bright ends clipped, in all of what a type can hold."""
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return image > 110
    if dtype.kind == "f":
        return image.astype(dtype)
    top = {"uint8": 255, "uint16": 65535, "int32": 2**31 - 1}[dtype.name]
    return np.clip(np.rint((image - 60) / 120 * top), 0, top).astype(dtype)


GREY = noisy(picture(24))
MASK = holes_at(GREY.shape, 0.3)


@functools.cache
def noisy_run(model, seed):
    return restore(noisy(picture(), seed), seed=seed, **SMALL | {"model": model})


@functools.cache
def tiny_run(**options):
    return restore(GREY, **TINY | options)


def assert_same(one, other):
    np.testing.assert_array_equal(one.image, other.image)
    np.testing.assert_array_equal(one.std, other.std)
    np.testing.assert_array_equal(one.free_energies, other.free_energies)
    assert one.noise_level == other.noise_level


# ------------------------------------------------------------------------------------- denoising


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


@pytest.mark.parametrize("model", MODELS)
def test_the_standard_deviation_is_as_large_as_the_error(model):
    result = noisy_run(model, 0)
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


# ------------------------------------------------------------------------------------ inpainting


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
    kept = restore(GREY, mask=MASK, keep_observed=True, **TINY)
    free = restore(GREY, mask=MASK, keep_observed=False, **TINY)
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


@pytest.mark.parametrize("model", MODELS)
def test_holes_larger_than_a_patch_are_filled_and_noted(model):
    clean = picture(24)
    mask = np.zeros(clean.shape, bool)
    mask[6:15, 7:16] = True
    result = restore(np.where(mask, 1e6, clean), mask=mask, **TINY | {"model": model})
    # Patches of three pixels reach two into the nine.
    assert result.notes == (
        "25 values lie in holes larger than a patch, 3 pixels wide: "
        "they are a guess from their surroundings.",
    )
    inside = result.image[mask]
    assert clean.min() - 60 < inside.min() <= inside.max() < clean.max() + 60
    assert (result.std[mask] > 0).all()


@pytest.mark.parametrize("model", MODELS)
def test_large_holes_are_filled_with_what_surrounds_them(model):
    stripes = np.broadcast_to(120 + 60 * np.sin(np.pi * np.arange(32) / 3), (32, 32))
    mask = np.zeros(stripes.shape, bool)
    mask[10:23, 9:22] = True
    result = restore(stripes, mask=mask, **SMALL | {"model": model})
    assert result.notes[0].startswith("25 values lie in holes")
    deep = np.s_[14:19, 13:18]
    error = np.sqrt(np.mean((result.image - stripes)[deep] ** 2))
    assert error < 0.7 * np.std(stripes[deep])


def test_holes_that_patches_reach_across_are_not_noted():
    mask = np.zeros(GREY.shape, bool)
    mask[6:10, 7:11] = True
    assert restore(GREY, mask=mask, **TINY).notes == ()


def test_a_large_hole_does_not_spoil_what_lies_around_it():
    clean = picture(32)
    mask = np.zeros(clean.shape, bool)
    mask[10:24, 8:22] = True
    result = restore(clean, mask=mask, **SMALL)
    assert psnr(clean[~mask], result.image[~mask]) > 35


def test_large_holes_between_patches_that_do_not_overlap_are_filled(monkeypatch):
    rounds = iter(range(100))

    def canvas(places):
        assert next(rounds, None) is not None, "the hole is not getting smaller"
        return patches.Canvas(places)

    monkeypatch.setattr(holes, "patches", type("Patches", (), {**vars(patches), "Canvas": canvas}))
    mask = np.zeros(GREY.shape, bool)
    mask[6:15, 6:15] = True
    assert np.isfinite(restore(GREY, mask=mask, stride=3, **TINY).image).all()


def test_two_observed_pixels_are_enough():
    image = np.full((12, 12), np.nan)
    image[1, 1], image[9, 9] = 5.0, 7.0
    result = restore(image, keep_observed=True, **TINY)
    assert (result.image[1, 1], result.image[9, 9]) == (5.0, 7.0)
    assert np.isfinite(result.image).all()
    assert -10 < result.image.min() <= result.image.max() < 30


# ------------------------------------------------------------------------------ types and layout


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int32", "bool", "float32", "float64"])
def test_a_restored_image_has_the_type_and_range_of_the_given_one(dtype):
    image = as_dtype(GREY, dtype)
    restored = restore(image, **TINY).image
    assert restored.dtype == image.dtype
    doubles = restore(image.astype(np.float64), **TINY).image
    if image.dtype.kind != "f":
        top = 1 if dtype == "bool" else np.iinfo(dtype).max
        doubles = np.rint(doubles).clip(0, top)
    np.testing.assert_array_equal(restored, doubles.astype(dtype))


def test_lists_and_arrays_that_are_not_contiguous_are_images():
    assert_same(restore(GREY.tolist(), **TINY), tiny_run())
    wide = np.zeros((48, 72))
    wide[::2, ::-3] = GREY
    assert_same(restore(wide[::2, ::-3], **TINY), tiny_run())


def test_the_given_image_and_mask_are_not_changed():
    image, mask = np.where(MASK, np.nan, GREY), MASK.copy()
    for array in (image, mask):
        array.flags.writeable = False
    result = restore(image, mask=mask, keep_observed=True, **TINY)
    assert not np.shares_memory(result.image, image)
    np.testing.assert_array_equal(image, np.where(MASK, np.nan, GREY))


@pytest.mark.parametrize("axis", [0, 1, -2, -3])
@pytest.mark.parametrize("n_channels", [3, 4])
def test_channels_may_lie_on_any_axis(axis, n_channels):
    image = noisy(colour(24, n_channels)).clip(0, 255).astype(np.uint8)
    mask = holes_at(image.shape, 0.2)
    last = restore(image, mask=mask, channel_axis=-1, **TINY)
    moved = restore(
        np.moveaxis(image, -1, axis), mask=np.moveaxis(mask, -1, axis), channel_axis=axis, **TINY
    )
    np.testing.assert_array_equal(np.moveaxis(moved.image, axis, -1), last.image)
    np.testing.assert_array_equal(np.moveaxis(moved.std, axis, -1), last.std)


def test_one_channel_is_a_grey_image():
    single = restore(GREY[..., None], channel_axis=-1, **TINY)
    np.testing.assert_array_equal(single.image[..., 0], tiny_run().image)


@pytest.mark.parametrize("n_channels", [2, 5])
def test_any_number_of_channels_is_denoised(n_channels):
    clean = colour(24, n_channels)
    image = noisy(clean)
    restored = restore(image, channel_axis=-1, **SMALL).image
    for k in range(n_channels):
        assert psnr(clean[..., k], restored[..., k]) > psnr(clean[..., k], image[..., k]) + 5


def test_alpha_is_kept_and_not_learnt_from():
    rgb = noisy(colour()).clip(0, 255).astype(np.uint8)
    plain = restore(rgb, channel_axis=-1, **TINY)
    rng = np.random.default_rng(5)
    for alpha in (np.full((24, 24), 255), rng.integers(0, 256, (24, 24))):
        rgba = np.concatenate([rgb, alpha[..., None].astype(np.uint8)], axis=-1)
        result = restore(rgba, channel_axis=-1, **TINY)
        np.testing.assert_array_equal(result.image[..., 3], alpha)
        np.testing.assert_array_equal(result.image[..., :3], plain.image)
        np.testing.assert_array_equal(result.free_energies, plain.free_energies)


def test_alpha_may_be_masked_or_nan_and_is_still_kept():
    rgba = noisy(colour(24, 4))
    rgba[3, 4, 3] = np.nan
    mask = np.repeat(MASK[..., None], 4, axis=-1)
    mask[..., 3] = True
    result = restore(rgba, mask=mask, channel_axis=-1, **TINY)
    np.testing.assert_array_equal(result.image[..., 3], rgba[..., 3])
    plain = restore(rgba[..., :3], mask=MASK, channel_axis=-1, **TINY)
    np.testing.assert_array_equal(result.image[..., :3], plain.image)


def test_a_fourth_channel_that_is_not_alpha_is_restored():
    clean = colour(24, 4)
    image = noisy(clean)
    restored = restore(image, channel_axis=-1, alpha=False, **SMALL).image
    assert psnr(clean[..., 3], restored[..., 3]) > psnr(clean[..., 3], image[..., 3]) + 5
    kept = restore(image, channel_axis=-1, **SMALL).image
    assert (restored[..., :3] != kept[..., :3]).any()


# ------------------------------------------------------------------------------------ odd images


@pytest.mark.parametrize("shape", [(1, 2), (2, 2), (1, 30), (30, 1), (2, 5), (11, 7), (3, 200)])
@pytest.mark.parametrize("preset", ["fast", "balanced"])
def test_images_smaller_than_a_patch_are_restored(shape, preset):
    image = noisy(np.resize(picture(), shape))
    result = restore(image, preset=preset, max_iter=3, n_jobs=1)
    assert image.min() - SIGMA <= result.image.min() <= result.image.max() <= image.max() + SIGMA
    assert len(result.free_energies) == 3
    if image.size > 4:
        holed = np.where(holes_at(shape, 0.2), np.nan, image)
        filled = inpaint(holed, preset=preset, max_iter=3, n_jobs=1)
        assert np.isfinite(filled).all()
        np.testing.assert_array_equal(filled[~np.isnan(holed)], image[~np.isnan(holed)])


def test_an_explicit_patch_may_be_larger_than_the_image():
    result = restore(GREY[:4], **TINY | {"patch_size": 9})
    assert result.estimator.n_features_in_ == 4 * 9
    assert np.isfinite(result.image).all()


def test_elongated_images_are_denoised():
    clean = np.repeat(picture(200)[100][None], 3, axis=0)
    image = noisy(clean)
    assert psnr(clean, restore(image, **SMALL).image) > psnr(clean, image) + 5


@pytest.mark.parametrize("value", [np.uint8(7), np.uint16(60000), np.float64(0.25), np.True_])
@pytest.mark.parametrize("share", [0.0, 0.5])
@pytest.mark.parametrize("keep_observed", [True, False])
def test_constant_images_are_returned_and_filled_with_their_constant(value, share, keep_observed):
    image = np.full((9, 10), value)
    mask = holes_at(image.shape, share)
    image[mask] = 0
    result = restore(image, mask=mask, keep_observed=keep_observed)
    assert result.image.dtype == image.dtype
    assert (result.image == value).all()
    assert (result.std == 0).all()
    assert (result.noise_level, result.ended, result.estimator) == (0.0, "converged", None)
    assert len(result.free_energies) == 0
    assert result.notes == ("The image is constant: there was nothing to learn.",)


def test_an_image_of_one_pixel_is_returned():
    assert restore(np.array([[3.5]])).image.tolist() == [[3.5]]
    with pytest.raises(ValueError, match="got all missing"):
        restore(np.array([[np.nan]]))


@pytest.mark.parametrize("value", [np.int32(2**24 + 1), np.float64(1e-300)])
def test_constants_that_single_precision_does_not_hold_are_returned(value):
    assert (restore(np.full((4, 4), value)).image == value).all()


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("shape", [(1, 1), (12, 12)])
def test_an_image_of_one_colour_is_returned(model, shape):
    flat = np.broadcast_to(np.array([200.0, 10.0, 30.0]), (*shape, 3))
    image = restore(flat, channel_axis=-1, model=model, max_iter=5, n_jobs=1).image
    np.testing.assert_allclose(image, flat, rtol=0, atol=0.4)


def test_an_offset_changes_almost_nothing():
    clean = picture(32)
    image = np.rint(noisy(clean)).clip(0, 255).astype(np.uint16)
    plain = restore(image, **SMALL)
    moved = restore(image + np.uint16(30000), **SMALL)
    back = moved.image.astype(float) - 30000
    assert psnr(plain.image.astype(float), back) > 35
    assert abs(psnr(clean, back) - psnr(clean, plain.image.astype(float))) < 0.7
    assert moved.noise_level == pytest.approx(plain.noise_level, rel=0.03)


def assert_scales(options):
    plain = restore(GREY, **options)
    scaled = restore(GREY / 255, **options)
    np.testing.assert_allclose(255 * scaled.image, plain.image, rtol=0, atol=0.01)
    np.testing.assert_allclose(255 * scaled.std, plain.std, rtol=0, atol=0.01)
    assert 255 * scaled.noise_level == pytest.approx(plain.noise_level, rel=1e-4)


@pytest.mark.parametrize("n_parts", [1, 4])
def test_the_scale_of_an_image_does_not_matter_for_binary_sparse_coding(n_parts):
    assert_scales(TINY | {"model": "ebsc", "n_parts": n_parts})


def test_the_scale_of_an_image_does_not_matter_for_exact_spike_slab_coding():
    assert_scales(TINY | {"n_latents": 4, "n_states": 16})


def test_scaled_images_are_restored_as_well_by_spike_slab_coding():
    clean = picture()
    scaled = restore(noisy(clean) / 255, **SMALL)
    assert psnr(clean, 255 * scaled.image) > psnr(clean, noisy(clean)) + 8
    assert 255 * scaled.noise_level == pytest.approx(SIGMA, rel=0.15)


# --------------------------------------------------------------------------------------- merging


def merged(values, places, weights):
    """All patches on one canvas."""
    canvas = patches.Canvas(places)
    canvas.add(None, values, weights)
    return canvas.mean()


def recut(result, image, params):
    """All patches' means and variances once more, one by one with the prior of where they lie."""
    beyond = 0.5 if result.settings["model"] == "subspaces" else 0.0
    places = patches.grid((*image.shape, 1), result.settings["patch_size"], beyond=beyond)
    X = patches.cut(image[..., None].astype(np.float32), places)
    if not beyond:
        mean, std = result.estimator.reconstruct(X, return_std=True)
        return places, mean.astype(float), std.astype(float) ** 2
    inside = patches.cut(np.ones((*image.shape, 1), bool), places)
    model, points = SubspaceModel(), np.array(params.field.shape[:2]) - 1
    means, variances = np.empty((2, *X.shape))
    order = np.random.default_rng(result.settings["seed"]).permutation(places.n_patches)
    for n, kept in zip(order, result.estimator.state_.states, strict=True):
        place = np.divmod(n, len(places.lefts)) / (
            np.array([len(places.tops), len(places.lefts)]) - 1
        )
        own = params._replace(activation_probs=bilinear(params.field, place * points), field=None)
        [(mean, variance)] = learning.em.estimate(
            model.reconstruct, model, X[[n]], own, kept[None], observed=inside[[n]]
        )
        means[n], variances[n] = mean[0], variance[0]
    return places, means, variances


def bilinear(field, place):
    axes = [np.arange(length) for length in field.shape[:2]]
    return RegularGridInterpolator(axes, field)(place)[0]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("merge", ["mean", "centre", "variance"])
@pytest.mark.parametrize("n_parts", [1, 3])
def test_images_are_merged_from_what_the_estimator_says_of_patches(
    model, merge, n_parts, monkeypatch
):
    """At first sight; see test_looks.py for the others."""
    monkeypatch.setattr(learning.Learner, "looks", 0)
    settings = TINY | {"n_parts": n_parts}
    image = GREY.copy()
    if model == "ebsc":  # both cases with few runs
        image[MASK] = np.nan
        image[8:12, 9:13] = np.nan  # some patches see nothing, and all pixels lie in one that does
    last = []
    result = restore(image, merge=merge, callback=last.append, **settings | {"model": model})
    places, mean, variance = recut(result, image, last[-1].params)
    weights = np.ones(mean.shape)
    if merge == "centre":
        weights = weights * patches.window((3, 3), "centre", 1)
    elif merge == "variance":
        weights = 1 / (variance + 0.02 * result.noise_level**2)
    seen = patches.cut(~np.isnan(image)[..., None], places).any(1)
    assert seen.all() == (model != "ebsc")
    weights[~seen] *= 1e-6
    expected = merged(mean, places, weights)
    square = merged(variance + mean**2, places, weights)
    np.testing.assert_allclose(result.image, expected[..., 0], rtol=0, atol=0.05)
    std = np.sqrt(square - expected**2)[..., 0]
    np.testing.assert_allclose(result.std, std, rtol=0, atol=0.1)


def test_ways_of_merging_differ():
    images = [tiny_run(merge=merge).image for merge in ("mean", "centre", "variance")]
    for i, j in ((0, 1), (0, 2), (1, 2)):
        assert 0 < np.abs(images[i] - images[j]).max() < 2 * SIGMA


@pytest.mark.parametrize("merge", ["mean", "centre", "variance"])
@pytest.mark.parametrize("mask", [None, MASK], ids=["complete", "masked"])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_merging_constant_patches_gives_the_constant(merge, mask, stride, monkeypatch):
    rng = np.random.default_rng(0)

    def estimate(function, model, X, params, kept, **options):
        return [(np.full(X.shape, 42.0), rng.uniform(1, 4, X.shape))]

    monkeypatch.setattr(learning.em, "estimate", estimate)
    result = restore(GREY, mask=mask, merge=merge, stride=stride, **TINY)
    np.testing.assert_allclose(result.image, 42.0, rtol=1e-12)
    assert (result.std > 0.999).all()
    assert (result.std < 2.001).all()


@pytest.mark.parametrize("width", [8, 16])
@pytest.mark.parametrize("kind", ["squares", "steps"])
@pytest.mark.parametrize("model", MODELS)
def test_drawings_without_noise_are_left_as_they_are(kind, width, model):
    """They have fewer patches that differ than there are latents, which become alike."""
    row, column = np.mgrid[:64, :64] // width
    image = 100.0 * ((row + column) % 2) if kind == "squares" else 40.0 * column
    result = restore(image, model=model, preset="fast", max_iter=4)
    np.testing.assert_allclose(result.image, image, rtol=0, atol=0.02 * image.std())


def test_strides_restore_from_fewer_patches():
    clean = picture()
    image = noisy(clean)
    result = restore(image, **SMALL, stride=2)
    assert len(result.estimator.state_.states) == 19**2  # 18 even places, and the last
    assert psnr(clean, result.image) > psnr(clean, image) + 5


# ---------------------------------------------------------------------------------------- memory


def memory_for(n_patches, settings, masked=False, n_values=24**2):
    """Just enough for so many patches, beside what the image takes."""
    known = {name: settings[name] for name in settings if name in presets.Settings._fields}
    full = presets.PRESETS["fast"]._replace(**known)
    own = n_patches * learning.bytes_per_patch(full, settings["patch_size"] ** 2, masked)
    return own + min(own, learning.BYTES_PER_VALUE * n_values)


@pytest.mark.parametrize("masked", [False, True])
def test_little_memory_restores_almost_as_well(masked):
    clean = picture()
    image, mask = noisy(clean), holes_at(clean.shape, 0.3) if masked else None
    full = restore(image, mask=mask, **SMALL)
    memory = memory_for(500, SMALL, masked, image.size)
    part = restore(image, mask=mask, memory=memory, **SMALL)
    assert full.notes == ()
    assert part.notes == ("The model learnt from 500 of 1296 patches, chosen at random.",)
    assert len(part.estimator.state_.states) == 500
    assert psnr(clean, part.image) > psnr(clean, full.image) - 1


def test_little_memory_means_fewer_subspaces():
    """As many as go with the patches there is memory to learn from."""
    canonical = arrays.read(np.random.default_rng(0).normal(size=(400, 400)), None, None, False)
    options = {
        "preset": "balanced",
        "model": "subspaces",
        "seeds": [0],
        "merge": "mean",
        "tol": 0.0,
    }
    options |= {"keep_observed": False, "n_jobs": 1, "thread_seconds": None}
    plans = [
        evoem.images.restore.plans_for(canonical, {}, {}, None, memory=memory, **options)[0]
        for memory in (1 << 34, 200 << 20, 20 << 20)
    ]
    much, little, least = (plan.settings.n_latents for plan in plans)
    assert much == round(256 * 389**2 / 64_000)
    assert 256 > least > 20
    assert much > little == 256
    for plan in plans:
        room = learning.room_for(canonical, plan.places, plan.settings, plan.memory)
        assert plan.settings.n_latents <= max(room / 64, 256 * room / 64_000)
    given = {"n_latents": 300}
    plan = evoem.images.restore.plans_for(canonical, given, {}, None, memory=200 << 20, **options)[
        0
    ]
    assert plan.settings.n_latents == 300


@pytest.mark.parametrize(("missing", "by_feature"), [(0.0, False), (0.2, False), (0.6, True)])
def test_where_much_is_missing_subspaces_are_learnt_feature_by_feature(missing, by_feature):
    image = picture()
    holes = holes_at(image.shape, missing) if missing else None
    canonical = arrays.read(image, holes, None, False)
    model = learning.make_model("subspaces", 3, canonical)
    assert isinstance(model, SubspacesByFeature) == by_feature
    if by_feature:
        assert model.prior_rows == learning.PRIOR_ROWS


def test_memory_of_statistics_is_guessed():
    """Of subspaces that have as many patterns as they may, not less than it is."""
    settings = SUBSPACE_PRESETS["balanced"]._replace(n_latents=20, rank=4)
    model = SubspacesByFeature(4)
    params = model.from_clusters(
        np.random.default_rng(0).normal(size=(4000, 36)),
        Clusters(np.zeros((20, 36)), np.arange(4000) % 20),
        noise_variance=0.01,
    )
    needed = sum(part.nbytes for part in flat(model.empty_statistics(params)))
    guess = learning.bytes_of_statistics(settings, 36, by_feature=True) / (settings.n_parts + 3)
    assert len(params.components) == 100
    assert 0.9 * needed < guess < 1.5 * needed


def flat(stats):
    """The arrays of nested tuples."""
    if isinstance(stats, np.ndarray):
        return [stats]
    return [array for part in stats for array in flat(part)]


def test_very_many_patches_are_chosen_from(monkeypatch):
    few = PRESETS["balanced"]._replace(n_learnt=300)
    monkeypatch.setitem(PRESETS, "balanced", few)
    result = restore(GREY, **TINY)
    assert result.notes == ("The model learnt from 300 of 484 patches, chosen at random.",)
    assert_same(result, restore(GREY, memory=memory_for(300, TINY), **TINY))


def test_enough_memory_is_all_memory():
    enough = restore(GREY, memory=memory_for(22**2, TINY), **TINY)
    assert_same(enough, tiny_run())
    assert enough.notes == ()
    less = restore(GREY, memory=memory_for(22**2, TINY) - 1, **TINY)
    assert less.notes[0].startswith("The model learnt from 483 of 484 patches")


@pytest.mark.parametrize("n_patches", [None, 200], ids=["all", "some"])
@pytest.mark.parametrize("masked", [False, True])
def test_blocks_leave_no_seams(n_patches, masked, monkeypatch):
    mask = None
    if masked:
        mask = MASK.copy()
        mask[4:14, 4:14] = True  # larger than a patch
    memory = None if n_patches is None else memory_for(n_patches, TINY, masked)
    whole = restore(GREY, mask=mask, memory=memory, **TINY)
    for size in (1, 37, 100):
        monkeypatch.setattr(learning, "PATCHES_AT_ONCE", size)
        if size == 1 and n_patches is not None:
            continue  # takes long
        blocks = restore(GREY, mask=mask, memory=memory, **TINY)
        np.testing.assert_allclose(blocks.image, whole.image, rtol=0, atol=1e-3)
        np.testing.assert_allclose(blocks.std, whole.std, rtol=0, atol=1e-3)
        assert blocks.notes == whole.notes


# ------------------------------------------------------------------------------- threads, seeds


@pytest.mark.parametrize("options", [{}, {"model": "ebsc", "n_parts": 3}, {"memory": 50_000}])
@pytest.mark.parametrize("masked", [False, True])
def test_the_number_of_threads_changes_nothing(options, masked):
    mask = MASK if masked else None
    runs = [restore(GREY, mask=mask, **TINY | options | {"n_jobs": n}) for n in (1, 2, 3)]
    assert_same(runs[0], runs[1])
    assert_same(runs[0], runs[2])


@pytest.mark.parametrize("model", MODELS)
def test_everything_random_follows_from_the_seed(model):
    first = restore(GREY, seed=3, **TINY | {"model": model})
    assert_same(first, restore(GREY, seed=3, **TINY | {"model": model}))
    other = restore(GREY, seed=4, **TINY | {"model": model})
    assert (other.image != first.image).mean() > 0.9
    assert other.free_energies[0] != first.free_energies[0]


def test_estimators_of_large_seeds_can_be_sampled_from():
    assert restore(GREY, seed=2**32 - 1, **TINY).estimator.sample(2)[0].shape == (2, 9)


# ---------------------------------------------------------------------------------------- ending


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("masked", [False, True])
def test_the_bound_never_falls(model, masked):
    mask = MASK if masked else None
    bounds = restore(GREY, mask=mask, **TINY | {"model": model, "max_iter": 25}).free_energies
    assert len(bounds) == 25
    assert (np.diff(bounds) >= -1e-5 * np.abs(bounds[1:])).all()
    assert bounds[-1] > bounds[0] + 0.5


def test_runs_end_after_max_iter():
    result = tiny_run(max_iter=7)
    assert result.ended == "max_iter"
    assert len(result.free_energies) == 7
    assert len(tiny_run(max_iter=7, n_parts=4).free_energies) == 7


def test_runs_end_when_the_time_is_up():
    result = restore(GREY, time_limit=0, **TINY | {"max_iter": 10_000})
    assert result.ended == "time_limit"
    assert_same(result, tiny_run(max_iter=1))
    result = restore(GREY, time_limit=0.5, **TINY | {"max_iter": 100_000})
    assert result.ended == "time_limit"
    assert 1 < len(result.free_energies) < 100_000


@pytest.mark.parametrize("looks", [0, 1, 2])
def test_the_time_of_merging_counts_blocks_and_patches(looks, monkeypatch):
    """Reconstruction takes two seconds a block and a hundredth a patch, after compilation, an
    E-step three times as long, and looks around three and four seconds."""
    now = [0.0]

    def work(rows, times):
        compilation = 60.0 if now[0] == 0.0 else 0.0
        now[0] += compilation + times * (2.0 + 0.01 * len(rows))

    around = [(3.0, 4.0), (60.0, 60.0)]
    monkeypatch.setattr(learning.likeness, "seconds", lambda *where: around.pop())
    monkeypatch.setattr(learning.time, "perf_counter", lambda: now[0])
    rows = np.zeros((5000, 4))
    learner = SimpleNamespace(
        X=rows, learnt_block=lambda part: rows[part], looks=looks, n_jobs=1,
        estimate=lambda rows: work(rows, 1), infer=lambda rows, steps: work(rows, 3 * steps),
        canonical=SimpleNamespace(values=rows, observed=None),
    )  # fmt: skip
    n_patches, at_once = 3 * learning.PATCHES_AT_ONCE, learning.PATCHES_AT_ONCE
    costs = learning.Learner.measure(learner)
    assert costs.step == pytest.approx(0.03, rel=0.01)
    way = closing.Closing(steps=3, looks=looks)
    found = closing.seconds(way, costs, 5000, n_patches - 5000, at_once)
    whole = 3 * 2.0 + 0.01 * n_patches + sum([4.0, 3.0][:looks])
    assert found == pytest.approx(whole + (n_patches - 5000) * 3 * 0.03, rel=0.01)


def test_a_limit_that_is_not_reached_changes_nothing():
    result = restore(GREY, time_limit=1e6, **TINY)
    assert result.ended == "max_iter"
    assert_same(result, tiny_run())


def test_a_callback_that_returns_true_ends_the_run():
    result = restore(GREY, callback=lambda progress: progress.iteration == 2, **TINY)
    assert result.ended == "callback"
    assert_same(result, tiny_run(max_iter=2))


def test_an_interrupt_keeps_what_was_learnt():
    def interrupt(progress):
        if progress.iteration == 2:
            raise KeyboardInterrupt

    result = restore(GREY, callback=interrupt, **TINY)
    assert result.ended == "interrupted"
    assert_same(result, tiny_run(max_iter=2))
    assert result.estimator.n_iter_ == 2


@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize("calls", [1, 45])
def test_an_interrupt_in_the_middle_of_an_iteration_leaves_an_image(calls, n_jobs, monkeypatch):
    improve, count = learning.em.posterior.improve, iter(range(calls))

    def interrupted(*arguments):
        if next(count, None) is None:
            raise KeyboardInterrupt
        return improve(*arguments)

    monkeypatch.setattr(learning.em.posterior, "improve", interrupted)
    result = restore(GREY, **TINY | {"max_iter": 1000, "n_jobs": n_jobs})
    assert result.ended == "interrupted"
    assert len(result.free_energies) == (0 if calls == 1 else 5)  # eight blocks to an iteration
    assert GREY.min() - SIGMA < result.image.min() <= result.image.max() < GREY.max() + SIGMA
    assert result.estimator.n_iter_ == len(result.free_energies)


def test_other_errors_of_a_callback_are_the_callers():
    def fail(progress):
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        restore(GREY, callback=fail, **TINY)


def test_runs_end_when_the_bound_stops_rising():
    easy = restore(GREY, tol=1e6, **TINY | {"max_iter": 50})
    assert easy.ended == "converged"
    assert_same(easy, tiny_run(max_iter=6))  # the rise is that of five iterations
    result = restore(GREY, tol=0.02, **TINY | {"max_iter": 500})
    assert result.ended == "converged"
    bounds = result.free_energies
    assert 6 < len(bounds) < 500
    rises = (bounds[5:] - bounds[:-5]) / 5
    assert rises[-1] < 0.02
    assert (rises[:-1] >= 0.02).all()


def test_progress_says_where_the_run_stands():
    seen = []
    result = restore(GREY, callback=seen.append, time_limit=1e4, **TINY)
    assert [progress.iteration for progress in seen] == [1, 2, 3]
    assert {progress.max_iter for progress in seen} == {3}
    np.testing.assert_array_equal([p.free_energy for p in seen], result.free_energies)
    assert seen[-1].noise_level == result.noise_level
    assert seen[-1].active == pytest.approx(result.estimator.activation_probs_.sum())
    assert 0 < seen[0].seconds < seen[1].seconds < seen[2].seconds < result.seconds
    assert all(0 < p.seconds_left < 1e4 for p in seen)
    assert all(p.patches_per_second > 0 and p.states_replaced >= 0 for p in seen)
    assert seen[0].states_replaced > 0


# ------------------------------------------------------------------------------- what was learnt


@pytest.mark.parametrize("n_parts", [1, 4])
@pytest.mark.parametrize(
    ("model", "kind"),
    [
        ("subspaces", SubspaceCoding),
        ("es3c", SpikeSlabCoding),
        ("ebsc", BinarySparseCoding),
    ],
)
def test_the_estimator_is_what_was_learnt(model, kind, n_parts):
    result = restore(noisy(picture()), **SMALL | {"model": model, "n_parts": n_parts})
    estimator = result.estimator
    assert type(estimator) is kind
    assert np.sqrt(estimator.noise_variance_) == pytest.approx(result.noise_level, rel=1e-12)
    np.testing.assert_array_equal(estimator.free_energies_, result.free_energies)
    assert estimator.n_iter_ == 20
    assert estimator.components_.shape[1] == 25
    assert estimator.activation_probs_.shape == (16,)
    assert estimator.sample(5)[0].shape == (5, 25)
    places = patches.grid((40, 40, 1), 5)
    clean = patches.cut(picture()[..., None], places)
    unseen = patches.cut(noisy(picture(), 9)[..., None].astype(np.float32), places)
    assert psnr(clean, estimator.reconstruct(unseen)) > psnr(clean, unseen) + 3
    unseen[:, 12] = np.nan
    assert psnr(clean[:, 12], estimator.reconstruct(unseen)[:, 12]) > 20 + 2


def test_the_slab_is_learnt_from_complete_images_only():
    free, fixed = tiny_run().estimator, restore(GREY, mask=MASK, **TINY).estimator
    assert (free.slab, free.learn_slab_means) == ("diagonal", True)
    assert (fixed.slab, fixed.learn_slab_means) == ("fixed", False)
    np.testing.assert_array_equal(fixed.slab_means_, np.ones(6))
    assert (free.slab_means_ != 1).all()


def test_settings_say_what_was_used():
    result = restore(GREY, merge="centre", seed=8, tol=1e-9, stride=2, **TINY | {"model": "ebsc"})
    own = {name: TINY[name] for name in TINY if name not in ("n_jobs", "model")}
    chosen = {"merge": "centre", "seed": 8, "tol": 1e-9, "stride": 2, "model": "ebsc"}
    others = {"preset": "balanced", "n_generations": 1, "time_limit": None}
    assert result.settings.items() >= (own | chosen | others).items()
    again = restore(GREY, n_jobs=1, **result.settings)
    assert_same(again, result)


@pytest.mark.parametrize(
    ("preset", "model"),
    [("fast", "es3c"), ("balanced", "es3c"), ("paper", "es3c"), ("balanced", "subspaces")],
)
def test_presets_shrink_for_small_images_unless_told_otherwise(preset, model):
    subspaces = model == "subspaces"
    full = (presets.SUBSPACE_PRESETS if subspaces else presets.PRESETS)[preset]
    patch_size = full.patch_size if preset == "paper" else 8  # there is little noise
    options = {"preset": preset, "model": model, "max_iter": 1, "n_jobs": 1}
    used = restore(GREY, **options).settings
    n_patches = (24 - patch_size + 1) ** 2
    assert used["patch_size"] == patch_size
    assert used["n_latents"] == n_patches // (64 if subspaces else 8) < full.n_latents
    used = restore(GREY[:8, :8], n_latents=9, **options).settings
    assert used["patch_size"] == 4  # 25 patches of 16 pixels; 16 of 25 would be too few
    assert used["n_latents"] == 9
    assert used["n_parents"] <= used["n_states"] <= 2**9


@pytest.mark.parametrize(
    ("preset", "mask", "expected"),
    [("fast", None, "subspaces"), ("balanced", MASK, "subspaces"), ("paper", None, "es3c")],
)
def test_presets_have_a_model(preset, mask, expected):
    settings = {name: value for name, value in TINY.items() if name != "model"}
    assert restore(GREY, mask=mask, preset=preset, **settings).settings["model"] == expected


def test_presets_are_left_alone_for_large_images():
    for full in presets.PRESETS.values():
        assert presets.fit_to_image(full, {}, (512, 512, 1), None) == full
    for full in presets.SUBSPACE_PRESETS.values():
        assert presets.fit_to_image(full, {}, (264, 253, 1), None) == full


@pytest.mark.parametrize(
    ("size", "expected"),
    [(139, 256), (138, 252), (260, 256), (371, 518), (558, 1197), (2000, 1200)],
)
def test_subspaces_grow_in_number_with_an_image(size, expected):
    """64 patches for each, then 250, and no more than 300,000 count; of 12 pixels and stride 1."""
    full = presets.SUBSPACE_PRESETS["balanced"]
    fitted = presets.fit_to_image(full, {}, (size, size, 1), None)
    assert fitted == full._replace(n_latents=expected)
    assert presets.fit_to_image(full, {"n_latents": 7}, (size, size, 1), None).n_latents == 7


def test_presets_change_where_something_is_missing_but_not_the_paper_s():
    some = np.ones((512, 512, 1), np.bool_)
    some[::2, ::2] = False
    noise = np.random.default_rng(0).normal(size=some.shape)
    for name, full in presets.PRESETS.items():
        settings = presets.settings_for(name, "es3c", {}, noise, some)
        assert (settings == full) == (name == "paper")
        assert presets.settings_for(name, "es3c", {}, noise, None) == full
    changed = presets.settings_for("balanced", "es3c", {"n_states": 7}, noise, some)
    assert (changed.patch_size, changed.n_latents, changed.n_states) == (8, 256, 7)
    assert changed.max_iter == 40
    for name, n_states, max_iter in [("fast", 13, 4), ("balanced", 20, 8), ("best", 20, 18)]:
        found = presets.settings_for(name, "subspaces", {}, noise, some)
        assert (found.patch_size, found.n_states, found.max_iter) == (8, n_states, max_iter)


def test_patches_are_smaller_where_there_is_little_noise_but_not_the_paper_s():
    y, _, _ = np.mgrid[:128, :128, :1]
    noise = np.random.default_rng(0).normal(size=y.shape)
    bands = 10.0 * (y // 16 % 2)  # their standard deviation is 5
    for name, full in presets.PRESETS.items():
        assert presets.settings_for(name, "es3c", {}, bands + 4.5 * noise, None) == full
        little = presets.settings_for(name, "es3c", {}, bands + 3 * noise, None)
        assert little == full._replace(patch_size=12 if name == "paper" else 8)


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


def test_strides_grow_with_images_of_millions_of_pixels(monkeypatch):
    assert presets.stride_for((1000, 1000, 3), 12) == 1
    assert presets.stride_for((2000, 2000, 3), 12) == 2
    assert presets.stride_for((90_000, 90_000, 1), 12) == 4  # each pixel lies in nine patches
    assert presets.stride_for((90_000, 90_000, 1), 2) == 1
    monkeypatch.setattr(presets, "MANY_PATCHES", 24 * 24 / 4)
    wide = restore(GREY, **TINY | {"patch_size": 6})
    assert_same(wide, restore(GREY, stride=2, **TINY | {"patch_size": 6}))
    assert wide.settings["stride"] == 2


def test_one_latent_is_enough():
    result = restore(GREY, n_latents=1, max_iter=2, n_jobs=1)
    assert (result.settings["n_states"], result.settings["n_children"]) == (2, 1)
    assert np.isfinite(result.image).all()


def slow_hole_width(missing):
    """Largest square, by trying all of them."""
    rows, columns = missing.shape
    return max(
        [0]
        + [
            size
            for size in range(1, min(rows, columns) + 1)
            for i in range(rows - size + 1)
            for j in range(columns - size + 1)
            if missing[i : i + size, j : j + size].all()
        ]
    )


@pytest.mark.parametrize("share", [0.0, 0.3, 0.6, 0.9, 1.0])
@pytest.mark.parametrize("seed", range(5))
def test_the_width_of_holes_is_that_of_the_largest_square(share, seed):
    missing = holes_at((9, 11), share, seed)
    largest = slow_hole_width(missing)
    # Squares grow from a pixel in their middle, so that even ones are one short.
    assert presets.hole_width(missing) == (largest if largest % 2 or not largest else largest - 1)


def test_patches_reach_across_holes():
    clean = picture(32)
    mask = np.zeros(clean.shape, bool)
    mask[12:17, 14:19] = True
    result = restore(clean, mask=mask, max_iter=2, preset="fast", n_jobs=1)
    assert result.settings["patch_size"] == 2 * 5
    assert result.notes == ()
    mask[:, 5] = True  # long, but narrow
    assert restore(clean, mask=mask, max_iter=2, n_jobs=1).settings["patch_size"] == 10
    mask[12:17, 14:19] = False
    assert restore(clean, mask=mask, max_iter=2, n_jobs=1).settings["patch_size"] == 8


def test_patches_of_colour_have_about_as_many_values():
    grey = restore(picture(32), max_iter=1, n_jobs=1)
    rgb = restore(colour(32), channel_axis=-1, max_iter=1, n_jobs=1)
    assert (grey.settings["patch_size"], rgb.settings["patch_size"]) == (8, 5)


# ---------------------------------------------------------------------------------------- stacks

STACK = np.stack([GREY, GREY.T[::-1], noisy(picture(24, 0.1), 5)])
COLOURS = np.stack([noisy(colour()), noisy(colour()[::-1], 1)])


def test_stacks_are_restored_slice_by_slice():
    for restored, one in zip(denoise(STACK, **TINY), STACK, strict=True):
        np.testing.assert_array_equal(restored, restore(one, **TINY).image)


def test_stacks_have_one_mask_or_one_for_each_slice():
    masks = holes_at(STACK.shape, 0.3, 2)
    each = inpaint(STACK, masks, **TINY)
    one = inpaint(STACK, masks[0], **TINY)
    holed = inpaint(np.where(masks, np.nan, STACK), **TINY)
    free = inpaint(STACK, masks, keep_observed=False, **TINY)
    for k in range(3):
        own = inpaint(STACK[k], masks[k], **TINY)
        np.testing.assert_array_equal(each[k], own)
        np.testing.assert_array_equal(holed[k], own)
        np.testing.assert_array_equal(one[k], inpaint(STACK[k], masks[0], **TINY))
        np.testing.assert_array_equal(free[k], restore(STACK[k], mask=masks[k], **TINY).image)


@pytest.mark.parametrize("axis", [-1, 3, 2, 1, -3])
def test_colour_stacks_are_restored_slice_by_slice(axis):
    stack = np.moveaxis(COLOURS, -1, axis)
    expected = [restore(one, channel_axis=-1, **TINY).image for one in COLOURS]
    restored = denoise(stack, channel_axis=axis, **TINY)
    np.testing.assert_array_equal(np.moveaxis(restored, axis, -1), expected)


@pytest.mark.parametrize(
    ("axis", "per_slice"),
    [
        (-1, True),
        (-1, False),
        (1, False),
        (1, True),
    ],
)
def test_colour_stacks_have_masks_of_pixels(axis, per_slice):
    masks = holes_at(COLOURS.shape[:3], 0.3)
    stack = np.moveaxis(COLOURS, -1, axis)
    filled = inpaint(stack, masks if per_slice else masks[0], channel_axis=axis, **TINY)
    for k in range(2):
        own = inpaint(COLOURS[k], masks[k if per_slice else 0], channel_axis=-1, **TINY)
        np.testing.assert_array_equal(np.moveaxis(filled, axis, -1)[k], own)


@pytest.mark.parametrize("axis", [-1, 1])
@pytest.mark.parametrize("per_slice", [True, False])
def test_colour_stacks_have_masks_of_values(axis, per_slice):
    masks = holes_at(COLOURS.shape, 0.3)
    stack = np.moveaxis(COLOURS, -1, axis)
    given = np.moveaxis(masks, -1, axis)
    filled = inpaint(stack, given if per_slice else given[0], channel_axis=axis, **TINY)
    for k in range(2):
        own = inpaint(COLOURS[k], masks[k if per_slice else 0], channel_axis=-1, **TINY)
        np.testing.assert_array_equal(np.moveaxis(filled, axis, -1)[k], own)


def test_an_interrupt_while_patches_are_merged_loses_nothing(monkeypatch):
    own = looks.restored

    def interrupted(*arguments):
        signal.raise_signal(signal.SIGINT)
        return own(*arguments)

    whole = tiny_run(max_iter=2)
    monkeypatch.setattr(looks, "restored", interrupted)
    result = restore(GREY, **TINY | {"max_iter": 2})
    np.testing.assert_array_equal(result.image, whole.image)


def test_an_interrupt_before_the_first_iteration_leaves_the_sketch(monkeypatch):
    own = sketch.parameters_from_sketch

    def interrupted(*arguments):
        signal.raise_signal(signal.SIGINT)
        return own(*arguments)

    monkeypatch.setattr(sketch, "parameters_from_sketch", interrupted)
    result = restore(GREY, preset="fast", n_jobs=1)
    assert result.ended == "interrupted"
    assert len(result.free_energies) > 0
    assert "The run ended before more than a sketch had been learnt." in result.notes


@pytest.mark.parametrize("stack", [False, True])
def test_what_is_masked_of_an_array_is_missing(stack):
    image = STACK if stack else STACK[0]
    hidden = holes_at(image.shape, 0.3)
    masked = np.ma.masked_array(np.where(hidden, 9999, image), hidden)
    filled = inpaint(image, hidden, **TINY)
    np.testing.assert_array_equal(inpaint(masked, **TINY), filled)
    both_denoised = inpaint(image, hidden, keep_observed=False, **TINY)
    np.testing.assert_array_equal(denoise(masked, **TINY), both_denoised)


def test_slices_share_a_time_limit(monkeypatch):
    now = 100.0
    monkeypatch.setattr("evoem.images.restore.time.perf_counter", lambda: now)
    shares = Shares(12.0, 3)
    assert shares.next() == 4.0
    now += 2.0  # less than its share: more for the others
    assert shares.next() == 5.0
    now += 20.0
    assert shares.next() == 0.0
    assert Shares(None, 3).next() is None


@pytest.mark.parametrize("name", ["mask", "keep_observed"])
def test_denoising_has_no_mask(name):
    with pytest.raises(TypeError, match=f"^denoise has no {name}: use inpaint or restore.$"):
        denoise(GREY, **{name: None})


def test_an_interrupt_of_a_stack_leaves_a_whole_stack():
    calls = []

    def interrupt(progress):
        calls.append(progress.iteration)
        if len(calls) == 2:
            raise KeyboardInterrupt

    restored = denoise(STACK, callback=interrupt, **TINY)
    np.testing.assert_array_equal(restored[0], tiny_run(max_iter=2).image)
    assert np.isfinite(restored).all()


@pytest.mark.parametrize("n_channels", [3, 4])
def test_what_looks_like_colour_is_refused_without_its_axis(n_channels):
    image = colour(8, n_channels)
    sentence = (
        r"^channel_axis must be given for what looks like colour; got None for an image of the "
        rf"shape \(8, 8, {n_channels}\)\.$"
    )
    for function in (denoise, inpaint):
        with pytest.raises(ValueError, match=sentence):
            function(image, **TINY)


@pytest.mark.parametrize(
    ("image", "options", "sentence"),
    [
        (COLOURS, {}, r"image must be 2-D; got 4 dimensions\."),
        (COLOURS[None], {}, r"image must be 2-D; got 5 dimensions\."),
        (COLOURS[None], {"channel_axis": -1}, r"image must be 3-D .*; got 5 dimensions\."),
        (
            COLOURS,
            {"channel_axis": 0},
            r"channel_axis of a stack must not be its first axis; got 0\.",
        ),
        (
            COLOURS,
            {"channel_axis": 4},
            r"channel_axis must be an integer between -3 and 3; got 4\.",
        ),
        (
            COLOURS,
            {"channel_axis": -4},
            r"channel_axis must be an integer between -3 and 3; got -4\.",
        ),
        (
            COLOURS,
            {"channel_axis": "last"},
            r"channel_axis must be an integer between -3 and 3; got 'last'\.",
        ),
    ],
)
def test_stacks_that_cannot_be_are_refused_in_a_sentence(image, options, sentence):
    with pytest.raises(ValueError, match=f"^{sentence}$"):
        denoise(image, **TINY | options)


def test_masks_that_do_not_fit_a_stack_are_refused():
    with pytest.raises(ValueError, match=r"^mask must have the shape \(24, 24\) of the image; got"):
        inpaint(STACK, np.zeros((2, 24, 24), bool), **TINY)


# ----------------------------------------------------------------------------------------- wrong


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"mask": np.zeros((24, 23), bool)}, r"mask must have the shape \(24, 24\) of the image; "),
        ({"mask": np.zeros((24, 24))}, r"mask must be boolean or of integers; got float64\."),
        ({"mask": np.ones((24, 24), bool)}, r"mask must leave something .*; got all missing\."),
        ({"image": np.where(MASK, np.inf, 0.0)}, r"image must be finite or NaN; got inf\."),
        ({"image": np.full((4, 4), "a")}, r"image must hold real numbers; got <U1\."),
        ({"image": GREY + 1j}, r"image must hold real numbers; got complex128\."),
        ({"image": GREY.astype("M8[s]")}, r"image must hold real numbers; got datetime64\[s\]\."),
        ({"image": GREY[0]}, r"image must be 2-D; got 1 dimensions\."),
        ({"image": COLOURS}, r"image must be 2-D; got 4 dimensions\."),
        (
            {"image": STACK},
            r"image must be 2-D unless channel_axis says where its channels are; got the shape ",
        ),
        ({"image": GREY[:0]}, r"image must have pixels; got the shape \(0, 24\)\."),
        ({"channel_axis": -1}, r"image must be 3-D with a channel_axis; got 2 dimensions\."),
        (
            {"image": STACK, "channel_axis": 3},
            r"channel_axis must be an integer between -3 and 2; got 3\.",
        ),
        ({"model": "pca"}, r"model must be one of 'subspaces', 'es3c', 'ebsc'; got 'pca'\."),
        (
            {"model": "subspaces", "preset": "paper"},
            r'preset must not be "paper" with model="subspaces"; got "paper"\.',
        ),
        ({"model": "es3c", "rank": 3}, r'rank must not be given with model="es3c"; got 3\.'),
        ({"model": "subspaces", "rank": 0}, r"rank must be an integer at least 1; got 0\."),
        (
            {"preset": "slow"},
            r"preset must be one of 'fast', 'balanced', 'best', 'paper'; got 'slow'\.",
        ),
        ({"merge": "median"}, r"merge must be one of 'mean', 'centre', 'variance'; got 'median'\."),
        ({"keep_observed": 1}, r"keep_observed must be True or False; got 1\."),
        ({"alpha": "no"}, r"alpha must be True or False; got 'no'\."),
        ({"seed": -1}, r"seed must be an integer between 0 and 4294967295; got -1\."),
        ({"seed": None}, r"seed must be an integer between 0 and 4294967295; got None\."),
        ({"stride": 0}, r"stride must be an integer at least 1; got 0\."),
        ({"stride": 4}, r"stride must be an integer between 1 and 3 \(patch_size\); got 4\."),
        ({"tol": -1e-3}, r"tol must be a number at least 0; got -0\.001\."),
        ({"tol": float("nan")}, r"tol must be a number at least 0; got nan\."),
        ({"time_limit": -1}, r"time_limit must be a number at least 0; got -1\."),
        ({"time_limit": float("nan")}, r"time_limit must be a number at least 0; got nan\."),
        ({"time_limit": "1 h"}, r"time_limit must be a number at least 0; got '1 h'\."),
        ({"memory": 0}, r"memory must be an integer at least 1; got 0\."),
        ({"memory": 1e9}, r"memory must be an integer at least 1; got 1000000000\.0\."),
        (
            {"memory": 1800},
            r"memory must hold 6 patches of these settings; got 1800 bytes, enough for 5\.",
        ),
        ({"n_states": 65}, r"n_states must be an integer between 1 and 64 \(2\*\*n_latents\); "),
        ({"n_parents": 9}, r"n_parents must be an integer between 1 and 8 \(n_states\); got 9\."),
        ({"n_children": 7}, r"n_children must be an integer between 1 and 6 \(n_latents\); got 7"),
    ],
)
def test_what_cannot_be_restored_is_refused_in_a_sentence(options, sentence):
    with pytest.raises(ValueError, match=f"^{sentence}"):
        restore(**{"image": GREY} | TINY | options)


COUNTS = (
    "patch_size", "n_latents", "n_states", "n_parents", "n_children", "n_generations", "n_parts",
    "max_iter",
)  # fmt: skip


@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.parametrize("value", [0, -1, 2.0, True, "3"])
def test_counts_that_are_not_positive_integers_are_refused(name, value):
    with pytest.raises(ValueError, match=f"^{name} must be an integer at least 1; got {value!r}.$"):
        restore(GREY, **TINY | {name: value})


def test_unknown_options_are_refused():
    for function in (restore, denoise, inpaint):
        with pytest.raises(TypeError, match="sigma"):
            function(GREY, sigma=25)
    with pytest.raises(TypeError, match="mask"):
        denoise(GREY, mask=MASK)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"n_jobs": 0}, "n_jobs must be "),
        ({"n_jobs": "two"}, "n_jobs must be "),
        ({"callback": 3}, "callback must be callable or None; got 3"),
        ({"seed": 2**64}, "seed must be "),
        ({"image": STACK[:0]}, "image must "),
    ],
)
def test_these_are_refused_in_a_sentence_too(options, sentence):
    with pytest.raises(ValueError, match=f"^{sentence}"):
        denoise(**{"image": GREY} | TINY | options)


def test_the_mask_of_a_masked_array_is_not_forgotten():
    masked = np.ma.masked_array(GREY, MASK)
    try:
        result = restore(masked, **TINY)
    except ValueError:
        return  # to refuse it is as good
    assert_same(result, restore(GREY, mask=MASK, **TINY))


# ------------------------------------------------------------------- margins, type by type

MARGIN = 4.0  # dB


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int32", "float32", "float64"])
def test_restoring_beats_the_damage_for_every_type_and_layout(dtype, axis):
    unit = {"uint16": 257, "int32": 2**22}.get(dtype, 1)
    clean = picture(32)
    noise = SIGMA * np.random.default_rng(5).standard_normal((*clean.shape, 3))
    damaged = clean[..., None] + noise
    if axis is None:
        damaged = damaged[..., 0]
    else:
        damaged, clean = np.moveaxis(damaged, -1, axis), np.stack([clean] * 3, axis=axis)
    image = unit * damaged
    if np.dtype(dtype).kind != "f":
        image = np.clip(np.rint(image), 0, unit * 255)
    restored = restore(image.astype(dtype), channel_axis=axis, **SMALL).image
    before, after = (psnr(clean, np.float64(one) / unit) for one in (image, restored))
    assert after > before + MARGIN
