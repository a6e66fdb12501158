"""Restorations requested by the page: one at a time, while others wait in a queue."""

import itertools
import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evoem import report
from evoem.images import html_report
from evoem.images.files import FileError
from evoem.images.html_report import About
from evoem.images.learning import Progress
from evoem.images.options import PRESETS
from evoem.images.restore import Restoration, restore_each
from evoem.ui.pictures import Given

TASKS = ("denoise", "inpaint")
# A preview takes as long as finishing the picture: of the time, at most one in so many parts.
PREVIEW_SHARE = 4.0
MOST_WAITING = 20
MOST_KEPT = 16


class Discarded(Exception):
    """Nobody wants the result any more."""


class Job:
    """A restoration, and how far it is. Written by the worker, read by the page."""

    def __init__(
        self, number: int, picture: int, given: Given, task: str, preset: str, keep: bool
    ) -> None:
        self.number, self.picture, self.given = number, picture, given
        self.task, self.preset, self.keep = task, preset, keep
        self.facts = given.facts()
        self.state = "waiting"  # running, finishing, done, failed
        self.stage = ""
        self.iteration = self.max_iter = 0
        self.noise_level = self.seconds_left = 0.0
        self.bounds: list[float] = []
        self.preview: NDArray[Any] | None = None  # of all slices
        self.n_previews = 0
        self.error = ""
        self.stopped = self.enough = self.discarded = False
        self.results: list[Restoration] = []

    def run(
        self,
        restore: Callable[..., Iterator[Restoration]],
        changed: Callable[[], None],
        is_watched: Callable[[], bool],
    ) -> None:
        """Learn from all slices, then restore one after the other."""
        self.state = "running"
        changed()
        results = restore(
            self.given.stack(of_noise=self.preset != "paper"),
            keep_observed=self.task == "inpaint" and self.keep,
            preset=self.preset,
            callback=self._watch(changed, is_watched),
        )
        for result in results:
            self.results.append(result)
            if self.discarded:
                raise Discarded
            self.state = "finishing"
            changed()
            if self.enough:
                break

    def _watch(
        self, changed: Callable[[], None], is_watched: Callable[[], bool]
    ) -> Callable[[Progress], bool]:
        last, took = -np.inf, 0.0

        def watch(progress: Progress) -> bool:
            nonlocal last, took
            if self.discarded:
                raise Discarded
            if progress.stage != self.stage:
                self.stage, self.bounds = progress.stage, []
            self.iteration, self.max_iter = progress.iteration, progress.max_iter
            self.noise_level, self.seconds_left = progress.noise_level, progress.seconds_left
            self.bounds.append(progress.free_energy)
            is_last = self.stopped or self._is_last(progress)
            changed()
            started = time.monotonic()
            due = started - last >= (PREVIEW_SHARE - 1) * took
            if due and not is_last and is_watched():
                self.preview = progress.restored().reshape(self.given.slices.shape)
                self.n_previews += 1
                last = time.monotonic()
                took = last - started
            if self.stopped or is_last:
                self.state = "finishing"
            changed()
            return self.stopped

        return watch

    def _is_last(self, progress: Progress) -> bool:
        return progress.stage == "learning" and progress.iteration == progress.max_iter

    # ------------------------------------------------------------------------------ the result

    @property
    def restored(self) -> NDArray[Any]:
        """All slices; those that were not reached as they were."""
        values = self.given.slices.copy()
        for number, result in enumerate(self.results):
            values[number] = result.image
        return values.reshape(self.given.picture.pixels.shape)

    @property
    def std(self) -> NDArray[np.float32]:
        """Standard deviations, NaN of slices that were not reached."""
        values = np.full(self.given.slices.shape, np.nan, np.float32)
        for number, result in enumerate(self.results):
            values[number] = result.std
        return values.reshape(self.given.picture.pixels.shape)

    def after(self, number: int) -> bytes:
        """A slice of the result as a PNG file, or the latest preview of it."""
        if number < len(self.results):
            return self.given.png(number, self.results[number].image)
        if self.preview is not None:
            return self.given.png(number, self.preview[number])
        raise FileError("There is no preview of this slice yet.")

    def page(self) -> str:
        """The report."""
        return html_report.page_of(self.results, About(self.given.name, self.given.picture.notes))

    def told(self) -> dict[str, Any]:
        """All that the page shows of it."""
        about: dict[str, Any] = {
            "id": self.number,
            "picture": self.picture,
            "name": self.given.name,
            "given": self.facts,
            "task": self.task,
            "preset": self.preset,
            "state": self.state,
            "stage": self.stage,
            "iteration": self.iteration,
            "max_iter": self.max_iter,
            "slices": self.given.n_slices,
            "done": len(self.results),
            "noise_level": self.noise_level,
            "seconds_left": self.seconds_left,
            "bounds": self.bounds[-200:],
            "previews": self.n_previews,
            "stopping": (self.stopped and self.state == "running")
            or (self.enough and self.state == "finishing"),
            "error": self.error,
        }
        if self.state == "done":
            found = self.results[0].noise
            about["noise"] = "" if found is None else found.describe()
            about["noise_level"] = self.results[0].noise_level
            about["seconds"] = sum(result.seconds for result in self.results)
            about["notes"] = report.notes(self.results, self.given.n_slices)
        return about


