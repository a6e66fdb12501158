"""Patches put together to an image."""

import numpy as np
import pytest
from sample_images import (
    GREY,
    MASK,
    MODELS,
    SIGMA,
    SMALL,
    TINY,
    memory_for,
    noisy,
    picture,
    tiny_run,
)
from scipy.interpolate import RegularGridInterpolator

from evoem import em, inference, restore
from evoem.images import bands, patches
from evoem.images.merging import Estimate, merge_patches
from evoem.images.quality import psnr
from evoem.models import SubspaceModel


def merged(values, grid, weights):
    """All patches on one canvas."""
    canvas = patches.Canvas(grid)
    canvas.add(None, values, weights)
    return canvas.mean()


def recut(result, image, params):
    """All patches' means and variances once more, one by one with the prior of where they lie."""
    beyond = 0.5 if result.settings["model"] == "subspaces" else 0.0
    grid = patches.regular_grid((*image.shape, 1), result.settings["patch_size"], beyond=beyond)
    X = patches.cut(image[..., None].astype(np.float32), grid)
    if not beyond:
        mean, std = result.estimator.reconstruct(X, return_std=True)
        return grid, mean.astype(float), std.astype(float) ** 2
    inside = patches.cut(np.ones((*image.shape, 1), bool), grid)
    model, points = SubspaceModel(), np.array(params.field.shape[:2]) - 1
    means, variances = np.empty((2, *X.shape))
    order = np.random.default_rng(result.settings["seed"]).permutation(grid.n_patches)
    for n, kept in zip(order, result.estimator.state_.states, strict=True):
        place = np.divmod(n, len(grid.lefts)) / (np.array([len(grid.tops), len(grid.lefts)]) - 1)
        own = params._replace(activation_probs=bilinear(params.field, place * points), field=None)
        data = em.Data(X[[n]], inside[[n]])
        [(mean, variance)] = inference.estimate(model.reconstruct, model, data, own, kept[None])
        means[n], variances[n] = mean[0], variance[0]
    return grid, means, variances


def bilinear(field, place):
    axes = [np.arange(length) for length in field.shape[:2]]
    return RegularGridInterpolator(axes, field)(place)[0]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("merge", ["mean", "centre", "variance"])
@pytest.mark.parametrize("n_parts", [1, 3])
def test_images_are_merged_from_what_the_estimator_says_of_patches(model, merge, n_parts):
    settings = TINY | {"n_parts": n_parts, "nonlocal_passes": 0}
    image = GREY.copy()
    if model == "ebsc":  # both cases with few runs
        image[MASK] = np.nan
        image[8:12, 9:13] = np.nan  # some patches see nothing, and all pixels lie in one that does
    last = []
    result = restore(image, merge=merge, callback=last.append, **settings | {"model": model})
    grid, mean, variance = recut(result, image, last[-1].params)
    weights = np.ones(mean.shape)
    if merge == "centre":
        weights = weights * patches.window((3, 3), "centre", 1)
    elif merge == "variance":
        weights = 1 / (variance + 0.02 * result.noise_level**2)
    seen = patches.cut(~np.isnan(image)[..., None], grid).any(1)
    assert seen.all() == (model != "ebsc")
    weights[~seen] *= 1e-6
    expected = merged(mean, grid, weights)
    square = merged(variance + mean**2, grid, weights)
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
def test_merging_constant_patches_gives_the_constant(merge, mask, stride):
    grid = patches.regular_grid((24, 24, 1), 3, stride)
    rng = np.random.default_rng(0)
    halves = np.array_split(np.arange(grid.n_patches), 2)
    estimates = []
    for numbers in halves:
        observed = None if mask is None else patches.cut(~mask[..., None], grid, numbers)
        shape = (len(numbers), grid.n_pixels)
        estimates.append(
            Estimate(numbers, observed, np.full(shape, 42.0), rng.uniform(1, 4, shape))
        )
    merged = merge_patches(
        bands.patch_rows(grid, bands.whole(grid.shape[0])), merge, 25.0, estimates
    )
    np.testing.assert_allclose(merged.mean, 42.0, rtol=1e-12)
    assert (merged.std > 0.999).all()
    assert (merged.std < 2.001).all()


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
    assert len(result.estimator.state_.states) == 19**2  # 18 even grid, and the last
    assert psnr(clean, result.image) > psnr(clean, image) + 5


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
        monkeypatch.setattr(bands, "PATCHES_AT_ONCE", size)
        if size == 1 and n_patches is not None:
            continue  # takes long
        blocks = restore(GREY, mask=mask, memory=memory, **TINY)
        np.testing.assert_allclose(blocks.image, whole.image, rtol=0, atol=1e-3)
        np.testing.assert_allclose(blocks.std, whole.std, rtol=0, atol=1e-3)
        assert blocks.notes == whole.notes
