"""Presets, fitted to images."""

import numpy as np
import pytest
from sample_images import GREY, TINY, assert_same, colour, holes_at, picture

from evoem import restore
from evoem.images import canonical_arrays, image_models, settings
from evoem.images.image_models import IMAGE_MODELS


@pytest.mark.parametrize(
    ("preset", "model"),
    [("fast", "es3c"), ("balanced", "es3c"), ("best", "ebsc"), ("balanced", "subspaces")],
)
def test_presets_shrink_for_small_images_unless_told_otherwise(preset, model):
    subspaces = model == "subspaces"
    full = IMAGE_MODELS[model].presets[preset]
    patch_size = 8  # there is little noise
    options = {"preset": preset, "model": model, "max_iter": 1, "n_jobs": 1}
    used = restore(GREY, **options).settings
    n_patches = (24 - patch_size + 1) ** 2
    assert used["patch_size"] == patch_size
    assert used["n_latents"] == n_patches // (64 if subspaces else 8) < full["n_latents"]
    used = restore(GREY[:8, :8], n_latents=9, **options).settings
    assert used["patch_size"] == 4  # 25 patches of 16 pixels; 16 of 25 would be too few
    assert used["n_latents"] == 9
    assert used["n_parents"] <= used["n_states"] <= 2**9


def test_presets_are_left_alone_for_large_images():
    for full in IMAGE_MODELS["es3c"].presets.values():
        assert settings.fit_to_image(full, {}, (512, 512, 1), None) == full
    for full in IMAGE_MODELS["subspaces"].presets.values():
        assert settings.fit_to_image(full, {}, (264, 253, 1), None) == full


@pytest.mark.parametrize(
    ("size", "expected"),
    [(139, 256), (138, 252), (260, 256), (371, 518), (558, 1197), (2000, 1200)],
)
def test_subspaces_grow_in_number_with_an_image(size, expected):
    """64 patches for each, then 250, and no more than 300,000 count; of 12 pixels and stride 1."""
    full = IMAGE_MODELS["subspaces"].presets["balanced"]
    fitted = settings.fit_to_image(full, {}, (size, size, 1), None)
    assert fitted == full | {"n_latents": expected}
    given = settings.fit_to_image(full, {"n_latents": 7}, (size, size, 1), None)
    assert given["n_latents"] == 7


def fitted(name, model, values, missing=None, **given):
    """Settings of a preset for an image."""
    canonical = canonical_arrays.read(values, missing, None, False)
    return image_models.settings_of(IMAGE_MODELS[model], name, given, canonical)


def test_presets_change_where_something_is_missing():
    some = np.zeros((512, 512), np.bool_)
    some[::2, ::2] = True
    noise = np.random.default_rng(0).normal(size=some.shape)
    for name, full in IMAGE_MODELS["es3c"].presets.items():
        assert fitted(name, "es3c", noise) == full
    changed = fitted("balanced", "es3c", noise, some, n_states=7)
    assert (changed["patch_size"], changed["n_latents"], changed["n_states"]) == (8, 256, 7)
    assert (changed["max_iter"], changed["slab"], changed["merge"]) == (40, "fixed", "centre")
    given = {"slab": "diagonal", "merge": "mean"}
    assert fitted("balanced", "es3c", noise, some, **given).items() >= given.items()
    for name, n_states, max_iter in [("fast", 13, 4), ("balanced", 20, 8), ("best", 20, 18)]:
        found = fitted(name, "subspaces", noise, some)
        assert (found["patch_size"], found["n_states"], found["max_iter"]) == (
            8, n_states, max_iter,
        )  # fmt: skip


def test_patches_are_smaller_where_there_is_little_noise_but_not_the_paper_s():
    y, _ = np.mgrid[:128, :128]
    noise = np.random.default_rng(0).normal(size=y.shape)
    bands = 10.0 * (y // 16 % 2)  # their standard deviation is 5
    for name, full in IMAGE_MODELS["es3c"].presets.items():
        assert fitted(name, "es3c", bands + 4.5 * noise) == full
        little = fitted(name, "es3c", bands + 3 * noise)
        assert little == full | {"patch_size": 12 if name == "paper" else 8}


def test_strides_grow_with_images_of_millions_of_pixels(monkeypatch):
    assert settings.stride_for((1000, 1000, 3), 12) == 1
    assert settings.stride_for((2000, 2000, 3), 12) == 2
    assert settings.stride_for((90_000, 90_000, 1), 12) == 4  # each pixel lies in nine patches
    assert settings.stride_for((90_000, 90_000, 1), 2) == 1
    monkeypatch.setattr(settings, "MANY_PATCHES", 24 * 24 / 4)
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
    assert settings.hole_width(missing) == (largest if largest % 2 or not largest else largest - 1)


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
