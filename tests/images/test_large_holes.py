"""Holes larger than a patch."""

from types import SimpleNamespace

import numpy as np
import pytest
from sample_images import GREY, MODELS, SMALL, TINY, picture

from evoem import denoise, restore
from evoem.images import bands, large_holes, patches
from evoem.images.quality import psnr


@pytest.mark.parametrize("model", MODELS)
def test_holes_larger_than_a_patch_are_filled_and_noted(model):
    clean = picture(24)
    mask = np.zeros(clean.shape, bool)
    mask[6:15, 7:16] = True
    result = restore(np.where(mask, 1e6, clean), mask=mask, **TINY | {"model": model})
    # Patches of three pixels reach two into the nine.
    assert result.notes == (
        "25 values lie in holes larger than a patch, 3 pixels wide: "
        "they are guessed from their surroundings.",
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


def test_large_holes_between_patches_that_do_not_overlap_are_filled():
    rounds = iter(range(100))

    def reconstruct(block, kept):
        assert next(rounds, None) is not None, "the hole is not getting smaller"
        return np.full(block.data.X.shape, 7.0), None

    grid = patches.regular_grid((24, 24, 1), 3, 3)
    canonical = SimpleNamespace(band=bands.whole(24))
    source = SimpleNamespace(grid=grid, canonical=canonical, positions=lambda *where: None)
    model = SimpleNamespace(
        source=source,
        infer=lambda *given: None,
        reconstruct=reconstruct,
    )
    near = np.ones(grid.shape, bool)
    near[6:15, 6:15] = False
    filled = large_holes.fill(model, np.where(near, 1.0, 0.0), near, 3)
    np.testing.assert_allclose(filled, np.where(near, 1.0, 7.0), rtol=1e-12)


def test_images_whose_patches_do_not_overlap_have_large_holes_filled():
    mask = np.zeros(GREY.shape, bool)
    mask[6:15, 6:15] = True
    assert np.isfinite(restore(GREY, mask=mask, stride=3, **TINY).image).all()


def test_patches_of_one_pixel_have_nothing_to_complete():
    image = 100.0 + np.random.default_rng(0).normal(0, 20, (16, 14))
    image[4:7, 3:9] = np.nan
    options = {"patch_size": 1, "n_latents": 2, "n_states": 2, "n_jobs": 1, "noise": "gaussian"}
    restored = denoise(image, preset="fast", start="mean", max_iter=1, nonlocal_passes=0, **options)
    assert np.isfinite(restored).all()
