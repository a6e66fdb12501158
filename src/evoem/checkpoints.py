"""Save a run to a file, so that it can be resumed.

A checkpoint holds the parameters, the packed states in blocks of global row numbers, the statistics
of mini-batches, the numbers of all iterations, and beside them what it was made with: settings,
versions and a fingerprint of the data. It is no pickle: nothing in it can be run.
"""

import importlib.metadata
import json
import logging
import platform
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evoem import streams, validation
from evoem.data import Data
from evoem.em_state import EMState, StepInfo
from evoem.evolution import Evolution
from evoem.models.base import Model
from evoem.runtime import archives
from evoem.runtime.archives import Archive
from evoem.runtime.atomic_files import FileError, check_place
from evoem.runtime.communicator import ALONE, Communicator, any_of

FORMAT = "evoem checkpoint"
VERSION = 1
ROWS_PER_BLOCK = 1 << 16
DEFAULT_EVERY = 60.0  # seconds
# Of a run's time, for writing checkpoints: where that takes long there are fewer.
LARGEST_SHARE = 0.02
LOGGER = logging.getLogger("evoem")

Settings = Mapping[str, Any]


class Saved(NamedTuple):
    """A checkpoint that was read."""

    path: Path
    archive: Archive

    @property
    def stage(self) -> str:
        """Which part of a run it belongs to."""
        return str(self.archive.header["stage"])

    @property
    def seconds(self) -> float:
        """How long the run had taken."""
        return float(self.archive.header["seconds"])

    @property
    def seed(self) -> int:
        """That of the run."""
        return int(self.archive.header["settings"]["seed"])

    @property
    def more(self) -> Any:
        """What was stored beside the state."""
        return self.archive.header["more"]

    @property
    def infos(self) -> list[StepInfo]:
        """What each iteration reported."""
        return [StepInfo(*values) for values in self.archive.header["infos"]]

    def state(self, model: Model, data: Data, params: Any) -> EMState:
        """Where the run was, given parameters of the same model, or the class of them."""
        try:
            header = self.archive.header["state"]
            learnt = unpacked(header["params"], self.archive.arrays, params)
            validation.same_features(data.X, learnt)
            template = model.empty_statistics(learnt)
            statistics = tuple(
                unpacked(part, self.archive.arrays, template) for part in header["statistics"]
            )
            current = bool(header["current"])
            numbers = data.numbers
            states = self._rows("states", numbers, np.uint64)
            log_joints = np.full(states.shape[:2], -np.inf)
            if current:
                log_joints = self._rows("log_joints", numbers, np.float64)
            validation.kept_states("states", states, len(data), len(learnt.activation_probs))
            return EMState(
                learnt, states, log_joints, statistics, current,
                int(header["iteration"]), int(header["seed"]),
            )  # fmt: skip
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            raise FileError(
                f"{self.path} must be a checkpoint of this run's model; {error}."
            ) from error

    def _rows(self, name: str, numbers: NDArray[np.uint64], dtype: Any) -> NDArray[Any]:
        """What is stored of the rows of these global numbers, whichever blocks they are in."""
        order = np.argsort(numbers, kind="stable")
        ascending, found, out = numbers[order], 0, None
        for block in range(int(self.archive.header["state"]["n_blocks"])):
            rows = self.archive.arrays[f"rows.{block}"]
            if f"{name}.{block}" not in self.archive.arrays:
                continue
            values = self.archive.arrays[f"{name}.{block}"]
            if values.dtype != dtype or rows.dtype != np.uint64 or len(values) != len(rows):
                raise ValueError(f"its {name} are damaged")
            if out is None:
                out = np.empty((len(numbers), *values.shape[1:]), dtype)
            mine = np.isin(rows, ascending)
            out[order[np.searchsorted(ascending, rows[mine])]] = values[mine]
            found += int(np.count_nonzero(mine))
        if out is None or found != len(numbers):
            raise ValueError(f"it holds {found} of {len(numbers)} rows")
        return out


