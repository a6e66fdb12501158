"""Limits of time and memory, against counting by hand."""

import time
from types import SimpleNamespace

import numpy as np
import pytest
from sample_images import (
    GREY,
    SMALL,
    TINY,
    assert_same,
    holes_at,
    memory_for,
    noisy,
    picture,
    tiny_run,
)  # fmt: skip

from evoem import em, restore
from evoem.images import budget, canonical_arrays, nonlocal_bayes, patch_model, patches
from evoem.images.budget import Clock, Costs, Finish, Forecast
from evoem.images.image_models import PAPER_MODEL_PRESETS, SUBSPACE_PRESETS
from evoem.images.patch_model import Patches, PatchModel
from evoem.images.plan import plans_for
from evoem.images.quality import psnr
from evoem.images.settings import checked
from evoem.models.subspace.by_feature import SubspacesByFeature
from evoem.models.subspace.start import Clusters

# Two blocks of ten patches, four of them learnt from.
COSTS = Costs(search_step=1.0, patch=0.1, block=2.0, nonlocal_passes=(5.0, 7.0, 8.0))


@pytest.mark.parametrize("thinning", [1, 2, 3, 4])
def test_others_are_thinned_and_reach_all_edges(thinning):
    grid = patches.regular_grid((20, 17, 1), 8, 2)
    learnt = np.array([3, 0, 17])
    found = budget.others(grid, learnt, thinning)
    n_rows, n_columns = len(grid.tops), len(grid.lefts)
    expected = [
        row * n_columns + column
        for row in range(n_rows)
        for column in range(n_columns)
        if (row % thinning == 0 or row == n_rows - 1)
        and (column % thinning == 0 or column == n_columns - 1)
        and row * n_columns + column not in learnt
    ]
    np.testing.assert_array_equal(found, expected)
    covered = np.zeros(grid.shape[:2], bool)
    for top, left in zip(*grid.corners(np.concatenate([found, learnt])), strict=True):
        covered[top : top + 8, left : left + 8] = True
    assert covered.all()


@pytest.mark.parametrize(
    ("finish", "expected"),
    [
        (Finish(5, 0), 6 * 5 + (10 * 0.1 + 2 * 2)),
        (Finish(5, 1), 6 * 5 + (10 * 0.1 + 2 * 2) + 8),
        (Finish(5, 3), 6 * 5 + (10 * 0.1 + 2 * 2) + 5 + 7 + 8),
        (Finish(3, 3), 6 * 3 + (10 * 0.1 + 2 * 2) + 5 + 7 + 8),
    ],
)
def test_seconds_are_counted(finish, expected, monkeypatch):
    monkeypatch.setattr(patch_model, "PATCHES_AT_ONCE", 5)
    assert COSTS.seconds(finish, n_learnt=4, n_others=6) == pytest.approx(expected)


def test_finishes_lead_from_the_best_to_the_quickest():
    ways = list(budget.finishes(Finish(4, 1), 2))
    assert ways == [
        Finish(4, 1, 1), Finish(3, 1, 1), Finish(4, 1, 2), Finish(3, 1, 2),
        Finish(4, 0, 1), Finish(3, 0, 1), Finish(4, 0, 2), Finish(3, 0, 2),
    ]  # fmt: skip
    assert list(budget.finishes(Finish(4, 0), 2)) == ways[4:]
    assert list(budget.finishes(Finish(4, 3), 2))[8:] == ways


def test_an_image_is_finished_in_the_best_way_there_is_time_for():
    """Found by asking for every number of seconds."""
    grid = patches.regular_grid((40, 40, 1), 8, 1, 0.5)
    forecast, best = Forecast(COSTS, grid, np.arange(300)), Finish(4, 3)
    ways = list(budget.finishes(best, 4))
    needed = [forecast.seconds(way) for way in ways]
    chosen = []
    for limit in [0.0, *sorted(needed), 1e9]:
        in_time = [way for way, time in zip(ways, needed, strict=True) if time <= limit]
        chosen.append(in_time[0] if in_time else ways[-1])
        assert forecast.best_within(best, limit) == chosen[-1]
    assert len(set(chosen)) > 4


