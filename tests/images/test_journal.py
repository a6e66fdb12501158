"""Restorations resumed from any of their checkpoints end with the bits of one never stopped."""

import os
import shutil
import signal

import numpy as np
import pytest
from sample_images import GREY, MASK, STACK, TINY, assert_same, picture

from evoem import checkpoints, denoise, inpaint, restore
from evoem.images import heldout_selection
from evoem.runtime import archives
from evoem.runtime.atomic_files import FileError

QUICK = {"preset": "fast", "n_latents": 6, "n_states": 8, "n_parents": 4, "n_jobs": 1}
# Checkpoints of a run that are resumed, spread over it.
MOST_RESUMED = 12
HOLE = np.zeros(GREY.shape, bool)
HOLE[6:18, 5:16] = True


@pytest.fixture
def written(tmp_path, monkeypatch):
    """Copies of all checkpoints that are written, in their order."""
    own, copies = os.replace, []

    def replace(source, target):
        own(source, target)
        if target == tmp_path / "run":
            copies.append(tmp_path / f"copy {len(copies)}")
            shutil.copy(target, copies[-1])

    monkeypatch.setattr(os, "replace", replace)
    return copies


RUNS = {
    "subspaces": lambda **kept: restore(GREY, **QUICK, **kept),
    "mini-batches": lambda **kept: restore(GREY, **TINY | {"n_parts": 3, "max_iter": 4}, **kept),
    "nonlocal passes": lambda **kept: restore(GREY, **TINY | {"nonlocal_passes": 3}, **kept),
    "binary": lambda **kept: restore(
        GREY, **TINY | {"model": "ebsc", "start": "coarse", "tol": 1e6, "max_iter": 20}, **kept
    ),
    "holes": lambda **kept: restore(GREY, mask=HOLE, keep_observed=True, **TINY, **kept),
    "few patches": lambda **kept: restore(GREY, **TINY | {"memory": 50_000}, **kept),
    "selection": lambda **kept: restore(
        GREY, select="heldout", restarts=2, **TINY | {"start": "coarse"}, **kept
    ),
    "limited time": lambda **kept: restore(GREY, time_limit=1e4, **TINY, **kept),
}