class Checkpoint:
    """The file that a run is kept in.

    Parameters
    ----------
    path : str or Path
    every : float
        Seconds between checkpoints, at least; more where writing one takes more than a fiftieth of
        that. With 0 there is one after every iteration.
    resume : bool
        Go on from the file if it exists. Without this an existing file is refused.
    settings : dict
        What a run must have in common with the one that it goes on from.
    fingerprint : str
        Of the data.
    comm : Communicator
        Other processes that the run is in. The first one writes for all, block by block.
    """

    def __init__(
        self,
        path: str | Path,
        every: float,
        resume: bool,
        settings: Settings,
        fingerprint: str,
        comm: Communicator = ALONE,
    ) -> None:
        self._comm = comm
        self.path, self.every = checked(path, every, resume)
        self._made_with = {
            "settings": json.loads(json.dumps(settings)),
            "fingerprint": fingerprint,
        }
        self._started = self._last = time.perf_counter()
        self.before = 0.0  # seconds that earlier processes took
        self._cost = 0.0  # seconds that writing took
        self._failed = False

    def load(self, numbers: NDArray[np.uint64] | None = None) -> Saved | None:
        """The run to go on from, if there is one, refused if it is another one.

        What it knows of rows is read for those of these `numbers`, or for all.
        """
        if not self.path.exists():
            return None
        saved = read(self.path, numbers)
        _same_run(saved, self._made_with)
        self.before = saved.seconds
        return saved

    @property
    def seconds(self) -> float:
        """Since the start of the run, those of earlier processes included."""
        return self.before + time.perf_counter() - self._started

    def is_due(self, at_once: bool = False) -> bool:
        """Whether the last checkpoint is old enough for another one, given how long that took, by
        the first process's clock; or any process wants one at once."""
        wait = max(self.every, self._cost / LARGEST_SHARE) if self.every else 0.0
        late = self._comm.rank == 0 and time.perf_counter() - self._last >= wait
        return any_of(self._comm, late or at_once)[0]

    def save(
        self,
        stage: str,
        state: EMState | None,
        infos: list[StepInfo],
        numbers: NDArray[np.uint64] | None = None,
        more: Any = None,
        arrays: Mapping[str, NDArray[Any]] | None = None,
    ) -> None:
        """Write where the run is. If that fails the run goes on, and one line says so, once."""
        stored: archives.Arrays = dict(arrays or {})
        began = time.perf_counter()
        header = {
            "format": FORMAT,
            "version": VERSION,
            "versions": versions(),
            **self._made_with,
            "stage": stage,
            "seconds": self.seconds,
            "infos": [list(map(number, info)) for info in infos],
            "more": more,
        }
        of_rows: Iterator[tuple[str, NDArray[Any]]] = iter(())
        if state is not None and numbers is not None:
            counts = self._comm.collect(len(numbers))
            blocks = _row_blocks(counts, self._comm.rank)
            header["state"] = _state_header(state, len(blocks), stored)
            of_rows = _of_rows(state, numbers, blocks, self._comm)
        if self._comm.rank == 0:
            try:
                archives.write(self.path, header, stored, of_rows)
            except FileError as error:
                if not self._failed:
                    LOGGER.warning("evoem: %s The run continues without a newer checkpoint.", error)
                self._failed = True
        for _ in of_rows:  # others give theirs to the first one, also if it could not write them
            pass
        self._last = time.perf_counter()
        self._cost = self._last - began


def _row_blocks(counts: list[int], rank: int) -> list[slice]:
    """What a process has of each block of rows, given how many rows each process has."""
    start, n_own = sum(counts[:rank]), counts[rank]
    edges = np.arange(0, sum(counts) + ROWS_PER_BLOCK, ROWS_PER_BLOCK) - start
    return [slice(*pair) for pair in pairwise(np.clip(edges, 0, n_own).tolist())]


def _of_rows(
    state: EMState, numbers: NDArray[np.uint64], blocks: list[slice], comm: Communicator
) -> Iterator[tuple[str, NDArray[Any]]]:
    """What is stored of rows, in the first process; it asks the others for it, block by block."""
    values: archives.Arrays = {"rows": numbers, "states": state.states}
    if state.current:  # otherwise the next E-step computes them
        values["log_joints"] = state.log_joints
    for number, block in enumerate(blocks):
        for name, own in values.items():
            pieces = comm.gather(own[block])
            if pieces is not None:
                whole = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
                yield f"{name}.{number}", whole


def checked(path: str | Path, every: float, resume: bool) -> tuple[Path, float]:
    """What a user gives, refused where no checkpoint could be written or one would be lost."""
    validation.real("every", every, 0.0)
    validation.boolean("resume", resume)
    path = Path(path)
    check_place(path, force=True)
    if path.exists() and not resume:
        raise FileError(
            f"checkpoint must not exist yet unless resume is given; found the file {path}."
        )
    return path, float(every)


def read(path: Path, numbers: NDArray[np.uint64] | None = None) -> Saved:
    """A checkpoint, refused in one sentence if it is none, or one of a newer version.

    What it knows of rows is read for those of these `numbers`, or for all.
    """

    def wanted(name: str, before: archives.Arrays) -> bool:
        kind, _, block = name.rpartition(".")
        rows = before.get(f"rows.{block}")
        if numbers is None or kind not in ("states", "log_joints") or rows is None:
            return True
        return block == "0" or bool(np.isin(rows, numbers).any())  # one tells the shape

    archive = archives.read(path, wanted)
    header = archive.header
    if header.get("format") != FORMAT:
        raise FileError(f"{path} must be a checkpoint; got a file of another kind.")
    if header.get("version") != VERSION:
        raise FileError(
            f"{path} must be a checkpoint of version {VERSION}; got {header.get('version')!r}, "
            "of another release of evoem."
        )
    try:
        saved = Saved(path, archive)
        for name, kind in (("settings", dict), ("fingerprint", str), ("stage", str)):
            if not isinstance(header[name], kind):
                raise ValueError(f"its {name} are damaged")
        saved.seconds, saved.infos, saved.more, saved.seed  # noqa: B018 - raises if one is not there
    except (KeyError, TypeError, ValueError) as error:
        raise FileError(f"{path} must be a whole checkpoint; {error} is wrong.") from error
    return saved


