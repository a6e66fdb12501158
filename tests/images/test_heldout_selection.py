"""Settings chosen by how well values are predicted that were held out."""

import json
import time

import numpy as np
import pytest
from sample_images import GREY, TINY, assert_same, holes_at, picture
from watched_models import at, watch

from evoem import denoise, restore
from evoem.images import canonical_arrays, heldout_selection
from evoem.images.budget import Clock
from evoem.images.image_models import IMAGE_MODELS
from evoem.images.learning import learn
from evoem.images.noise_stage import Prepared
from evoem.images.plan import plans_for
from evoem.images.quality import psnr
from evoem.images.reconstruction import merged_image
from evoem.images.restore import finished
from evoem.images.settings import checked

CLEAN, IMAGE = picture(24), GREY
HELD = TINY | {"select": "heldout", "max_iter": 4}
SEVERAL = {"patch_size": (3, 4), "n_latents": [5, 6], "restarts": 2}
CHOSEN = ("patch_size", "n_latents", "seed")


@pytest.fixture(autouse=True)
def small_images(monkeypatch):
    monkeypatch.setattr(heldout_selection, "FEWEST_HELD_OUT", 10)


def held_out(image=IMAGE, mask=None, seed=0):
    return heldout_selection.hold_out(canonical_arrays.read(image, mask, None, True), seed).where[
        ..., 0
    ]


class Told:
    """Held-out values, and errors that are as told, one after the other."""

    def __init__(self, canonical, errors):
        self.canonical = canonical
        self.rest = heldout_selection.hold_out(canonical, 0).rest
        self.errors = iter(errors)

    def error(self, model, plan):
        return next(self.errors)


def select(errors, callback=None, time_limit=None, **options):
    """What is selected when scores are as told."""
    canonical = canonical_arrays.read(IMAGE, None, None, False)
    plans = plans_for(canonical, checked("restore", HELD | options), False)
    clock = Clock(time.perf_counter(), time_limit)
    return heldout_selection.select_plan(Told(canonical, errors), plans, clock, callback)


def restored(chosen):
    """The image that is made of what was learnt while selecting."""
    prepared = Prepared(chosen.fit.model.source.canonical, None)
    return finished(chosen.fit, chosen, Clock(time.perf_counter(), None), prepared)


# ----------------------------------------------------------------------------------- what is held


@pytest.mark.parametrize("masked", [False, True])
def test_a_share_of_what_was_observed_is_held_out(masked):
    mask = holes_at(CLEAN.shape, 0.05) if masked else None
    canonical = canonical_arrays.read(IMAGE, mask, None, True)
    target = heldout_selection.hold_out(canonical, 0)
    observed = np.ones(IMAGE.shape, bool) if mask is None else ~mask
    assert target.where.sum() == int(0.02 * observed.sum())
    assert not (target.where[..., 0] & ~observed).any()
    np.testing.assert_array_equal(target.rest.observed[..., 0], observed & ~target.where[..., 0])
    assert not target.rest.values[target.where].any()
    assert target.rest.observed_as_given is canonical.observed
    assert (held_out(mask=mask, seed=1) != target.where[..., 0]).any()


@pytest.mark.parametrize("start", ["mean", "coarse"])
def test_held_out_values_change_scores_but_not_what_is_learnt(start):
    places = held_out()
    other = IMAGE.copy()
    other[places] = 300 - 2 * other[places]
    paths = []

    def told(image):
        path = []

        def note(progress):
            if progress.stage == "selecting":
                path.append((progress.iteration, progress.free_energy, progress.noise_level))

        result = restore(image, callback=note, **HELD | {"start": start, "max_iter": 3})
        paths.append(path)
        return result

    results = [told(image) for image in (IMAGE, other)]
    n_coarse = 0
    if start == "coarse":
        n_coarse = IMAGE_MODELS[results[0].settings["model"]].small["max_iter"]
    assert len(paths[0]) == 3 + n_coarse
    assert paths[0] == paths[1]
    for one, two in zip(*(result.selection for result in results), strict=True):
        assert two.heldout_error > 1.5 * one.heldout_error
    assert (results[0].free_energies != results[1].free_energies).all()


@pytest.mark.parametrize("start", ["mean", "coarse"])
@pytest.mark.parametrize("unit", [1.0, 1e-9])
def test_scores_are_errors_of_the_image_that_would_be_restored(start, unit):
    image = unit * (IMAGE + 2000)
    places, errors = held_out(), []

    def note(progress):
        coarse = progress.params.components.shape[1] > 9
        if progress.stage == "selecting" and not coarse:
            errors.append(np.sqrt(np.mean((progress.restored() - image)[places] ** 2)))

    result = restore(image, callback=note, **HELD | {"start": start, "max_iter": 3})
    told = [score.heldout_error for score in result.selection]
    np.testing.assert_allclose(told, errors, rtol=1e-3)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("keep_observed", [False, True])
