"""The journal of a restoration: finished parts and the current stage, saved if a file is given.

A restoration takes the same steps each time. To resume one, it takes them again: what the journal
has noted is recalled instead of computed, and the stage that was at hand goes on from its last
iteration. Whoever may be resumed asks the journal first, and tells it afterwards.
"""

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import NDArray

from evoem import checkpoints
from evoem.checkpoints import Checkpoint, Saved
from evoem.images.bands import Band
from evoem.images.canonical_arrays import Canonical
from evoem.images.noise_model import Noise
from evoem.images.options import OPTIONS
from evoem.images.patch_model import PatchModel
from evoem.runtime import interrupts
from evoem.runtime.archives import Arrays
from evoem.runtime.atomic_files import FileError
from evoem.runtime.communicator import ALONE

# Options that change nothing in the result, or are part of the data.
FREE = ("n_jobs", "verbose", "callback", "comm", "noise_variance", "checkpoint", "every", "resume")

T = TypeVar("T")


class Place(NamedTuple):
    """A stage, after one of its iterations."""

    stage: str
    model: PatchModel
    noted: Any


class Journal:
    """What is done of a restoration, and its stage; without a checkpoint nothing is remembered."""

    def __init__(self, checkpoint: Checkpoint | None = None) -> None:
        self._checkpoint = checkpoint
        self._started = time.perf_counter()
        self._path: tuple[str, ...] = ()
        self._place: Place | None = None
        self._changed = self._stopped = False
        self._notes: dict[str, Any] = {}
        self._stage_noted: Any = None
        self._saved = None if checkpoint is None else checkpoint.load()
        if self._saved is not None:
            self._notes, self._stage_noted = _read(self._saved)

    @property
    def is_kept(self) -> bool:
        """Whether what is done now can be resumed."""
        return self._checkpoint is not None and not self._stopped

    @property
    def seconds(self) -> float:
        """Since the start, those of earlier processes included."""
        if self._checkpoint is None:
            return time.perf_counter() - self._started
        return self._checkpoint.seconds

    @contextmanager
    def within(self, part: str) -> Iterator[None]:
        """What is done here is part of something larger, and named so."""
        before = self._path
        self._path = (*before, part)
        try:
            yield
        finally:
            self._path = before

    # ------------------------------------------------------------------------- what is done

    def recall(self, name: str) -> Any:
        """What was noted by this name, or None."""
        return self._notes.get(self._named(name))

    def note(self, name: str, value: Any) -> None:
        """Remember plain data, in place of all that was noted of its parts."""
        if not self.is_kept:
            return
        own = self._named(name)
        self._notes = {
            other: known for other, known in self._notes.items() if not _is_part(other, own)
        }
        if self._place is not None and _is_part(self._place.stage, own):
            self._place = None
        self._notes[own] = value
        self._changed = True

    def once(self, name: str, compute: Callable[[], T]) -> T:
        """What was noted, or is computed and noted now: plain data."""
        known: T | None = self.recall(name)
        if known is None:
            known = compute()
            self.note(name, known)
            self.keep()
        return known

    def begun(self, started: float, limit: float | None) -> tuple[float, float | None]:
        """When this began and how long it may take, time that earlier processes used included."""
        now = time.perf_counter()
        begun, limit = self.once("clock", lambda: (self.seconds - (now - started), limit))
        return now - (self.seconds - begun), limit

    # ---------------------------------------------------------------------- the stage at hand

    def is_at(self, stage: str) -> bool:
        """Whether this stage is to be resumed."""
        return self._saved is not None and self._saved.stage == self._named(stage)

    def go_on(self, stage: str, model: PatchModel, params: type) -> Any:
        """Take a model to where this stage was, if it is to be resumed; what was noted of it."""
        if self._saved is None or not self.is_at(stage):
            return None
        model.set_state(self._saved.state(model.model, model.patches.data, params))
        model.infos = self._saved.infos
        self._place = Place(self._saved.stage, model, self._stage_noted)
        self._saved = None  # it takes much memory
        return self._place.noted

    def reached(self, stage: str, model: PatchModel, noted: Any) -> None:
        """A stage has done one more iteration: what it needs beside its model to go on."""
        if self.is_kept:
            self._place = Place(self._named(stage), model, noted)
            self._changed = True

    # -------------------------------------------------------------------------------- keeping

    def keep(self, *, at_once: bool = False) -> None:
        """Write all of it if that is due, or if an interrupt came."""
        if self._checkpoint is None or self._stopped or not self._changed:
            return
        if self._saved is not None and self._saved.stage:  # what is there is ahead of this
            return
        if at_once or self._checkpoint.is_due(interrupts.number() > 0):
            self._write(self._checkpoint)

    def stop(self) -> None:
        """What is done from now on is not part of the run: it is to be resumed before that."""
        self._stopped = True

    def _write(self, checkpoint: Checkpoint) -> None:
        place = self._place
        arrays: Arrays = {}
        noted = None if place is None else place.noted
        more = {
            "notes": checkpoints.packed(self._notes, arrays, "notes"),
            "stage": checkpoints.packed(noted, arrays, "stage"),
        }
        if place is None:
            checkpoint.save("", None, [], more=more, arrays=arrays)
        else:
            model = place.model
            checkpoint.save(
                place.stage, model.state, model.infos, model.patches.data.numbers, more, arrays
            )
        self._changed = False

    def _named(self, name: str) -> str:
        return "/".join((*self._path, name))