def read_seed(path: Path) -> int:
    """The seed of the run that a checkpoint belongs to."""
    return read(path, np.empty(0, np.uint64)).seed


def _same_run(saved: Saved, now: Mapping[str, Any]) -> None:
    before = saved.archive.header
    for name in before["settings"] | now["settings"]:
        one, other = (made["settings"].get(name) for made in (before, now))
        if one != other:
            raise FileError(
                f"{name} must be {one!r} to resume from {saved.path}, as it was before; "
                f"got {other!r}."
            )
    if before["fingerprint"] != now["fingerprint"]:
        raise FileError(f"data must be those that {saved.path} was written for; got others.")


def versions() -> dict[str, str]:
    """What a result depends on beside settings and data."""
    return {
        "evoem": importlib.metadata.version("evoem"),
        "numpy": np.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
    }


def fingerprint(
    X: NDArray[np.floating],
    observed: NDArray[np.bool_] | None,
    numbers: NDArray[np.uint64] | None = None,
    comm: Communicator = ALONE,
) -> str:
    """A number that rows of data have, together with their global numbers.

    It is a sum over rows, so that processes that hold some of them can add up theirs.
    """
    if numbers is None:
        numbers = np.arange(len(X), dtype=np.uint64)
    keys = streams.row_keys(X, observed)
    each = streams.start(0, 0, keys ^ streams.start(1, 0, numbers))
    total = each.sum(dtype=np.uint64, keepdims=True)
    comm.add(total)
    return f"{int(total[0]):016x} {X.shape[1]} {X.dtype}"


def settings_of(
    model: Model, state: EMState, evolution: Evolution, n_parts: int, n_rows: int
) -> Settings:
    """What decides about a run of EM, beside its data and when it ends."""
    options = {
        name: value
        for name, value in vars(model).items()
        if isinstance(value, str | int | float | bool | None)
    }
    return {
        "model": type(model).__name__,
        **options,
        **{name: number(value) for name, value in evolution._asdict().items()},
        "n_latents": len(state.params.activation_probs),
        "n_states": state.states.shape[1],
        "n_samples": int(n_rows),
        "n_parts": int(n_parts),
        "seed": int(state.seed),
    }


def _state_header(state: EMState, n_blocks: int, stored: archives.Arrays) -> dict[str, Any]:
    """The parts of a state that belong to no row; arrays among them are added to `stored`."""
    return {
        "params": packed(state.params, stored, "params"),
        "statistics": [
            packed(part, stored, f"statistics.{number}")
            for number, part in enumerate(state.statistics)
        ],
        "current": bool(state.current),
        "iteration": int(state.iteration),
        "seed": int(state.seed),
        "n_blocks": n_blocks,
    }


# ------------------------------------------------------------------- nested records as JSON


def packed(tree: Any, stored: archives.Arrays, name: str) -> Any:
    """Nested records, dicts, lists and numbers as JSON; arrays are added to `stored`."""

    def inside(part: Any, key: object) -> Any:
        return packed(part, stored, f"{name}.{key}")

    if tree is None or isinstance(tree, bool | int | float | str):
        return {"value": tree}
    if isinstance(tree, np.ndarray | np.generic):
        stored[name] = np.ascontiguousarray(tree).reshape(np.shape(tree))
        return {"array": name}
    if isinstance(tree, dict):
        return {"dict": [[key, inside(part, key)] for key, part in tree.items()]}
    if hasattr(tree, "_fields"):
        return {"record": {key: inside(part, key) for key, part in tree._asdict().items()}}
    if isinstance(tree, list | tuple):
        kind = "list" if isinstance(tree, list) else "tuple"
        return {kind: [inside(part, key) for key, part in enumerate(tree)]}
    raise TypeError(f"a checkpoint must hold arrays and numbers; got {type(tree)!r}.")


def unpacked(packed: Any, stored: archives.Arrays, template: Any) -> Any:
    """What was packed. Records are those of the template: no class is looked up by a name."""
    ((kind, content),) = packed.items()
    build: dict[str, Callable[[], Any]] = {
        "value": lambda: content,
        "array": lambda: stored[content],
        "dict": lambda: {key: unpacked(part, stored, None) for key, part in content},
        "list": lambda: [unpacked(part, stored, None) for part in content],
        "tuple": lambda: tuple(unpacked(part, stored, None) for part in content),
        "record": lambda: _record(content, stored, template),
    }
    return build[kind]()


def _record(content: Mapping[str, Any], stored: archives.Arrays, template: Any) -> Any:
    record, inner = type(template), template
    if isinstance(template, type):
        record, inner = template, None
    fields = getattr(record, "_fields", ())
    if set(content) != set(fields):
        raise ValueError(f"it has {', '.join(content)} where {record.__name__} is expected")
    return record(
        **{name: unpacked(content[name], stored, getattr(inner, name, None)) for name in fields}
    )


def number(value: Any) -> Any:
    """A number of NumPy as one of Python, which JSON writes in full."""
    return value.item() if isinstance(value, np.generic) else value
