"""What is found of noise in one picture, beside what was put in or what a pair of pictures shows.

    python benchmarks/noise_estimation.py [--seeds N] [--cases] [--pictures FOLDER] [--real FOLDER]

Synthetic noise is added to pictures of scikit-image, which have some noise of their own. Most
thresholds were chosen on the first half of the pictures. The second half is reported apart, but it
is no clean test: the least growth, the least correlation and the compromises for outliers and
demosaicing were set with results of both halves in view, and those for correlation with all pairs
of photographs. `--pictures` has further pictures without noise, `--real` folders of pairs,
`…_noisy` and `…_clean`, reported in two halves.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import skimage.data
import tifffile
from numpy.typing import NDArray
from PIL import Image
from scipy import ndimage, signal

from evoem.images.noise_estimation import estimate
from evoem.images.noise_model import Noise

Array = NDArray[np.float64]

FIRST_HALF = ("camera", "coins", "moon", "cell", "page", "gravel", "coffee", "astronaut")
SECOND_HALF = ("brick", "clock", "chelsea", "retina", "immunohistochemistry", "rocket", "grass")
CHANNELS = np.array([[1, 0.5, 0.3], [0.5, 1, 0.6], [0.3, 0.6, 1]])
WITHIN_LAW, WITHIN_CORRELATION, PRECISION, RECALL = 0.1, 0.05, 0.99, 0.95
# References differ from their captures in brightness, at lengths beyond so many pixels.
BRIGHTNESS = 12
# An impulse nearer to the clean value than this many standard deviations is not one to be found.
VISIBLE = 6.0


@cache
def picture(name: str) -> Array:
    """A sample picture or a file, at most 512 × 512, (rows, columns, channels)."""
    file = Path(name)
    image = np.asarray(Image.open(file)) if file.suffix else getattr(skimage.data, name)()
    values = np.atleast_3d(image).astype(float)
    middle = [max((size - 512) // 2, 0) for size in values.shape[:2]]
    return values[middle[0] : middle[0] + 512, middle[1] : middle[1] + 512]


def autoregressive(shape: tuple[int, ...], rho: float, rng: np.random.Generator) -> Array:
    """Unit noise with the correlation rho^|lag| along both axes."""
    noise = rng.standard_normal((shape[0] + 100, shape[1] + 100, *shape[2:]))
    for axis in (0, 1):
        noise = signal.lfilter([np.sqrt(1 - rho**2)], [1, -rho], noise, axis=axis)
    return noise[100:, 100:]


def demosaiced(shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Noise of a Bayer mosaic after bilinear interpolation."""
    noise = rng.standard_normal(shape[:2])
    sites = np.zeros((*shape[:2], 3))
    sites[::2, ::2, 0] = sites[1::2, 1::2, 2] = 1
    sites[..., 1] = 1 - sites[..., 0] - sites[..., 2]
    cross = np.array([[0, 1, 0], [1, 4, 1], [0, 1, 0]]) / 4
    square = np.array([[1, 2, 1], [2, 4, 2], [1, 2, 1]]) / 4
    return np.stack(
        [
            ndimage.convolve(noise * sites[..., channel], kernel, mode="wrap")
            for channel, kernel in zip(range(shape[2]), (square, cross, square), strict=False)
        ],
        axis=-1,
    )


OUTLIERS = ("salt and pepper", "hot", "dead", "cosmic rays")


@dataclass(frozen=True)
class Case:
    """One noise to be found; `level` is the variance where it does not depend on the signal."""

    kind: str
    level: float
    offset: float = 0.0
    read_variance: float = 0.0
    eight_bit: bool = False
    outliers: str = ""


CASES = (
    *(Case("white", sigma**2) for sigma in (5, 10, 20, 40)),
    *(Case("white", sigma**2, eight_bit=True) for sigma in (5, 20)),
    *(Case("photons", gain) for gain in (0.2, 1, 5, 20, 50)),
    *(Case("photons", gain, 10, 4, eight_bit=True) for gain in (0.2, 1, 5, 20, 50)),
    *(Case(kind, sigma**2) for kind in ("AR 0.3", "AR 0.6") for sigma in (10, 20)),
    *(Case(kind, sigma**2) for kind in ("demosaiced", "channels") for sigma in (10, 20)),
    *(Case("photons", gain, -30, 4) for gain in (0.2, 5)),
    *(Case("white", 100, eight_bit=True, outliers=kind) for kind in OUTLIERS),
)


