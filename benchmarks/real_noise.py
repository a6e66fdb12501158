"""What comes of pictures with the noise of real instruments, beside a reference of many captures.

    python benchmarks/real_noise.py FOLDER --presets fast --only confocal fmd/WideField
    python benchmarks/real_noise.py FOLDER --json real.json

FOLDER holds pairs NAME_noisy.png (or .tif) and NAME_clean.png, in sub-folders that are sets. PSNR
has a peak of 255; results are clipped to 0 … 255. NL-means is told a noise level by the median of
differences across both axes. Nothing but the preset is set.
"""

import argparse
import json
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import evoem
from evoem.images import files
from evoem.images.noise_transform import noise_levels
from evoem.images.quality import psnr


def pairs(folder: Path, only: list[str]) -> Iterator[tuple[str, Path, Path]]:
    """Names, noisy pictures and references."""
    for noisy in sorted(folder.rglob("*_noisy.*")):
        name = str(noisy.relative_to(folder)).rpartition("_noisy")[0]
        if not only or any(word in name for word in only):
            yield name, noisy, noisy.with_name(noisy.name.replace("_noisy", "_clean"))


def nl_means(noisy: np.ndarray, colour: bool) -> np.ndarray:
    """NL-means with an estimated noise level."""
    from skimage.restoration import denoise_nl_means

    axis = -1 if colour else None
    sigma = float(noise_levels(noisy if colour else noisy[..., None]).mean())
    options = {"sigma": sigma, "h": 0.8 * sigma, "patch_size": 5, "patch_distance": 6}
    return np.asarray(denoise_nl_means(noisy, channel_axis=axis, **options))


def measure(noisy_path: Path, clean_path: Path, presets: list[str]) -> dict[str, Any]:
    """PSNR of all methods on one pair."""
    picture = files.read(noisy_path)
    noisy, clean = picture.pixels, files.read(clean_path).pixels.astype(float)

    def score(image: np.ndarray) -> float:
        return psnr(clean, np.clip(image.astype(float), 0, 255))

    found: dict[str, Any] = {"noisy": score(noisy)}
    found["nl_means"] = score(nl_means(noisy.astype(float), picture.colour))
    for preset in presets:
        started = time.perf_counter()
        result = evoem.restore(noisy, preset=preset, channel_axis=-1 if picture.colour else None)
        found[preset] = score(result.image)
        found[f"{preset}_seconds"] = time.perf_counter() - started
        found["noise"] = None if result.noise is None else result.noise.describe()
    return found


def main() -> None:
    """Print a table, and means of each set."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--presets", nargs="+", default=["fast"])
    parser.add_argument("--only", nargs="*", default=[], help="words in names")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    columns = ["noisy", "nl_means", *given.presets]
    print(f"| picture | {' | '.join(columns)} | s | noise found |")
    print(f"| --- |{' --- |' * (len(columns) + 2)}")
    results: dict[str, dict[str, Any]] = {}
    for name, noisy, clean in pairs(given.folder, given.only):
        found = results[name] = measure(noisy, clean, given.presets)
        scores = " | ".join(f"{found[column]:.2f}" for column in columns)
        seconds = found[f"{given.presets[-1]}_seconds"]
        print(f"| {name} | {scores} | {seconds:.0f} | {found['noise']} |", flush=True)
        if given.json is not None:
            given.json.write_text(json.dumps(results, indent=2))
    for group in sorted({name.split("/")[0] for name in results}):
        own = [found for name, found in results.items() if name.split("/")[0] == group]
        means = (statistics.mean(found[column] for found in own) for column in columns)
        print(f"| **{group}, {len(own)}** | {' | '.join(f'{mean:.2f}' for mean in means)} | | |")


if __name__ == "__main__":
    main()
