"""How well `evoem` restores standard test images, and how long it takes.

    python benchmarks/restoration.py --images FOLDER
    python benchmarks/restoration.py --images FOLDER --only house-50 new-orleans --json out.json

Noise is Gaussian and not clipped, PSNR has a peak of 255 over all values of the image. The seeds
were fixed before any result was seen. The images themselves are not part of the project; FOLDER
holds house.png, castle.png, new_orleans.png and new_orleans_mask.png.
"""

import argparse
import json
import platform
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

import evoem
from evoem.images import degrade
from evoem.images.quality import psnr, ssim

DAMAGE_SEED = 1
SEED = 1


class Task(NamedTuple):
    """One line of the table."""

    image: str
    damage: str  # "noise", "missing" or the file of a mask
    amount: float
    options: dict[str, Any]
    reach: float  # dB
    minutes: float  # within which
    published: str


PAPER = {"preset": "paper", "slab": "diagonal", "merge": "variance"}
# What learning from the mean was like before it started from a coarse image.
FROM_MEAN = {
    "start": "mean", "parents": "fit", "n_latents": 512, "n_states": 100, "n_parents": 12,
    "n_children": 6, "n_parts": 4, "max_iter": 100,
}  # fmt: skip
TASKS = {
    "house-50-small": Task(
        "house", "noise", 50, {**PAPER, "patch_size": 8, "n_latents": 256, "max_iter": 250},
        28.90, 6, "28.95 after 2,000 iterations",
    ),
    "house-50": Task(
        "house", "noise", 50, {**PAPER, "max_iter": 420}, 29.30, 15, "29.83 after 4,000 iterations"
    ),
    "house-25": Task("house", "noise", 25, FROM_MEAN, 32.6, 10, "33.15"),
    "house-missing-50": Task(
        "house", "missing", 0.5, {**FROM_MEAN, "patch_size": 12, "max_iter": 40}, 38.0, 15,
        "39.59; biharmonic 35.50",
    ),
    "castle-missing-50": Task(
        "castle", "missing", 0.5,
        {**FROM_MEAN, "patch_size": 7, "n_states": 40, "n_parents": 5, "n_children": 8,
         "time_limit": 780},
        36.0, 20, "38.23",
    ),
    "new-orleans": Task(
        "new_orleans", "new_orleans_mask", 0,
        {**FROM_MEAN, "patch_size": 7, "n_states": 40, "n_parents": 5, "n_children": 8,
         "time_limit": 540},
        30.0, 20, "below FoE's 32.22; biharmonic 30.93",
    ),
}  # fmt: skip


def read(folder: Path, name: str) -> NDArray[np.float64]:
    """Values of an image file."""
    with Image.open(folder / f"{name}.png") as image:
        return np.asarray(image).astype(np.float64)


def damaged(
    task: Task, clean: NDArray[np.float64], folder: Path
) -> tuple[NDArray[np.float64], NDArray[np.bool_] | None]:
    """The image to restore, and what is missing of it."""
    if task.damage == "noise":
        return degrade.add_noise(clean, task.amount, DAMAGE_SEED), None
    if task.damage == "missing":
        mask = degrade.missing_pixels(clean.shape, task.amount, DAMAGE_SEED, per_channel=True)
    else:
        mask = np.broadcast_to((read(folder, task.damage) > 0)[..., None], clean.shape)
    return clean, mask


def run(name: str, folder: Path, extra: dict[str, Any]) -> dict[str, Any]:
    """Restore the image of a task."""
    task = TASKS[name]
    clean = read(folder, task.image)
    image, mask = damaged(task, clean, folder)
    channel_axis = -1 if clean.ndim == 3 else None
    restoration = evoem.restore(
        image,
        mask=mask,
        keep_observed=mask is not None,
        channel_axis=channel_axis,
        seed=SEED,
        **{"time_limit": task.minutes * 60, **task.options, **extra},
    )
    return {
        "task": name,
        "psnr": psnr(clean, restoration.image),
        "ssim": ssim(clean, restoration.image, channel_axis=channel_axis),
        "psnr_before": psnr(clean, image) if mask is None else None,
        "reach": task.reach,
        "minutes_allowed": task.minutes,
        "published": task.published,
        "minutes": restoration.seconds / 60,
        "iterations": len(restoration.free_energies),
        "ended": restoration.ended,
        "noise_level": restoration.noise_level,
        "settings": restoration.settings,
    }


def line(result: dict[str, Any]) -> str:
    """A line of the table."""
    met = result["psnr"] >= result["reach"] and result["minutes"] <= result["minutes_allowed"]
    return (
        f"| {result['task']} | {result['psnr']:.2f} | {result['ssim']:.3f} | "
        f"{result['minutes']:.1f} | {result['iterations']} | {result['noise_level']:.1f} | "
        f"{result['reach']:.2f} in {result['minutes_allowed']:.0f} | {'yes' if met else 'no'} | "
        f"{result['published']} |"
    )


def main() -> None:
    """Run the tasks and print their table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--only", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--options", type=json.loads, default={}, metavar="JSON",
                        help="other settings of evoem.restore by name")  # fmt: skip
    parser.add_argument("--json", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    print(f"evoem {evoem.__version__}, python {platform.python_version()}\n")
    print("| task | PSNR, dB | SSIM | minutes | iterations | learnt σ | asked | met | published |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    results = []
    for name in arguments.only:
        results.append(run(name, arguments.images, arguments.options))
        print(line(results[-1]), flush=True)
        if arguments.json:
            arguments.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
