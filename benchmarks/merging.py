"""Which way of merging overlapping patches restores best: the same model, merged in each.

python benchmarks/merging.py --images FOLDER
"""

import argparse
from pathlib import Path

import restoration

import evoem
from evoem.images.options import MERGES
from evoem.images.quality import psnr

PRESET = "fast"
CASES = {
    "House, σ = 15": ("house", "noise", 15),
    "House, σ = 50": ("house", "noise", 50),
    "Peppers, σ = 25": ("peppers", "noise", 25),
    "House, 50 % missing": ("house", "missing", 0.5),
}


def compare(folder: Path, image: str, damage: str, amount: float) -> list[float]:
    """PSNR of each way. What is learnt depends on the seed alone."""
    clean = restoration.read(folder, image)
    task = restoration.Task(image, damage, amount, {}, 0, 0, "")
    damaged, mask = restoration.damaged(task, clean, folder)
    options = {"mask": mask, "keep_observed": mask is not None, "preset": PRESET}
    return [
        psnr(clean, evoem.restore(damaged, merge=merge, seed=restoration.SEED, **options).image)
        for merge in MERGES
    ]


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
