"""Nonlocal Bayes, against slow twins."""

import itertools
from functools import cache

import numpy as np
import pytest

import evoem
from evoem import restore
from evoem.images import canonical_arrays, nonlocal_bayes, patches
from evoem.images.merging import Merged
from evoem.images.nonlocal_bayes import Images, Noise, PatchShape
from evoem.images.quality import psnr
from evoem.runtime.compile import kernel

NOISE_VARIANCE = 0.2


@pytest.fixture
def rng():
    return np.random.default_rng(3)


@cache
def compiled(part):
    """A part of kernels as a kernel of its own, which Python can call."""
    return kernel(getattr(part, "py_func", part))


def pictures(shape, rng, missing=0.3):
    given, restored, compared = rng.random((3, *shape), np.float32)
    everything = np.ones(shape, np.bool_)
    return Images(given, rng.random(shape) >= missing, restored, compared, everything)


# ------------------------------------------------------------------------------- the slow twin


def conditioned(y, seen, similar, noise_variance, residual):
    """Mean and variance of a patch whose Gaussian has the moments of patches similar to it."""
    centre = similar.mean(0)
    covariance = (similar - centre).T @ (similar - centre) / len(similar) + residual * np.eye(
        len(y)
    )
    gain = covariance[:, seen] @ np.linalg.inv(
        covariance[np.ix_(seen, seen)] + noise_variance * np.eye(seen.sum())
    )
    left = covariance - gain @ covariance[seen]
    return centre + gain @ (y - centre)[seen], np.diag(left)


def estimated(images, grid, merge, noise_variance):
    """Around each patch of the grid, all that are similar to it, conditioned one by one."""
    everywhere = grid._replace(
        tops=np.arange(grid.shape[0] - grid.patch[0] + 1),
        lefts=np.arange(grid.shape[1] - grid.patch[1] + 1),
    )
    variances = images.variances if images.variances.size else np.ones(grid.shape)
    images = images._replace(variances=variances)
    y, observed, x, by, known, variances = (patches.cut(image, everywhere) for image in images)
    corners = np.stack(everywhere.corners(None), axis=1)
    usable = known.all(1)
    stable = images.restored if (images.variances == 1).all() else images.guide
    residual = nonlocal_bayes.RESIDUAL * stable[images.known].std() * noise_variance**0.5
    window = patches.window(grid.patch, "mean" if merge == "variance" else merge, grid.shape[2])
    n_similar = 24 if images.observed.all() else 32
    canvas = patches.Canvas(everywhere)
    for corner in zip(*grid.corners(None), strict=True):
        ((n,),) = np.nonzero((corners == corner).all(1))
        if not usable[n]:
            continue
        near = np.flatnonzero(
            (abs(corners - corner) <= nonlocal_bayes.SEARCH_RADIUS).all(1) & usable
        )
        order = np.argsort(np.square(by[near] - by[n]).sum(1), kind="stable")
        similar = near[order[:n_similar]]
        unit = np.sqrt(variances[similar].mean(0))
        for k in similar:
            mean, variance = conditioned(
                y[k] / unit, observed[k], x[similar] / unit, noise_variance, residual
            )
            mean, variance = unit * mean, (variance + 0.02 * noise_variance) * unit**2
            weights = window / variance if merge == "variance" else window
            trust = 1.0 if observed[k].any() else 1e-6
            canvas.add(np.array([k]), mean[None], trust * weights)
    return canvas.mean()


# ------------------------------------------------------------------------------ finding patches


@pytest.mark.parametrize("reach", [0, 1, 4])
def test_offsets_lead_to_every_patch_around_the_nearest_first(reach):
    offsets = nonlocal_bayes.offsets_within(reach)
    steps = range(-reach, reach + 1)
    assert sorted(map(tuple, offsets)) == [(a, b) for a in steps for b in steps]
    assert (np.diff((offsets**2).sum(1)) >= 0).all()


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("reach", [2, 50])  # within the image, and beyond it
@pytest.mark.parametrize("lefts", [range(8), [0, 3, 6, 7]])
def test_the_patches_that_are_found_are_the_most_similar(channels, reach, lefts, rng):
    height, width, n_similar = 3, 4, 6
    image = rng.random((14, 11, channels), np.float32)
    usable = rng.random((12, 8)) < 0.8
    flat = image.reshape(14, -1)
    grid = patches.Grid(image.shape, (height, width), np.arange(12), np.arange(8))
    cut = patches.cut(image, grid).reshape(12, 8, -1)
    offsets = nonlocal_bayes.offsets_within(reach)
    shape = PatchShape(height, width, channels, 8)
    for top in range(12):
        found, counts = np.full((len(lefts), n_similar), -1), np.empty(len(lefts), np.int64)
        compiled(nonlocal_bayes.find_similar)(
            flat, usable, top, shape, offsets, np.array(lefts), found, counts
        )
        for n, left in enumerate(lefts):
            around = [
                (np.square(cut[i, j] - cut[top, left]).sum(), i * 8 + j)
                for i, j in np.argwhere(usable)
                if max(abs(i - top), abs(j - left)) <= reach
            ]
            expected = [number for _, number in sorted(around)[:n_similar]]
            assert counts[n] == len(expected)
            assert list(found[n, : len(expected)]) == expected