def test_selecting_is_as_the_final_run_in_all_but_what_is_held_out(
    masked, keep_observed, monkeypatch
):
    told, es3c = [], IMAGE_MODELS["es3c"]

    def noted(model, coarse):
        slab = model.model.slab, model.model.learn_slab_means
        own = model.source.canonical
        seen = np.ones(own.values.shape, bool) if own.observed is None else own.observed
        kept = bool((coarse.image == own.values)[seen].all())
        told.append((model.search, model.source.grid.patch, *slab, len(model.patches.data), kept))
        return es3c.start(model, coarse)

    monkeypatch.setitem(IMAGE_MODELS, "es3c", es3c._replace(start=noted))
    mask = holes_at(IMAGE.shape, 0.05) if masked else None
    options = {"n_states": 8, "n_parents": 4, "max_iter": 1, "n_jobs": 1, "select": "heldout",
               "model": "es3c"}  # fmt: skip
    noisy = IMAGE + 2 * IMAGE.std() * np.random.default_rng(0).normal(size=IMAGE.shape)
    restore(noisy, mask=mask, keep_observed=keep_observed, **options)
    selecting, final = told
    assert selecting == final
    _, patch, slab, _, _, kept = final
    assert slab == ("fixed" if masked else "diagonal")
    assert patch == ((8, 8) if masked else (12, 12))
    assert kept is (masked and keep_observed)


# ------------------------------------------------------------------------------------ what is won


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("model", ["subspaces", "es3c", "ebsc"])
def test_the_least_error_wins_and_is_learnt_again_from_everything(model, masked):
    mask = holes_at(IMAGE.shape, 0.05) if masked else None
    result = restore(IMAGE, mask=mask, **HELD | SEVERAL | {"model": model})
    tried = [tuple(score)[:3] for score in result.selection[::4]]
    assert tried == [(p, h, s) for p in (3, 4) for h in (5, 6) for s in (0, 1)]
    assert [score.iteration for score in result.selection] == 8 * [1, 2, 3, 4]
    best = min(result.selection, key=lambda score: score.heldout_error)
    assert tuple(result.settings[name] for name in (*CHOSEN, "max_iter")) == best[:4]
    assert result.settings["select"] == "heldout"
    assert len(result.free_energies) == best.iteration
    assert (result.ended, result.notes) == ("max_iter", ())
    plain = restore(IMAGE, mask=mask, n_jobs=1, **result.settings | {"select": None})
    assert plain.selection == ()
    assert_same(result, plain)


@pytest.mark.parametrize("start", ["mean", "coarse"])
def test_threads_change_nothing(start):
    options = HELD | {"start": start, "restarts": 2}
    one, two = (restore(IMAGE, **options | {"n_jobs": n_jobs}) for n_jobs in (1, 2))
    assert one.selection == two.selection
    assert one.settings == two.settings
    assert_same(one, two)


def test_patches_that_were_not_learnt_from_are_not_searched_for():
    """A score is that of values that lie in some patch that was learnt from."""
    canonical = canonical_arrays.read(IMAGE, None, None, False)
    held_out = heldout_selection.hold_out(canonical, 0)
    plan = plans_for(canonical, checked("restore", HELD), False)[0]
    plan = plan._replace(settings=plan.settings | {"n_learnt": 30})
    model = learn(held_out.rest, plan, Clock(time.perf_counter(), None), None).model
    learnt = np.zeros(IMAGE.shape, bool)
    for top, left in zip(*model.source.grid.corners(model.patches.numbers), strict=True):
        learnt[top : top + 3, left : left + 3] = True
    told = learnt & held_out.where[..., 0]
    assert 0 < told.sum() < held_out.where.sum()
    merged = merged_image(model, plan.best_finish, plan.merge, False, learnt_only=True)
    np.testing.assert_array_equal(np.isfinite(merged.mean[..., 0]), learnt)
    predicted = canonical_arrays.write(model.source.canonical, merged.mean, False)
    expected = np.sqrt(np.square(predicted - IMAGE)[told].mean())
    assert held_out.error(model, plan) == pytest.approx(expected, rel=1e-5)


def test_a_constant_image_leaves_nothing_to_select():
    result = restore(np.full((60, 60), 7.0), **HELD)
    assert (result.image == 7).all()
    assert result.selection == ()


def test_all_that_varies_may_be_held_out():
    image = np.full(IMAGE.shape, 3.0)
    image[held_out()] = 5.0
    assert np.isfinite(restore(image, **HELD).image).all()


