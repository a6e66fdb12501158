"""Which way of merging overlapping patches restores best: one model, merged in all three ways.

python benchmarks/merging.py --images FOLDER
"""

import argparse
import time
from pathlib import Path

import numpy as np
import restoration

from evoem.images import arrays, patches, presets
from evoem.images.learning import Clock, Learner
from evoem.images.quality import psnr
from evoem.images.restore import MERGES

PRESET = "fast"
CASES = {
    "House, σ = 15": ("house", "noise", 15),
    "House, σ = 50": ("house", "noise", 50),
    "Peppers, σ = 25": ("peppers", "noise", 25),
    "House, 50 % missing": ("house", "missing", 0.5),
}
MEMORY = 8 << 30


def compare(folder: Path, image: str, damage: str, amount: float) -> list[float]:
    """PSNR of each way."""
    clean = restoration.read(folder, image)
    task = restoration.Task(image, damage, amount, {}, 0, 0, "")
    damaged, mask = restoration.damaged(task, clean, folder)
    canonical = arrays.read(damaged, mask, None, True)
    shape = canonical.values.shape
    settings = presets.fit_to_image(presets.PRESETS[PRESET], {}, shape, canonical.observed)
    places = patches.grid(shape, settings.patch_size)
    learner = Learner(canonical, places, settings, "es3c", restoration.SEED, 2, MEMORY)
    learner.learn(Clock(time.perf_counter(), None), 0.0, None)
    found = []
    for merge in MERGES:
        mean = learner.reconstruct(merge)[0][..., 0]
        found.append(psnr(clean, mean if mask is None else np.where(mask, mean, clean)))
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=Path, required=True, metavar="FOLDER")
    folder = parser.parse_args().images
    print(f"| preset {PRESET!r}, PSNR in dB | {' | '.join(MERGES)} |")
    print("| --- |" + " --- |" * len(MERGES))
    for name, case in CASES.items():
        values = " | ".join(f"{value:.2f}" for value in compare(folder, *case))
        print(f"| {name} | {values} |", flush=True)


if __name__ == "__main__":
    main()
