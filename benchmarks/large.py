"""Whether restoration of large images keeps to its time limit, and what that costs.

    python benchmarks/large.py
    python benchmarks/large.py --tiles 1 2 --limits 60 150 --noise 8 --bm3d

The picture is made of four of scikit-image's, 1024 × 1024 pixels, and repeated: `--tiles 2` has
four megapixels. BM3D is told the noise level.
"""

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import evoem
from evoem.images.quality import psnr

SEED = 1


def mosaic() -> NDArray[np.float64]:
    """Four pictures of 512 × 512 side by side."""
    from skimage import data

    astronaut = data.astronaut().mean(axis=2)
    return np.block([[data.camera(), astronaut], [data.brick(), data.gravel()]]).astype(float)


def restore(
    clean: NDArray[np.float64], noisy: NDArray[np.float64], preset: str, limit: float | None
) -> dict[str, Any]:
    """One run."""
    started = time.perf_counter()
    result = evoem.restore(noisy, preset=preset, time_limit=limit, seed=SEED, n_jobs=-1)
    return {
        "method": preset,
        "limit": limit,
        "seconds": time.perf_counter() - started,
        "psnr": psnr(clean, result.image),
        "iterations": len(result.free_energies),
        "latents": result.settings["n_latents"],
        "notes": result.notes,
    }


def bm3d(
    clean: NDArray[np.float64], noisy: NDArray[np.float64], noise_level: float
) -> dict[str, Any]:
    """The same by BM3D."""
    from bm3d import bm3d as run

    started = time.perf_counter()
    restored = run(noisy, noise_level)
    seconds = time.perf_counter() - started
    return {"method": "BM3D", "limit": None, "seconds": seconds, "psnr": psnr(clean, restored)}


def results(
    clean: NDArray[np.float64], noise: float, arguments: argparse.Namespace
) -> Iterator[dict[str, Any]]:
    """Those of one picture."""
    noisy = clean + np.random.default_rng(SEED).normal(0.0, noise, clean.shape)
    for limit in arguments.limits:
        yield restore(clean, noisy, arguments.preset, limit)
    if arguments.unlimited:
        yield restore(clean, noisy, arguments.preset, None)
    if arguments.bm3d:
        yield bm3d(clean, noisy, noise)


def line(result: dict[str, Any]) -> str:
    """A line of the table."""
    limit = "–" if result["limit"] is None else f"{result['limit']:g}"
    columns = [
        f"{result['megapixels']:.1f}", f"{result['noise']:g}", result["method"], limit,
        f"{result['seconds']:.0f}", f"{result['psnr']:.2f}", str(result.get("iterations", "")),
        str(result.get("latents", "")),
    ]  # fmt: skip
    return f"| {' | '.join(columns)} |"


def main() -> None:
    """Run all and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tiles", type=int, nargs="+", default=[1], help="pictures a side")
    parser.add_argument("--limits", type=float, nargs="*", default=[60.0], help="seconds")
    parser.add_argument("--noise", type=float, nargs="+", default=[25.0], help="σ")
    parser.add_argument("--preset", default="fast")
    parser.add_argument("--unlimited", action="store_true", help="also without a limit")
    parser.add_argument("--bm3d", action="store_true", help="also BM3D (extra `bench`)")
    parser.add_argument("--json", type=Path, help="write results to this file")
    arguments = parser.parse_args()
    columns = "megapixels", "σ", "method", "limit, s", "s", "PSNR, dB", "iterations", "latents"
    print(f"| {' | '.join(columns)} |\n|{' --- |' * len(columns)}")
    found = []
    for tiles in arguments.tiles:
        clean = np.tile(mosaic(), (tiles, tiles))
        for noise in arguments.noise:
            for result in results(clean, noise, arguments):
                found.append({"megapixels": clean.size / 1e6, "noise": noise, **result})
                print(line(found[-1]), flush=True)
                if arguments.json is not None:
                    arguments.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