@pytest.mark.parametrize("thinning", [1, 2])
@pytest.mark.parametrize("nonlocal_passes", [0, 1, 3])
def test_fewer_patches_still_restore_the_image(thinning, nonlocal_passes, monkeypatch):
    clean = picture()
    few = SUBSPACE_PRESETS["fast"] | {"n_learnt": 300}
    monkeypatch.setitem(SUBSPACE_PRESETS, "fast", few)
    infer, searched = PatchModel.infer, []

    def noted(model, block, max_iter, first=None):
        if first is None:
            searched.append(len(block.data))
        return infer(model, block, max_iter, first)

    monkeypatch.setattr(PatchModel, "infer", noted)
    finish = Finish(3, nonlocal_passes, thinning)
    monkeypatch.setattr(Forecast, "best_within", lambda *given: finish)
    image = noisy(clean)
    result = restore(image, preset="fast", patch_size=8, time_limit=1e6, seed=1)
    grid = patches.regular_grid((40, 40, 1), 8, 1, 0.5)
    expected = budget.others(grid, np.arange(0), thinning)
    assert len(expected) * 0.4 < sum(searched) < len(expected)  # once, and not those learnt from
    error, before = (np.square(some - clean).mean() for some in (result.image, image))
    assert error < 0.2 * before


def test_limited_time_means_fewer_patches_to_learn_from():
    full = SUBSPACE_PRESETS["balanced"]
    complete, incomplete = None, np.ones((2, 2, 1), bool)
    assert budget.patches_in_time(1e9, full, {}, complete) == 300_000
    assert budget.patches_in_time(np.inf, full, {}, complete) == 300_000
    assert budget.patches_in_time(100.0, full, {}, complete) == 100_000
    assert budget.patches_in_time(100.0, full, {}, incomplete) == 50_000
    assert budget.patches_in_time(0.0, full, {}, complete) == 64 * 256
    assert budget.patches_in_time(0.0, full, {"n_latents": 1000}, complete) == 64_000


def test_a_part_of_a_run_takes_a_share_of_what_is_left_of_a_limited_time():
    assert Clock(3.0, None).part(0.2) == Clock(3.0, None)
    started = time.perf_counter() - 50.0
    part = Clock(started, 100.0).part(0.2)
    assert part.started == started
    assert part.limit == pytest.approx(60.0, abs=1.0)


# ---------------------------------------------------------------------------------------- memory


@pytest.mark.parametrize("masked", [False, True])
def test_little_memory_restores_almost_as_well(masked):
    clean = picture()
    image, mask = noisy(clean), holes_at(clean.shape, 0.3) if masked else None
    full = restore(image, mask=mask, **SMALL)
    memory = memory_for(500, SMALL, masked, image.size)
    part = restore(image, mask=mask, memory=memory, **SMALL)
    assert full.notes == ()
    assert part.notes == ("The model learnt from 500 of 1296 patches, chosen at random.",)
    assert len(part.estimator.state_.states) == 500
    assert psnr(clean, part.image) > psnr(clean, full.image) - 1


def test_little_memory_means_fewer_subspaces():
    """As many as go with the patches there is memory to learn from."""
    image = np.random.default_rng(0).normal(size=(400, 400))
    canonical = canonical_arrays.read(image, None, None, False)

    def plan(memory, **given):
        return plans_for(canonical, checked("restore", {"memory": memory, **given}), False)[0]

    plans = [plan(memory) for memory in (1 << 34, 200 << 20, 20 << 20)]
    much, little, least = (plan.settings["n_latents"] for plan in plans)
    assert much == round(256 * 389**2 / 64_000)
    assert 256 > least > 20
    assert much > little == 256
    for one in plans:
        room = budget.enough_in_memory(canonical, one.grid, one.settings, one.memory)
        assert one.settings["n_latents"] <= max(room / 64, 256 * room / 64_000)
    assert plan(200 << 20, n_latents=300).settings["n_latents"] == 300


