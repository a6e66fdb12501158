"""Limits of time and memory, against counting by hand."""

import re
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
from evoem.images import bands, budget, canonical_arrays, patches
from evoem.images.budget import Clock, Costs, Finish, Forecast
from evoem.images.image_models import IMAGE_MODELS, SUBSPACE_PRESETS
from evoem.images.patch_model import Patches
from evoem.images.plan import plans_for
from evoem.images.quality import psnr
from evoem.images.settings import checked
from evoem.models.subspace.by_feature import SubspacesByFeature
from evoem.models.subspace.start import Clusters

SMALL_VALUES = np.arange(12.0).reshape(3, 4)
# Two blocks of ten patches, four of them learnt from.
COSTS = Costs(search_step=1.0, patch=0.1, block=2.0, nonlocal_passes=(5.0, 7.0, 8.0))


@pytest.mark.parametrize("thinning", [1, 2, 3, 4])
def test_others_are_thinned_and_reach_all_edges(thinning):
    grid = patches.regular_grid((20, 17, 1), 8, 2)
    learnt = np.array([3, 0, 17])
    rows = bands.patch_rows(grid, bands.whole(20), 2)
    found = np.concatenate(list(budget.unlearnt(rows, learnt, thinning)))
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
    assert budget.n_unlearnt(grid, learnt, thinning) == len(expected)
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
    monkeypatch.setattr(bands, "PATCHES_AT_ONCE", 5)
    assert COSTS.seconds(finish, n_learnt=4, n_unlearnt=6) == pytest.approx(expected)


def test_finishes_lead_from_the_best_to_the_quickest():
    ways = list(budget.finishes(Finish(4, 1), 2))
    assert ways == [
        Finish(4, 1, 1), Finish(3, 1, 1), Finish(4, 1, 2), Finish(3, 1, 2),
        Finish(4, 0, 1), Finish(3, 0, 1), Finish(4, 0, 2), Finish(3, 0, 2),
    ]  # fmt: skip
    assert list(budget.finishes(Finish(4, 0), 2)) == ways[4:]
    assert list(budget.finishes(Finish(4, 3), 2))[8:] == ways


def test_patches_that_hardly_overlap_are_the_last_resort():
    ways = list(budget.finishes(Finish(4, 1), 2, 4))
    assert ways[:8] == list(budget.finishes(Finish(4, 1), 2))
    assert ways[8:] == [Finish(3, 0, 3), Finish(3, 0, 4), Finish(2, 0, 4), Finish(1, 0, 4)]


@pytest.mark.parametrize(("size", "patch", "step"), [(40, 8, 1), (41, 8, 3), (23, 5, 2), (9, 9, 1)])
def test_touching_patches_cover_the_image(size, patch, step):
    grid = patches.regular_grid((size, size, 1), patch, step)
    rows = bands.patch_rows(grid, bands.whole(size))
    found = budget.unlearnt(rows, np.empty(0, int), grid.touching)
    numbers = np.concatenate(list(found))
    assert len(numbers) < grid.n_patches or grid.n_patches == 1
    marks = patches.Canvas(grid)
    marks.add(numbers, np.ones((len(numbers), patch**2)), np.ones(patch**2))
    assert not np.isnan(marks.mean()).any()


def test_an_image_is_finished_in_the_best_way_there_is_time_for():
    """Found by asking for every number of seconds."""
    grid = patches.regular_grid((40, 40, 1), 8, 1, 0.5)
    forecast, best = Forecast(COSTS, grid, np.arange(300)), Finish(4, 3)
    ways = list(budget.finishes(best, 4, 8))
    needed = [forecast.seconds(way) for way in ways]
    chosen = []
    for limit in [0.0, *sorted(needed), 1e9]:
        in_time = [way for way, time in zip(ways, needed, strict=True) if time <= limit]
        chosen.append(in_time[0] if in_time else ways[-1])
        assert forecast.best_within(best, limit) == chosen[-1]
    assert len(set(chosen)) > 4


