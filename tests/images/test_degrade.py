"""Noise by its distribution, masks by their counts and by what is drawn."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import ndimage, stats

from evoem.images.degrade import TEXT, add_noise, missing_pixels, scratches, text_mask

IMPROBABLE = 1e-4
repeatable = settings(deadline=None, derandomize=True, max_examples=60)

SEEDED = {
    "noise": lambda seed: add_noise(np.zeros((20, 30, 3)), 5, seed),
    "pixels": lambda seed: missing_pixels((20, 30, 3), 0.5, seed),
    "values": lambda seed: missing_pixels((20, 30, 3), 0.5, seed, per_channel=True),
    "scratches": lambda seed: scratches((60, 50), 3, seed),
}


@pytest.mark.parametrize("name", SEEDED)
def test_a_seed_gives_the_same_and_another_seed_something_else(name):
    make = SEEDED[name]
    np.testing.assert_array_equal(make(3), make(3))
    assert (make(3) != make(4)).any()


# ----------------------------------------------------------------------------------------- noise


@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.float64])
def test_noise_is_gaussian_and_not_clipped(dtype):
    image = np.full((100, 100, 3), 250, dtype)
    noisy = add_noise(image, 20, seed=0)
    assert noisy.dtype == np.float64
    assert stats.kstest((noisy - 250).ravel(), stats.norm(scale=20).cdf).pvalue > IMPROBABLE
    assert noisy.max() > 255


def test_noise_is_added_to_the_image_which_stays_as_it_was():
    image = np.random.default_rng(1).uniform(0, 255, (8, 9))
    before = image.copy()
    np.testing.assert_allclose(
        add_noise(image, 3, seed=2) - image, add_noise(np.zeros((8, 9)), 3, seed=2), atol=1e-12
    )
    np.testing.assert_array_equal(image, before)
    np.testing.assert_array_equal(add_noise(image, 0, seed=2), image)


# ------------------------------------------------------------------------------- missing pixels


@repeatable
@given(
    st.tuples(st.integers(1, 12), st.integers(1, 12)),
    st.integers(1, 4),
    st.floats(0, 1),
    st.integers(0, 1000),
)
def test_exactly_the_share_is_missing(size, channels, share, seed):
    n_pixels = size[0] * size[1]
    grey = missing_pixels(size, share, seed)
    assert grey.shape == size
    assert np.count_nonzero(grey) == round(share * n_pixels)
    colour = missing_pixels((*size, channels), share, seed)
    assert np.count_nonzero(colour) == channels * round(share * n_pixels)
    for channel in range(channels):
        np.testing.assert_array_equal(colour[..., channel], grey)
    values = missing_pixels((*size, channels), share, seed, per_channel=True)
    assert values.shape == (*size, channels)
    assert np.count_nonzero(values) == round(share * n_pixels * channels)


def test_every_pixel_is_missing_equally_often():
    times = sum(missing_pixels((4, 5), 0.3, seed).astype(int) for seed in range(2000))
    assert times.sum() == 2000 * 6
    assert stats.chisquare(times.ravel()).pvalue > IMPROBABLE


def test_channels_are_lost_apart_only_if_asked():
    values = missing_pixels((20, 20, 3), 0.5, 0, per_channel=True)
    assert (values[..., 0] != values[..., 1]).any()
    assert (values[..., 1] != values[..., 2]).any()


# ------------------------------------------------------------------------------------------ text


@pytest.mark.parametrize("size", [8, 16, 30])
def test_text_covers_the_image_from_edge_to_edge_and_leaves_gaps(size):
    mask = text_mask((200, 900), size=size)
    assert 0.1 < mask.mean() < 0.4
    for top in range(0, 200 - 2 * size, size):
        for left in range(0, 901 - 2 * size, 2 * size):
            block = mask[top : top + 2 * size, left : left + 2 * size]
            assert block.any()
            assert not block.all()


def test_each_line_starts_a_word_later():
    words = TEXT.split()
    pitch = 20  # of a font of 16
    mask = text_mask((pitch * 20, 300), size=16)
    for line in range(20):
        first = line % len(words)
        alone = text_mask((pitch, 300), " ".join(words[first:] + words[:first]), 16)
        np.testing.assert_array_equal(mask[line * pitch : (line + 1) * pitch], alone)


def test_a_short_text_is_repeated():
    mask = text_mask((20, 400), "ab", 16)
    columns = np.flatnonzero(mask.any(0))
    assert columns[0] < 5
    assert columns[-1] > 390
    assert np.diff(columns).max() < 16


def test_another_text_gives_another_mask_and_colours_share_one():
    mask = text_mask((60, 80))
    assert (mask != text_mask((60, 80), "something else")).any()
    colour = text_mask((60, 80, 3))
    np.testing.assert_array_equal(colour, np.stack([mask] * 3, axis=-1))


# ------------------------------------------------------------------------------------- scratches


def touches_an_edge(mask):
    return mask[0].any() or mask[-1].any() or mask[:, 0].any() or mask[:, -1].any()


def test_a_scratch_is_thin_and_if_it_stays_in_the_image_long_and_in_one_piece():
    masks = [scratches((300, 200), 1, seed) for seed in range(100)]
    for mask in masks:
        assert mask.any()
        assert not ndimage.binary_erosion(mask, np.ones((5, 5))).any()
    whole = [mask for mask in masks if not touches_an_edge(mask)]
    assert len(whole) > 10
    for mask in whole:
        assert ndimage.label(mask, np.ones((3, 3)))[1] == 1
        assert np.ptp(np.argwhere(mask), axis=0).max() > 30


def test_more_scratches_include_the_fewer():
    shape = (120, 150)
    masks = [scratches(shape, n, seed=5) for n in range(12)]
    assert not masks[0].any()
    for fewer, more in pairwise(masks):
        assert more[fewer].all()
        assert np.count_nonzero(more) > np.count_nonzero(fewer)


def test_scratches_start_in_every_part_of_the_image():
    share = np.mean([scratches((60, 90), 4, seed) for seed in range(200)], axis=0)
    quarters = [share[i : i + 30, j : j + 45].mean() for i in (0, 30) for j in (0, 45)]
    assert max(quarters) < 1.3 * min(quarters)


def test_colours_share_their_scratches():
    grey = scratches((60, 80), 5, 1)
    np.testing.assert_array_equal(scratches((60, 80, 3), 5, 1), np.stack([grey] * 3, axis=-1))


# ---------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: add_noise(np.ones(3), -1, 0), "sigma must be a number at least 0; got -1."),
        (
            lambda: missing_pixels((3, 3), 1.5, 0),
            "share must be a number between 0 and 1; got 1.5.",
        ),
        (
            lambda: missing_pixels((9,), 0.5, 0),
            "shape must be (rows, columns) or (rows, columns, channels); got (9,).",
        ),
        (
            lambda: missing_pixels((9, 0), 0.5, 0),
            "shape's entries must be an integer at least 1; got 0.",
        ),
        (lambda: text_mask((9, 9), " "), "text must have a word in it; got ' '."),
        (lambda: text_mask((9, 9), size=0), "size must be an integer at least 1; got 0."),
        (lambda: scratches((9, 9), -1, 0), "n must be an integer at least 0; got -1."),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(call, message):
    with pytest.raises(ValueError) as error:  # noqa: PT011
        call()
    assert str(error.value) == message
