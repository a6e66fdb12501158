"""Restore slice after slice, and tell how far it is and what came of it."""

import math
import platform
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.live import Live
from rich.text import Text

from evoem.images import quality
from evoem.images.files import Picture
from evoem.images.learning import Progress
from evoem.images.restore import Restoration, Shares, restore
from evoem.runtime import interrupts

Show = Callable[[int, Progress], None]
Scores = dict[str, tuple[float, float]]  # before and after

SECONDS_BETWEEN_LINES = 10.0
ENDINGS = {
    "converged": "converged",
    "max_iter": "all iterations done",
    "time_limit": "time limit reached",
    "interrupted": "interrupted",
}
PEAKS = {"uint8": 255.0, "uint16": 65535.0}


def restore_slices(
    slices: NDArray[Any],
    masks: Sequence[NDArray[Any] | None],
    options: dict[str, Any],
    *,
    quiet: bool,
) -> list[Restoration]:
    """Restore each slice on its own; fewer come back if interrupted, but at least one.

    The time limit is for all slices. An interrupt that the learning does not turn into a result is
    raised if no slice is done, or if it is the second one.
    """
    shares = Shares(options.get("time_limit"), len(slices))
    results: list[Restoration] = []
    with interrupts.noted() as noted, shown(len(slices), quiet) as show:
        try:
            for number, (one, mask) in enumerate(zip(slices, masks, strict=True)):
                limited = options | {"time_limit": shares.next()}
                result = restore(one, mask=mask, callback=partial(show, number), **limited)
                if result.ended == "interrupted" and not len(result.free_energies):
                    raise KeyboardInterrupt  # nothing was learnt
                results.append(result)
                if result.ended == "interrupted" or noted.waiting:
                    break
        except KeyboardInterrupt:
            if not results or noted.number > 1:
                raise
    return results


@contextmanager
def shown(n_slices: int, quiet: bool) -> Iterator[Show]:
    """Show progress on standard error: a live line on a terminal, else a line now and then."""
    if quiet:
        yield lambda number, progress: None
    elif sys.stderr.isatty():
        console = Console(stderr=True)
        with Live(Text("starting"), console=console, auto_refresh=False, transient=True) as live:

            def refresh(number: int, progress: Progress) -> None:
                text = Text(line(progress, number, n_slices), no_wrap=True, overflow="ellipsis")
                live.update(text, refresh=True)

            yield refresh
    else:
        last = time.monotonic()

        def write(number: int, progress: Progress) -> None:
            nonlocal last
            if time.monotonic() - last >= SECONDS_BETWEEN_LINES:
                last = time.monotonic()
                sys.stderr.write(line(progress, number, n_slices) + "\n")
                sys.stderr.flush()

        yield write


def line(progress: Progress, number: int, n_slices: int) -> str:
    """Where a run stands, what matters most first: narrow terminals cut the end off."""
    left = progress.seconds_left
    left += (n_slices - number - 1) * (progress.seconds + progress.seconds_left)
    learning = progress.stage == "learning"  # before that, most of the work is still to come
    parts = [
        f"{'iteration' if learning else progress.stage} {progress.iteration}/{progress.max_iter}",
        *([f"{timedelta(seconds=round(left))} left"] if learning else []),
        f"noise {progress.noise_level:.4g}",
        f"bound {progress.free_energy:.2f}",
        f"active {progress.active:.1f}",
        f"replaced {progress.states_replaced}",
        f"{progress.patches_per_second:.0f} patches/s",
    ]
    if n_slices > 1:
        parts.insert(0, f"slice {number + 1}/{n_slices}")
    return ", ".join(parts)


def was_interrupted(results: Sequence[Restoration], n_slices: int) -> bool:
    """Whether Ctrl-C came."""
    return results[-1].ended == "interrupted" or len(results) < n_slices


def notes(results: Sequence[Restoration], n_slices: int) -> list[str]:
    """What the reader of the result should know."""
    found = []
    for number, result in enumerate(results, 1):
        prefix = f"Slice {number}: " if n_slices > 1 else ""
        found += [prefix + note for note in result.notes]
    if was_interrupted(results, n_slices):
        found.append("Interrupted: the output holds what was learnt up to then.")
    if len(results) < n_slices:
        found.append(f"The last {n_slices - len(results)} of {n_slices} slices are as they were.")
    return found


def peak(reference: Picture) -> float:
    """The largest value of 8 or 16 bits, otherwise the range of the picture."""
    pixels = reference.pixels
    known = PEAKS.get(pixels.dtype.name)
    return known or float(pixels.max()) - float(pixels.min())


def scores(
    reference: Picture, before: Picture, after: Picture, largest: float | None = None
) -> Scores:
    """PSNR and, unless the picture is too small for it, SSIM as the mean over slices."""
    largest = largest or peak(reference)
    clean, first, second = (
        picture.pixels if picture.stack else picture.pixels[None]
        for picture in (reference, before, after)
    )
    axis = -1 if reference.colour else None

    def mean_ssim(stack: NDArray[Any]) -> float:
        pairs = zip(clean, stack, strict=True)
        return float(np.mean([quality.ssim(*pair, largest, axis) for pair in pairs]))

    found = {"PSNR": (quality.psnr(clean, first, largest), quality.psnr(clean, second, largest))}
    if min(clean.shape[1:3]) > 2 * quality.SSIM_RADIUS:
        found["SSIM"] = (mean_ssim(first), mean_ssim(second))
    return found


def summary(results: Sequence[Restoration], found: Scores) -> str:
    """Noise level, iterations, time, how it ended, and how close it came to a reference."""
    levels = sorted(result.noise_level for result in results)
    ends = dict.fromkeys(f"{level:.4g}" for level in (levels[0], levels[-1]))
    n_iterations = sum(len(result.free_energies) for result in results)
    parts = [
        f"noise level {' to '.join(ends)}",
        f"{n_iterations} iteration{'' if n_iterations == 1 else 's'}",
        f"{sum(result.seconds for result in results):.1f} s",
        *dict.fromkeys(ENDINGS[result.ended] for result in results),
        *(f"{name} from {before:.4g} to {after:.4g}" for name, (before, after) in found.items()),
    ]
    return ", ".join(parts)


def record(results: Sequence[Restoration], picture: Picture, found: Scores) -> dict[str, Any]:
    """What came of a run, for JSON."""
    learnt = [
        {
            "noise_level": result.noise_level,
            "bound": result.free_energies.tolist(),
            "iterations": len(result.free_energies),
            "seconds": result.seconds,
            "ended": result.ended,
            "selection": [score._asdict() for score in result.selection],
            # Of a slice, the settings may depend on the holes in it.
            **({"settings": result.settings} if picture.stack else {}),
        }
        for result in results
    ]
    return {
        "seed": results[0].settings["seed"],
        "versions": {
            "python": platform.python_version(),
            **{name: version(name) for name in ("evoem", "numpy", "scipy", "numba")},
        },
        **({"slices": learnt} if picture.stack else learnt[0]),
        "notes": notes(results, len(picture.pixels) if picture.stack else 1),
        **{
            name.lower(): {
                when: value if math.isfinite(value) else None  # JSON has neither NaN nor inf
                for when, value in zip(("before", "after"), values, strict=True)
            }
            for name, values in found.items()
        },
    }
