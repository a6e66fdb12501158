"""From patches to an image: what like patches say, seen together."""

import numpy as np
import pytest
from test_nonlocal_bayes import seen_together

from evoem import restore
from evoem.images import looks, patches
from evoem.images import nonlocal_bayes as likeness
from evoem.images import patch_model as learning
from evoem.images.nonlocal_bayes import Seen
from evoem.images.quality import psnr

EXACT = {
    "model": "subspaces",
    "patch_size": 3,
    "n_latents": 3,
    "n_states": 8,
    "rank": 1,
    "n_parents": 2,
    "n_children": 2,
    "n_parts": 1,
    "start": "mean",
    "merge": "mean",
    "max_iter": 3,
    "n_jobs": 1,
}
SOME = EXACT | {"patch_size": 5, "n_latents": 12, "n_states": 10, "rank": 3, "n_parents": 4}
SIGMA = 20.0


def picture(size):
    row, column = np.mgrid[:size, :size] / size
    return 100 + 60 * (row + column > 0.9) + 40 * np.sin(25 * row) * (column > 0.5)


def damaged(size, missing=0.0, seed=0):
    rng = np.random.default_rng(seed)
    image = picture(size) + SIGMA * rng.standard_normal((size, size))
    image[rng.random(image.shape) < missing] = np.nan
    return image


# --------------------------------------------------------------------------------- the looks


@pytest.mark.parametrize("keep_observed", [False, True])
@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_patches_that_are_like_each_other_are_seen_together(missing, keep_observed, monkeypatch):
    """Three times, each time by what the last look saw, the first time by what was given too."""
    monkeypatch.setattr(likeness, "REACH", 5)
    before, after = [], []
    look_around = looks.look_around

    def watched(learner, merge, merged, keep):
        before.append(merged)
        after.append(look_around(learner, merge, merged, keep))
        return after[-1]

    monkeypatch.setattr(looks, "look_around", watched)
    image = damaged(20, missing)
    result = restore(image, keep_observed=keep_observed, **EXACT)
    (merged,), (looked,) = before, after
    given = ((image - result.offset) / result.scale)[..., None].astype(np.float32)
    hidden = np.isnan(given)
    mean = merged.mean
    for size, stride, share in ((12, 6, 0.2), (6, 3, 0.0), (8, 4, 0.0)):
        if keep_observed:
            mean = np.where(hidden, mean, given)
        compared = np.where(hidden, mean, share * given + (1 - share) * mean)
        mean = seen_together(
            Seen(
                np.where(hidden, 0.0, given), ~hidden, mean.astype(np.float32),
                compared.astype(np.float32), np.ones(given.shape, bool),
            ),
            patches.grid(given.shape, size, stride),
            "mean",
            float(result.noise_level / result.scale) ** 2,
        )  # fmt: skip
    np.testing.assert_allclose(looked.mean, mean, rtol=0, atol=1e-3)
    np.testing.assert_array_equal(looked.std, merged.std)
    final = result.offset + result.scale * looked.mean[..., 0]
    expected = np.where(hidden[..., 0] | (not keep_observed), final, image)
    np.testing.assert_allclose(result.image, expected, rtol=1e-5)


# ------------------------------------------------------------------------------------- what for


@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize("seed", [0, 1])
def test_looking_around_restores_better(missing, seed, monkeypatch):
    image, clean = damaged(48, missing, seed), picture(48)
    looked = restore(image, **SOME)
    monkeypatch.setattr(learning.Learner, "looks", 0)
    once = restore(image, **SOME)
    np.testing.assert_array_equal(looked.free_energies, once.free_energies)
    assert psnr(clean, looked.image) > psnr(clean, once.image) + 0.2


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_looking_around_does_not_depend_on_threads(missing):
    one, three = (
        restore(damaged(32, missing), **SOME | {"n_jobs": n_jobs}).image for n_jobs in (1, 3)
    )
    np.testing.assert_array_equal(one, three)


@pytest.mark.parametrize(("stride", "around"), [(1, True), (2, True), (3, False), (5, False)])
def test_around_is_looked_only_where_patches_overlap_by_half(stride, around, monkeypatch):
    """Without the others a patch would but confirm itself."""
    settings = SOME | {"stride": stride, "patch_size": 5}
    looked = restore(damaged(33), **settings).image
    monkeypatch.setattr(learning.Learner, "looks", 0)
    assert (looked != restore(damaged(33), **settings).image).any() == around


def test_what_lies_deep_in_a_hole_is_not_looked_at(monkeypatch):
    """The merged image is the prior mean there, and like nothing."""
    image = damaged(32)
    image[8:24, 8:24] = np.nan
    seen = []
    look = likeness.look

    def watched(images, *rest):
        seen.append(images)
        return look(images, *rest)

    monkeypatch.setattr(likeness, "look", watched)
    restore(image, **SOME | {"patch_size": 4})
    assert len(seen) == 3
    for images in seen:
        assert not images.known[12:20, 12:20].any()
        assert images.known[:10].all()
