"""From patches to an image by further looks: states chosen by the merged image, like patches."""

import numpy as np
import pytest
import reference

from evoem import restore
from evoem.images import learning, likeness, looks, patches
from evoem.images.quality import psnr
from evoem.models import field

EXACT = {
    "model": "subspaces",
    "patch_size": 3,
    "n_latents": 3,
    "n_states": 8,  # all there are: the second look then has nothing to search for
    "rank": 1,
    "n_parents": 2,
    "n_children": 2,
    "n_parts": 1,
    "start": "mean",
    "merge": "mean",
    "max_iter": 3,
    "n_jobs": 1,
}
SOME = EXACT | {"patch_size": 5, "n_latents": 12, "n_states": 10, "rank": 3, "n_parents": 4}
SIGMA = 20.0


def picture(size):
    row, column = np.mgrid[:size, :size] / size
    return 100 + 60 * (row + column > 0.9) + 40 * np.sin(25 * row) * (column > 0.5)


def damaged(size, missing=0.0, seed=0):
    rng = np.random.default_rng(seed)
    image = picture(size) + SIGMA * rng.standard_normal((size, size))
    image[rng.random(image.shape) < missing] = np.nan
    return image


# ------------------------------------------------------------------------------- the slow twin


def run(image, keep_observed, **settings):
    """Result, and parameters with the field of probabilities."""
    last = []
    result = restore(image, keep_observed=keep_observed, callback=last.append, **settings)
    return result, last[-1].params


def patch_by_patch(image, params, size):
    """Where patches lie, their parameters, values and what was observed of them."""
    places = patches.grid((*image.shape, 1), size, beyond=0.5)
    known = np.isfinite(image)[..., None]
    X = patches.cut(np.where(known, image[..., None], 0.0), places)
    corners = np.stack(places.corners(None), axis=1)
    scale = (np.array(params.field.shape[:2]) - 1) / [places.tops[-1], places.lefts[-1]]
    probs = field.locate(params.field, corners * scale).probs
    own = [params._replace(activation_probs=pi, field=None) for pi in probs]
    return places, own, X, patches.cut(known, places)


def weights_of(params, x, seen, states):
    return reference.posterior(reference.subspace_log_joint, params, x, seen, states)[0]


def estimate(params, x, seen, states, weights):
    """Mean and second moment of the patch without noise, of states of these weights."""
    first, second = 0.0, 0.0
    for weight, s in zip(weights, states, strict=True):
        m1, m2 = reference.subspace_moments(params, x, seen, s)
        W = params.components
        first = first + weight * m1 @ W
        second = second + weight * np.einsum("id,ij,jd->d", W, m2, W)
    return first, second


def merged(places, observed, estimates):
    """Plain means over patches that saw something."""
    totals = []
    for values in zip(*estimates, strict=True):
        canvas = patches.Canvas(places)
        seen = np.where(observed.any(1, keepdims=True), 1.0, 1e-6)
        canvas.add(None, np.array(values), np.broadcast_to(seen, observed.shape).astype(float))
        totals.append(canvas.mean()[..., 0])
    mean, square = totals
    return mean, np.sqrt(square - mean**2)


@pytest.mark.parametrize("keep_observed", [False, True])
@pytest.mark.parametrize("missing", [0.0, 0.15, 0.4])
def test_states_are_weighed_by_the_merged_image_and_values_taken_from_the_given_one(
    missing, keep_observed, monkeypatch
):
    """The second look by itself."""
    monkeypatch.setattr(looks, "look_around", lambda learner, merge, merged, keep: merged)
    image = damaged(13, missing)
    result, params = run(image, keep_observed, **EXACT)
    values = (image - result.offset) / result.scale
    states = reference.all_states(3)
    places, own, X, observed = patch_by_patch(values, params, 3)
    rows = list(zip(own, X, observed, strict=True))
    mean, std = merged(
        places,
        observed,
        [estimate(*row, states, weights_of(*row, states)) for row in rows],
    )
    hidden = np.isnan(image)
    share = 1.0 if keep_observed else 0.2
    mixed = np.where(hidden, mean, share * np.nan_to_num(values) + (1 - share) * mean)
    noise = 0.1 * params.noise_variance + 0.25 * (std**2 * hidden).mean()
    _, _, again, inside = patch_by_patch(mixed, params, 3)
    estimates = []
    for row, x, seen in zip(rows, again, inside, strict=True):
        weights = weights_of(row[0]._replace(noise_variance=noise), x, seen, states)
        estimates.append(estimate(*row, states, weights))
    mean, std = (result.scale * part for part in merged(places, observed, estimates))
    mean += result.offset
    if keep_observed:
        mean, std = np.where(hidden, mean, image), np.where(hidden, std, 0.0)
    np.testing.assert_allclose(result.image, mean, rtol=0, atol=0.05)
    np.testing.assert_allclose(result.std, std, rtol=0, atol=0.05)