def test_colours_and_stacks_are_selected_for():
    stack = np.stack([IMAGE, IMAGE[::-1]])
    restored = denoise(stack, **HELD)
    for clean, one, noisy in zip((CLEAN, CLEAN[::-1]), restored, stack, strict=True):
        assert psnr(clean, one) > psnr(clean, noisy) + 3
    rgb = np.stack([IMAGE, IMAGE.T, IMAGE[::-1]], axis=0)
    assert len(restore(rgb, channel_axis=0, **HELD).selection) == 4


def test_seeds_go_round():
    last = 2**32 - 1
    result = restore(IMAGE, seed=last, **HELD | {"restarts": 2})
    assert [score.seed for score in result.selection] == [last] * 4 + [0] * 4


# ------------------------------------------------------------------------------------- the end


def test_a_candidate_is_given_up_when_its_scores_get_no_better():
    errors = 5, 4, 3, 3.5, 3, 3.2, *range(9, 1, -1)
    stages = []
    chosen = select(
        errors, lambda progress: stages.append(progress.stage), max_iter=12, restarts=2
    )  # fmt: skip
    iterations = [(score.seed, score.iteration) for score in chosen.scores]
    assert iterations[:6] == [(0, k) for k in (1, 2, 3, 4, 6, 8)]
    assert iterations[6:] == [(1, k) for k in (1, 2, 3, 4, 6, 8, 11, 12)]
    assert stages == ["selecting"] * (8 + 12)
    assert (chosen.plan.seed, chosen.plan.settings["max_iter"], chosen.fit) == (1, 12, None)


def test_every_part_has_a_fair_share_of_a_limited_time():
    """So long a run takes all that it may."""
    allowed = []

    def note(progress):
        if progress.iteration == 1:
            allowed.append(progress.seconds_left)

    errors = 3 * [5.0, 6.0, 7.0, 8.0]
    select(errors, note, time_limit=900.0, restarts=3, max_iter=10**9)
    assert allowed == pytest.approx([225, 300, 450], rel=0.1)


def test_a_limit_that_is_not_reached_changes_nothing():
    result = restore(IMAGE, time_limit=900, **HELD | {"restarts": 3})
    assert result.settings["time_limit"] == 900
    assert_same(result, restore(IMAGE, **HELD | {"restarts": 3}))


def test_when_the_time_is_over_the_choice_is_among_what_was_scored():
    result = restore(IMAGE, time_limit=0, **HELD | SEVERAL)
    assert [tuple(score)[:4] for score in result.selection] == [(3, 5, 0, 1)]
    assert result.ended == "time_limit"
    assert len(result.free_energies) == 1
    limit = 4.0
    result = restore(IMAGE, time_limit=limit, **HELD | {"restarts": 2, "max_iter": 10**6})
    assert {score.seed for score in result.selection} == {0, 1}
    assert result.seconds < 2 * limit


class Ending:
    """A callback that ends the run when a part of it has come so far."""

    def __init__(self, part, iteration, by):
        self.part, self.iteration, self.by = part, iteration, by
        self.seen = []

    def __call__(self, progress):
        self.seen.append(progress)
        starts = [one.iteration for one in self.seen].count(1)
        if (starts, progress.iteration) == (self.part, self.iteration):
            if self.by == "callback":
                return True
            raise KeyboardInterrupt
        return None


@pytest.mark.parametrize("by", ["callback", "interrupted"])
def test_a_run_that_ends_while_selecting_gives_the_best_up_to_then(by):
    ending = Ending(2, 2, by)
    chosen = select((9, 7, 8, 8, 6, 5), ending, patch_size=[3, 4])
    assert chosen.fit.ended == by
    assert {progress.stage for progress in ending.seen} == {"selecting"}
    assert [score.patch_size for score in chosen.scores] == [3, 3, 3, 3, 4, 4]
    result = restored(chosen)
    assert result.settings["patch_size"] == 4
    assert len(result.free_energies) == 2
    assert result.notes[0].startswith("The run ended while selecting")
    np.testing.assert_array_equal(result.image, ending.seen[-1].restored())


@pytest.mark.parametrize("by", ["callback", "interrupted"])
def test_the_best_up_to_then_may_be_an_earlier_one(by):
    result = restored(select((9, 8, 7, 8, 9, 9), Ending(2, 2, by), patch_size=[3, 4]))
    assert result.ended == by
    assert result.settings["patch_size"] == 3
    assert len(result.free_energies) == 3
    assert len(result.notes) == 1
    assert psnr(CLEAN, result.image) > psnr(CLEAN, IMAGE) + 3
    assert result.estimator.components_.shape == (6, 9)


@pytest.mark.parametrize("by", ["callback", "interrupted"])
def test_a_run_may_end_just_when_a_candidate_is_given_up(by):
    chosen = select((1, 2, 3, 4), Ending(1, 4, by), max_iter=9)
    assert (chosen.fit.ended, len(chosen.scores)) == (by, 4)


