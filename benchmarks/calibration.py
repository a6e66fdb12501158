"""How much of the truth lies within one and two standard deviations of a restored picture.

    python benchmarks/calibration.py [--only correlated] [--preset fast] [--json FILE]

The middle 256 × 256 of pictures of scikit-image, with white noise, photons, and noise correlated by
0.5 a pixel along both axes. Of normal errors 68.3 % lie within one and 95.4 % within two. How wide
deviations are under correlated noise and with few photons was chosen on the first picture of each.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import skimage.data
from numpy.typing import NDArray
from scipy import signal

import evoem

Array = NDArray[np.float64]

SIDE, SEED, RHO = 256, 11, 0.5
# Kind of noise, picture, and its standard deviation or, of photons, how many make 255.
CASES = (
    *(("white", name, level) for name, level in (("camera", 25), ("brick", 10), ("coins", 10))),
    *(("photons", name, level) for name, level in (("camera", 10), ("coins", 2), ("brick", 5))),
    *(
        ("correlated", name, level)
        for name, level in (("camera", 20), ("brick", 25), ("coins", 15))
    ),
)


def picture(name: str) -> Array:
    """The middle of a sample picture."""
    whole = np.asarray(getattr(skimage.data, name)(), np.float64)
    top, left = ((size - SIDE) // 2 for size in whole.shape)
    return whole[top : top + SIDE, left : left + SIDE]


def with_noise(clean: Array, kind: str, level: float, rng: np.random.Generator) -> Array:
    """A picture with noise of this kind."""
    if kind == "photons":
        return np.asarray(rng.poisson(clean / 255 * level) * 255 / level)
    if kind == "white":
        return np.asarray(clean + rng.normal(0, level, clean.shape))
    noise = rng.standard_normal([size + 100 for size in clean.shape])
    for axis in (0, 1):
        noise = signal.lfilter([np.sqrt(1 - RHO**2)], [1, -RHO], noise, axis=axis)
    return np.asarray(clean + level * noise[100:, 100:])


def main() -> None:
    """Print shares for each case."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", default="", help="kinds of noise that start so")
    parser.add_argument("--preset", default="fast")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    results = []
    print("| noise | picture | level | within 1 σ, % | within 2 σ, % | error | mean σ |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for kind, name, level in CASES:
        if not kind.startswith(given.only):
            continue
        clean = picture(name)
        rng = np.random.default_rng(SEED)
        found = evoem.restore(with_noise(clean, kind, level, rng), preset=given.preset)
        error = np.abs(found.image - clean)
        one, two = (100 * float((error <= k * found.std).mean()) for k in (1, 2))
        size, said = (float(np.sqrt(np.square(each).mean())) for each in (error, found.std))
        print(
            f"| {kind} | {name} | {level} | {one:.1f} | {two:.1f} | {size:.2f} | {said:.2f} |",
            flush=True,
        )
        results.append({"noise": kind, "picture": name, "level": level, "one": one, "two": two})
        if given.json is not None:
            given.json.write_text(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
