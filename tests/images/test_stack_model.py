"""One model of all slices of a stack."""

import numpy as np
import pytest
from sample_images import COLOURS, STACK, TINY, holes_at

from evoem import denoise, inpaint, restore
from evoem.images import canonical_arrays, patches
from evoem.images.restore import restore_each
from evoem.images.stack_model import LEAST_ROWS, MOST_VALUES, bands, of_bands
from evoem.images.stack_model import band_grid as grid_of_bands
from evoem.images.stacks import stack_of


def read(stack, mask=None):
    return [canonical_arrays.read(one, mask, None, False) for one in stack]


class Plan:
    settings = {"patch_size": 5}  # noqa: RUF012
    stride = 2


def test_few_slices_are_taken_whole():
    assert bands(3, (24, 24, 1)) == [(0, 0, 24), (1, 0, 24), (2, 0, 24)]


@pytest.mark.parametrize(("n_slices", "shape"), [(40, (512, 512, 1)), (5000, (512, 512, 3))])
def test_bands_of_many_slices_lie_all_over_them(n_slices, shape):
    chosen = bands(n_slices, shape)
    rows, columns, channels = shape
    assert sum(band.rows for band in chosen) * columns * channels <= MOST_VALUES
    assert all(band.rows >= LEAST_ROWS and band.top + band.rows <= rows for band in chosen)
    assert {chosen[0].number, chosen[-1].number} == {0, n_slices - 1}
    tops = sorted(band.top for band in chosen)
    assert (tops[0], tops[-1]) == (0, rows - chosen[0].rows)
    assert np.corrcoef([b.number for b in chosen], [b.top for b in chosen])[0, 1] < 0.5


