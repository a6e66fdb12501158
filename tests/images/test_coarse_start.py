"""Learning that starts from a coarse image."""

import numpy as np
import pytest
from sample_images import GREY, SMALL, TINY, assert_same, holes_at, noisy, picture

from evoem.images import canonical_arrays, coarse_start, patches
from evoem.images.image_models import IMAGE_MODELS
from evoem.images.learning import new_model
from evoem.images.options import STARTS
from evoem.images.plan import plans_for
from evoem.images.quality import psnr
from evoem.images.restore import restore
from evoem.images.settings import checked
from evoem.models import BinarySparseCodingModel, SpikeSlabModel
from evoem.models.base import log_joint
from evoem.models.subspace import start

COARSE = TINY | {"start": "coarse"}


def model_of(canonical, settings, kind):
    """A model of an image that is to learn."""
    grid = patches.regular_grid(canonical.values.shape, settings["patch_size"])
    plan = plans_for(canonical, checked("restore", TINY), False)[0]
    return new_model(canonical, grid, kind, settings, plan)


def small_model(kind, image, mask=None):
    canonical = canonical_arrays.centred(canonical_arrays.read(image, mask, None, True))
    settings = coarse_start.settings_of(IMAGE_MODELS[kind].small, canonical)
    model = model_of(canonical, settings, kind)
    model.start(IMAGE_MODELS[kind].start_small(model, coarse_start.damaged(model)))
    for _ in range(settings["max_iter"]):
        model.iterate(settings["max_iter"])
    return model


@pytest.mark.parametrize("kind", IMAGE_MODELS)
@pytest.mark.parametrize("masked", [False, True])
def test_a_coarse_image_is_nearer_to_the_image_than_what_was_given(masked, kind):
    clean = picture()
    image, mask = noisy(clean), holes_at(clean.shape, 0.3) if masked else None
    small = small_model(kind, image, mask)
    canonical = small.source.canonical
    given = image if mask is None else coarse_start.filled(canonical)[..., 0] + canonical.offset
    free, kept = (coarse_start.coarse_image(small, keep).image[..., 0] for keep in (False, True))
    coarse = canonical.offset + canonical.scale * free
    assert psnr(clean, coarse) > psnr(clean, given) + 2
    if masked:
        kept = kept + canonical.offset
        np.testing.assert_allclose(kept[~mask], image[~mask], atol=1e-3)
        np.testing.assert_array_equal(kept[mask], coarse[mask])


def test_a_coarse_image_is_as_given_where_no_patch_was_learnt_from():
    image = noisy(picture())
    canonical = canonical_arrays.read(image, None, None, True)
    settings = IMAGE_MODELS["es3c"].presets["paper"] | {
        "patch_size": 5, "n_latents": 2, "n_states": 4, "n_parents": 2, "n_learnt": 40,
    }  # fmt: skip
    model = model_of(canonical, settings, "es3c")
    model.start()
    model.iterate(2)
    covered = np.zeros(image.shape, np.bool_)
    for top, left in zip(*model.source.grid.corners(model.patches.numbers), strict=True):
        covered[top : top + 5, left : left + 5] = True
    coarse = coarse_start.coarse_image(model, keep_observed=False).image[..., 0]
    assert 0.2 < covered.mean() < 0.8
    np.testing.assert_allclose(coarse[~covered], image[~covered], rtol=1e-6)
    assert (np.abs(coarse - image)[covered] > 1e-3).mean() > 0.9


def test_holes_are_filled_from_their_surroundings():
    ramp = np.add.outer(np.arange(40.0), np.arange(40.0))
    mask = holes_at(ramp.shape, 0.5)
    mask[:8, :8] = True
    canonical = canonical_arrays.read(ramp, mask, None, True)
    image = coarse_start.filled(canonical)[..., 0] + canonical.offset
    np.testing.assert_allclose(image[~mask], ramp[~mask], atol=1e-3)
    inner = np.zeros_like(mask)
    inner[10:-2, 10:-2] = True
    assert np.abs(image - ramp)[mask & inner].max() < 2.5
    assert np.abs(image - ramp)[mask].max() < 20


def test_a_coarse_image_starts_higher_than_the_mean():
    image = noisy(picture())
    runs = {start: restore(image, **SMALL | {"start": start}) for start in STARTS}
    assert (runs["coarse"].free_energies > runs["mean"].free_energies).all()


def test_centroids_are_means_of_the_rows_nearest_to_them(monkeypatch):
    monkeypatch.setattr(start, "STEPS", 100)
    rows = np.random.default_rng(0).standard_normal((300, 4)).astype(np.float32)
    found, rest = coarse_start.centroids(rows, 5, seed=0)
    nearest = np.square(rows[:, None] - found).sum(-1).argmin(1)
    for k in range(5):
        np.testing.assert_allclose(found[k], rows[nearest == k].mean(0), atol=1e-5)
    np.testing.assert_allclose(rest, rows - found[nearest], atol=1e-5)


