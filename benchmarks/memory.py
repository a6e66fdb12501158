"""How much memory a run of spike-and-slab coding takes, relative to its data and states.

`speed.py` starts this program in a process of its own and reads the JSON it prints. Linux and
macOS only.
"""

import argparse
import json
import resource
import sys
from pathlib import Path

import numpy as np
import pictures

from evoem import em
from evoem.models import SpikeSlabModel

N_LATENTS = 512
N_STATES = 60
PATCH_WIDTH = 12
WARM_UP_ROWS = 64
ITERATIONS = 3
EVOLUTION = em.Evolution(n_parents=60, n_children=1, n_generations=1)


def resident_bytes() -> tuple[int, int]:
    """Memory this process occupies now, and the most it ever did."""
    status = Path("/proc/self/status")
    if status.exists():
        # Not `getrusage`: on Linux its peak starts from that of the process that started this one.
        fields = dict(line.split(":", 1) for line in status.read_text().splitlines())
        now, peak = (int(fields[name].split()[0]) * 1024 for name in ("VmRSS", "VmHWM"))
        return now, peak
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    peak *= 1 if sys.platform == "darwin" else 1024
    return peak, peak


def run(X: np.ndarray, n_iterations: int, n_jobs: int) -> em.EMState:
    """A short run from scratch."""
    model = SpikeSlabModel()
    data = em.Data(X)
    state = em.init(model, data, n_latents=N_LATENTS, n_states=N_STATES, n_jobs=n_jobs)
    return em.run(model, data, state, EVOLUTION, max_iter=n_iterations, n_jobs=n_jobs)[0]


def measure(picture: np.ndarray, n_rows: int, n_jobs: int) -> dict[str, float]:
    """Growth of the peak by a run, and by how much its data and states explain that."""
    # Loads the kernels and starts the threads, whose memory does not depend on the data.
    run(pictures.random_patches(picture, PATCH_WIDTH, WARM_UP_ROWS), 1, n_jobs)
    before, _ = resident_bytes()
    X = pictures.random_patches(picture, PATCH_WIDTH, n_rows)
    state = run(X, ITERATIONS, n_jobs)
    _, peak = resident_bytes()
    held = X.nbytes + state.states.nbytes + state.log_joints.nbytes
    growth = peak - before
    return {"rows": len(X), "growth_bytes": growth, "held_bytes": held, "ratio": growth / held}


def main() -> None:
    """Measure and print as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=40_000)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--image", type=Path)
    arguments = parser.parse_args()
    _, picture = pictures.read_picture(arguments.image)
    figures = measure(pictures.add_noise(picture), arguments.rows, arguments.threads)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
