"""Patches that are like each other, against slow twins."""

import numpy as np
import pytest

from evoem.images import likeness, patches


@pytest.fixture
def rng():
    return np.random.default_rng(3)


@pytest.mark.parametrize("reach", [0, 1, 4])
def test_ways_lead_to_every_place_around_the_nearest_first(reach):
    ways = likeness.offsets(reach)
    steps = range(-reach, reach + 1)
    assert sorted(map(tuple, ways)) == [(a, b) for a in steps for b in steps]
    assert (np.diff((ways**2).sum(1)) >= 0).all()


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("reach", [2, 50])  # within the image, and beyond it
def test_the_patches_that_are_found_are_those_most_alike(channels, reach, rng):
    height, width, n_like = 3, 4, 6
    image = rng.random((14, 11, channels), np.float32)
    usable = rng.random((12, 8)) < 0.8
    flat = image.reshape(14, -1)
    places = patches.Grid(image.shape, (height, width), np.arange(12), np.arange(8))
    cut = patches.cut(image, places).reshape(12, 8, -1)
    for top in range(12):
        found, counts = np.full((8, n_like), -1), np.empty(8, np.int64)
        likeness.find_like(
            flat, usable, top, height, width, channels, likeness.offsets(reach), found, counts
        )
        for left in range(8):
            around = [
                (np.square(cut[i, j] - cut[top, left]).sum(), i * 8 + j)
                for i, j in np.argwhere(usable)
                if max(abs(i - top), abs(j - left)) <= reach
            ]
            expected = [number for _, number in sorted(around)[:n_like]]
            assert counts[left] == len(expected)
            assert list(found[left, : len(expected)]) == expected


@pytest.mark.parametrize("n_like", [1, 2, 7, 30])
@pytest.mark.parametrize("missing", [0.0, 0.4, 1.0])
def test_a_patch_is_conditioned_on_what_was_observed_of_it(n_like, missing, rng):
    D, noise_variance, unlike = 9, 0.3, 0.05
    like = rng.standard_normal((n_like, D)) @ rng.standard_normal((D, D))
    y, seen = rng.standard_normal(D), rng.random(D) >= missing
    centre = like.mean(0)
    covariance = (like - centre).T @ (like - centre) / n_like + unlike * np.eye(D)
    gain = covariance[:, seen] @ np.linalg.inv(
        covariance[np.ix_(seen, seen)] + noise_variance * np.eye(seen.sum())
    )
    mean, variance = np.empty((2, D))
    likeness.condition(y, seen * 1.0, like.copy(), noise_variance, unlike, mean, variance)
    np.testing.assert_allclose(mean, centre + gain @ (y - centre)[seen], rtol=0, atol=1e-9)
    left = covariance - gain @ covariance[seen]
    np.testing.assert_allclose(variance, np.diag(left), rtol=0, atol=1e-9)


def looked(seen, places, n_jobs=1):
    parts = list(likeness.estimates(seen, places, 0.2, n_jobs))
    return tuple(np.concatenate(each) for each in zip(*parts, strict=True))


def pictures(shape, rng):
    given, restored, compared = rng.random((3, *shape), np.float32)
    everything = np.ones(shape, np.bool_)
    return likeness.Seen(given, rng.random(shape) < 0.7, restored, compared, everything)


@pytest.mark.parametrize(("shape", "stride"), [((20, 17, 1), 1), ((13, 30, 2), 3), ((5, 6, 1), 1)])
def test_patches_are_conditioned_in_their_places(shape, stride, rng):
    """Images may be smaller than patches."""
    seen = pictures(shape, rng)
    places = patches.grid(shape, likeness.WIDTH, stride)
    everywhere = patches.grid(shape, likeness.WIDTH)
    numbers, means, variances = looked(seen, places)
    np.testing.assert_array_equal(numbers, np.arange(places.n_patches))
    given, observed = (patches.cut(image, places) for image in seen[:2])
    restored, compared = (patches.cut(image, everywhere) for image in seen[2:4])
    own = patches.cut(seen.compared, places)
    unlike = likeness.UNLIKE * seen.restored.std() * 0.2**0.5
    for n in numbers[::7]:
        order = np.argsort(np.square(compared - own[n]).sum(1))  # all lie within reach
        like = restored[order[: likeness.LIKE]].astype(np.float64)
        mean, variance = np.empty((2, places.n_pixels))
        likeness.condition(
            given[n].astype(float), observed[n] * 1.0, like, 0.2, unlike, mean,
            variance,
        )  # fmt: skip
        np.testing.assert_allclose(means[n], mean, rtol=0, atol=1e-6)
        np.testing.assert_allclose(variances[n], variance, rtol=0, atol=1e-6)


def test_nothing_is_said_of_patches_that_are_not_known_nor_by_them(rng):
    seen = pictures((24, 26, 1), rng)
    known = np.ones(seen.known.shape, np.bool_)
    known[10, 12] = False
    places = patches.grid(known.shape, likeness.WIDTH, 2)
    blank = seen.restored.copy()
    blank[10, 12] = 1e6
    numbers, means, _ = looked(seen._replace(known=known, restored=blank), places)
    expected = np.flatnonzero(patches.cut(known, places).all(1))
    np.testing.assert_array_equal(numbers, expected)
    assert 0 < len(numbers) < places.n_patches
    assert np.abs(means).max() < 10


def test_threads_change_nothing(rng):
    seen = pictures((40, 23, 1), rng)
    places = patches.grid(seen.given.shape, likeness.WIDTH)
    for one, three in zip(looked(seen, places, 1), looked(seen, places, 3), strict=True):
        np.testing.assert_array_equal(one, three)


def test_seconds_are_those_of_all_rows(monkeypatch):
    """By one row of places, as far from the edges as others."""
    now, tops = [0.0], []

    def estimates(seen, places, noise_variance, n_jobs):
        tops.append((places.tops.tolist(), seen.given.shape))
        now[0] += 0.5
        return iter(())

    monkeypatch.setattr(likeness.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(likeness, "estimates", estimates)
    shape = (200, 90, 3)
    places = patches.grid(shape, likeness.WIDTH, 2)
    assert likeness.seconds(shape, 2, 2) == pytest.approx(0.5 * len(places.tops) / 2)
    reach, width = likeness.REACH, likeness.WIDTH
    assert tops == [([reach], (width + 2 * reach, 90, 3))]
