"""Where patches lie, and what one model takes from another."""

import numpy as np
import pytest
from sample_images import GREY, TINY

from evoem import restore
from evoem.images import patches
from evoem.images.canonical_arrays import read
from evoem.images.patch_model import PatchSource, points_for


def source_of(shape, patch_size, n_learnt=None):
    image = read(np.random.default_rng(0).normal(size=shape), None, None, False)
    grid = patches.regular_grid(image.values.shape, patch_size)
    return PatchSource(image, grid, points_for(grid, patch_size, n_learnt or grid.n_patches))


def test_patches_lie_between_the_points_of_an_image():
    source = source_of((60, 100), 5)
    rows, columns = source.points
    # Corners reach over 55 and 95 pixels; points are 16 apart, where 256 patches lie around each.
    assert (rows, columns) == (5, 7)
    positions = source.cut(np.arange(source.grid.n_patches)).data.positions
    np.testing.assert_allclose(positions[[0, -1]], [[0, 0], [rows - 1, columns - 1]])
    middle = source.grid.n_patches // 2  # the first patch of row 28 of 56
    np.testing.assert_allclose(positions[middle], [28 / 55 * (rows - 1), 0])


def test_fewer_patches_have_fewer_points():
    few, many = source_of((60, 100), 5, 600), source_of((60, 100), 5)
    assert few.points == (3, 3)  # 48 apart
    assert np.prod(few.points) < np.prod(many.points)


def test_an_image_as_large_as_a_patch_has_one_point():
    assert source_of((5, 30), 5).points[0] == 1


def test_patches_of_another_grid_lie_at_the_same_points():
    source = source_of((60, 100), 5)
    framed = patches.regular_grid((60, 100, 1), 5, beyond=0.5)
    inside = framed.margin * len(framed.lefts) + framed.margin  # the first that is not beyond
    np.testing.assert_allclose(source.positions(framed, np.array([inside])), [[0, 0]])


@pytest.mark.parametrize("n_parts", [1, 3, 7])
def test_mini_batches_are_as_many_as_asked_for(n_parts):
    result = restore(GREY, **TINY | {"n_parts": n_parts, "max_iter": 1})
    size = result.estimator.batch_size
    assert size is None if n_parts == 1 else -(-(22**2) // size) == n_parts