def conditioned(y, seen, like, noise_variance, unlike):
    """Mean of a patch whose Gaussian has the moments of patches that are like it."""
    centre = like.mean(0)
    covariance = np.cov(like.T, ddof=0) + unlike * np.eye(len(y))
    gain = np.linalg.solve(
        covariance[np.ix_(seen, seen)] + noise_variance * np.eye(seen.sum()), covariance[seen]
    )
    return centre + (y[seen] - centre[seen]) @ gain


def around(given, observed, restored, compared, noise_variance):
    """Of a grey image: every patch conditioned on those that are like it, merged by plain means."""
    size, reach = likeness.WIDTH, likeness.REACH
    places = patches.grid((*given.shape, 1), size)
    y, seen, x, by = (
        patches.cut(image[..., None], places) for image in (given, observed, restored, compared)
    )
    corners = np.stack(places.corners(None), axis=1)
    unlike = 0.007 * restored.std() * noise_variance**0.5
    means = []
    for n in range(places.n_patches):
        (near,) = np.nonzero((abs(corners - corners[n]) <= reach).all(1))
        order = np.argsort(np.square(by[near] - by[n]).sum(1), kind="stable")
        like = x[near[order[: likeness.LIKE]]]
        means.append(conditioned(y[n], seen[n], like, noise_variance, unlike))
    canvas = patches.Canvas(places)
    weights = np.where(seen.any(1, keepdims=True), 1.0, 1e-6)
    canvas.add(None, np.array(means), np.broadcast_to(weights, seen.shape))
    return canvas.mean()[..., 0]


@pytest.mark.parametrize("keep_observed", [False, True])
@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_patches_that_are_like_each_other_are_seen_together(missing, keep_observed, monkeypatch):
    monkeypatch.setattr(looks, "look_from_afar", lambda *given: 0.0)
    monkeypatch.setattr(likeness, "REACH", 5)
    before, after = [], []
    look_around = looks.look_around

    def watched(learner, merge, merged, keep):
        before.append(merged)
        after.append(look_around(learner, merge, merged, keep))
        return after[-1]

    monkeypatch.setattr(looks, "look_around", watched)
    image = damaged(20, missing)
    result, params = run(image, keep_observed, **EXACT)
    values, hidden = (image - result.offset) / result.scale, np.isnan(image)
    given = np.where(hidden, 0.0, values)
    for merged, looked in zip(before, after, strict=True):
        mean = merged.mean[..., 0]
        kept = ~hidden & keep_observed
        share = np.where(hidden, 0.0, 1.0 if keep_observed else 0.2)
        expected = around(
            given,
            ~hidden,
            np.where(kept, given, mean),
            share * given + (1 - share) * mean,
            params.noise_variance,
        )
        np.testing.assert_allclose(looked.mean[..., 0], expected, rtol=0, atol=1e-3)
        np.testing.assert_array_equal(looked.std, merged.std)
    assert len(after) == 2  # after either look
    final = result.offset + result.scale * after[-1].mean[..., 0]
    np.testing.assert_allclose(result.image[hidden], final[hidden], rtol=1e-5)


# ------------------------------------------------------------------------------------ from afar


