"""Values that are no measurements, by the rule that noise, lines and texture have to obey."""

import numpy as np
import pytest
from scipy import ndimage

from evoem.images.noise_outliers import BEYOND, believable, filled, find_outliers

EVERYWHERE = np.ones((60, 60), bool)


def noise(seed=0):
    return np.random.default_rng(seed).standard_normal((60, 60))


def found_in(picture, observed=EVERYWHERE, gain=0.0):
    return find_outliers(picture, observed, np.ones_like, gain)


def test_details_that_stand_out_where_there_is_texture_alone_are_not_believed():
    distance = np.r_[np.full(10, 3.0), np.full(50, 2.0), np.full(5, 0.5)]
    texture = np.r_[np.zeros(10), np.full(50, 4.0), np.full(5, 2.0)]
    assert believable(distance, texture, textured=0.9) == 0
    assert believable(distance, texture, textured=0.5) == 0.3  # 2 < 1 + 0.3 · 4
    assert believable(np.full(20, 3.0), np.full(20, 1.0), textured=0.5) == 0.85


def test_lines_are_no_outliers_and_single_values_are():
    picture = np.random.default_rng(0).standard_normal((60, 60))
    picture[30, 10:50] += 20
    picture[10, 10] += 20
    picture[50, 20] -= 20
    found = find_outliers(picture, np.ones((60, 60), bool), np.ones_like, 0.0)
    assert set(zip(*np.nonzero(found), strict=True)) >= {(10, 10), (50, 20)}
    assert found[30, 15:45].sum() == 0
    assert found.sum() <= 8


def beyond_all_but_one(picture):
    """How far each value inside lies beyond the second largest or smallest of its neighbours."""
    windows = np.lib.stride_tricks.sliding_window_view(picture, (3, 3)).reshape(58, 58, 9)
    around = np.sort(np.delete(windows, 4, axis=2), axis=2)
    value = picture[1:-1, 1:-1]
    return np.maximum(value - around[..., -2], around[..., 1] - value)


@pytest.mark.parametrize("size", [3.0, 5.0, 7.0, 9.0])
def test_single_values_stand_out_as_far_as_the_rule_says(size):
    """Those added are far apart, so that none is beside another."""
    picture = noise(1)
    picture[5:55:10, 5:55:10] += size * np.where(np.arange(5) % 2, 1, -1)
    expected = beyond_all_but_one(picture) > BEYOND
    found = found_in(picture)[1:-1, 1:-1]
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("offset", [0, 1000])
def test_where_nothing_is_observed_nothing_is_found_and_nothing_depends_on_it(offset):
    picture = noise(2)
    picture[::7, ::7] += 30
    observed = np.random.default_rng(3).random((60, 60)) > 0.2
    found = found_in(np.where(observed, picture, offset), observed)
    assert not found[~observed].any()
    np.testing.assert_array_equal(found, found_in(picture, observed))
    middle = np.zeros((60, 60), bool)
    middle[7:50:7, 7:50:7] = True
    n_neighbours = ndimage.convolve(observed.astype(int), np.ones((3, 3), int)) - observed
    assert found[middle & observed & (n_neighbours >= 5)].all()


def test_values_at_one_extreme_are_impulses_where_noise_does_not_reach_it():
    picture = 50 + noise(4)
    picture[:, :20] = 253 + noise(5)[:, :20]
    picture = np.minimum(picture, 255)
    salt = np.random.default_rng(6).random((60, 60)) < 0.05
    picture[salt] = 255
    found = found_in(picture)
    assert found[:, 23:][salt[:, 23:]].all()
    by_noise = (picture == 255) & ~salt
    assert by_noise.sum() > 5
    assert not found[by_noise].any()


def test_medians_of_what_is_around_take_the_place_of_outliers():
    picture = noise(7)
    observed = np.random.default_rng(8).random((60, 60)) > 0.3
    outliers = np.random.default_rng(9).random((60, 60)) < 0.2
    values, known = filled(picture, observed, outliers)
    usable = observed & ~outliers
    for row, column in np.ndindex(60, 60):
        around = [
            picture[i, j]
            for i in range(max(row - 1, 0), min(row + 2, 60))
            for j in range(max(column - 1, 0), min(column + 2, 60))
            if (i, j) != (row, column) and usable[i, j]
        ]
        replaced = outliers[row, column] and observed[row, column] and len(around) >= 5
        expected = sorted(around)[len(around) // 2] if replaced else picture[row, column]
        assert values[row, column] == expected
        assert known[row, column] == (usable[row, column] or replaced)


@pytest.mark.parametrize(("both", "beyond"), [(False, 1.5), (True, 2.0)])
def test_beside_impulses_others_have_to_stand_out_further_the_most_beside_both_ends(both, beyond):
    picture = np.clip(noise(3), -3, 3)
    high = np.zeros(picture.shape, bool)
    high[3:57:6, 3:57:6] = True  # 81 impulses, of which none is beside another
    picture[high] = 40.0
    if both:
        picture[high & (np.arange(60) % 12 == 3)] = -40.0
    weak = np.zeros(picture.shape, bool)
    weak[6:54:12, 6:54:12] = True
    picture[weak] += np.linspace(6, 14, weak.sum())
    stands_out = np.zeros(picture.shape)
    stands_out[1:-1, 1:-1] = beyond_all_but_one(np.where(high, 0.0, picture)) / BEYOND
    found = found_in(picture)
    assert found[high].all()
    np.testing.assert_array_equal(found[weak], stands_out[weak] > beyond)