# Of restorations that nobody wants to resume.
UNKEPT = Journal()


def journal_of(
    slices: Iterable[Canonical], keep_observed: bool, options: dict[str, Any]
) -> Journal:
    """The journal of a restoration, where it is to be kept or resumed if anywhere."""
    if options["checkpoint"] is None:
        return Journal()
    settings = {name: options[name] for name in OPTIONS if name not in FREE}
    if isinstance(settings["noise"], Noise):
        settings["noise"] = settings["noise"].to_json()
    if options["time_limit"] is not None:  # how much is learnt in it depends on the threads
        settings["n_jobs"] = effective_n_jobs(options["n_jobs"])
    return Journal(
        Checkpoint(
            options["checkpoint"],
            options["every"],
            options["resume"],
            settings | {"keep_observed": keep_observed},
            fingerprint(slices),
            options["comm"] or ALONE,
        )
    )


def fingerprint(slices: Iterable[Canonical]) -> str:
    """Of all that is given of images.

    It is made of sums over rows, so that processes that have some of them can add up theirs.
    """
    digest = hashlib.blake2b(digest_size=16)
    for one in slices:
        digest.update(repr((one.shape, one.channel_axis, one.alpha is None)).encode())
        image = (
            one.image if one.channel_axis is None else np.moveaxis(one.image, one.channel_axis, -1)
        )
        for array in (image, one.observed, one.noise_variance):
            if array is not None:
                digest.update(repr((array.shape[1:], array.dtype.str)).encode())
                digest.update(_sum_over_rows(array, one.band).tobytes())
    return digest.hexdigest()


def _sum_over_rows(array: NDArray[Any], band: Band) -> NDArray[np.uint64]:
    total = np.zeros(2, np.uint64)
    for number, row in enumerate(array, band.rows.start):
        digest = hashlib.blake2b(np.ascontiguousarray(row).data, digest_size=16)
        digest.update(number.to_bytes(8, "little"))
        total += np.frombuffer(digest.digest(), np.uint64)
    band.comm.add(total)
    return total


def _is_part(name: str, whole: str) -> bool:
    return name.startswith(f"{whole}/")


def _read(saved: Saved) -> tuple[dict[str, Any], Any]:
    try:
        more, arrays = saved.more, saved.archive.arrays
        notes, stage = (
            checkpoints.unpacked(more[name], arrays, None) for name in ("notes", "stage")
        )
        if not isinstance(notes, dict):
            raise ValueError("its notes are damaged")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FileError(f"{saved.path} must be the checkpoint of a picture; {error}.") from error
    return notes, stage