@pytest.mark.parametrize(
    ("shape", "widths"),
    [((90, 70, 1), [12, 6, 8]), ((90, 70, 3), [7, 3, 5]), ((5, 70, 1), [12, 6, 8])],
)
def test_patches_of_colour_are_smaller_and_all_overlap_by_half(shape, widths):
    last = nonlocal_bayes.pass_grids(shape, 1)[0]
    for grid, width in zip(nonlocal_bayes.pass_grids(shape, 3), widths, strict=True):
        assert grid.patch == (min(width, shape[0]), width)
        assert np.diff(grid.lefts).max() == width // 2
        assert grid.tops[-1] + grid.patch[0] == shape[0]
    assert last.patch == grid.patch
    assert nonlocal_bayes.pass_grids(shape, 0) == []


# ----------------------------------------------------------------------- estimating them together


@pytest.mark.interpreted
@pytest.mark.parametrize("n_similar", [1, 2, 7, 30])
@pytest.mark.parametrize("missing", [0.0, 0.4, 1.0])
def test_a_patch_is_conditioned_on_what_was_observed_of_it(n_similar, missing, rng):
    D, noise = 9, Noise(0.3, 0.05)
    similar = rng.standard_normal((n_similar, D)) @ rng.standard_normal((D, D))
    y, seen = rng.standard_normal(D), rng.random(D) >= missing
    Z, U = similar.copy(), np.empty((n_similar, D))
    centre, mean, variance = np.empty((3, D))
    compiled(nonlocal_bayes.centre_patches)(Z, centre)
    compiled(nonlocal_bayes.cholesky_whiten)(Z, seen * 1.0, noise, U, variance)
    compiled(nonlocal_bayes.posterior_mean)(y - centre, seen * 1.0, U, noise, mean)
    expected, left = conditioned(y, seen, similar, noise.variance, noise.residual)
    np.testing.assert_allclose(centre + mean, expected, rtol=0, atol=1e-9)
    np.testing.assert_allclose(variance, left, rtol=0, atol=1e-9)
    compiled(nonlocal_bayes.posterior_mean_of_incomplete)(
        y - centre, seen * 1.0, Z, Z.T @ Z, noise, mean
    )
    np.testing.assert_allclose(centre + mean, expected, rtol=0, atol=1e-9)


def test_the_covariance_of_similar_patches(rng):
    Z = rng.standard_normal((5, 8))
    covariance = np.empty((8, 8))
    compiled(nonlocal_bayes.covariance_of)(Z, covariance)
    np.testing.assert_allclose(covariance, Z.T @ Z, rtol=0, atol=1e-12)


@pytest.mark.parametrize("merge", ["mean", "centre", "variance"])
@pytest.mark.parametrize("missing", [0.0, 0.1, 0.97])
@pytest.mark.parametrize("variances_differ", [False, True])
@pytest.mark.parametrize(
    ("shape", "width", "stride"), [((20, 17, 1), 6, 3), ((13, 24, 2), 3, 1), ((5, 6, 1), 8, 4)]
)
def test_patches_are_estimated_together_with_those_similar_to_them(
    shape, width, stride, variances_differ, missing, merge, rng, monkeypatch
):
    """Images may be smaller than patches; of some all was observed, of others some or nothing."""
    monkeypatch.setattr(nonlocal_bayes, "SEARCH_RADIUS", 7)
    images = pictures(shape, rng, missing)
    if variances_differ:
        images = images._replace(variances=rng.uniform(0.2, 5.0, shape).astype(np.float32))
    grid = patches.regular_grid(shape, width, stride)
    image = nonlocal_bayes.one_pass(images, grid, merge, NOISE_VARIANCE, 1)
    expected = estimated(images, grid, merge, NOISE_VARIANCE)
    np.testing.assert_allclose(image, expected, rtol=0, atol=1e-5)


