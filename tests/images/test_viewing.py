"""Arrays as people look at them."""

import io

import numpy as np
import pytest
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


@pytest.mark.parametrize("side", [4, 40])
def test_a_file_has_the_colours(side):
    colours = np.random.default_rng(0).random((side, 9, 3))
    with Image.open(io.BytesIO(viewing.png(colours))) as opened:
        assert opened.mode == ("P" if side == 4 else "RGB")  # 36 colours, or 360
        np.testing.assert_array_equal(opened.convert("RGB"), np.rint(255 * colours))
    grey = np.repeat(colours[..., :1], 3, axis=2)
    with Image.open(io.BytesIO(viewing.png(grey))) as opened:
        assert opened.mode == "L"
        np.testing.assert_array_equal(opened.convert("RGB"), np.rint(255 * grey))


def test_a_few_large_deviations_leave_the_others_bright():
    std = np.ones((100, 100))
    std[0, 0] = 50.0
    assert viewing.largest_shown(std) == 1.0
    assert viewing.largest_shown(np.where(std > 1, 3.0, 0.0)) == 3.0


@pytest.mark.parametrize("side", [4, 30])
def test_a_detail_is_the_window_with_most_edges(side):
    picture = np.random.default_rng(0).normal(0, 0.01, (25, 19, 2))
    picture[12:17, 3:8] += np.indices((5, 5)).sum(0)[..., None] % 2
    grey = picture.mean(axis=2)
    edges = np.abs(np.diff(grey, axis=0, prepend=grey[:1])) + np.abs(
        np.diff(grey, axis=1, prepend=grey[:, :1])
    )
    edges = np.minimum(edges, np.percentile(edges, 99))
    height, width = min(side, 25), min(side, 19)
    slow = {
        (row, column): edges[row : row + height, column : column + width].sum()
        for row in range(25 - height + 1)
        for column in range(19 - width + 1)
    }
    assert viewing.detail(picture, side) == max(slow, key=slow.get)