def assert_resumed_from_each(written, run, path, whole, same):
    assert len(written) > 3
    for copy in written[:: -(-len(written) // MOST_RESUMED)]:
        shutil.copy(copy, path)
        same(run(checkpoint=path, resume=True), whole)


@pytest.mark.parametrize("name", RUNS)
def test_a_restoration_is_the_same_from_wherever_it_is_resumed(
    name, written, tmp_path, monkeypatch
):
    monkeypatch.setattr(heldout_selection, "FEWEST_HELD_OUT", 10)
    run = RUNS[name]
    whole = run()

    def same(one, other):
        assert_same(one, other)
        assert one.ended == other.ended
        assert one.notes == other.notes
        assert one.selection == other.selection
        assert one.settings == other.settings
        np.testing.assert_array_equal(one.estimator.components_, other.estimator.components_)

    same(run(checkpoint=tmp_path / "run", every=0.0), whole)
    assert_resumed_from_each(written, run, tmp_path / "run", whole, same)


@pytest.mark.parametrize("run", [
    lambda **kept: denoise(STACK, **TINY, **kept),
    lambda **kept: inpaint(STACK, MASK, **TINY, **kept),
])  # fmt: skip
def test_so_is_a_stack(run, written, tmp_path):
    whole = run()
    np.testing.assert_array_equal(run(checkpoint=tmp_path / "run", every=0.0), whole)
    assert_resumed_from_each(written, run, tmp_path / "run", whole, np.testing.assert_array_equal)


def test_a_finished_run_is_recalled_and_nothing_is_written(tmp_path, written):
    path = tmp_path / "run"
    whole = restore(GREY, **TINY, checkpoint=path)
    assert len(written) == 1
    again = restore(GREY, **TINY, checkpoint=path, resume=True, callback=pytest.fail)
    assert_same(again, whole)
    assert len(written) == 1


@pytest.mark.parametrize("kind", [signal.SIGINT])
@pytest.mark.parametrize("iteration", [1, 2])
@pytest.mark.parametrize("stage", ["coarse start", "learning"])
def test_an_interrupt_is_kept_to_the_bit_and_answered_at_once(stage, iteration, kind, tmp_path):
    options = TINY | {"start": "coarse"}

    def interrupt(progress):
        if (progress.stage, progress.iteration) == (stage, iteration):
            signal.raise_signal(kind)

    path = tmp_path / "run"
    stopped = restore(GREY, **options, checkpoint=path, callback=interrupt)
    assert stopped.ended == "interrupted"
    saved = checkpoints.read(path)
    assert saved.stage == f"slice 0/{stage}"
    assert len(saved.infos) == iteration
    assert_same(restore(GREY, **options, checkpoint=path, resume=True), restore(GREY, **options))


def test_what_a_callback_ended_goes_on_from_there(tmp_path):
    path = tmp_path / "run"
    ended = restore(GREY, **TINY, checkpoint=path, callback=lambda told: told.iteration == 2)
    assert ended.ended == "callback"
    assert_same(restore(GREY, **TINY, checkpoint=path, resume=True), restore(GREY, **TINY))


def test_time_that_was_used_before_counts(tmp_path):
    path = tmp_path / "run"
    options = TINY | {"time_limit": 100.0, "max_iter": 10**6}
    restore(GREY, **options, checkpoint=path, callback=lambda told: told.iteration == 2)
    header, arrays = archives.read(path)
    archives.write(path, header | {"seconds": 99.9}, arrays)
    late = restore(GREY, **options, checkpoint=path, resume=True)
    assert late.ended == "time_limit"
    assert 3 <= len(late.free_energies) < 10**4
    assert late.seconds > 99.9


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"image": GREY + 1e-9}, "data must be those that .* was written for"),
        ({"mask": MASK}, "data must be those that .* was written for"),
        ({"n_states": 9}, "n_states must be 8 to resume from .*; got 9"),
        ({"seed": 1}, "seed must be 0 to resume"),
        ({"preset": "fast"}, "preset must be 'balanced' to resume"),
        ({"keep_observed": True}, "keep_observed must be False to resume"),
        ({"time_limit": 10.0}, "time_limit must be None to resume"),
    ],
)
def test_another_run_is_refused_by_the_difference(change, sentence, tmp_path):
    path = tmp_path / "run"
    given = {"image": GREY, **TINY}
    restore(**given, checkpoint=path)
    before = path.read_bytes()
    with pytest.raises(FileError, match=sentence):
        restore(**given | change, checkpoint=path, resume=True)
    with pytest.raises(FileError, match="must not exist yet unless resume is given"):
        restore(**given, checkpoint=path)
    assert path.read_bytes() == before


def test_threads_and_the_callback_may_change(tmp_path):
    path = tmp_path / "run"
    restore(GREY, **TINY, checkpoint=path, callback=lambda told: told.iteration == 1)
    resumed = restore(
        GREY, **TINY | {"n_jobs": 2}, checkpoint=path, every=1.0, resume=True, callback=id
    )
    assert_same(resumed, restore(GREY, **TINY))


def test_the_checkpoint_of_a_table_is_no_picture(tmp_path):
    path = tmp_path / "run"
    checkpoints.Checkpoint(path, 0.0, False, {"seed": 0}, "").save("learning", None, [])
    with pytest.raises(FileError, match=r"must be .* to resume"):
        restore(GREY, **TINY, checkpoint=path, resume=True)


def test_a_constant_image_has_nothing_to_keep(tmp_path):
    flat = np.full((20, 20), 7.0)
    restore(flat, **TINY, checkpoint=tmp_path / "run")
    assert (restore(flat, **TINY, checkpoint=tmp_path / "run", resume=True).image == 7).all()


def test_a_checkpoint_is_little_more_than_the_states(tmp_path):
    path = tmp_path / "run"
    image = picture(64)
    result = restore(image, **TINY | {"n_states": 60, "n_latents": 512}, checkpoint=path)
    states = result.estimator.state_.states.nbytes
    assert path.stat().st_size <= 1.2 * states
