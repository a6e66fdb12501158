"""What comes of pictures with the noise of real instruments, beside a reference of many captures.

    python benchmarks/real_noise.py FOLDER --only confocal fmd/WideField
    python benchmarks/real_noise.py FOLDER --json real.json --pictures SIDE_BY_SIDE
    python benchmarks/real_noise.py --synthetic

FOLDER holds pairs NAME_noisy.png (or .tif) and NAME_clean.png, in sub-folders that are sets;
`--synthetic` takes scikit-image's camera at 2, 10 and 30 photons, and with salt and pepper. PSNR
has a peak of 255; results are clipped to 0 … 255. Nothing but the preset is set for evoem.

- NL-means and BM3D are told a noise level by the median of differences across both axes. Before
  salt and pepper BM3D has a median filter of 3 × 3.
- "VST + BM3D" is the generalised Anscombe transform by gain and offset as evoem finds them, BM3D
  told that the noise has unit variance, and the exact unbiased inverse.
- "True spectrum" is the same with BM3D told the spectrum of the noise as it is in the pair, which
  no method could know from the noisy picture alone: what BM3D can do about correlated noise.

`--pictures` writes noisy, restored and reference side by side to a folder. The last rows are means
of each set, of its pairs of even number, in sorted order from 0, and of the others.
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
BASELINES = ("nl_means", "bm3d", "vst_bm3d", "bm3d_true_spectrum")
# Lags up to which noise is taken to be correlated.
LAGS = 8
# From colours to a mean and two differences, as BM3D likes them.
OPPONENT = np.array([[2, 2, 2], [3, 0, -3], [1, -2, 1]]) / np.sqrt([[12], [18], [6]])


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


def transform_of(pair: Pair) -> NoiseTransform | None:
    """To noise of unit variance, if noise grows with the signal."""
    noise = estimate(pair.channels)[0].with_correlation(None, None)
    if not noise.told or noise.kind == "gaussian" or pair.impulses:
        return None
    return NoiseTransform(noise, pair.channels)


def vst_bm3d(pair: Pair) -> Array:
    """The same in front of a variance-stabilising transform, if noise grows with the signal."""
    transform = transform_of(pair)
    if transform is None:
        return bm3d(pair)
    stable = bm3d_of(transform.forward(pair.channels), 1.0)
    return transform.backward(stable).reshape(pair.noisy.shape)


def true_spectrum(noise: Array) -> Array:
    """Power spectrum of noise (rows, columns), as BM3D wants it, by correlations at small lags."""
    shape = noise.shape
    power = np.abs(np.fft.fft2(noise - noise.mean(), [2 * length for length in shape])) ** 2
    lags = np.arange(-LAGS, LAGS + 1)
    covariance = np.fft.ifft2(power).real[np.ix_(lags, lags)] / noise.size
    fading = np.outer(*[1 - np.abs(lags) / (LAGS + 1)] * 2)
    kernel = np.zeros(shape)
    kernel[np.ix_(lags, lags)] = covariance * fading
    return np.asarray(np.maximum(np.fft.fft2(kernel).real, 0) * noise.size)


def bm3d_true_spectrum(pair: Pair) -> Array:
    """BM3D behind the same transform, told the spectrum of the noise by the reference."""
    from bm3d import bm3d

    if pair.impulses:
        return METHODS["bm3d"](pair)
    vars(np).setdefault("trapz", np.trapezoid)  # BM3D 4.0 asks for it by the old name
    transform, values = transform_of(pair), pair.channels
    clean = pair.clean.reshape(values.shape)
    if transform is not None:
        values, clean = transform.forward(values), transform.forward(clean)
    if pair.colour:
        values, clean = values @ OPPONENT.T, clean @ OPPONENT.T
    spectra = [true_spectrum(each) for each in np.moveaxis(values - clean, 2, 0)]
    found = np.asarray(bm3d(values, np.stack(spectra, axis=2))).reshape(values.shape)
    if pair.colour:
        found = found @ OPPONENT
    if transform is not None:
        found = transform.backward(found)
    return found.reshape(pair.noisy.shape)


METHODS = {
    "nl_means": nl_means,
    "bm3d": bm3d,
    "vst_bm3d": vst_bm3d,
    "bm3d_true_spectrum": bm3d_true_spectrum,
}


def measure(
    pair: Pair, presets: list[str], known: dict[str, Any], side_by_side: Path | None = None
) -> dict[str, Any]:
    """PSNR of all methods on one pair; those of baselines may be known.

    Noisy, restored and reference are written side by side to a file, if one is given.
    """

    def score(image: NDArray[Any]) -> float:
        return psnr(pair.clean, np.clip(image.astype(float), 0, 255))

    board = [pair.noisy]
    found: dict[str, Any] = {"noisy": score(pair.noisy)}
    for name in BASELINES:
        found[name] = known[name] if name in known else score(METHODS[name](pair))
    for preset in presets:
        started = time.perf_counter()
        axis = -1 if pair.colour else None
        result = evoem.restore(pair.noisy, preset=preset, channel_axis=axis)
        board.append(result.image)
        found[preset] = score(result.image)
        found[f"{preset}_seconds"] = time.perf_counter() - started
        found["noise"] = None if result.noise is None else result.noise.describe()
        found["notes"] = result.notes
    if side_by_side is not None:
        side_by_side.parent.mkdir(parents=True, exist_ok=True)
        row = np.concatenate([*board, pair.clean], axis=1)
        pixels = np.clip(np.rint(row), 0, 255).astype(np.uint8)
        files.write(side_by_side, files.Picture(pixels, None, pair.colour, False, {}), force=True)
    return found


def halves(names: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Sets, and of each the half that settings were chosen on and the other one."""
    for group in sorted({name.split("/")[0] for name in names}):
        own = sorted(name for name in names if name.split("/")[0] == group)
        yield group, own
        if len(own) > 1:
            yield f"{group}, chosen on", own[::2]
            yield f"{group}, others", own[1::2]


def main() -> None:
    """Print a table, and means of each set."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--synthetic", action="store_true")
    parser.add_argument("--presets", nargs="*", default=["fast"])
    parser.add_argument("--only", nargs="*", default=[], help="words in names")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--pictures", type=Path, help="folder for noisy, restored and reference")
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
        board = None if given.pictures is None else given.pictures / f"{name}.png"
        found = results[name] = measure(pair, given.presets, known.get(name, {}), board)
        scores = " | ".join(f"{found[column]:.2f}" for column in columns)
        seconds = found.get(f"{given.presets[-1]}_seconds", 0) if given.presets else 0
        print(f"| {name} | {scores} | {seconds:.0f} | {found.get('noise')} |", flush=True)
        if given.json is not None:
            given.json.write_text(json.dumps(results, indent=2))
    for title, own in halves(list(results)):
        means = (statistics.mean(results[name][column] for name in own) for column in columns)
        cells = " | ".join(f"{mean:.2f}" for mean in means)
        print(f"| **{title}, {len(own)}** | {cells} | | |")


if __name__ == "__main__":
    main()
