"""Stacks of images."""

import numpy as np
import pytest
from sample_images import COLOURS, STACK, TINY, colour, holes_at

from evoem import denoise, inpaint


def test_stacks_have_one_mask_or_one_for_each_slice():
    masks = holes_at(STACK.shape, 0.3, 2)
    each = inpaint(STACK, masks, **TINY)
    np.testing.assert_array_equal(each[~masks], STACK[~masks])
    np.testing.assert_array_equal(inpaint(np.where(masks, np.nan, STACK), **TINY), each)
    free = inpaint(STACK, masks, keep_observed=False, **TINY)
    assert (free[~masks] != STACK[~masks]).mean() > 0.9
    one = inpaint(STACK, masks[0], **TINY)
    np.testing.assert_array_equal(one, inpaint(STACK, np.stack([masks[0]] * 3), **TINY))


@pytest.mark.parametrize("axis", [3, 2, 1, -3])
def test_channels_may_lie_along_any_axis_of_a_stack(axis):
    stack = np.moveaxis(COLOURS, -1, axis)
    restored = denoise(stack, channel_axis=axis, **TINY)
    expected = denoise(COLOURS, channel_axis=-1, **TINY)
    np.testing.assert_array_equal(np.moveaxis(restored, axis, -1), expected)


@pytest.mark.parametrize("axis", [-1, 1])
@pytest.mark.parametrize("per_slice", [True, False])
@pytest.mark.parametrize("per_value", [True, False])
def test_colour_stacks_have_masks_of_pixels_or_values(axis, per_slice, per_value):
    masks = holes_at(COLOURS.shape if per_value else COLOURS.shape[:3], 0.3)
    masks = masks if per_slice else np.broadcast_to(masks[0], masks.shape)
    values = masks if per_value else np.broadcast_to(masks[..., None], COLOURS.shape)
    stack = np.moveaxis(np.where(values, 9999.0, COLOURS), -1, axis)
    given = np.moveaxis(masks, -1, axis) if per_value else masks
    filled = inpaint(stack, given if per_slice else given[0], channel_axis=axis, **TINY)
    holed = np.moveaxis(np.where(values, np.nan, COLOURS), -1, axis)
    np.testing.assert_array_equal(filled, inpaint(holed, channel_axis=axis, **TINY))


@pytest.mark.parametrize("stack", [False, True])
def test_what_is_masked_of_an_array_is_missing(stack):
    image = STACK if stack else STACK[0]
    hidden = holes_at(image.shape, 0.3)
    masked = np.ma.masked_array(np.where(hidden, 9999, image), hidden)
    filled = inpaint(image, hidden, **TINY)
    np.testing.assert_array_equal(inpaint(masked, **TINY), filled)
    both_denoised = inpaint(image, hidden, keep_observed=False, **TINY)
    np.testing.assert_array_equal(denoise(masked, **TINY), both_denoised)


def test_an_interrupt_of_a_stack_leaves_a_whole_stack():
    calls = []

    def interrupt(progress):
        calls.append(progress.iteration)
        if len(calls) == 2:
            raise KeyboardInterrupt

    restored = denoise(STACK, callback=interrupt, **TINY)
    assert len(calls) == 2
    assert np.isfinite(restored).all()
    assert (restored != STACK).reshape(3, -1).mean(1).min() > 0.9


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
