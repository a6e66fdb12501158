"""Masks: grown, described and proposed."""

import numpy as np
import pytest
from scipy import ndimage

from evoem.images import masks


def of_bits(*rows):
    return np.array([[letter != "." for letter in row] for row in rows])


def test_a_mask_grows_to_all_sides():
    one = of_bits(".....", ".....", "..x..", ".....", ".....")
    assert (masks.grown(one, 0) == one).all()
    assert masks.grown(one, 1).sum() == 9
    assert masks.grown(one, 2).all()
    of_channels = np.stack([one, np.zeros_like(one)], axis=2)
    assert masks.grown(of_channels, 1).sum(axis=(0, 1)).tolist() == [9, 0]


def soft_edged():
    values = np.zeros((9, 9), np.uint8)
    values[3:6, 3:6], values[3:6, 2], values[3:6, 6] = 255, 90, 30
    return values, values == 255


def test_what_is_neither_black_nor_marked_is_grey():
    values, missing = soft_edged()
    assert masks.grey(values, missing).sum() == 6
    assert not masks.grey(np.where(values == 30, 12, 0), missing & False)[:, 3].any()
    assert not masks.grey(255 * missing, missing).any()
    assert not masks.grey(np.full((3, 3), 255), np.ones((3, 3), bool)).any()


def test_a_mask_is_described_by_what_it_marks_and_leaves():
    values, missing = soft_edged()
    left = masks.grey(values, missing)
    assert masks.description(missing, left & False, 0) == "9 pixels missing."
    assert masks.description(missing, left, 0) == (
        "9 pixels missing; 6 grey ones at the edge of the mask kept: --mask-grow 1 takes them too."
    )
    assert masks.description(masks.grown(missing, 1), left, 1) == "25 pixels missing."
    far = np.zeros_like(left)
    far[0, 0] = True
    assert masks.description(missing, far, 2).endswith(
        "1 grey one at the edge of the mask kept: --mask-grow 5 takes it too."
    )
    lonely = np.zeros((40, 40), bool)
    lonely[0, 0] = True
    marked = np.zeros((40, 40), bool)
    marked[30, 30:32] = True
    assert masks.description(marked, lonely, 0) == (
        "2 pixels missing; 1 grey one kept: a lower --mask-threshold takes more of them."
    )
    assert masks.description(np.ones((1500, 2), bool), np.zeros((1500, 2), bool), 0) == (
        "3,000 pixels missing."
    )


def scene(rng, channels=1):
    """Smooth areas, steps between them, weak noise."""
    rows, columns = np.mgrid[:160, :160]
    picture = 90 + 30 * np.sin(rows / 25) + 40 * ((rows + columns) > 150) + 30 * (columns > 100)
    picture = ndimage.gaussian_filter(picture, 1.0) + rng.normal(0, 2, picture.shape)
    return np.repeat(picture[..., None], channels, axis=2)


def scratch(shape):
    rows = np.arange(20, 140)
    found = np.zeros(shape, bool)
    found[rows, 40 + rows // 3], found[rows, 41 + rows // 3] = True, True
    return found


def dust(shape):
    found = np.zeros(shape, bool)
    for row, column in ((20, 20), (50, 130), (120, 40), (140, 140)):
        found[row - 1 : row + 2, column - 1 : column + 2] = True
    return found


def letters(shape):
    found = np.zeros(shape, bool)
    for left in range(20, 140, 16):
        found[60:78, left : left + 3] = True
        found[60:63, left : left + 10] = True
        found[68:71, left : left + 8] = True
    return found


def dead(shape):
    found = np.zeros(shape, bool)
    found[np.random.default_rng(3).permutation(shape[0])[:20], np.arange(20) * 8] = True
    return found


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("value", [0.0, 255.0])
@pytest.mark.parametrize("damage", [scratch, dust, letters, dead])
def test_damage_is_found_and_little_else(damage, value, channels):
    picture = scene(np.random.default_rng(0), channels)
    where = damage(picture.shape[:2])
    picture[where] = value
    found = masks.proposed(picture)
    assert found[where].mean() > 0.9
    assert (found & ~masks.grown(where, 1)).mean() < 0.001


def test_nothing_is_found_where_nothing_is():
    picture = scene(np.random.default_rng(0))
    assert masks.proposed(picture).mean() < 0.001
    assert not masks.proposed(np.full((40, 40, 1), 7.0)).any()
    assert not masks.proposed(np.full((2, 3, 1), 7.0)).any()


def test_what_is_missing_already_is_not_proposed():
    picture = scene(np.random.default_rng(0))
    where = scratch(picture.shape[:2])
    picture[where] = np.nan
    found = masks.proposed(picture, np.isnan(picture))
    assert not found[where].any()
    assert found.mean() < 0.001
