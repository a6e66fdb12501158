"""What checkpoints take of a run: bytes beside those of the packed states, and time.

    python benchmarks/checkpoints.py house.png

A few iterations of the preset "paper", kept after each of them. A run with `--every 60s` is kept
once a minute, or less often.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np

from evoem import checkpoints, restore
from evoem.images import files

NOISE = 25.0
MINUTE = 60.0


def main():
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("picture", type=Path)
    parser.add_argument("--iterations", type=int, default=4)
    parser.add_argument("--folder", type=Path, default=Path(), help="where to write")
    given = parser.parse_args()
    clean = files.read(given.picture).pixels
    noisy = clean + NOISE * np.random.default_rng(0).normal(size=clean.shape)
    own, writing = checkpoints.Checkpoint.save, []

    def save(*arguments, **options):
        began = time.perf_counter(), time.process_time()
        own(*arguments, **options)
        writing.append((time.perf_counter() - began[0], time.process_time() - began[1]))

    checkpoints.Checkpoint.save = save
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        path = Path(folder) / "run"
        result = restore(
            noisy, preset="paper", max_iter=given.iterations, checkpoint=path, every=0.0
        )
        size = path.stat().st_size
        iterations = [info.seconds for info in checkpoints.read(path).infos]
    states = result.estimator.state_.states.nbytes
    real, processor = np.median(writing, axis=0)
    share = real / (MINUTE + real)
    print(f"packed states {states / 1e6:.1f} MB, checkpoint {size / states:.3f} times that")
    print(f"an iteration {np.median(iterations):.2f} s")
    print(f"writing {real:.2f} s, of a processor {processor:.2f} s: {share:.2%} with --every 60s")


if __name__ == "__main__":
    main()
