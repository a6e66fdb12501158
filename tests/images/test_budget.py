"""How runs end in time, against counting by hand."""

import numpy as np
import pytest
from test_restore import noisy, picture

from evoem import restore
from evoem.images import budget as closing
from evoem.images import patch_model as learning
from evoem.images import patches
from evoem.images import settings as presets
from evoem.images.budget import Closing, Costs
from evoem.images.patch_model import Learner

# Two blocks of ten patches, four of them learnt from.
COSTS = Costs(step=1.0, patch=0.1, block=2.0, around=(5.0, 7.0, 8.0))


@pytest.mark.parametrize("thinning", [1, 2, 3, 4])
def test_others_are_thinned_and_reach_all_edges(thinning):
    places = patches.grid((20, 17, 1), 8, 2)
    learnt = np.array([3, 0, 17])
    found = closing.others(places, learnt, thinning)
    n_rows, n_columns = len(places.tops), len(places.lefts)
    expected = [
        row * n_columns + column
        for row in range(n_rows)
        for column in range(n_columns)
        if (row % thinning == 0 or row == n_rows - 1)
        and (column % thinning == 0 or column == n_columns - 1)
        and row * n_columns + column not in learnt
    ]
    np.testing.assert_array_equal(found, expected)
    covered = np.zeros(places.shape[:2], bool)
    for top, left in zip(*places.corners(np.concatenate([found, learnt])), strict=True):
        covered[top : top + 8, left : left + 8] = True
    assert covered.all()


@pytest.mark.parametrize(
    ("way", "expected"),
    [
        (Closing(5, looks=0), 6 * 5 + (10 * 0.1 + 2 * 2)),
        (Closing(5, looks=1), 6 * 5 + (10 * 0.1 + 2 * 2) + 8),
        (Closing(5), 6 * 5 + (10 * 0.1 + 2 * 2) + 5 + 7 + 8),
        (Closing(3), 6 * 3 + (10 * 0.1 + 2 * 2) + 5 + 7 + 8),
    ],
)
def test_seconds_are_counted(way, expected):
    assert closing.seconds(way, COSTS, 4, 6, at_once=5) == pytest.approx(expected)


def test_ways_lead_from_the_best_to_the_quickest():
    ways = list(closing.ways(4, 2, most_looks=1))
    assert ways == [
        Closing(4, 1, 1), Closing(3, 1, 1), Closing(4, 2, 1), Closing(3, 2, 1),
        Closing(4, 1, 0), Closing(3, 1, 0), Closing(4, 2, 0), Closing(3, 2, 0),
    ]  # fmt: skip
    assert list(closing.ways(4, 2, most_looks=0)) == ways[4:]
    assert list(closing.ways(4, 2, most_looks=3))[8:] == ways


def test_a_run_ends_in_the_best_way_there_is_time_for(monkeypatch):
    """Found by asking for every number of seconds."""
    monkeypatch.setitem(
        presets.SUBSPACE_PRESETS, "fast", presets.SUBSPACE_PRESETS["fast"]._replace(n_learnt=300)
    )
    chosen = []

    def watched(learner, seconds):
        learner.costs = COSTS
        ways = list(closing.ways(learner.most_search_steps, 4, most_looks=3))
        needed = [learner.closing_seconds(way) for way in ways]
        for limit in [0.0, *sorted(needed), 1e9]:
            in_time = [way for way, time in zip(ways, needed, strict=True) if time <= limit]
            expected = in_time[0] if in_time else ways[-1]
            assert within(learner, limit) == expected
            chosen.append(expected)
        return within(learner, seconds)

    within = Learner.closing_within
    monkeypatch.setattr(Learner, "closing_within", watched)
    restore(noisy(picture()), preset="fast", patch_size=8, max_iter=1, time_limit=1e6, start="mean")
    assert len(set(chosen)) > 4


@pytest.mark.parametrize("thinning", [1, 2])
@pytest.mark.parametrize("looks", [0, 1, 3])
def test_fewer_patches_still_restore_the_image(thinning, looks, monkeypatch):
    clean = picture()
    few = presets.SUBSPACE_PRESETS["fast"]._replace(n_learnt=300)
    monkeypatch.setitem(presets.SUBSPACE_PRESETS, "fast", few)
    infer, searched = learning.em.infer, []

    def noted(*arguments, **options):
        if options["first"] is None:
            searched.append(len(arguments[1]))
        return infer(*arguments, **options)

    monkeypatch.setattr(learning.em, "infer", noted)
    monkeypatch.setattr(Learner, "closing_within", lambda *_: Closing(3, thinning, looks))
    image = noisy(clean)
    result = restore(image, preset="fast", patch_size=8, time_limit=1e6, seed=1)
    places = patches.grid((40, 40, 1), 8, 1, 0.5)
    expected = closing.others(places, np.arange(0), thinning)
    assert len(expected) * 0.4 < sum(searched) < len(expected)  # once, and not those learnt from
    error, before = (np.square(some - clean).mean() for some in (result.image, image))
    assert error < 0.2 * before


def test_limited_time_means_fewer_patches_to_learn_from():
    full = presets.SUBSPACE_PRESETS["balanced"]
    complete, incomplete = None, np.ones((2, 2, 1), bool)
    assert presets.n_learnt_in(1e9, full, {}, complete) == 300_000
    assert presets.n_learnt_in(np.inf, full, {}, complete) == 300_000
    assert presets.n_learnt_in(100.0, full, {}, complete) == 100_000
    assert presets.n_learnt_in(100.0, full, {}, incomplete) == 50_000
    assert presets.n_learnt_in(0.0, full, {}, complete) == 64 * 256
    assert presets.n_learnt_in(0.0, full, {"n_latents": 1000}, complete) == 64_000
