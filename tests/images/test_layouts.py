"""Images of every type, layout, size and scale."""

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
    noisy,
    picture,
    tiny_run,
)

from evoem import denoise, inpaint, restore
from evoem.images.quality import psnr


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int32", "bool", "float32", "float64"])
def test_a_restored_image_has_the_type_and_range_of_the_given_one(dtype):
    image = as_dtype(GREY, dtype)
    restored = restore(image, **TINY).image
    assert restored.dtype == image.dtype
    doubles = restore(image.astype(np.float64), **TINY).image
    if image.dtype.kind != "f":
        limits = (0, 1) if dtype == "bool" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        doubles = np.rint(doubles).clip(*limits)
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


@pytest.mark.parametrize("function", [denoise, restore])
def test_an_image_is_read_once(function):
    class Lazy:
        """An array that is somewhere else until it is asked for."""

        def __init__(self):
            self.times_read = 0

        def __array__(self, dtype=None, copy=None):
            self.times_read += 1
            return GREY.copy()

    image = Lazy()
    function(image, **TINY | {"max_iter": 1})
    assert image.times_read == 1


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
