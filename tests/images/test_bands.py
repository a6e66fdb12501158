"""Bands of a picture: rows that processes have, fetch from each other, and add up."""

import numpy as np
import pytest
from process_threads import together

from evoem.images import bands, nonlocal_bayes, patches
from evoem.images.merging import Estimate, merge_patches, own_estimates
from evoem.images.nonlocal_bayes import Images

SIZES = [1, 2, 3, 5]
PICTURE = np.random.default_rng(0).normal(50, 20, (37, 11, 2))


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("n_rows", [1, 4, 37])
def test_bands_are_all_rows_once_and_the_first_process_has_some(n, n_rows):
    comms = together(n, lambda comm: comm)
    band = bands.even(n_rows, comms[0])
    taken = [row for own in band.own for row in range(own.start, own.stop)]
    assert taken == list(range(n_rows))
    sizes = [own.stop - own.start for own in band.own]
    assert max(sizes) - min(sizes) <= 1
    assert sizes[0] > 0
    for row, owner in enumerate(band.owners(np.arange(n_rows))):
        assert band.own[owner].start <= row < band.own[owner].stop


@pytest.mark.parametrize("n", SIZES)
def test_rows_are_fetched_from_whoever_has_them(n):
    def program(comm):
        band = bands.even(len(PICTURE), comm)
        own = PICTURE[band.rows]
        wanted = [slice(rank, 30 + rank) for rank in range(n)]
        window = band.window(slice(5, 20))
        inside = own[band.inside(slice(5, 20))]
        return (
            band.fetch(own, wanted),
            band.everywhere(own),
            band.at_first(own),
            window.everywhere(inside),
        )

    for rank, (fetched, whole, first, window) in enumerate(together(n, program)):
        np.testing.assert_array_equal(fetched, PICTURE[rank : 30 + rank])
        np.testing.assert_array_equal(whole, PICTURE)
        np.testing.assert_array_equal(first, PICTURE if rank == 0 else PICTURE[:0])
        np.testing.assert_array_equal(window, PICTURE[5:20])


@pytest.mark.parametrize("few", [0, bands.FEW])
@pytest.mark.parametrize("n", SIZES)
def test_totals_are_those_of_one_process_to_the_bit(n, few, monkeypatch):
    monkeypatch.setattr(bands, "FEW", few)
    seen = np.random.default_rng(1).random(PICTURE.shape) < 0.7

    def program(comm):
        band = bands.even(len(PICTURE), comm)
        own = PICTURE[band.rows], seen[band.rows]
        return (
            (band.total(*own), band.count(own[1]), band.mean(own[0])),
            (band.mean(*own), band.deviation(*own)),
            band.mean_and_deviation(*own),
        )

    alone = program(together(1, lambda comm: comm)[0])
    assert together(n, program) == [alone] * n
    expected = PICTURE[seen].sum(), seen.sum(), PICTURE.mean()
    assert alone[0] == pytest.approx(expected)
    for found in alone[1:]:
        assert found == pytest.approx((PICTURE[seen].mean(), PICTURE[seen].std()))


def test_the_mean_of_few_values_is_that_of_numpy():
    values = PICTURE.astype(np.float32)
    (found,) = together(1, lambda comm: bands.even(len(values), comm).mean(values))
    assert found == values.mean(dtype=np.float64)
    for other in together(3, lambda comm: _mean_of_rows(values, comm)):
        assert other == found


def _mean_of_rows(values, comm):
    band = bands.even(len(values), comm)
    return band.mean(values[band.rows])


@pytest.mark.parametrize("margin", [0.0, 0.5])
@pytest.mark.parametrize("n", SIZES)
def test_patches_belong_to_one_process_and_lie_in_its_strip(n, margin):
    grid = patches.regular_grid(PICTURE.shape, 6, 2, margin)

    def program(comm):
        rows = bands.patch_rows(grid, bands.even(len(PICTURE), comm), 2)
        numbers = np.concatenate([*rows.numbers(), np.empty(0, int)])
        tops = grid.corners(numbers)[0]
        assert ((rows.strip.start <= tops) & (tops + 6 <= rows.strip.stop)).all()
        assert (rows.owners_of(numbers) == comm.rank).all()
        return numbers

    found = np.concatenate(together(n, program))
    np.testing.assert_array_equal(found, np.arange(grid.n_patches))


def merged_by(comm, shuffled, margin):
    """A picture of patches, of which each process knows some that lie anywhere."""
    grid = patches.regular_grid(PICTURE.shape, 6, 2, margin)
    rows = bands.patch_rows(grid, bands.even(len(PICTURE), comm), 2)
    rng = np.random.default_rng(3)
    mean, variance = rng.normal(size=(2, grid.n_patches, grid.n_pixels))
    observed = rng.random(mean.shape) < 0.1
    observed[: grid.n_patches // 2] = False
    if shuffled:
        numbers = rng.permutation(grid.n_patches)[comm.rank :: comm.size]
        own = iter(
            [Estimate(some, observed[some], mean[some], variance[some] ** 2)]
            for some in np.array_split(numbers, 1 + comm.rank)
        )
        estimates = own_estimates((one for part in own for one in part), rows)
    else:
        estimates = (
            Estimate(some, observed[some], mean[some], variance[some] ** 2)
            for some in rows.numbers()
        )
    merged = merge_patches(rows, "variance", 1.0, estimates)
    return [rows.band.everywhere(part) for part in merged[:3]]


@pytest.mark.parametrize("margin", [0.0, 0.5])
@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize("n", SIZES)
def test_patches_merge_to_the_same_bits_wherever_they_were_made(n, shuffled, margin):
    (alone,) = together(1, lambda comm: merged_by(comm, False, margin))
    for found in together(n, lambda comm: merged_by(comm, shuffled, margin)):
        for part, expected in zip(found, alone, strict=True):
            np.testing.assert_array_equal(part, expected)
    assert not alone[2].all()  # some places no patch saw anything near


@pytest.mark.parametrize("n", [2, 3])
def test_a_nonlocal_pass_has_the_same_bits_in_bands(n):
    rng = np.random.default_rng(2)
    clean = 50.0 * (np.add.outer(np.arange(90), np.arange(14)) % 9 > 4)[..., None]
    given = (clean + rng.normal(0, 5, clean.shape)).astype(np.float32)
    observed = rng.random(clean.shape) < 0.95
    known = np.ones(clean.shape, bool)
    known[40:43, 3:5] = False
    images = Images(given, observed, (0.5 * (given + clean)).astype(np.float32), given, known)
    grid = patches.regular_grid(clean.shape, 6, 3)

    def program(comm):
        band = bands.even(len(clean), comm)
        own = Images._make(image if not image.size else image[band.rows] for image in images)
        found = nonlocal_bayes.one_pass(own, grid, "variance", 25.0, 1, band)
        return band.everywhere(found)

    alone = nonlocal_bayes.one_pass(images, grid, "variance", 25.0, 1)
    errors = np.abs(alone - clean), np.abs(images.restored - clean)
    assert np.nanmean(errors[0]) < 0.8 * np.mean(errors[1])
    for found in together(n, program):
        np.testing.assert_array_equal(found, alone)
