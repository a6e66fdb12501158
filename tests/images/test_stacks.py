"""Stacks of images."""

import numpy as np
import pytest
from sample_images import COLOURS, STACK, TINY, colour, holes_at, tiny_run

from evoem import denoise, inpaint, restore
from evoem.images.stacks import TimeShares


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
    monkeypatch.setattr("evoem.images.stacks.time.perf_counter", lambda: now)
    shares = TimeShares(12.0, 3)
    assert shares.next() == 4.0
    now += 2.0  # less than its share: more for the others
    assert shares.next() == 5.0
    now += 20.0
    assert shares.next() == 0.0
    assert TimeShares(None, 3).next() is None


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
