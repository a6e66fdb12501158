"""What comes of pictures with the noise of real instruments, beside a reference of many captures.

    python benchmarks/real_noise.py FOLDER --only confocal fmd/WideField
    python benchmarks/real_noise.py FOLDER --json real.json
    python benchmarks/real_noise.py --synthetic

FOLDER holds pairs NAME_noisy.png (or .tif) and NAME_clean.png, in sub-folders that are sets;
`--synthetic` takes scikit-image's camera at 2, 10 and 30 photons, and with salt and pepper. PSNR
has a peak of 255; results are clipped to 0 … 255. Nothing but the preset is set for evoem. NL-means
and BM3D are told a noise level by the median of differences across both axes. "VST + BM3D" is the
generalised Anscombe transform by gain and offset as evoem finds them, BM3D told that the noise has
unit variance, and the exact unbiased inverse. Before salt and pepper BM3D has a median filter of
3 × 3.
"""

import argparse
import json
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import evoem
from evoem.images import files
from evoem.images.noise_estimation import estimate
from evoem.images.noise_transform import NoiseTransform, noise_levels
from evoem.images.quality import psnr

Array = NDArray[np.float64]
BASELINES = ("nl_means", "bm3d", "vst_bm3d")


class Pair(NamedTuple):
    """A noisy picture and its reference, (rows, columns[, channels])."""

    noisy: NDArray[Any]
    clean: Array
    impulses: bool = False

    @property
    def colour(self) -> bool:
        """Whether the last axis holds channels."""
        return self.noisy.ndim == 3

    @property
    def channels(self) -> Array:
        """The noisy picture with an axis of channels."""
        return self.noisy.astype(float).reshape(*self.noisy.shape[:2], -1)


def real_pairs(folder: Path, only: list[str]) -> Iterator[tuple[str, Pair]]:
    """Names, noisy pictures and references."""
    for noisy in sorted(folder.rglob("*_noisy.*")):
        name = str(noisy.relative_to(folder)).rpartition("_noisy")[0]
        if not only or any(word in name for word in only):
            clean = noisy.with_name(noisy.name.replace("_noisy", "_clean"))
            yield name, Pair(files.read(noisy).pixels, files.read(clean).pixels.astype(float))


def synthetic_pairs(only: list[str]) -> Iterator[tuple[str, Pair]]:
    """The camera man of scikit-image with photons, and with salt and pepper."""
    from skimage import data

    clean = data.camera().astype(float)
    for peak in (2, 10, 30):
        rng = np.random.default_rng(peak)
        noisy = rng.poisson(clean / 255 * peak) * 255 / peak
        if not only or any(word in f"photons/{peak}" for word in only):
            yield f"photons/{peak}", Pair(noisy, clean)
    rng = np.random.default_rng(0)
    noisy = clean + rng.normal(0, 10, clean.shape)
    hit = rng.random(clean.shape)
    noisy = np.where(hit < 0.01, 0, np.where(hit < 0.02, 255, noisy))
    if not only or any(word in "impulses/2" for word in only):
        yield "impulses/2", Pair(np.clip(np.rint(noisy), 0, 255).astype(np.uint8), clean, True)


def nl_means(pair: Pair) -> Array:
    """NL-means with an estimated noise level."""
    from skimage.restoration import denoise_nl_means

    sigma = float(noise_levels(pair.channels).mean())
    options = {"sigma": sigma, "h": 0.8 * sigma, "patch_size": 5, "patch_distance": 6}
    axis = -1 if pair.colour else None
    return np.asarray(denoise_nl_means(pair.noisy.astype(float), channel_axis=axis, **options))


def bm3d_of(values: Array, sigma: float) -> Array:
    """BM3D of (rows, columns, channels)."""
    from bm3d import bm3d, bm3d_rgb

    if values.shape[2] == 3:
        return np.asarray(bm3d_rgb(values, sigma_psd=sigma))
    return np.asarray(bm3d(values[..., 0], sigma_psd=sigma)).reshape(values.shape)


def bm3d(pair: Pair) -> Array:
    """BM3D with an estimated noise level, behind a median filter where there are impulses."""
    from scipy.ndimage import median_filter

    values = pair.channels
    if pair.impulses:
        values = median_filter(values, (3, 3, 1))
    return bm3d_of(values, float(noise_levels(values).mean())).reshape(pair.noisy.shape)


def vst_bm3d(pair: Pair) -> Array:
    """The same in front of a variance-stabilising transform, if noise grows with the signal."""
    noise = estimate(pair.channels)[0].with_correlation(None, None)
    if not noise.told or noise.kind == "gaussian" or pair.impulses:
        return bm3d(pair)
    transform = NoiseTransform(noise, pair.channels)
    stable = bm3d_of(transform.forward(pair.channels), 1.0)
    return transform.backward(stable).reshape(pair.noisy.shape)


METHODS = {"nl_means": nl_means, "bm3d": bm3d, "vst_bm3d": vst_bm3d}


def measure(pair: Pair, presets: list[str], known: dict[str, Any]) -> dict[str, Any]:
    """PSNR of all methods on one pair; those of baselines may be known."""

    def score(image: NDArray[Any]) -> float:
        return psnr(pair.clean, np.clip(image.astype(float), 0, 255))

    found: dict[str, Any] = {"noisy": score(pair.noisy)}
    for name in BASELINES:
        found[name] = known[name] if name in known else score(METHODS[name](pair))
    for preset in presets:
        started = time.perf_counter()
        axis = -1 if pair.colour else None
        result = evoem.restore(pair.noisy, preset=preset, channel_axis=axis)
        found[preset] = score(result.image)
        found[f"{preset}_seconds"] = time.perf_counter() - started
        found["noise"] = None if result.noise is None else result.noise.describe()
        found["notes"] = result.notes
    return found


def main() -> None:
    """Print a table, and means of each set."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--synthetic", action="store_true")
    parser.add_argument("--presets", nargs="*", default=["fast"])
    parser.add_argument("--only", nargs="*", default=[], help="words in names")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--baselines", type=Path, help="JSON of an earlier run: not run again")
    given = parser.parse_args()
    known = json.loads(given.baselines.read_text()) if given.baselines else {}
    columns = ["noisy", *BASELINES, *given.presets]
    print(f"| picture | {' | '.join(columns)} | s | noise found |")
    print(f"| --- |{' --- |' * (len(columns) + 2)}")
    results: dict[str, dict[str, Any]] = {}
    pairs = real_pairs(given.folder, given.only) if given.folder else iter(())
    if given.synthetic:
        pairs = synthetic_pairs(given.only)
    for name, pair in pairs:
        found = results[name] = measure(pair, given.presets, known.get(name, {}))
        scores = " | ".join(f"{found[column]:.2f}" for column in columns)
        seconds = found.get(f"{given.presets[-1]}_seconds", 0) if given.presets else 0
        print(f"| {name} | {scores} | {seconds:.0f} | {found.get('noise')} |", flush=True)
        if given.json is not None:
            given.json.write_text(json.dumps(results, indent=2))
    for group in sorted({name.split("/")[0] for name in results}):
        own = [found for name, found in results.items() if name.split("/")[0] == group]
        means = (statistics.mean(found[column] for found in own) for column in columns)
        cells = " | ".join(f"{mean:.2f}" for mean in means)
        print(f"| **{group}, {len(own)}** | {cells} | | |")


if __name__ == "__main__":
    main()
