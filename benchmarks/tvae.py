"""Patches of a photograph with noise, denoised by `TVAE` and by binary sparse coding.

    python benchmarks/tvae.py --iterations 60

Patches of 8×8 pixels of scikit-image's camera man, σ = 25, in single precision. Both models have as
many latents; PSNR is that of all patches. Needs scikit-image (extra `demo`) and PyTorch (`torch`).
"""

import argparse
import time

import numpy as np
from skimage import data

from evoem import TVAE, BinarySparseCoding
from evoem.images.quality import psnr

SIDE, SIGMA = 8, 25.0


def parse():
    """What was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--patches", type=int, default=10_000)
    parser.add_argument("--latents", type=int, default=64)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--iterations", type=int, default=60)
    return parser.parse_args()


def cut(image, rows, columns):
    """Patches at these places."""
    places = zip(rows, columns, strict=True)
    return np.stack([image[r : r + SIDE, c : c + SIDE].ravel() for r, c in places])


def main():
    """Print a line for each model, on patches as they are and less their mean."""
    arguments = parse()
    rng = np.random.default_rng(0)
    image = data.camera().astype(float)
    noisy_image = image + SIGMA * rng.normal(size=image.shape)
    rows, columns = rng.integers(0, len(image) - SIDE + 1, (2, arguments.patches))
    clean, noisy = cut(image, rows, columns), cut(noisy_image, rows, columns)
    print(f"noisy: {psnr(clean, noisy):.2f} dB")
    common = {
        "n_latents": arguments.latents, "n_states": 30, "n_parents": 5, "n_children": 4, "tol": 0,
        "max_iter": arguments.iterations, "random_state": 0,
    }  # fmt: skip
    for what, means in (("patches", 0.0), ("less their mean", noisy.mean(1, keepdims=True))):
        X = (noisy - means).astype(np.float32)
        for model in (
            BinarySparseCoding(**common),
            TVAE(**common, hidden=(arguments.hidden,)),
        ):
            started = time.perf_counter()
            restored = model.fit(X).reconstruct(X) + means
            print(
                f"{what}, {type(model).__name__}: {psnr(clean, restored):.2f} dB, "
                f"bound {model.free_energy_:.1f}, {time.perf_counter() - started:.0f} s",
                flush=True,
            )


if __name__ == "__main__":
    main()
