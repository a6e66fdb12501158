"""From a model that has learnt to an image."""

import time

import numpy as np
import pytest
from sample_images import (
    GREY,
    TINY,
    holes_at,
    noisy,
    picture,
)  # fmt: skip

from evoem.images import canonical_arrays
from evoem.images.budget import Clock, Finish
from evoem.images.learning import learn
from evoem.images.plan import plans_for
from evoem.images.reconstruction import merged_image, standard_deviations, whole_image
from evoem.images.settings import checked


@pytest.mark.parametrize("thinning", [1, 2])
@pytest.mark.parametrize("nonlocal_passes", [0, 1, 3])
def test_fewer_patches_still_restore_the_image(thinning, nonlocal_passes):
    clean = picture()
    image = noisy(clean)
    canonical = canonical_arrays.read(image, None, None, False)
    options = checked("restore", {"preset": "fast", "patch_size": 8, "seed": 1})
    plan = plans_for(canonical, options, False)[0]
    plan = plan._replace(settings=plan.settings | {"n_learnt": 300})
    model = learn(canonical, plan, Clock(time.perf_counter(), None), None).model
    assert len(model.patches.numbers) == 300
    merged = whole_image(model, Finish(3, nonlocal_passes, thinning), plan.merge, False)
    restored = canonical_arrays.write(model.source.canonical, merged.mean, False)
    error, before = (np.square(some - clean).mean() for some in (restored, image))
    assert error < 0.2 * before


def learnt(image, mask=None, n_learnt=None, **options):
    """A plan for an image, and a model that has learnt from so many of its patches."""
    canonical = canonical_arrays.read(image, mask, None, False)
    plan = plans_for(canonical, checked("restore", TINY | options), False)[0]
    if n_learnt is not None:
        plan = plan._replace(settings=plan.settings | {"n_learnt": n_learnt})
    return plan, learn(canonical, plan, Clock(time.perf_counter(), None), None).model


def test_patches_that_were_not_learnt_from_can_be_left_out():
    plan, model = learnt(GREY, n_learnt=30, nonlocal_passes=0)
    part = merged_image(model, plan.best_finish, plan.merge, False, learnt_only=True)
    whole = merged_image(model, plan.best_finish, plan.merge, False)
    covered = np.zeros(GREY.shape, bool)
    for top, left in zip(*model.source.grid.corners(model.patches.numbers), strict=True):
        covered[top : top + 3, left : left + 3] = True
    np.testing.assert_array_equal(np.isfinite(part.mean[..., 0]), covered)
    assert np.isfinite(whole.mean).all()


def test_only_holes_are_guessed_from_their_surroundings():
    mask = np.zeros(GREY.shape, bool)
    mask[8:16, 9:17] = True  # wider than a patch
    plan, model = learnt(GREY, mask, nonlocal_passes=0, patch_size=3)
    merged = merged_image(model, plan.best_finish, plan.merge, False)
    whole = whole_image(model, plan.best_finish, plan.merge, False)
    np.testing.assert_array_equal(whole.near, merged.near)
    assert 0 < (~merged.near).sum() < mask.sum()
    np.testing.assert_array_equal(whole.mean[merged.near], merged.mean[merged.near])
    assert np.isfinite(whole.mean).all()


@pytest.mark.parametrize("keep_observed", [False, True])
def test_deviations_are_in_the_units_of_the_image_and_zero_where_it_is_kept(keep_observed):
    mask = holes_at(GREY.shape, 0.2)
    plan, model = learnt(GREY, mask)
    merged = whole_image(model, plan.best_finish, plan.merge, keep_observed)
    canonical = model.source.canonical
    std = standard_deviations(canonical, merged, keep_observed)
    expected = canonical.scale * merged.std[..., 0]
    np.testing.assert_allclose(std, np.where(keep_observed & ~mask, 0.0, expected))


def test_patches_that_overlap_others_are_left_out_when_time_is_up():
    plan, model = learnt(GREY, n_learnt=30, nonlocal_passes=0)
    in_time = Clock(time.perf_counter(), 1e6)
    too_late = Clock(time.perf_counter() - 10.0, 5.0)
    whole, usual, hurried = (
        merged_image(model, plan.best_finish, plan.merge, False, clock=clock)
        for clock in (Clock(0.0, None), in_time, too_late)
    )
    assert np.isfinite(hurried.mean).all()
    assert not np.allclose(hurried.mean, whole.mean)
    np.testing.assert_allclose(usual.mean, whole.mean, atol=0.2 * whole.mean.std())


def test_nonlocal_passes_are_left_out_when_time_is_up():
    plan, model = learnt(picture())
    finish = plan.best_finish._replace(nonlocal_passes=2)
    too_late = Clock(time.perf_counter() - 10.0, 5.0)
    hurried = merged_image(model, finish, plan.merge, False, clock=too_late)
    plain = merged_image(model, finish._replace(nonlocal_passes=0), plan.merge, False)
    np.testing.assert_array_equal(hurried.mean, plain.mean)
