"""Slices of a stack restored by one model, and each by its own: time and PSNR.

Run: python benchmarks/stacks.py [--preset fast]. A synthetic stack (shapes that move), and frames
of a photograph of scikit-image, which a camera would see as it moves; `--frames FILE` takes a clean
stack (slices, rows, columns) from an NPY file. Noise is added to each slice, unless `--noisy FILE`
has the stack as an instrument saw it.
"""

import argparse
import json
import time
from functools import partial

import numpy as np

import evoem
from evoem.images import quality


def moving_shapes(n_slices, size):
    """Discs and bars that move over a gradient."""
    y, x = np.mgrid[0:size, 0:size].astype(float)
    frames = []
    for t in range(n_slices):
        frame = 60 + 0.3 * x
        for k in range(6):
            cy, cx = size * (0.2 + 0.12 * k), (size * 0.17 * k + 3 * t) % size
            frame += 70 * ((y - cy) ** 2 + (x - cx) ** 2 < (5 + 2 * k) ** 2)
        frame += 25 * np.sin((x + 2 * t) / 3) * (y > 0.75 * size)
        frames.append(np.clip(frame, 0, 255))
    return np.stack(frames)


def seen_by_a_moving_camera(n_slices, size):
    """Windows of a photograph of scikit-image, one step further each."""
    from skimage import data

    picture = data.camera().astype(float)
    return np.stack([picture[96 + 4 * t : 96 + 4 * t + size, 64 + 6 * t : 64 + 6 * t + size]
                     for t in range(n_slices)])  # fmt: skip


def measured(restore, clean):
    """Seconds of wall and processor time, and PSNR."""
    wall, processor = time.perf_counter(), time.process_time()
    restored = restore()
    seconds = time.perf_counter() - wall, time.process_time() - processor
    return *seconds, float(quality.psnr(clean, restored, 255.0))


def each(noisy, options):
    """Slices restored on their own."""
    return np.stack([evoem.restore(one, **options).image for one in noisy])


def main():
    """Measure both ways on each stack."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preset", default="fast")
    parser.add_argument("--slices", type=int, default=8)
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--sigma", type=float, default=25.0)
    parser.add_argument("--frames", help="NPY file of a clean stack")
    parser.add_argument("--noisy", help="NPY file of the same stack with noise of its own")
    parser.add_argument("--json", help="file for the results")
    chosen = parser.parse_args()
    stacks = {
        "moving shapes": moving_shapes(chosen.slices, chosen.size),
        "moving camera": seen_by_a_moving_camera(chosen.slices, chosen.size),
    }
    if chosen.frames:
        stacks = {chosen.frames: np.load(chosen.frames).astype(float)}
    options = {"preset": chosen.preset}
    found = []
    for name, clean in stacks.items():
        if chosen.noisy:
            noisy = np.load(chosen.noisy)
        else:
            noisy = clean + np.random.default_rng(0).normal(0, chosen.sigma, clean.shape)
        evoem.denoise(noisy[:2], **options)  # compiles
        evoem.restore(noisy[0], **options)
        ways = {
            "each by its own": partial(each, noisy, options),
            "by one model": partial(evoem.denoise, noisy, **options),
        }
        print(f"{name}, {clean.shape}, noisy {quality.psnr(clean, noisy, 255.0):.2f} dB")
        for way, restore in ways.items():
            wall, processor, psnr = measured(restore, clean)
            print(
                f"  {way:16} {psnr:.2f} dB, {wall:.1f} s, processor {processor:.1f} s", flush=True
            )
            found.append({"stack": name, "way": way, "psnr": psnr, "seconds": wall,
                          "processor_seconds": processor})  # fmt: skip
    if chosen.json:
        with open(chosen.json, "w") as file:
            json.dump(found, file, indent=2)


if __name__ == "__main__":
    main()
