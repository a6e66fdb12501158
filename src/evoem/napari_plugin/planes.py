"""Arrays of layers as planes that one model learns from, without importing napari."""

import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evoem.images.learning import Progress
from evoem.images.restore import Restoration, restore_each
from evoem.images.stacks import Stack

# A preview takes as long as finishing the picture: of the time, at most one in so many parts.
PREVIEW_SHARE = 4.0
LEARNT = 0.7  # of the work, roughly


class Planes(NamedTuple):
    """All planes of a layer, each (rows, columns), with channels behind if it is coloured."""

    pixels: NDArray[Any]
    masks: NDArray[np.bool_] | None  # of (planes, rows, columns)
    colour: bool
    shape: tuple[int, ...]  # of the layer


class Wish:
    """What somebody wants of a run, from another thread."""

    def __init__(self) -> None:
        self.stop = False  # learning, and keep what was learnt
        self.enough = False  # of planes that are restored, once all is learnt
        self.cancel = False
        self.learnt = False

    def keep(self) -> None:
        """End as soon as there is something to keep."""
        if self.learnt:
            self.enough = True
        else:
            self.stop = True


class Told(NamedTuple):
    """How far it is: where, in words and as a share; a preview of the layer, or the end."""

    words: str
    share: float
    values: NDArray[Any] | None = None
    results: list[Restoration] | None = None


Tell = Callable[[Told], None]


class Cancelled(Exception):
    """Nobody wants the result any more."""


def planes_of(data: Any, colour: bool, labels: Any = None) -> Planes:
    """The planes of a layer; where labels are not zero, values are missing."""
    pixels = np.asarray(data)
    shape, n_own = pixels.shape, 3 if colour else 2
    if pixels.ndim < n_own:
        raise ValueError(f"image must have rows and columns; got the shape {shape}.")
    planes = pixels.reshape(-1, *shape[-n_own:])
    masks = None
    if labels is not None:
        marked = np.asarray(labels) != 0
        of_pixels = shape[:-1] if colour else shape
        if marked.shape not in (of_pixels, of_pixels[-2:]):
            raise ValueError(
                f"labels must have the shape of the image, {of_pixels}, or of one plane of it; "
                f"got {marked.shape}."
            )
        if not marked.any():
            raise ValueError("labels must mark missing pixels; got only zeros.")
        masks = np.broadcast_to(marked, of_pixels).reshape(-1, *of_pixels[-2:])
    return Planes(planes, masks, colour, shape)


def run(planes: Planes, options: dict[str, Any], wish: Wish) -> Iterator[Told]:
    """Restore all planes in a thread of its own, and tell how far it is."""
    said: queue.SimpleQueue[Told | BaseException] = queue.SimpleQueue()

    def work() -> None:
        try:
            said.put(_restored(planes, options, wish, said.put))
        except BaseException as error:  # raised again where it can be shown
            said.put(error)

    threading.Thread(target=work, daemon=True, name="restoration").start()
    try:
        while True:
            told = said.get()
            if isinstance(told, Cancelled):
                return
            if isinstance(told, BaseException):
                raise told
            yield told
            if told.results is not None:
                return
    finally:
        wish.cancel = True  # whoever does not listen to the end wants no more


def _restored(planes: Planes, options: dict[str, Any], wish: Wish, tell: Tell) -> Told:
    values, results = planes.pixels.copy(), list[Restoration]()
    number = len(values)
    masks = [None] * number if planes.masks is None else list(planes.masks)
    axis = -1 if planes.colour else None
    stack = Stack(planes.pixels, masks, axis, True, [None] * number)
    tell(Told("estimating the noise", 0.0))
    for result in restore_each(stack, callback=_watch(planes, wish, tell), **options):
        values[len(results)] = result.image
        results.append(result)
        if wish.cancel:
            raise Cancelled
        if wish.enough:
            break
        if len(results) < number:
            share = LEARNT + (1 - LEARNT) * len(results) / number
            words = f"putting plane {len(results) + 1} of {number} together"
            tell(Told(words, share, values.reshape(planes.shape).copy()))
    return Told("done", 1.0, values.reshape(planes.shape), results)


def _watch(planes: Planes, wish: Wish, tell: Tell) -> Callable[[Progress], bool]:
    last, took = -np.inf, 0.0

    def watch(progress: Progress) -> bool:
        nonlocal last, took
        if wish.cancel:
            raise Cancelled
        words = f"{progress.stage}, {progress.iteration} of {progress.max_iter}"
        learning = progress.stage == "learning"
        share = (0.1 + 0.6 * progress.iteration / progress.max_iter) if learning else 0.05
        is_last = learning and progress.iteration == progress.max_iter
        preview = None
        started = time.monotonic()
        if not (wish.stop or is_last) and started - last >= (PREVIEW_SHARE - 1) * took:
            preview = progress.restored().reshape(planes.shape)
            last = time.monotonic()
            took = last - started
        if wish.stop or is_last:
            wish.learnt = True
            words = "assembling the picture"
        tell(Told(words, share, preview))
        return wish.stop

    return watch


def uncertainty(planes: Planes, results: list[Restoration]) -> NDArray[np.float32]:
    """Standard deviations, of colours their mean; NaN of planes that were not reached."""
    values = np.full(planes.pixels.shape[:3], np.nan, np.float32)
    for place, result in enumerate(results):
        values[place] = result.std.mean(axis=-1) if planes.colour else result.std
    return values.reshape(planes.shape[:-1] if planes.colour else planes.shape)


def noise_report(planes: Planes) -> list[str]:
    """What noise the first plane has, in sentences."""
    from evoem.images import canonical_arrays, noise_estimation

    canonical = canonical_arrays.read(planes.pixels[0], None, -1 if planes.colour else None, True)
    found, _ = noise_estimation.estimate(canonical.pixels(canonical.values), canonical.observed)
    told = found.describe()
    first = "" if len(planes.pixels) == 1 else "First plane: "
    return [f"{first}{told if first else told[:1].upper() + told[1:]}.", *canonical.notes]
