"""One restoration at a time, and a queue."""

import threading
import time

import numpy as np
import pytest
from command_line import noisy

from evoem import denoise
from evoem.images.files import FileError, Picture
from evoem.images.restore import restore_each
from evoem.ui import jobs
from evoem.ui.jobs import Jobs, sentence
from evoem.ui.pictures import Given


def given(shape=(24, 22), colour=False, stack=False, mask=None):
    return Given("in.png", Picture(noisy(shape), None, colour, stack, {}), mask)


def until(true, seconds=300):
    ends = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < ends
        time.sleep(0.02)


class Held:
    """Restores as ever, but waits after iterations and slices until it is let go, if it is to."""

    def __init__(self):
        self.let_go, self.next_slice = threading.Event(), threading.Event()
        self.let_go.set()
        self.next_slice.set()

    def __call__(self, *arguments, callback, **options):
        def told(progress):
            stop = callback(progress)
            self.let_go.wait(300)
            return stop or callback(progress)

        for result in restore_each(*arguments, callback=told, **options):
            yield result
            self.next_slice.wait(300)


@pytest.fixture
def holder():
    made = Held()
    yield made
    made.let_go.set()
    made.next_slice.set()


@pytest.fixture
def queue(holder):
    made = Jobs(holder)
    made.watchers = 1
    yield made
    made.discard_all()


@pytest.fixture
def held(holder):
    """What lets the restoration at hand go on."""
    holder.let_go.clear()
    return holder.let_go


def add(queue, picture=None, task="denoise", preset="fast", keep=True):
    return queue.add(1, picture or given(), task, preset, keep)


def test_a_picture_is_restored_with_previews_on_the_way(queue):
    job = add(queue)
    versions = set()
    until(lambda: versions.add(queue.version) or job.state in ("done", "failed"))
    assert job.error == ""
    assert job.restored.dtype == np.uint8
    assert 0 < np.abs(job.restored.astype(float) - given().picture.pixels).mean() < 12
    assert job.std.shape == job.restored.shape
    assert job.n_previews >= 1
    assert len(versions) > 2
    told = job.told()
    assert told["seconds"] == job.results[0].seconds
    assert sorted(set(told["bounds"])) == sorted(job.results[0].free_energies.tolist())
    assert "Before and after" in job.page()
    assert job.after(0).startswith(b"\x89PNG")


def test_one_works_and_the_others_wait(queue, held):
    first, second, third = add(queue), add(queue), add(queue)
    until(lambda: first.stage)
    assert [(each["state"], each["place"]) for each in queue.told()] == [
        ("running", 0), ("waiting", 1), ("waiting", 2),
    ]  # fmt: skip
    queue.remove(second.number)
    with pytest.raises(FileError, match="has expired"):
        queue[second.number]
    assert [each["place"] for each in queue.told()] == [0, 1]
    queue.stop(first.number)
    queue.remove(third.number)
    held.set()
    until(lambda: first.state == "done")
    assert first.results[0].ended == "callback"
    assert second.state == third.state == "waiting"


def test_what_is_discarded_makes_room_for_the_next(queue, held):
    first, second = add(queue), add(queue)
    until(lambda: first.stage)
    queue.remove(first.number)
    held.set()
    until(lambda: second.state == "done")
    assert first.results == []


def test_a_mask_is_filled_in_and_the_rest_stays(queue):
    mask = np.zeros((24, 22), bool)
    mask[4:8, 5:9] = True
    picture = given(mask=mask)
    job = add(queue, picture, task="inpaint")
    until(lambda: job.state in ("done", "failed"))
    changed = job.restored != picture.picture.pixels
    assert changed[mask].any()
    assert not changed[~mask].any()


def test_slices_of_a_stack_are_restored_by_one_model(queue):
    stack = given((2, 24, 22), stack=True)
    job = add(queue, stack)
    until(lambda: job.state in ("done", "failed"))
    np.testing.assert_array_equal(job.restored, denoise(stack.picture.pixels, preset="fast"))
    assert [each.n_slices for each in job.results] == [2, 2]
    assert job.n_previews >= 1
    assert job.preview.shape == (2, 24, 22)


def test_a_stack_that_is_stopped_while_it_learns_is_finished(queue, held):
    job = add(queue, given((2, 24, 22), stack=True))
    until(lambda: job.stage)
    queue.stop(job.number)
    assert job.told()["stopping"]
    held.set()
    until(lambda: job.state in ("done", "failed"))
    assert [each.ended for each in job.results] == ["callback", "callback"]


def test_a_stack_that_is_stopped_later_keeps_the_slices_that_are_done(queue, holder):
    holder.next_slice.clear()
    job = add(queue, given((3, 24, 22), stack=True))
    until(lambda: job.results)
    queue.stop(job.number)
    assert job.told()["stopping"]
    holder.next_slice.set()
    until(lambda: job.state in ("done", "failed"))
    assert len(job.results) == 2  # the one at hand is finished
    assert not job.told()["stopping"]
    np.testing.assert_array_equal(job.restored[2], job.given.slices[2])
    assert np.isnan(job.std[2]).all()
    assert "The last 1 of 3 slices are unchanged." in job.told()["notes"]


def test_the_worker_survives_an_error_and_says_it(queue):
    bad = add(queue, given((24, 22))._replace(mask=None, picture=Picture(
        np.full((24, 22), np.inf), None, False, False, {})))  # fmt: skip
    good = add(queue)
    until(lambda: good.state in ("done", "failed"))
    assert (bad.state, bad.error) == ("failed", "image must be finite or NaN; got inf.")
    assert good.state == "done"


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        ({"task": "sharpen"}, "task must be one of denoise, inpaint; got 'sharpen'"),
        ({"preset": "magic"}, "preset must be one of fast, .*; got 'magic'"),
        ({"task": "inpaint"}, "Nothing is marked as missing"),
    ],
)
def test_wishes_that_cannot_be_met_are_refused(wish, words, queue):
    with pytest.raises(ValueError, match=words):
        add(queue, **wish)
    assert queue.told() == []


def test_the_queue_has_an_end(queue, held, monkeypatch):
    monkeypatch.setattr(jobs, "MOST_WAITING", 1)
    first = add(queue)
    until(lambda: first.stage)
    second = add(queue)
    with pytest.raises(ValueError, match="At most 1 pictures can wait"):
        add(queue)
    queue.remove(second.number)
    queue.remove(first.number)


def test_errors_are_one_sentence():
    assert sentence(ValueError("seed must be even; got 1.")) == "seed must be even; got 1."
    assert sentence(KeyError("a")) == "Unexpected error: KeyError: 'a'."