def test_nothing_is_said_of_patches_that_are_not_known_nor_by_them(rng, monkeypatch):
    monkeypatch.setattr(nonlocal_bayes, "SEARCH_RADIUS", 5)
    images = pictures((24, 26, 1), rng)
    known = np.ones(images.known.shape, np.bool_)
    known[9:14, 12] = False
    grid = patches.regular_grid(known.shape, 8, 4)
    blank = images.restored.copy()
    blank[10, 12] = 1e6
    images = images._replace(known=known, restored=blank)
    image = nonlocal_bayes.one_pass(images, grid, "mean", NOISE_VARIANCE, 1)
    inside = np.isfinite(image)
    assert inside[known].mean() > 0.9
    assert not inside[~known].any()
    assert np.abs(image[inside]).max() < 10
    expected = estimated(images, grid, "mean", NOISE_VARIANCE)
    np.testing.assert_allclose(image, expected, rtol=0, atol=1e-5)


def test_threads_change_nothing(rng):
    images = pictures((60, 23, 1), rng)
    grid = patches.regular_grid(images.given.shape, 6, 3)
    one, three = (
        nonlocal_bayes.one_pass(images, grid, "variance", NOISE_VARIANCE, n) for n in (1, 3)
    )
    np.testing.assert_array_equal(one, three)


def canonical(values, observed=None):
    return canonical_arrays.Canonical(
        values, observed, observed, 0.0, 1.0, values[..., 0], None, None
    )


def test_a_few_rows_of_patches_are_measured_with_all_that_they_reach():
    image = np.broadcast_to(np.arange(200.0)[:, None, None], (200, 90, 1))

    def measured(image):
        for grid in nonlocal_bayes.pass_grids(image.shape, 3):
            images, some = nonlocal_bayes.sample(canonical(image), grid)
            first = images.given[0, 0, 0]
            assert set(some.tops + first) <= set(grid.tops)
            yield len(grid.tops), len(some.tops), first, images.given[-1, 0, 0]

    # Of 33, 66 and 49 rows: from the 17th, 33rd and 25th on.
    assert list(measured(image)) == [
        (33, 4, 96 - 24, 114 + 35),
        (66, 4, 96 - 24, 105 + 29),
        (49, 4, 96 - 24, 108 + 31),
    ]
    assert [found[1:] for found in measured(image[:10])] == [(1, 0, 9), (2, 0, 9), (2, 0, 9)]


def test_seconds_are_those_of_all_rows(monkeypatch):
    """On a clock that goes on by one second whenever somebody looks."""
    ticks = itertools.count()
    monkeypatch.setattr("time.perf_counter", lambda: float(next(ticks)))
    image = canonical(np.random.default_rng(0).random((200, 30, 1)))
    assert nonlocal_bayes.seconds(image, 3, 2) == pytest.approx([33 / 8, 66 / 8, 49 / 8])


# ------------------------------------------------------------------------------- several passes


@pytest.mark.parametrize("keep_observed", [False, True])
@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize("n_passes", [1, 3])
def test_each_pass_goes_on_from_the_last(missing, keep_observed, n_passes, rng, monkeypatch):
    """The first one is guided by what was given too."""
    monkeypatch.setattr(nonlocal_bayes, "SEARCH_RADIUS", 5)
    shape = (20, 20, 1)
    given, mean = rng.random((2, *shape), np.float32)
    observed = rng.random(shape) >= missing
    given[~observed] = 0.0
    merged = Merged(mean.astype(np.float64), rng.random(shape), np.ones(shape, bool))
    image = canonical(given, observed if missing else None)
    found = nonlocal_bayes.refine(
        image, merged, "mean", NOISE_VARIANCE,
        keep_observed=keep_observed, n_passes=n_passes, n_jobs=1,
    )  # fmt: skip
    mean, share = merged.mean, 0.2
    for size, stride in [(12, 6), (6, 3), (8, 4)][-n_passes:]:
        if keep_observed:
            mean = np.where(observed, given, mean)
        guide = np.where(observed, share * given + (1 - share) * mean, mean)
        images = Images(
            given, observed, mean.astype(np.float32), guide.astype(np.float32), merged.near
        )
        grid = patches.regular_grid(shape, size, stride)
        mean, share = estimated(images, grid, "mean", NOISE_VARIANCE), 0.0
    np.testing.assert_allclose(found.mean, mean, rtol=0, atol=1e-5)
    np.testing.assert_array_equal(found.std, merged.std)