@pytest.mark.parametrize("shape", [(6, 4, 1), (7, 5, 3), (1, 1, 1)])
def test_an_image_is_halved_by_means_of_two_by_two_pixels(shape):
    image = np.random.default_rng(0).random(shape)
    small = looks.halved(image)
    assert small.shape == (-(-shape[0] // 2), -(-shape[1] // 2), shape[2])
    for i, j, c in np.ndindex(small.shape):
        rows = [min(2 * i + k, shape[0] - 1) for k in (0, 1)]
        columns = [min(2 * j + k, shape[1] - 1) for k in (0, 1)]
        assert small[i, j, c] == pytest.approx(image[np.ix_(rows, columns, [c])].mean(), rel=1e-6)


@pytest.mark.parametrize("shape", [(64, 64, 1), (63, 48, 2), (33, 57, 1)])
def test_what_is_wider_than_patches_is_seen_from_afar(shape):
    """A broad error that the given image contradicts shrinks; details stay as they were."""
    rng = np.random.default_rng(1)
    row, column, _ = np.mgrid[: shape[0], : shape[1], : shape[2]]
    clean = np.sin(row / 9) * np.cos(column / 7)
    detail = 0.2 * ((row + column) % 2)
    broad = 0.3 * np.sin(row / 15 + column / 12)
    given = (clean + detail + 0.3 * rng.standard_normal(shape)).astype(np.float32)
    change = looks.look_from_afar(given, clean + detail + broad, 1, "mean", 0.09, 1)
    assert change.shape == shape
    assert np.square(broad + change).mean() < 0.6 * np.square(broad).mean()
    fine = change - (np.roll(change, 1, 0) + np.roll(change, -1, 0)) / 2
    assert np.abs(fine[2:-2]).max() < 0.02


# ------------------------------------------------------------------------------------- what for


@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize("seed", [0, 1])
def test_further_looks_restore_better(missing, seed, monkeypatch):
    image, clean = damaged(48, missing, seed), picture(48)
    again = restore(image, **SOME)
    monkeypatch.setattr(learning.Learner, "looks_again", False)
    once = restore(image, **SOME)
    np.testing.assert_array_equal(again.free_energies, once.free_energies)
    assert psnr(clean, again.image) > psnr(clean, once.image)


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_further_looks_do_not_depend_on_threads(missing):
    one, three = (
        restore(damaged(32, missing), **SOME | {"n_jobs": n_jobs}).image for n_jobs in (1, 3)
    )
    np.testing.assert_array_equal(one, three)


def test_patches_that_were_not_learnt_from_are_looked_at_again_too(monkeypatch):
    """Their states are searched for anew, by a few E-steps."""
    image, clean = damaged(48), picture(48)
    few = SOME | {"memory": 400_000}
    part = restore(image, **few)
    assert "The model learnt from" in part.notes[0]
    monkeypatch.setattr(learning.Learner, "looks_again", False)
    assert psnr(clean, part.image) > psnr(clean, restore(image, **few).image)


@pytest.mark.parametrize(("stride", "twice"), [(1, True), (2, True), (3, False), (5, False)])
def test_only_patches_that_overlap_by_half_are_looked_at_again(stride, twice, monkeypatch):
    """Without the others a patch would but confirm itself."""
    settings = SOME | {"stride": stride, "patch_size": 5}
    again = restore(damaged(33), **settings).image
    monkeypatch.setattr(learning.Learner, "looks_again", False)
    assert (again != restore(damaged(33), **settings).image).any() == twice


def test_what_lies_deep_in_a_hole_is_no_evidence():
    """The merged image is the prior mean there, and says nothing about patches at the edge."""
    image = damaged(32)
    image[8:24, 8:24] = np.nan
    seen = []
    evidence = learning.Learner.evidence

    def watched(self, values, observed, noise_variance):
        seen.append((values, observed))
        return evidence(self, values, observed, noise_variance)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(learning.Learner, "evidence", watched)
        restore(image, **SOME | {"patch_size": 4})
    ((values, observed),) = seen
    assert not observed[12:20, 12:20].any()
    assert not values[12:20, 12:20].any()
    assert observed[:10].all()
