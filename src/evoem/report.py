"""The report of a finished run: a summary, notes, scores and a record for JSON."""

import json
import math
import platform
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evoem.images import quality
from evoem.images.files import Picture
from evoem.images.restore import Restoration

Scores = dict[str, tuple[float, float]]  # before and after

ENDINGS = {
    "converged": "converged",
    "max_iter": "all iterations done",
    "time_limit": "time limit reached",
    "interrupted": "interrupted",
}


def was_interrupted(results: Sequence[Restoration], n_slices: int) -> bool:
    """Whether Ctrl-C came."""
    return results[-1].ended == "interrupted" or len(results) < n_slices


def notes(results: Sequence[Restoration], n_slices: int) -> list[str]:
    """What the reader of the result should know."""
    found = []
    common = [note for note in results[0].notes if all(note in one.notes for one in results)]
    found += [f"All slices: {note}" if n_slices > 1 else note for note in common]
    for number, result in enumerate(results, 1):
        found += [f"Slice {number}: {note}" for note in result.notes if note not in common]
    if was_interrupted(results, n_slices):
        found.append("Interrupted: the output is the result of what had been learnt so far.")
    if len(results) < n_slices:
        found.append(f"The last {n_slices - len(results)} of {n_slices} slices are unchanged.")
    return found


def scores(
    reference: Picture, before: Picture, after: Picture, largest: float | None = None
) -> Scores:
    """PSNR and, unless the picture is too small for it, SSIM as the mean over slices."""
    largest = largest or quality.peak_of(reference.pixels)
    clean, first, second = (
        picture.pixels if picture.stack else picture.pixels[None]
        for picture in (reference, before, after)
    )
    axis = -1 if reference.colour else None

    def mean_ssim(stack: NDArray[Any]) -> float:
        pairs = zip(clean, stack, strict=True)
        return float(np.mean([quality.ssim(*pair, largest, axis) for pair in pairs]))

    # Of a picture far from its reference squares may be no doubles: its PSNR is -inf.
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        psnr = quality.psnr(clean, first, largest), quality.psnr(clean, second, largest)
        if min(clean.shape[1:3]) <= 2 * quality.SSIM_RADIUS:
            return {"PSNR": psnr}
        return {"PSNR": psnr, "SSIM": (mean_ssim(first), mean_ssim(second))}


def summary(results: Sequence[Restoration], found: Scores) -> str:
    """Noise level, iterations, time, how it ended, and how close it came to a reference."""
    levels = sorted(result.noise_level for result in results)
    ends = dict.fromkeys(f"{level:.4g}" for level in (levels[0], levels[-1]))
    # Slices of a stack have the iterations of one model.
    n_iterations = max(len(result.free_energies) for result in results)
    parts = [
        f"noise level {' to '.join(ends)}",
        *dict.fromkeys(
            result.noise.describe()
            for result in results
            if result.noise is not None and result.noise.told and result.noise.kind != "gaussian"
        ),
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
            "noise": None if result.noise is None else json.loads(result.noise.to_json()),
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
        "notes": [*picture.notes, *notes(results, len(picture.pixels) if picture.stack else 1)],
        **{
            name.lower(): {
                when: value if math.isfinite(value) else None  # JSON has neither NaN nor inf
                for when, value in zip(("before", "after"), values, strict=True)
            }
            for name, values in found.items()
        },
    }
