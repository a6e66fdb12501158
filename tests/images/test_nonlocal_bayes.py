"""Patches that are like each other, against slow twins."""

import numpy as np
import pytest

from evoem.images import nonlocal_bayes as likeness
from evoem.images import patches
from evoem.images.nonlocal_bayes import Seen

NOISE_VARIANCE = 0.2


@pytest.fixture
def rng():
    return np.random.default_rng(3)


def pictures(shape, rng, missing=0.3):
    given, restored, compared = rng.random((3, *shape), np.float32)
    everything = np.ones(shape, np.bool_)
    return Seen(given, rng.random(shape) >= missing, restored, compared, everything)


# ------------------------------------------------------------------------------- the slow twin


def conditioned(y, seen, like, noise_variance, unlike):
    """Mean and variance of a patch whose Gaussian has the moments of patches that are like it."""
    centre = like.mean(0)
    covariance = (like - centre).T @ (like - centre) / len(like) + unlike * np.eye(len(y))
    gain = covariance[:, seen] @ np.linalg.inv(
        covariance[np.ix_(seen, seen)] + noise_variance * np.eye(seen.sum())
    )
    left = covariance - gain @ covariance[seen]
    return centre + gain @ (y - centre)[seen], np.diag(left)


def seen_together(seen, places, merge, noise_variance):
    """Around each place, all patches that are like the one there, conditioned one by one."""
    everywhere = places._replace(
        tops=np.arange(places.shape[0] - places.patch[0] + 1),
        lefts=np.arange(places.shape[1] - places.patch[1] + 1),
    )
    y, observed, x, by, known = (patches.cut(image, everywhere) for image in seen)
    corners = np.stack(everywhere.corners(None), axis=1)
    usable = known.all(1)
    unlike = likeness.UNLIKE * seen.restored[seen.known].std() * noise_variance**0.5
    window = patches.window(places.patch, "mean" if merge == "variance" else merge, places.shape[2])
    n_like = 24 if seen.observed.all() else 32
    canvas = patches.Canvas(everywhere)
    for corner in zip(*places.corners(None), strict=True):
        ((n,),) = np.nonzero((corners == corner).all(1))
        if not usable[n]:
            continue
        near = np.flatnonzero((abs(corners - corner) <= likeness.REACH).all(1) & usable)
        order = np.argsort(np.square(by[near] - by[n]).sum(1), kind="stable")
        like = near[order[:n_like]]
        for k in like:
            mean, variance = conditioned(
                y[k], observed[k], x[like].astype(np.float64), noise_variance, unlike
            )
            weights = window / (variance + 0.02 * noise_variance) if merge == "variance" else window
            trust = 1.0 if observed[k].any() else 1e-6
            canvas.add(np.array([k]), mean[None], trust * weights)
    return canvas.mean()


# ------------------------------------------------------------------------------ finding patches


@pytest.mark.parametrize("reach", [0, 1, 4])
def test_ways_lead_to_every_place_around_the_nearest_first(reach):
    ways = likeness.offsets(reach)
    steps = range(-reach, reach + 1)
    assert sorted(map(tuple, ways)) == [(a, b) for a in steps for b in steps]
    assert (np.diff((ways**2).sum(1)) >= 0).all()


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("reach", [2, 50])  # within the image, and beyond it
@pytest.mark.parametrize("lefts", [range(8), [0, 3, 6, 7]])
def test_the_patches_that_are_found_are_those_most_alike(channels, reach, lefts, rng):
    height, width, n_like = 3, 4, 6
    image = rng.random((14, 11, channels), np.float32)
    usable = rng.random((12, 8)) < 0.8
    flat = image.reshape(14, -1)
    places = patches.Grid(image.shape, (height, width), np.arange(12), np.arange(8))
    cut = patches.cut(image, places).reshape(12, 8, -1)
    ways = likeness.offsets(reach)
    for top in range(12):
        found, counts = np.full((len(lefts), n_like), -1), np.empty(len(lefts), np.int64)
        likeness.find_like(
            flat, usable, top, height, width, channels, ways, np.array(lefts), found, counts
        )
        for n, left in enumerate(lefts):
            around = [
                (np.square(cut[i, j] - cut[top, left]).sum(), i * 8 + j)
                for i, j in np.argwhere(usable)
                if max(abs(i - top), abs(j - left)) <= reach
            ]
            expected = [number for _, number in sorted(around)[:n_like]]
            assert counts[n] == len(expected)
            assert list(found[n, : len(expected)]) == expected


@pytest.mark.parametrize(
    ("shape", "widths"),
    [((90, 70, 1), [12, 6, 8]), ((90, 70, 3), [7, 3, 5]), ((5, 70, 1), [12, 6, 8])],
)
def test_patches_of_colour_are_smaller_and_all_overlap_by_half(shape, widths):
    last = likeness.looks(shape, 1)[0]
    for places, width in zip(likeness.looks(shape, 3), widths, strict=True):
        assert places.patch == (min(width, shape[0]), width)
        assert np.diff(places.lefts).max() == width // 2
        assert places.tops[-1] + places.patch[0] == shape[0]
    assert last.patch == places.patch
    assert likeness.looks(shape, 0) == []