def test_of_photons_passes_are_in_the_images_own_units(rng, monkeypatch):
    """Each value with the variance that the image so far says; similarity is of stable values."""
    monkeypatch.setattr(nonlocal_bayes, "SEARCH_RADIUS", 5)
    photons = rng.poisson(rng.uniform(0.5, 9.0, (20, 20))).astype(np.float64)
    given = canonical_arrays.read(3 + 2 * photons, None, None, True)
    image = canonical_arrays.with_white_noise(given, evoem.Noise(gain=2.0, offset=3.0))
    transform, values = image.transform, image.values.astype(np.float64)
    everywhere = np.ones(values.shape, bool)
    merged = Merged(0.5 * values + 1.0, np.ones(values.shape), everywhere)
    found = nonlocal_bayes.refine(
        image, merged, "mean", 1.1, keep_observed=False, n_passes=3, n_jobs=1
    )
    mean, share = image.pixels(merged.mean), 0.2
    for size, stride in [(4, 2), (12, 6), (6, 3)]:
        stable = transform.expected(mean)
        images = Images(
            given.values,
            everywhere,
            mean.astype(np.float32),
            (share * values + (1 - share) * stable).astype(np.float32),
            everywhere,
            np.maximum(2.0 * (mean - 3.0), 0.4),  # a tenth of a photon at least
        )
        grid = patches.regular_grid(values.shape, size, stride)
        mean, share = np.maximum(estimated(images, grid, "mean", 1.1), 3.0), 0.0
    np.testing.assert_allclose(image.pixels(found.mean), mean, rtol=0, atol=1e-3)


def test_what_lies_deep_in_a_hole_is_left_alone(rng, monkeypatch):
    """The merged image is the prior mean there, and similar to nothing."""
    monkeypatch.setattr(nonlocal_bayes, "SEARCH_RADIUS", 5)
    shape = (32, 32, 1)
    given, mean = rng.random((2, *shape), np.float32)
    near = np.ones(shape, bool)
    near[12:20, 12:20] = False
    results = []
    for prior in (0.0, 1e6):
        merged = Merged(np.where(near, mean, prior), np.zeros(shape), near)
        found = nonlocal_bayes.refine(
            canonical(np.where(near, given, np.float32(0)), near), merged, "mean", NOISE_VARIANCE,
            keep_observed=False, n_passes=3, n_jobs=1,
        )  # fmt: skip
        assert (found.mean[~near] == prior).all()
        results.append(found.mean[near])
    np.testing.assert_array_equal(*results)
    assert (results[0] != mean[near]).mean() > 0.8


# ------------------------------------------------------------------------------------- what for

SOME = {
    "patch_size": 5,
    "n_latents": 12,
    "n_states": 10,
    "n_parents": 4,
    "n_children": 2,
    "n_parts": 1,
    "start": "mean",
    "merge": "mean",
    "max_iter": 3,
    "n_jobs": 1,
}
SIGMA = 20.0


def picture(size):
    row, column = np.mgrid[:size, :size] / size
    return 100 + 60 * (row + column > 0.9) + 40 * np.sin(25 * row) * (column > 0.5)


def damaged(size, missing=0.0, seed=0):
    rng = np.random.default_rng(seed)
    image = picture(size) + SIGMA * rng.standard_normal((size, size))
    image[rng.random(image.shape) < missing] = np.nan
    return image


@pytest.mark.parametrize("model", ["subspaces", "es3c", "ebsc"])
@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize("seed", [0, 1])
def test_nonlocal_passes_restore_better(model, missing, seed):
    image, clean = damaged(48, missing, seed), picture(48)
    options = SOME | {"model": model}
    after, before = (restore(image, nonlocal_passes=n, **options) for n in (3, 0))
    np.testing.assert_array_equal(after.free_energies, before.free_energies)
    np.testing.assert_array_equal(after.std, before.std)
    assert psnr(clean, after.image) > psnr(clean, before.image) + 0.2
    assert (after.settings["nonlocal_passes"], before.settings["nonlocal_passes"]) == (3, 0)


def test_there_are_three_passes_unless_the_preset_is_the_paper_s():
    image = damaged(32)
    three, plain = (restore(image, nonlocal_passes=n, **SOME).image for n in (3, 0))
    np.testing.assert_array_equal(restore(image, **SOME).image, three)
    paper = SOME | {"model": "es3c", "preset": "paper"}
    found = restore(image, **paper)
    assert found.settings["nonlocal_passes"] == 0
    np.testing.assert_array_equal(found.image, restore(image, nonlocal_passes=0, **paper).image)
    assert (restore(image, nonlocal_passes=1, **SOME).image != three).any()
    assert (three != plain).any()


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_nonlocal_passes_do_not_depend_on_threads(missing):
    one, three = (
        restore(damaged(32, missing), **SOME | {"n_jobs": n_jobs}).image for n_jobs in (1, 3)
    )
    np.testing.assert_array_equal(one, three)


@pytest.mark.parametrize(("stride", "done"), [(1, True), (2, True), (3, False), (5, False)])
def test_passes_are_done_only_where_patches_overlap_by_half(stride, done):
    """Without the others a patch would but confirm itself."""
    options = SOME | {"stride": stride, "patch_size": 5}
    three, none = (restore(damaged(33), nonlocal_passes=n, **options).image for n in (3, 0))
    assert (three != none).any() == done