def test_what_is_adopted_lies_among_the_points_it_was_learnt_with():
    """Few patches are kept of a model that is adopted, and these alone would have fewer points."""
    params = []

    def stop(progress):
        params.append(progress.params)
        return len(params) == 3

    options = {"model": "subspaces", "max_iter": 2, "patch_size": [3, 4]}
    fit = select((5, 4, 9), stop, **options).fit
    source = fit.model.source
    assert (fit.ended, source.grid.patch) == ("callback", (3, 3))
    assert source.points == params[1].field.shape[:2] != (1, 1)
    last = source.cut(np.array([source.grid.n_patches - 1])).data.positions
    np.testing.assert_allclose(last, [np.array(source.points) - 1])


@pytest.mark.parametrize("by", ["callback", "interrupted"])
def test_a_run_that_ends_with_a_first_coarse_start_gives_that(by):
    ending = Ending(1, 2, by)
    result = restore(IMAGE, callback=ending, keep_observed=True, **HELD | {"start": "coarse"})
    assert (result.ended, result.selection) == (by, ())
    assert result.notes[1] == "The run ended during the coarse start."
    np.testing.assert_array_equal(result.image, IMAGE)
    assert not result.std.any()


@pytest.mark.parametrize("by", ["callback", "interrupted"])
def test_a_final_run_ends_as_any_other(by):
    ending = Ending(2, 2, by)
    result = restore(IMAGE, callback=ending, nonlocal_passes=0, **HELD)
    assert [progress.stage for progress in ending.seen] == ["selecting"] * 4 + ["learning"] * 2
    assert result.ended == by
    assert_same(result, restore(IMAGE, **TINY | {"max_iter": 2, "nonlocal_passes": 0}))


def test_an_interrupt_between_candidates_loses_nothing(monkeypatch):
    def interrupt():
        raise KeyboardInterrupt

    watch(monkeypatch, "es3c", make=at([2, 4], interrupt))
    result = restore(IMAGE, **HELD | {"restarts": 2})
    assert (result.ended, len(result.selection)) == ("interrupted", 4)
    with pytest.raises(KeyboardInterrupt):
        restore(IMAGE, **HELD)


# ----------------------------------------------------------------------------------------- wrong


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"select": "best"}, r"select must be one of 'heldout'; got 'best'\."),
        ({"select": True}, r"select must be one of 'heldout'; got True\."),
        (
            {"patch_size": (3, 4), "select": None},
            r"patch_size must be one integer unless select is given; got \(3, 4\)\.",
        ),
        (
            {"n_latents": [6], "select": None},
            r"n_latents must be one integer unless select is given; got \[6\]\.",
        ),
        ({"patch_size": []}, r"patch_size must have something to select from; got \[\]\."),
        ({"n_latents": (6, 0)}, r"n_latents's entries must be an integer at least 1; got 0\."),
        ({"n_latents": ["6"]}, r"n_latents's entries must be an integer at least 1; got '6'\."),
        ({"n_latents": "66"}, r"n_latents must be an integer at least 1; got '66'\."),
        ({"restarts": 0}, r"restarts must be an integer at least 1; got 0\."),
        ({"restarts": 2.0}, r"restarts must be an integer at least 1; got 2\.0\."),
        ({"restarts": 2, "select": None}, r"restarts must be 1 unless select is given; got 2\."),
        ({"stride": 4, "patch_size": (5, 3)}, r"stride must be .* 3 \(patch_size\); got 4\."),
        ({"n_latents": (6, 2)}, r"n_states must be an integer between 1 and 4 \(2\*\*n_latents\)"),
        (
            {"image": IMAGE[:20]},
            r"image must have at least 500 observed values for select='heldout'; got 480\.",
        ),
        (
            {"mask": holes_at(IMAGE.shape, 0.3)},
            r"image must have at least 500 observed values for select='heldout'; got 420\.",
        ),
    ],
)
def test_what_cannot_be_selected_is_refused_before_anything_is_learnt(options, sentence):
    learnt = []
    with pytest.raises(ValueError, match=f"^{sentence}"):
        restore(**{"image": IMAGE, "callback": learnt.append} | HELD | options)
    assert learnt == []


def test_some_thousand_values_are_enough(monkeypatch):
    monkeypatch.undo()
    with pytest.raises(ValueError, match=r"at least 2500 observed values .*; got 576\.$"):
        restore(IMAGE, **HELD)


@pytest.mark.parametrize("several", [range(3, 5), np.array([3, 4]), (np.int64(3), 4)])
def test_any_sequence_is_one(several):
    result = restore(IMAGE, **HELD | {"patch_size": several, "max_iter": 1})
    assert [score.patch_size for score in result.selection] == [3, 4]
    assert json.dumps(result.settings)