def test_limited_time_means_fewer_patches_to_learn_from():
    full = SUBSPACE_PRESETS["balanced"]
    complete, incomplete = (
        canonical_arrays.read(np.where(holes, np.nan, SMALL_VALUES), None, None, False)
        for holes in (False, np.eye(3, 4, dtype=bool))
    )
    assert budget.patches_in_time(1e9, full, {}, complete) == 300_000
    assert budget.patches_in_time(np.inf, full, {}, complete) == 300_000
    assert budget.patches_in_time(100.0, full, {}, complete) == pytest.approx(100_000, rel=1e-3)
    assert budget.patches_in_time(100.0, full, {}, incomplete) == pytest.approx(50_000, rel=1e-3)
    assert budget.patches_in_time(0.0, full, {}, complete) == 64 * 256
    assert budget.patches_in_time(0.0, full, {"n_latents": 1000}, complete) == 64_000


def test_a_large_image_leaves_less_time_to_learn():
    full, seconds = SUBSPACE_PRESETS["balanced"], 240.0
    values = np.lib.stride_tricks.as_strided(np.zeros(1), (3000, 4000, 3), (0, 0, 0))
    small = canonical_arrays.read(SMALL_VALUES, None, None, False)
    large = small._replace(values=values)
    learnt = budget.patches_in_time(seconds, full, {}, large)
    assert 64 * 256 < learnt < 200_000 < budget.patches_in_time(seconds, full, {}, small)
    smaller = budget.patches_in_time(seconds, full | {"patch_size": 5}, {}, large)
    assert 64 * 256 < smaller < 100_000 < learnt  # more of them cover the image
    assert budget.patches_in_time(30.0, full, {}, large) == 64 * 256


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
    presets = IMAGE_MODELS["es3c"].presets
    monkeypatch.setitem(presets, "balanced", presets["balanced"] | {"n_learnt": 300})
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


def test_the_time_of_merging_counts_blocks_and_patches(monkeypatch):
    """Reconstruction takes two seconds a block and a hundredth a patch, after compilation, and an
    E-step three times as long."""
    now = [0.0]

    def work(block, times):
        compilation = 60.0 if now[0] == 0.0 else 0.0
        now[0] += compilation + times * (2.0 + 0.01 * len(block.data))

    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    numbers = np.arange(5000)
    grid = patches.regular_grid((200, 150, 1), 8)
    model = SimpleNamespace(
        numbers=numbers,
        patches=Patches(numbers, em.Data(np.zeros((5000, 4), np.float32))),
        state=SimpleNamespace(states=numbers),
        source=SimpleNamespace(grid=grid, canonical=None),
        reconstruct=lambda block, kept: work(block, 1),
        infer=lambda block, steps, kept: work(block, 3 * steps),
    )
    forecast = budget.forecast(model, 0)
    assert forecast.costs.search_step == pytest.approx(0.03, rel=0.01)
    whole = 4 * 2.0 + 0.01 * grid.n_patches
    expected = whole + (grid.n_patches - 5000) * 3 * 0.03
    assert forecast.seconds(Finish(3, 0)) == pytest.approx(expected, rel=0.01)


def test_a_limit_that_is_not_reached_changes_nothing():
    result = restore(GREY, time_limit=1e6, **TINY)
    assert result.ended == "max_iter"
    assert_same(result, tiny_run())


def test_a_run_that_would_take_too_much_is_refused_with_what_to_try():
    canonical = canonical_arrays.read(noisy(picture(200)), None, None, False)
    options = checked("restore", {"memory": 8 << 30, "preset": "paper"})
    (plan,) = plans_for(canonical, options, False)
    fitting = {"canonical": canonical, "grid": plan.grid, "settings": plan.settings}
    wanted = budget.needed(**fitting, memory=8 << 30)
    budget.check_available(**fitting, memory=8 << 30, available=wanted)
    available = wanted - (1 << 20)
    with pytest.raises(ValueError, match=r"image needs .* GB, .* available: try --memory ") as told:
        budget.check_available(**fitting, memory=8 << 30, available=available)
    less = int(re.search(r"--memory (\d+)M", str(told.value))[1]) << 20
    assert budget.needed(**fitting, memory=less) <= available
    with pytest.raises(ValueError, match=r"available: restore it in parts\.$"):
        budget.check_available(**fitting, memory=8 << 30, available=100 << 20)