# ---------------------------------------------------------------------------- seeing them together


@pytest.mark.parametrize("n_like", [1, 2, 7, 30])
@pytest.mark.parametrize("missing", [0.0, 0.4, 1.0])
def test_a_patch_is_conditioned_on_what_was_observed_of_it(n_like, missing, rng):
    D, unlike = 9, 0.05
    like = rng.standard_normal((n_like, D)) @ rng.standard_normal((D, D))
    y, seen = rng.standard_normal(D), rng.random(D) >= missing
    Z, U = like.copy(), np.empty((n_like, D))
    centre, mean, variance = np.empty((3, D))
    likeness.centre(Z, centre)
    likeness.factorise(Z, seen * 1.0, 0.3, unlike, U, variance)
    likeness.condition(y, seen * 1.0, centre, U, 0.3, unlike, mean)
    expected, left = conditioned(y, seen, like, 0.3, unlike)
    np.testing.assert_allclose(mean, expected, rtol=0, atol=1e-9)
    np.testing.assert_allclose(variance, left, rtol=0, atol=1e-9)
    likeness.condition_on_part(y, seen * 1.0, centre, Z, Z.T @ Z, 0.3, unlike, mean)
    np.testing.assert_allclose(mean, expected, rtol=0, atol=1e-9)


def test_the_covariance_of_like_patches(rng):
    Z = rng.standard_normal((5, 8))
    covariance = np.empty((8, 8))
    likeness.covariance_of(Z, covariance)
    np.testing.assert_allclose(covariance, Z.T @ Z, rtol=0, atol=1e-12)


@pytest.mark.parametrize("merge", ["mean", "centre", "variance"])
@pytest.mark.parametrize("missing", [0.0, 0.1, 0.97])
@pytest.mark.parametrize(
    ("shape", "width", "stride"), [((20, 17, 1), 6, 3), ((13, 24, 2), 3, 1), ((5, 6, 1), 8, 4)]
)
def test_patches_are_seen_together_with_those_like_them(
    shape, width, stride, missing, merge, rng, monkeypatch
):
    """Images may be smaller than patches; of some all was observed, of others some or nothing."""
    monkeypatch.setattr(likeness, "REACH", 7)
    seen = pictures(shape, rng, missing)
    places = patches.grid(shape, width, stride)
    image = likeness.look(seen, places, merge, NOISE_VARIANCE, 1)
    expected = seen_together(seen, places, merge, NOISE_VARIANCE)
    np.testing.assert_allclose(image, expected, rtol=0, atol=1e-5)


def test_nothing_is_said_of_patches_that_are_not_known_nor_by_them(rng, monkeypatch):
    monkeypatch.setattr(likeness, "REACH", 5)
    seen = pictures((24, 26, 1), rng)
    known = np.ones(seen.known.shape, np.bool_)
    known[9:14, 12] = False
    places = patches.grid(known.shape, 8, 4)
    blank = seen.restored.copy()
    blank[10, 12] = 1e6
    seen = seen._replace(known=known, restored=blank)
    image = likeness.look(seen, places, "mean", NOISE_VARIANCE, 1)
    inside = np.isfinite(image)
    assert inside[known].mean() > 0.9
    assert not inside[~known].any()
    assert np.abs(image[inside]).max() < 10
    expected = seen_together(seen, places, "mean", NOISE_VARIANCE)
    np.testing.assert_allclose(image, expected, rtol=0, atol=1e-5)


def test_threads_change_nothing(rng):
    seen = pictures((60, 23, 1), rng)
    places = patches.grid(seen.given.shape, 6, 3)
    one, three = (likeness.look(seen, places, "variance", NOISE_VARIANCE, n) for n in (1, 3))
    np.testing.assert_array_equal(one, three)


def test_seconds_are_those_of_all_rows(monkeypatch):
    """By a few rows of places for each look, with as much of the image around them as they see."""
    now, looked = [0.0], []

    def look(seen, places, merge, noise_variance, n_jobs):
        looked.append((len(places.tops), *seen.given[[0, -1], 0, 0]))
        now[0] += 0.5 * len(places.tops)
        return seen.given

    monkeypatch.setattr(likeness.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(likeness, "look", look)
    image = np.broadcast_to(np.arange(200.0)[:, None, None], (200, 90, 1))
    n_tops = [len(places.tops) for places in likeness.looks(image.shape, 3)]
    assert likeness.seconds(image, image > 0, 2) == pytest.approx([n / 4 for n in n_tops])
    # Of 33, 66 and 49 rows: from the 17th, 33rd and 25th on.
    assert n_tops == [33, 66, 49]
    assert looked == [(4, 96 - 24, 114 + 35), (4, 96 - 24, 105 + 29), (4, 96 - 24, 108 + 31)]
    looked.clear()
    likeness.seconds(image[:10], image[:10] > 0, 2)
    assert looked == [(1, 0.0, 9.0), (2, 0.0, 9.0), (2, 0.0, 9.0)]