class Jobs:
    """The queue and its worker, which calls `restore`."""

    def __init__(self, restore: Callable[..., Iterator[Restoration]] = restore_each) -> None:
        self._restore = restore
        self._jobs: dict[int, Job] = {}
        self._numbers = itertools.count(1)
        self._waiting: queue.SimpleQueue[Job] = queue.SimpleQueue()
        self.version = 0  # changes whenever anything does
        self.watchers = 0
        # The program may end while it works.
        threading.Thread(target=self._work, daemon=True, name="restorations").start()

    def __getitem__(self, number: int) -> Job:
        if number not in self._jobs:
            raise FileError("This result has expired.")
        return self._jobs[number]

    def add(self, picture: int, given: Given, task: str, preset: str, keep: bool) -> Job:
        """A new job at the end of the queue."""
        if task not in TASKS:
            raise ValueError(f"task must be one of {', '.join(TASKS)}; got {task!r}.")
        if preset not in PRESETS:
            raise ValueError(f"preset must be one of {', '.join(PRESETS)}; got {preset!r}.")
        if task == "denoise":
            given = given._replace(mask=None)
        else:
            facts = given.facts()
            if not facts["masked"] and not facts["empty"]:
                raise ValueError("Nothing is marked as missing: paint or load a mask first.")
        if sum(job.state == "waiting" for job in self._jobs.values()) >= MOST_WAITING:
            raise ValueError(f"At most {MOST_WAITING} pictures can wait; please try again later.")
        job = Job(next(self._numbers), picture, given, task, preset, keep)
        self._jobs[job.number] = job
        ended = [each for each in self._jobs.values() if each.state in ("done", "failed")]
        for old in ended[:-MOST_KEPT]:
            del self._jobs[old.number]
        self._waiting.put(job)
        self._changed()
        return job

    def stop(self, number: int) -> None:
        """End learning after this iteration, or restoring after this slice, and keep the rest."""
        job = self[number]
        if job.state == "finishing":
            job.enough = True
        else:
            job.stopped = True
        self._changed()

    def remove(self, number: int) -> None:
        """Forget a job, whatever it is doing."""
        job = self[number]
        job.discarded = True
        del self._jobs[number]
        self._changed()

    def discard_all(self) -> None:
        """Let the worker end soon."""
        for job in list(self._jobs.values()):
            job.discarded = True

    def told(self) -> list[dict[str, Any]]:
        """All jobs, with the places of those that wait."""
        places = itertools.count(1)
        found = []
        for job in list(self._jobs.values()):
            place = next(places) if job.state == "waiting" else 0
            found.append(job.told() | {"place": place})
        return found

    def _changed(self) -> None:
        self.version += 1

    def _work(self) -> None:
        while True:
            job = self._waiting.get()
            if job.discarded:
                continue
            try:
                job.run(self._restore, self._changed, lambda: self.watchers > 0)
                job.state = "done"
            except Discarded:
                pass
            except MemoryError:
                job.state, job.error = "failed", "Out of memory: try a smaller picture."
            except Exception as error:  # the worker goes on with the next one
                job.state, job.error = "failed", sentence(error)
            self._changed()


def sentence(error: Exception) -> str:
    """What went wrong, in one sentence: the program's own words, or that it was not foreseen."""
    if isinstance(error, ValueError):
        return str(error)
    return f"Unexpected error: {type(error).__name__}: {error}."