def test_memory_of_statistics_is_guessed():
    """Of subspaces that have as many patterns as they may, not less than it is."""
    settings = SUBSPACE_PRESETS["balanced"] | {"n_latents": 20, "rank": 4}
    model = SubspacesByFeature(4)
    params = model.from_clusters(
        np.random.default_rng(0).normal(size=(4000, 36)),
        Clusters(np.zeros((20, 36)), np.arange(4000) % 20),
        noise_variance=0.01,
    )
    needed = sum(part.nbytes for part in flat(model.empty_statistics(params)))
    guess = budget.bytes_of_statistics(settings, 36, by_feature=True) / (settings["n_parts"] + 3)
    assert len(params.components) == 100
    assert 0.9 * needed < guess < 1.5 * needed


def flat(stats):
    """The arrays of nested tuples."""
    if isinstance(stats, np.ndarray):
        return [stats]
    return [array for part in stats for array in flat(part)]


def test_very_many_patches_are_chosen_from(monkeypatch):
    few = PAPER_MODEL_PRESETS["balanced"] | {"n_learnt": 300}
    monkeypatch.setitem(PAPER_MODEL_PRESETS, "balanced", few)
    result = restore(GREY, **TINY)
    assert result.notes == ("The model learnt from 300 of 484 patches, chosen at random.",)
    assert_same(result, restore(GREY, memory=memory_for(300, TINY), **TINY))


def test_enough_memory_is_all_memory():
    enough = restore(GREY, memory=memory_for(22**2, TINY), **TINY)
    assert_same(enough, tiny_run())
    assert enough.notes == ()
    less = restore(GREY, memory=memory_for(22**2, TINY) - 1, **TINY)
    assert less.notes[0].startswith("The model learnt from 483 of 484 patches")


def test_runs_end_when_the_time_is_up():
    result = restore(GREY, time_limit=0, **TINY | {"max_iter": 10_000})
    assert result.ended == "time_limit"
    assert_same(result, tiny_run(max_iter=1, nonlocal_passes=0))  # for which there is no time
    result = restore(GREY, time_limit=0.5, **TINY | {"max_iter": 100_000})
    assert result.ended == "time_limit"
    assert 1 < len(result.free_energies) < 100_000


@pytest.mark.parametrize("nonlocal_passes", [0, 1, 2])
def test_the_time_of_merging_counts_blocks_and_patches(nonlocal_passes, monkeypatch):
    """Reconstruction takes two seconds a block and a hundredth a patch, after compilation, an
    E-step three times as long, and nonlocal passes three and four seconds."""
    now = [0.0]

    def work(block, times):
        compilation = 60.0 if now[0] == 0.0 else 0.0
        now[0] += compilation + times * (2.0 + 0.01 * len(block.data))

    passes = [(3.0, 4.0), (60.0, 60.0)]
    monkeypatch.setattr(nonlocal_bayes, "seconds", lambda *where: passes.pop())
    monkeypatch.setattr(budget.time, "perf_counter", lambda: now[0])
    numbers = np.arange(5000)
    grid = patches.regular_grid((200, 150, 1), 8)
    model = SimpleNamespace(
        patches=Patches(numbers, em.Data(np.zeros((5000, 4), np.float32))),
        state=SimpleNamespace(states=numbers),
        search=SimpleNamespace(n_jobs=1),
        source=SimpleNamespace(canonical=None, grid=grid),
        reconstruct=lambda block, kept: work(block, 1),
        infer=lambda block, steps, kept: work(block, 3 * steps),
    )
    forecast = budget.forecast(model, nonlocal_passes)
    assert forecast.costs.search_step == pytest.approx(0.03, rel=0.01)
    whole = 4 * 2.0 + 0.01 * grid.n_patches + sum([4.0, 3.0][:nonlocal_passes])
    expected = whole + (grid.n_patches - 5000) * 3 * 0.03
    assert forecast.seconds(Finish(3, nonlocal_passes)) == pytest.approx(expected, rel=0.01)


def test_a_limit_that_is_not_reached_changes_nothing():
    result = restore(GREY, time_limit=1e6, **TINY)
    assert result.ended == "max_iter"
    assert_same(result, tiny_run())
