"""Arrays as people look at them."""

import io

import numpy as np
from PIL import Image

from evoem.images import viewing


def test_8_bit_pictures_are_shown_as_they_are_unless_they_are_dark():
    bright = np.linspace(0, 200, 1000)
    assert viewing.shown_range(bright, bright, np.uint8) == (0.0, 255.0)
    low, high = viewing.shown_range(bright / 10, bright / 10, np.uint8)
    assert (low, high) != (0.0, 255.0)
    assert high < 21


def test_dark_noise_around_a_flat_picture_is_not_black_and_white():
    noisy = np.random.default_rng(0).normal(0, 2, 10_000)
    low, high = viewing.shown_range(noisy, np.zeros(100), np.float64)
    assert low < -3.5
    assert high > 3.5


def test_a_few_stars_in_the_dark_are_seen():
    stars = np.zeros(100_000)
    stars[7] = 5.0
    assert viewing.shown_range(stars, stars, np.float64) == (0.0, 5.0)


def test_brighter_values_are_lighter_and_missing_ones_red():
    values = np.array([[[0.0], [1.0], [2.0], [np.nan]]])
    shown = viewing.colours(values, np.isfinite(values), 0.0, 2.0)
    np.testing.assert_array_equal(shown[0, :3, 0], [0, 0.5, 1])
    np.testing.assert_array_equal(shown[0, 3], viewing.MISSING)


def test_more_is_lighter_on_a_map():
    shown = viewing.heat(np.linspace(0, 3, 50)[None], 3.0)
    lightness = shown @ [0.2126, 0.7152, 0.0722]
    assert (np.diff(lightness) > 0).all()


def test_large_pictures_are_thinned_to_a_side():
    assert viewing.thinned(np.zeros((100, 250, 3)), 100).shape == (34, 84, 3)
    assert viewing.thinned(np.zeros((100, 50, 3)), 100).shape == (100, 50, 3)


def test_a_file_has_the_colours():
    colours = np.random.default_rng(0).random((4, 5, 3))
    read = np.asarray(Image.open(io.BytesIO(viewing.png(colours))))
    np.testing.assert_array_equal(read, np.rint(255 * colours))
