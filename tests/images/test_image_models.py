"""The models of patches, and in what they differ."""

import numpy as np
import pytest
from sample_images import (
    GREY,
    MASK,
    SMALL,
    TINY,
    colour,
    holes_at,
    noisy,
    picture,
    tiny_run,
)

from evoem import BinarySparseCoding, SpikeSlabCoding, SubspaceCoding, restore
from evoem.images import canonical_arrays, image_models, patches
from evoem.images.image_models import IMAGE_MODELS
from evoem.images.options import MODELS, OPTIONS, PRESETS
from evoem.images.quality import psnr
from evoem.models.subspace.by_feature import SubspacesByFeature


@pytest.mark.parametrize(("missing", "by_feature"), [(0.0, False), (0.2, False), (0.6, True)])
def test_where_much_is_missing_subspaces_are_learnt_feature_by_feature(missing, by_feature):
    image = picture()
    holes = holes_at(image.shape, missing) if missing else None
    canonical = canonical_arrays.read(image, holes, None, False)
    model = IMAGE_MODELS["subspaces"].make({"rank": 3}, canonical)
    assert isinstance(model, SubspacesByFeature) == by_feature
    if by_feature:
        assert model.prior_rows == image_models.PRIOR_ROWS


@pytest.mark.parametrize("n_parts", [1, 4])
@pytest.mark.parametrize(
    ("model", "kind"),
    [
        ("subspaces", SubspaceCoding),
        ("es3c", SpikeSlabCoding),
        ("ebsc", BinarySparseCoding),
    ],
)
def test_the_estimator_is_what_was_learnt(model, kind, n_parts):
    result = restore(noisy(picture()), **SMALL | {"model": model, "n_parts": n_parts})
    estimator = result.estimator
    assert type(estimator) is kind
    assert np.sqrt(estimator.noise_variance_) == pytest.approx(result.noise_level, rel=1e-12)
    np.testing.assert_array_equal(estimator.free_energies_, result.free_energies)
    assert estimator.n_iter_ == 20
    assert estimator.components_.shape[1] == 25
    assert estimator.activation_probs_.shape == (16,)
    assert estimator.sample(5)[0].shape == (5, 25)
    grid = patches.regular_grid((40, 40, 1), 5)
    clean = patches.cut(picture()[..., None], grid)
    unseen = patches.cut(noisy(picture(), 9)[..., None].astype(np.float32), grid)
    assert psnr(clean, estimator.reconstruct(unseen)) > psnr(clean, unseen) + 3
    unseen[:, 12] = np.nan
    assert psnr(clean[:, 12], estimator.reconstruct(unseen)[:, 12]) > 20 + 2


def test_the_slab_is_learnt_from_complete_images_only():
    free, fixed = tiny_run().estimator, restore(GREY, mask=MASK, **TINY).estimator
    assert (free.slab, free.learn_slab_means) == ("diagonal", True)
    assert (fixed.slab, fixed.learn_slab_means) == ("fixed", False)
    np.testing.assert_array_equal(fixed.slab_means_, np.ones(6))
    assert (free.slab_means_ != 1).all()


@pytest.mark.parametrize("slab", ["diagonal", "full", "fixed"])
@pytest.mark.parametrize("updates", ["monotone", "printed"])
def test_slab_updates_and_crossover_can_be_asked_for(slab, updates):
    asked = {"slab": slab, "updates": updates, "crossover": True}
    result = restore(GREY, **TINY | asked)
    assert result.settings.items() >= asked.items()
    learnt = result.estimator
    assert (learnt.slab, learnt.updates, learnt.crossover) == (slab, updates, True)
    assert learnt.slab_covariance_.shape == ((6, 6) if slab == "full" else (6,))
    held = (learnt.slab_means_ == 1).all() and (learnt.slab_covariance_ == 1).all()
    assert held == (slab == "fixed")
    others = {"slab": "diagonal" if slab == "full" else "full"}, {"crossover": False}
    for other in others:
        assert (restore(GREY, **TINY | asked | other).free_energies != result.free_energies).any()


def test_estimators_of_large_seeds_can_be_sampled_from():
    assert restore(GREY, seed=2**32 - 1, **TINY).estimator.sample(2)[0].shape == (2, 9)


@pytest.mark.parametrize(
    ("preset", "mask", "expected"),
    [("fast", None, "subspaces"), ("balanced", MASK, "subspaces"), ("paper", None, "es3c")],
)
def test_presets_have_a_model(preset, mask, expected):
    settings = {name: value for name, value in TINY.items() if name != "model"}
    assert restore(GREY, mask=mask, preset=preset, **settings).settings["model"] == expected


@pytest.mark.parametrize("name", IMAGE_MODELS)
def test_presets_have_a_value_for_every_option_that_they_decide_about(name):
    decided = {name for name, option in OPTIONS.items() if option.setting.preset}
    others = {"subspaces": {"slab", "updates"}, "es3c": {"rank"}, "ebsc": {"rank", "slab"}}
    for preset in IMAGE_MODELS[name].presets.values():
        assert preset.keys() - {"n_learnt", "known_children"} == decided - others[name]


def test_the_table_has_the_models_and_presets_that_options_name():
    assert tuple(IMAGE_MODELS) == MODELS
    for kind in IMAGE_MODELS.values():
        assert kind.presets.keys() | {"paper"} == set(PRESETS)


def test_the_estimator_is_made_when_it_is_asked_for():
    result = restore(GREY, **TINY)
    assert "estimator" not in vars(result)
    assert result.estimator is result.estimator


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize(
    ("model", "numbers", "inpainting"),
    [
        ("es3c", (12, 512, 60, 60, 1, 1, 4000), {"n_states": 30, "n_parents": 20}),
        ("ebsc", (8, 256, 200, 10, 9, 4, 4000), {}),
    ],
)
def test_the_paper_s_settings_are_as_printed_whatever_the_image(
    model, numbers, inpainting, missing
):
    values = picture(24) if missing else colour(16)
    holes = holes_at(values.shape, 0.8) if missing else None
    canonical = canonical_arrays.read(values, holes, None if missing else -1, False)
    found = image_models.settings_of(IMAGE_MODELS[model], "paper", {}, canonical)
    names = ("patch_size", "n_latents", "n_states", "n_parents", "n_children", "n_generations")
    printed = dict(zip((*names, "max_iter"), numbers, strict=True))
    printed |= {"parents": "fit", "mutation": "uniform", "crossover": False, "n_parts": 1}
    printed |= {"start": "mean", "merge": "mean", "nonlocal_passes": 0, "known_children": True}
    if missing:
        printed |= inpainting
    if model == "es3c":
        printed["slab"] = "fixed" if missing else "full"
    assert found.items() >= printed.items()


def test_the_paper_s_settings_go_with_those_that_are_given():
    canonical = canonical_arrays.read(GREY, None, None, False)
    given = {"n_latents": 4, "n_children": 3}
    found = image_models.settings_of(IMAGE_MODELS["es3c"], "paper", given, canonical)
    assert (found["n_states"], found["n_parents"], found["n_children"]) == (16, 16, 3)
