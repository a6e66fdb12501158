"""The folder of a reproduction: results of finished parts, checkpoints, and the time taken."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evoem.reproduction.recipes import Part
from evoem.runtime import archives
from evoem.runtime.atomic_files import FileError, write_whole

CHECKPOINT_EVERY = 300.0  # seconds: states of large models take more than a gigabyte

Arrays = dict[str, NDArray[Any]]


class Outcome(NamedTuple):
    """What came of a part."""

    values: dict[str, Any]  # numbers and words
    arrays: Arrays
    seconds: float = 0.0  # of all attempts
    core_seconds: float = 0.0  # of all threads


class Spent(NamedTuple):
    """Time of attempts so far."""

    seconds: float
    core_seconds: float


class Workbook:
    """Parts and what is known of them, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.kept = folder / "parts"
        try:
            self.kept.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FileError(
                f"out must be a folder that can be written to; got {folder}: {error.strerror}."
            ) from error

    def outcome(self, part: Part) -> Outcome | None:
        """What came of a part, if it is finished."""
        path = self._path(part, "npz")
        if not path.exists():
            return None
        found = archives.read(path)
        spent = self.spent(part)
        return Outcome(found.header, found.arrays, *spent)

    def finish(self, part: Part, outcome: Outcome) -> None:
        """Keep what came of a part; what was kept for going on with it is no longer needed."""
        arrays = {name: np.asarray(array) for name, array in outcome.arrays.items()}
        archives.write(self._path(part, "npz"), outcome.values, arrays)
        for path in (self.checkpoint(part), self._path(part, "records.json")):
            path.unlink(missing_ok=True)

    def checkpoint(self, part: Part) -> Path:
        """The file to go on from."""
        return self._path(part, "checkpoint")

    def records(self, part: Part) -> list[dict[str, Any]]:
        """What was noted on the way of an unfinished part."""
        path = self._path(part, "records.json")
        return list(json.loads(path.read_text())) if path.exists() else []

    def note(self, part: Part, records: list[dict[str, Any]]) -> None:
        """Keep what is noted on the way."""
        self._write(self._path(part, "records.json"), records)

    def spent(self, part: Part) -> Spent:
        """Time of all attempts at a part."""
        path = self._path(part, "spent.json")
        return Spent(*json.loads(path.read_text())) if path.exists() else Spent(0.0, 0.0)

    @contextmanager
    def timed(self, part: Part) -> Iterator[None]:
        """Add the time of an attempt, however it ends."""
        started, of_cores = time.perf_counter(), time.process_time()
        try:
            yield
        finally:
            before = self.spent(part)
            seconds = before.seconds + time.perf_counter() - started
            cores = before.core_seconds + time.process_time() - of_cores
            self._write(self._path(part, "spent.json"), [seconds, cores])

    def _path(self, part: Part, suffix: str) -> Path:
        return self.kept / f"{part.key}.{suffix}"

    def _write(self, path: Path, content: Any) -> None:
        text = json.dumps(content, allow_nan=False) + "\n"
        write_whole(path, lambda file: file.write(text.encode()), force=True)