def test_unlike_rows_are_rows_and_spread_out():
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((300, 4)).astype(np.float32)
    rows[:5] += 100 * np.eye(5, 4, dtype=np.float32)  # four that are far from all others
    found, rest = coarse_start.kmeans_seeds(rows, 20, seed=0)
    places = [np.flatnonzero((rows == row).all(1)).item() for row in found]
    assert len(set(places)) == 20
    assert set(range(4)) <= set(places)
    nearest = np.square(rows[:, None] - found).sum(-1).argmin(1)
    np.testing.assert_allclose(rest, rows - found[nearest], atol=1e-5)


@pytest.mark.parametrize("choose", [coarse_start.centroids, coarse_start.kmeans_seeds])
def test_there_may_be_more_latents_than_patches(choose):
    rows = np.arange(12.0, dtype=np.float32).reshape(3, 4)
    found, rest = choose(rows, 5, seed=0)
    np.testing.assert_array_equal(found, rows[[0, 1, 2, 0, 1]])
    assert not rest.any()
    found, rest = coarse_start.centroids(rows, 0, seed=0)
    assert found.shape == (0, 4)
    np.testing.assert_array_equal(rest, rows)


def test_a_tiny_image_may_have_many_latents():
    assert restore(GREY[:6, :6], **COARSE | {"n_latents": 50}).image.shape == (6, 6)


@pytest.mark.parametrize(
    "model",
    [BinarySparseCodingModel(), *(SpikeSlabModel(slab) for slab in ("diagonal", "full", "fixed"))],
    ids=["binary", "diagonal", "full", "fixed"],
)
def test_every_model_can_start_from_a_dictionary(model):
    rng = np.random.default_rng(0)
    examples, details = rng.standard_normal((6, 4)), 0.3 * rng.standard_normal((3, 4))
    params = model.with_dictionary(examples, details, 0.05)
    np.testing.assert_array_equal(params.components, np.concatenate([examples, details]))
    assert float(params.noise_variance) == 0.05
    assert params.activation_probs.sum() == pytest.approx(3.5, rel=0.3)
    # An example is explained best by its own latent, if by one.
    state = np.eye(9, dtype=np.bool_)
    best = [
        max(range(9), key=lambda h: log_joint(model, params, row, None, state[h]))
        for row in examples
    ]
    assert best == list(range(6))


@pytest.mark.parametrize("model", ["es3c", "ebsc"])
def test_threads_do_not_change_what_a_coarse_image_leads_to(model):
    options = COARSE | {"model": model}
    assert_same(restore(GREY, **options | {"n_jobs": 3}), restore(GREY, **options))


def test_a_run_may_end_with_its_coarse_start():
    seen = []

    def stop(progress):
        seen.append(progress)
        return progress.iteration == 2

    result = restore(GREY, callback=stop, **COARSE)
    assert [progress.stage for progress in seen] == ["coarse start", "coarse start"]
    assert result.ended == "callback"
    assert result.notes[0] == "The run ended during the coarse start."
    np.testing.assert_array_equal(seen[-1].restored(), result.image)


def test_a_preview_is_what_would_be_returned():
    images = []
    result = restore(GREY, callback=lambda progress: images.append(progress.restored()), **TINY)
    np.testing.assert_array_equal(images[-1], result.image)
    early = restore(GREY, **TINY | {"max_iter": 1})
    np.testing.assert_array_equal(images[0], early.image)


@pytest.mark.parametrize("masked", [False, True])
def test_of_a_large_image_the_window_where_most_happens_is_learnt_from_first(monkeypatch, masked):
    monkeypatch.setattr(coarse_start, "LARGEST", 16)
    rng = np.random.default_rng(0)
    image = np.full((40, 64), 100.0) + rng.normal(0, 1, (40, 64))
    image[24:, 16:32] += rng.normal(0, 50, (16, 16))
    image[24:, 48:] += rng.normal(0, 90, (16, 16))
    mask = None
    if masked:  # nothing was observed of the most varied window
        mask = np.zeros(image.shape, np.bool_)
        mask[24:, 48:] = True
    canonical = canonical_arrays.read(image, mask, None, True)
    window = coarse_start.most_varied_window(canonical)
    columns = slice(16, 32) if masked else slice(48, 64)
    np.testing.assert_array_equal(window.values, canonical.values[24:, columns])
    assert coarse_start.most_varied_window(window) is window
    whole = restore(image, mask=mask, **COARSE)
    assert whole.image.shape == image.shape
    previews = []

    def stop(progress):
        previews.append(progress.restored())
        return True

    early = restore(image, mask=mask, callback=stop, **COARSE)
    assert early.image.shape == previews[0].shape == image.shape
    assert early.notes[0].startswith("The run ended during")
    quiet = np.s_[:20, :12]
    assert np.abs(early.image - 100)[quiet].max() < 5


def test_a_coarse_start_takes_the_mean_off():
    result = restore(GREY, mask=holes_at(GREY.shape), **COARSE | {"max_iter": 1})
    assert result.offset == pytest.approx(GREY[~holes_at(GREY.shape)].mean(), rel=1e-6)


def test_the_start_must_be_known():
    with pytest.raises(ValueError, match="start must be one of 'coarse', 'mean'; got 'random'"):
        restore(GREY, start="random")