def unit_noise(kind: str, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Noise of about unit variance."""
    if kind.startswith("AR"):
        return autoregressive(shape, float(kind[3:]), rng)
    if kind == "demosaiced":
        return demosaiced(shape, rng)
    white = rng.standard_normal(shape)
    return white @ np.linalg.cholesky(CHANNELS).T if kind == "channels" else white


def degrade(clean: Array, case: Case, rng: np.random.Generator) -> tuple[Array, Array, NDArray]:
    """A noisy picture, the noise in it before clipping, and where it has outliers."""
    if case.kind == "photons":
        clean = np.maximum(clean, case.offset)
        noisy = rng.poisson((clean - case.offset) / case.level) * case.level + case.offset
        noisy = noisy + np.sqrt(case.read_variance) * rng.standard_normal(clean.shape)
    else:
        noisy = clean + np.sqrt(case.level) * unit_noise(case.kind, clean.shape, rng)
    noise = noisy - clean
    outliers = np.zeros(clean.shape, bool)
    if case.outliers:
        noisy, outliers = with_outliers(noisy, clean, case, rng)
    if case.eight_bit:
        noisy = np.clip(np.round(noisy), 0, 255)
    return noisy, noise, outliers


def with_outliers(
    noisy: Array, clean: Array, case: Case, rng: np.random.Generator
) -> tuple[Array, NDArray]:
    """Outliers at one value in a hundred; tracks of cosmic rays are three pixels long."""
    outliers = rng.random(clean.shape) < 0.01 / (3 if case.outliers == "cosmic rays" else 1)
    if case.outliers == "salt and pepper":
        extreme = np.where(rng.random(clean.shape) < 0.5, 0.0, 255.0)
        return np.where(outliers, extreme, noisy), outliers
    if case.outliers == "cosmic rays":
        outliers = ndimage.binary_dilation(outliers, np.eye(3)[..., None])
    away = -1 if case.outliers == "dead" else 1
    size = rng.uniform(10, 25, clean.shape) * np.sqrt(case.level)
    return np.where(outliers, clean + away * size, noisy), outliers


def neighbours(noise: Array) -> Array:
    """Mean correlations of the channels at lags (1, 0), (0, 1) and (1, 1)."""
    pairs = (
        (noise[1:], noise[:-1]),
        (noise[:, 1:], noise[:, :-1]),
        (noise[1:, 1:], noise[:-1, :-1]),
    )
    variance = noise.var((0, 1))
    return np.array([((a * b).mean((0, 1)) / variance).mean() for a, b in pairs])


def found_neighbours(noise: Noise) -> Array:
    """The same of a kernel."""
    if noise.correlation is None:
        return np.zeros(3)
    middle = np.array(noise.correlation.shape) // 2
    return np.array(
        [noise.correlation[middle[0] + i, middle[1] + j] for i, j in ((1, 0), (0, 1), (1, 1))]
    )


@dataclass(frozen=True)
class Result:
    """What was found, beside the truth; NaN where a question does not apply."""

    name: str
    case: Case
    noise: Noise
    gain: float  # found over true
    variance: float  # found over true, furthest from 1 of three signals
    correlation: float  # largest error of neighbours and channels
    precision: float
    recall: float
    seconds: float


def examine(name: str, case: Case, seed: int) -> Result:
    """Add noise, estimate it, compare."""
    clean = picture(name)
    noisy, added, outliers = degrade(clean, case, np.random.default_rng(seed))
    start = time.perf_counter()
    noise, found = estimate(noisy)
    seconds = time.perf_counter() - start
    signals = np.quantile(clean, (0.25, 0.5, 0.75), axis=(0, 1))
    true = added.var((0, 1))
    if case.kind == "photons":
        true = case.level * np.maximum(signals - case.offset, 0) + case.read_variance
    ratios = (noise.variance(signals) / np.maximum(true, 1e-9)).ravel()
    gain = np.nan
    if case.kind == "photons":
        gains = np.atleast_1d(noise.gain) / case.level
        gain = gains[np.abs(gains - 1).argmax()]
    off = np.abs(found_neighbours(noise) - neighbours(added)).max()
    if clean.shape[2] > 1:
        between = noise.channel_correlation
        between = np.eye(clean.shape[2]) if between is None else between
        truth = np.corrcoef(added.reshape(-1, clean.shape[2]).T)
        off = max(off, np.abs(between - truth).max())
    visible = outliers & (np.abs(noisy - clean) > VISIBLE * np.sqrt(case.level))
    right = found & outliers
    return Result(
        name,
        case,
        noise,
        float(gain),
        float(ratios[np.abs(ratios - 1).argmax()]),
        float(off),
        float(right.sum() / max(found.sum(), 1)) if case.outliers else np.nan,
        float((right & visible).sum() / max(visible.sum(), 1)) if case.outliers else np.nan,
        seconds,
    )


def share(results: list[Result], met: Callable[[Result], bool]) -> str:
    """Share of results that meet a requirement."""
    return f"{100 * np.mean([met(result) for result in results]):6.1f}" if results else "     –"


def print_shares(results: list[Result]) -> None:
    """Shares that meet each requirement, by kind and level of noise."""
    print(f"{'noise':34s} cases  kind  gain  variance  correlation  precision recall seconds")
    for case in dict.fromkeys(result.case for result in results):
        some = [result for result in results if result.case == case]
        label = f"{case.kind} {case.level:g}{' 8-bit' if case.eight_bit else ''} {case.outliers}"
        kinds = {"white": "gaussian", "photons": "poisson-gaussian"}
        kind = kinds.get(case.kind, "correlated gaussian")
        columns = [
            share(some, lambda result, kind=kind: result.noise.kind == kind),
            share(
                [result for result in some if np.isfinite(result.gain)],
                lambda result: abs(result.gain - 1) <= WITHIN_LAW,
            ),
            share(some, lambda result: abs(result.variance - 1) <= WITHIN_LAW),
            share(some, lambda result: result.correlation <= WITHIN_CORRELATION),
            share(
                [result for result in some if case.outliers],
                lambda result: result.precision >= PRECISION,
            ),
            share(
                [result for result in some if case.outliers],
                lambda result: result.recall >= RECALL,
            ),
        ]
        slowest = max(result.seconds for result in some)
        print(f"{label:34s} {len(some):4d} {'   '.join(columns)}   {slowest:.1f}")


def print_cases(results: list[Result]) -> None:
    """Every result, true and found."""
    for result in results:
        case = result.case
        print(
            f"{Path(result.name).stem:12s} {case.kind:10s} {case.level:6g} {case.offset:3g} "
            f"{case.read_variance:3g} {case.outliers:4.4s} gain × {result.gain:5.2f} "
            f"variance × {result.variance:5.2f} correlation ± {result.correlation:4.2f} "
            f"{result.precision:5.3f} {result.recall:5.3f} | {result.noise.describe()}"
        )


def pairs(folder: Path) -> Iterator[tuple[str, Array, Array]]:
    """Name, noisy and clean picture of each pair."""
    for path in sorted(folder.glob("*/*_noisy.*")):
        both = []
        for one in (path, path.with_name(path.name.replace("_noisy", "_clean"))):
            image = tifffile.imread(one) if one.suffix == ".tif" else np.asarray(Image.open(one))
            both.append(np.atleast_3d(image).astype(float))
        yield f"{path.parent.name}/{path.stem.removesuffix('_noisy')}", both[0], both[1]


def print_pair(name: str, noisy: Array, clean: Array) -> None:
    """What is found in the noisy picture beside what the pair shows, means over channels."""
    noise, _ = estimate(noisy)
    error = noisy - clean
    error = error - ndimage.gaussian_filter(error, (BRIGHTNESS, BRIGHTNESS, 0))
    variance, found_variance = error.var((0, 1)), noise.variance(noisy).mean((0, 1))
    true, found = neighbours(error), found_neighbours(noise)
    ratios = " ".join(f"{ratio:.2f}" for ratio in found_variance / variance)
    lags = ", ".join(f"{a:.2f} {b:.2f}" for a, b in zip(true, found, strict=True))
    between = "–"
    if noisy.shape[2] > 1:
        pairs_of = np.triu_indices(noisy.shape[2], 1)
        shown = np.corrcoef(error.reshape(-1, noisy.shape[2]).T)[pairs_of]
        matrix = noise.channel_correlation
        told = np.zeros(len(shown)) if matrix is None else matrix[pairs_of]
        between = ", ".join(f"{a:.2f} {b:.2f}" for a, b in zip(shown, told, strict=True))
    print(f"| {name} | {noise.kind} | {ratios} | {lags} | {between} |")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--cases", action="store_true", help="print every case")
    parser.add_argument("--real", type=Path, help="folder of folders of pairs")
    parser.add_argument("--only", default="", help="kinds of noise whose names start so")
    parser.add_argument("--pictures", type=Path, help="folder of further pictures")
    arguments = parser.parse_args()
    sets = {"First half": FIRST_HALF, "Second half": SECOND_HALF}
    if arguments.pictures:
        sets["Folder"] = tuple(map(str, sorted(arguments.pictures.glob("*.png"))))
    for title, names in sets.items():
        results = [
            examine(name, case, seed)
            for case in CASES
            if case.kind.startswith(arguments.only)
            for name in names
            for seed in range(arguments.seeds)
            if case.kind not in ("demosaiced", "channels") or picture(name).shape[2] > 1
        ]
        print(f"\n{title}: {', '.join(Path(name).stem for name in names)}; shares in %")
        print_shares(results)
        if arguments.cases:
            print_cases(results)
    if arguments.real:
        both = list(pairs(arguments.real))
        for title, some in (("Even-numbered", both[::2]), ("Odd-numbered", both[1::2])):
            print(f"\n{title} pairs; pairs of numbers are true and found")
            print(
                "| pair | kind found | variance, found / true | below, beside, across | channels |"
            )
            print("| --- | --- | --- | --- | --- |")
            for pair in some:
                print_pair(*pair)


if __name__ == "__main__":
    main()
