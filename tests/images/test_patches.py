"""Cutting and merging against loops over single pixels."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from evoem.images.patches import Canvas, cut, regular_grid, window

repeatable = settings(deadline=None, derandomize=True, max_examples=80)


def merge(patches, grid, weights=None):
    """All patches on one canvas; alike without weights."""
    canvas = Canvas(grid)
    canvas.add(None, patches, np.ones(grid.n_pixels) if weights is None else weights)
    return canvas.mean()


@st.composite
def layouts(draw):
    """Image shape, patch size and stride: also images smaller than a patch, and elongated ones."""
    shape = (draw(st.integers(1, 19)), draw(st.integers(1, 19)), draw(st.integers(1, 3)))
    patch_size = draw(st.integers(1, 8))
    return shape, patch_size, draw(st.integers(1, patch_size))


def random_image(shape, seed=0):
    return np.random.default_rng(seed).normal(100, 50, shape)


# ------------------------------------------------------------------------------------ slow twins


def slow_starts(length, size, stride):
    size = min(size, length)
    begins = [b for b in range(length) if b % stride == 0 and b + size <= length]
    return begins if begins[-1] + size == length else [*begins, length - size]


def slow_indices(shape, patch_size, stride):
    """For each patch the (row, column, channel) of each of its numbers."""
    height, width = min(patch_size, shape[0]), min(patch_size, shape[1])
    return [
        [
            (top + i, left + j, channel)
            for i in range(height)
            for j in range(width)
            for channel in range(shape[2])
        ]
        for top in slow_starts(shape[0], patch_size, stride)
        for left in slow_starts(shape[1], patch_size, stride)
    ]


def slow_cut(image, layout):
    return np.array([[image[index] for index in patch] for patch in slow_indices(*layout)])


def slow_mean(layout, numbers, patches, weights):
    grid = slow_indices(*layout)
    total, weight = np.zeros(layout[0]), np.zeros(layout[0])
    for n, patch, patch_weights in zip(numbers, patches, weights, strict=True):
        for index, value, w in zip(grid[n], patch, patch_weights, strict=True):
            total[index] += w * value
            weight[index] += w
    mean = np.full(layout[0], np.nan)
    mean[weight > 0] = total[weight > 0] / weight[weight > 0]
    return mean


# --------------------------------------------------------------------------------------- cutting


@repeatable
@given(layouts())
@example(((2, 19, 3), 5, 3))  # lower than a patch
@example(((1, 1, 1), 8, 8))
def test_patches_are_cut_as_in_a_loop_over_pixels(layout):
    image = random_image(layout[0])
    grid = regular_grid(*layout)
    expected = slow_cut(image, layout)
    assert (grid.n_patches, grid.n_pixels) == expected.shape
    np.testing.assert_array_equal(cut(image, grid), expected)


@repeatable
@given(layouts(), st.data())
def test_chosen_patches_are_those_of_all(layout, data):
    image = random_image(layout[0])
    grid = regular_grid(*layout)
    everything = cut(image, grid)
    numbers = np.array(data.draw(st.lists(st.integers(0, grid.n_patches - 1))), np.int32)
    np.testing.assert_array_equal(cut(image, grid, numbers), everything[numbers])
    part = data.draw(st.slices(grid.n_patches))
    np.testing.assert_array_equal(cut(image, grid, part), everything[part])


@pytest.mark.parametrize("dtype", [np.bool_, np.uint8, np.float32])
def test_patches_have_the_type_of_the_image_whatever_its_layout(dtype):
    image = random_image((9, 7, 3)).astype(dtype)
    grid = regular_grid(image.shape, 4, 2)
    patches = cut(np.asfortranarray(image), grid)
    assert patches.dtype == dtype
    np.testing.assert_array_equal(patches, slow_cut(image, (image.shape, 4, 2)))


@pytest.mark.parametrize("order", ["C", "F"])
def test_cutting_some_patches_takes_the_memory_of_those(order):
    image = np.asarray(random_image((150, 150, 3)), order=order)
    grid = regular_grid(image.shape, 10)
    numbers = np.random.default_rng(0).permutation(grid.n_patches)[:5000]
    tracemalloc.start()
    patches = cut(image, grid, numbers)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.1 * patches.nbytes


def test_without_a_stride_there_is_a_patch_at_every_place():
    assert regular_grid((20, 30, 1), 7).n_patches == 14 * 24


def test_a_stride_is_kept_and_the_last_place_added():
    grid = regular_grid((12, 11, 1), 4, 3)
    assert grid.tops.tolist() == [0, 3, 6, 8]
    assert grid.lefts.tolist() == [0, 3, 6, 7]


# --------------------------------------------------------------------------------------- merging


@repeatable
@given(layouts(), st.sampled_from([0.2, 0.5, 0.9]))
def test_patches_beyond_the_edges_are_those_of_an_image_in_a_frame(layout, beyond):
    """The frame is as wide as whole strides that fit into a share of a patch; zeros lie there."""
    shape, patch_size, stride = layout
    image = random_image(shape)
    grid = regular_grid(*layout, beyond)
    size = min(patch_size, *shape[:2])
    margin = max(m for m in range(size + 1) if m <= beyond * size and m % stride == 0)
    framed = np.zeros((shape[0] + 2 * margin, shape[1] + 2 * margin, shape[2]))
    framed[margin : margin + shape[0], margin : margin + shape[1]] = image
    height, width = grid.patch
    tops, lefts = (
        slow_starts(length, side, stride)
        for length, side in zip(framed.shape, (height, width), strict=False)
    )
    expected = [
        framed[top : top + height, left : left + width].ravel() for top in tops for left in lefts
    ]
    np.testing.assert_array_equal(cut(image, grid), expected)
    np.testing.assert_allclose(merge(cut(image, grid), grid), image, rtol=1e-12)


@pytest.mark.parametrize("length", [8, 9])
def test_beyond_the_edges_every_pixel_is_in_as_many_patches(length):
    """But for those at an edge, which are in one less of four along that direction."""
    canvas = Canvas(regular_grid((length, length, 1), 4, beyond=0.5))
    canvas.add(None, np.ones((canvas.grid.n_patches, 16)), np.ones(16))
    along = np.array([3] + [4] * (length - 2) + [3])
    np.testing.assert_array_equal(canvas.weight[..., 0], np.outer(along, along))


@repeatable
@given(layouts(), st.booleans(), st.integers(0, 1000))
@example(((3, 19, 2), 8, 8), True, 0)
@example(((19, 1, 1), 2, 2), False, 0)
def test_merging_undoes_cutting_for_any_weights(layout, one_for_all, seed):
    image = random_image(layout[0], seed)
    grid = regular_grid(*layout)
    patches = cut(image, grid)
    shape = patches.shape[1:] if one_for_all else patches.shape
    weights = np.random.default_rng(seed).uniform(1e-3, 1e3, shape)
    np.testing.assert_allclose(merge(patches, grid, weights), image, rtol=1e-12)


@repeatable
@given(layouts(), st.booleans(), st.integers(0, 1000))
def test_patches_that_disagree_are_averaged_as_in_a_loop(layout, one_for_all, seed):
    rng = np.random.default_rng(seed)
    grid = regular_grid(*layout)
    patches = rng.normal(size=(grid.n_patches, grid.n_pixels))
    weights = rng.uniform(0.1, 3, patches.shape[1:] if one_for_all else patches.shape)
    expected = slow_mean(
        layout, range(len(patches)), patches, np.broadcast_to(weights, patches.shape)
    )
    np.testing.assert_allclose(merge(patches, grid, weights), expected, rtol=1e-12, atol=1e-12)


@repeatable
@given(layouts(), st.data())
def test_groups_of_any_size_and_order_merge_alike(layout, data):
    seed = data.draw(st.integers(0, 1000))
    rng = np.random.default_rng(seed)
    grid = regular_grid(*layout)
    patches = rng.normal(size=(grid.n_patches, grid.n_pixels))
    weights = rng.uniform(0.1, 3, patches.shape)
    order = rng.permutation(grid.n_patches)
    bounds = data.draw(st.lists(st.integers(0, grid.n_patches), max_size=6))
    canvas = Canvas(grid)
    for numbers in np.split(order, sorted(bounds)):
        canvas.add(numbers, patches[numbers], weights[numbers])
    np.testing.assert_allclose(canvas.mean(), merge(patches, grid, weights), rtol=1e-12, atol=1e-12)


@repeatable
@given(layouts(), st.data())
def test_pixels_without_a_patch_are_nan_and_a_patch_may_come_twice(layout, data):
    grid = regular_grid(*layout)
    numbers = data.draw(st.lists(st.integers(0, grid.n_patches - 1), max_size=5))
    rng = np.random.default_rng(len(numbers))
    patches = rng.normal(size=(len(numbers), grid.n_pixels))
    weights = rng.uniform(0.1, 3, patches.shape)
    canvas = Canvas(grid)
    canvas.add(np.array(numbers, np.int64), patches, weights)
    expected = slow_mean(layout, numbers, patches, weights)
    np.testing.assert_allclose(canvas.mean(), expected, rtol=1e-12, atol=1e-12)


def test_a_slice_of_patches_is_added_to_its_places():
    layout = ((9, 8, 2), 4, 2)
    grid = regular_grid(*layout)
    patches = cut(random_image(layout[0]), grid, slice(None, None, -3))
    canvas = Canvas(grid)
    canvas.add(slice(None, None, -3), patches, np.ones(grid.n_pixels))
    numbers = range(grid.n_patches)[::-3]
    expected = slow_mean(layout, numbers, patches, np.ones(patches.shape))
    np.testing.assert_allclose(canvas.mean(), expected, rtol=1e-12)


def test_sums_of_single_precision_patches_are_in_double_precision():
    # 400 patches of 1e6 + 1/16 on a pixel: single precision resolves sums of 4e8 to 32.
    value = np.float32(1e6 + 1 / 16)
    grid = regular_grid((39, 39, 1), 20)
    patches = np.full((grid.n_patches, grid.n_pixels), value)
    weights = np.full(patches.shape, 1 / 3, np.float32)
    image = merge(patches, grid, weights)
    assert image.dtype == np.float64
    np.testing.assert_allclose(image, float(value), rtol=1e-14)


def test_patches_in_any_memory_layout_are_merged_alike():
    rng = np.random.default_rng(0)
    grid = regular_grid((9, 8, 3), 4)
    patches = rng.normal(size=(grid.n_patches, grid.n_pixels))
    weights = rng.uniform(0.1, 3, patches.shape)
    turned = merge(np.asfortranarray(patches), grid, np.asfortranarray(weights))
    np.testing.assert_array_equal(turned, merge(patches, grid, weights))


@repeatable
@given(layouts())
def test_spreading_ones_counts_the_patches_over_a_pixel_which_are_never_none(layout):
    grid = regular_grid(*layout)
    counts = np.zeros(layout[0])
    for patch in slow_indices(*layout):
        for index in patch:
            counts[index] += 1
    canvas = Canvas(grid)
    canvas.add(None, np.ones((grid.n_patches, grid.n_pixels)), np.ones(grid.n_pixels))
    np.testing.assert_array_equal(canvas.total, counts)
    assert counts.min() >= 1


# --------------------------------------------------------------------------------------- windows


@repeatable
@given(st.integers(1, 20), st.integers(1, 20), st.integers(1, 3))
def test_a_centre_window_is_a_gaussian_of_a_third_of_the_patch(height, width, channels):
    weights = window((height, width), "centre", channels).reshape(height, width, channels)
    for i in range(height):
        for j in range(width):
            down, right = (i + 0.5) / height - 0.5, (j + 0.5) / width - 0.5  # in patches
            expected = np.exp(-(down**2 + right**2) / (2 / 9))
            np.testing.assert_allclose(weights[i, j], expected, rtol=1e-12)


def test_a_mean_window_gives_the_plain_mean():
    grid = regular_grid((8, 9, 2), 4)
    patches = np.random.default_rng(0).normal(size=(grid.n_patches, grid.n_pixels))
    weights = window(grid.patch, "mean", 2)
    np.testing.assert_array_equal(weights, np.ones(grid.n_pixels))
    np.testing.assert_array_equal(merge(patches, grid, weights), merge(patches, grid))


# ---------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (((5, 5, 1), 0), "patch_size must be an integer at least 1; got 0."),
        (((5, 5, 1), 3, 0), "stride must be an integer between 1 and 3 (patch_size); got 0."),
        (((5, 5, 1), 3, 4), "stride must be an integer between 1 and 3 (patch_size); got 4."),
        (((5, 0, 1), 3), "shape's entries must be an integer at least 1; got 0."),
    ],
)
def test_grids_that_cannot_be_are_refused(arguments, message):
    with pytest.raises(ValueError) as error:  # noqa: PT011
        regular_grid(*arguments)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("numbers", "got"), [([0, 9], "9"), ([-1, 3], "-1"), ([0.5], "0.5"), ([True] * 9, "True")]
)
def test_numbers_of_no_patch_are_refused(numbers, got):
    image = random_image((5, 5, 1))
    grid = regular_grid(image.shape, 3)
    for use in (
        lambda: cut(image, grid, np.array(numbers)),
        lambda: Canvas(grid).add(np.array(numbers), np.ones((len(numbers), 9)), np.ones(9)),
    ):
        with pytest.raises(ValueError, match="numbers must be an integer between 0 and 8") as error:
            use()
        assert str(error.value).endswith(f"; got {got}.")


def test_arrays_of_another_shape_are_refused():
    grid = regular_grid((5, 5, 1), 3)
    with pytest.raises(ValueError, match=r"image must have the shape \(5, 5, 1\); got \(5, 5\)\."):
        cut(np.ones((5, 5)), grid)
    with pytest.raises(ValueError, match=r"patches must have the shape \(9, 9\); got \(8, 9\)\."):
        merge(np.ones((8, 9)), grid)
    with pytest.raises(ValueError, match=r"weights must have the shape \(9,\); got \(8,\)\."):
        merge(np.ones((9, 9)), grid, np.ones(8))
    with pytest.raises(ValueError, match=r"weights must have the shape \(9, 9\); got \(1, 9\)\."):
        merge(np.ones((9, 9)), grid, np.ones((1, 9)))


def test_an_unknown_window_is_refused():
    with pytest.raises(ValueError, match="kind must be one of 'mean', 'centre'; got 'center'"):
        window((3, 3), "center", 1)