def test_patches_are_of_one_slice_and_know_where_they_lie_in_it():
    slices = read(np.random.default_rng(0).normal(size=(3, 24, 20)))
    chosen = [
        band._replace(top=place * 4, rows=12) for place, band in enumerate(bands(3, (24, 20, 1)))
    ]
    grid = grid_of_bands(chosen, (24, 20, 1), Plan())
    whole = of_bands(slices, chosen)
    cut = patches.cut(whole.values, grid)
    tops, lefts = grid.places(None)
    n_each = len(tops) // 3
    for number, (top, left, patch) in enumerate(zip(tops, lefts, cut, strict=True)):
        values = slices[number // n_each].values[top : top + 5, left : left + 5]
        np.testing.assert_array_equal(patch, values.ravel())
    assert grid.extents == (8 + 12 - 5, 20 - 5)
    assert grid.widest_step == 2


def test_slices_have_one_offset_and_one_scale():
    stack = 1e9 + np.random.default_rng(0).normal(size=(3, 24, 20)) * [[[1]], [[2]], [[3]]]
    holes = holes_at((24, 20), 0.3)
    slices = canonical_arrays.on_common_scale(read(stack, holes))
    assert len({(one.offset, one.scale) for one in slices}) == 1
    seen = stack[:, ~holes]
    assert slices[0].offset == pytest.approx(seen.mean() - 3 * seen.std(), rel=1e-12)
    for one, given in zip(slices, stack, strict=True):
        np.testing.assert_allclose(one.pixels(one.values)[~holes, 0], given[~holes], atol=1e-5)
        assert not one.values[holes].any()


def test_values_of_any_size_have_an_offset_and_a_scale():
    for size in (1e-90, 1e90):
        stack = size * np.random.default_rng(0).normal(size=(3, 24, 20))
        slices = canonical_arrays.on_common_scale(read(stack))
        assert slices[0].scale == pytest.approx(stack.std(), rel=1e-6)
        assert np.isfinite(slices[0].values).all()


def test_every_slice_has_its_own_content_and_the_noise_of_all():
    clean = (
        100 + 60 * (np.indices((4, 40, 36))[[2]][0] // 6 % 2) + 10.0 * np.arange(4)[:, None, None]
    )
    noisy = clean + np.random.default_rng(1).normal(0, 12, clean.shape)
    restored = denoise(noisy, **TINY)
    error = np.sqrt(np.square(restored - clean).mean((1, 2)))
    assert (error < 10.2).all()  # a tiny model takes off some of 12
    assert (np.abs((restored - clean).mean((1, 2))) < 2).all()


def test_a_constant_slice_stays_as_it_is():
    stack = np.stack([STACK[0], np.full_like(STACK[0], 7), STACK[1]])
    restored = denoise(stack, **TINY)
    assert (restored[1] == 7).all()
    assert (restored[0] != STACK[0]).any()
    constant = np.full((2, 24, 24), 3.0)
    np.testing.assert_array_equal(denoise(constant, **TINY), constant)


def test_one_slice_is_an_image():
    np.testing.assert_array_equal(denoise(STACK[:1], **TINY)[0], restore(STACK[0], **TINY).image)


def test_threads_change_nothing():
    options = {**TINY, "n_jobs": 2}
    np.testing.assert_array_equal(denoise(STACK, **options), denoise(STACK, **TINY))


def test_settings_are_selected_for_all_slices():
    stack = np.tile(STACK, (2, 2, 2))
    restored = denoise(stack, select="heldout", **TINY)
    assert restored.shape == stack.shape
    assert np.isfinite(restored).all()
    assert (restored != stack).any()


def test_variances_are_of_each_slice():
    variances = np.broadcast_to(np.array([1.0, 100.0, 400.0])[:, None, None], STACK.shape)
    restored = denoise(STACK.astype(float), noise_variance=variances, **TINY)
    changed = np.sqrt(np.square(restored - STACK).mean((1, 2)))
    assert changed[0] < changed[1] < changed[2]


def test_colours_are_restored_together():
    restored = denoise(COLOURS, channel_axis=-1, **TINY)
    assert restored.shape == COLOURS.shape
    assert restored.dtype == COLOURS.dtype


@pytest.mark.parametrize("start", ["mean", "coarse"])
@pytest.mark.parametrize("layout", ["grey", "colour", "alpha", "holes"])
def test_previews_are_slices_as_they_would_be_returned(layout, start):
    options, given, mask = TINY | {"start": start}, STACK, None
    if layout in ("colour", "alpha"):
        given, options = COLOURS, options | {"channel_axis": -1}
    if layout == "alpha":
        given = np.concatenate([given, np.full((*given.shape[:3], 1), 9.0)], axis=-1)
    if layout == "holes":
        mask = holes_at(STACK.shape, 0.2)
    given = given.clip(0, 255).astype(np.uint8)
    given[1] = 7  # a slice of one value
    seen = []

    def look(progress):
        seen.append((progress.stage, progress.iteration, progress.restored()))

    restored = inpaint(given, mask, keep_observed=layout == "holes", callback=look, **options)
    # A look changes nothing, and the last one shows what comes of it.
    own = inpaint(given, mask, keep_observed=layout == "holes", **options)
    np.testing.assert_array_equal(restored, own)
    assert {stage for stage, *_ in seen} >= {"learning"}
    for _, _, image in seen:
        assert image.shape == given.shape
        assert image.dtype == given.dtype
        assert (image[1] == 7).all()
    np.testing.assert_array_equal(seen[-1][2], restored)
    if layout == "holes":
        observed = ~mask & (np.arange(len(given)) != 1)[:, None, None]
        assert all((image == given)[observed].all() for *_, image in seen)


def test_while_settings_are_selected_slices_are_seen_as_they_are():
    seen = {}

    def look(progress):
        seen.setdefault(progress.stage, progress.restored())

    stack = np.tile(STACK, (1, 2, 2))
    restored = denoise(stack, select="heldout", callback=look, **TINY)
    np.testing.assert_array_equal(seen["selecting"], stack)
    assert seen["learning"].shape == restored.shape


def test_what_is_restored_one_by_one_is_restored_together():
    stack = stack_of(STACK, None, None, False)
    results = list(restore_each(stack, **TINY))
    np.testing.assert_array_equal([one.image for one in results], denoise(STACK, **TINY))
