"""The bars test: do the three models find the bars that their data were made of?

    python examples/bars.py                          the demo, and a picture, bars.png
    python examples/bars.py --reliability 10 --starts 1     bars found with ten seeds

Section 3.2 of the paper at a smaller size: 5×5 pictures, each the sum (or the OR) of a few of ten
bars, with noise. EM climbs to a local optimum, so every model is started several times; the start
with the highest bound goes on until it has converged. The truth is never consulted for that.
"""

import argparse
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from evoem import BinarySparseCoding, NoisyOr, SpikeSlabCoding, em
from evoem.reproduction import bars
from evoem.reproduction.bars import N_BARS, SIZE

FIRST_ITERATIONS = 40  # of each start, before all but the best are given up
SHADES = "·░▒▓█"
PRINTED_ITERATIONS = (1, 5, 10, 20, 40, 80)


class Setup(NamedTuple):
    """One model, its data, and the operators that section 3.2 found best for it."""

    name: str
    estimator: Callable[..., Any]
    kind: bars.Kind
    operators: dict[str, Any]


SETUPS = (
    Setup(
        "noisy-OR",
        NoisyOr,
        bars.KINDS["noisy-or"],
        {"parents": "random", "crossover": True, "mutation": "sparse"},
    ),
    Setup(
        "binary sparse coding",
        BinarySparseCoding,
        bars.KINDS["bsc"],
        {"parents": "fit", "crossover": True, "mutation": "sparse"},
    ),
    Setup(
        "spike-and-slab coding",
        SpikeSlabCoding,
        bars.KINDS["sssc"],
        {"parents": "fit", "crossover": False, "mutation": "uniform"},
    ),
)


class Run(NamedTuple):
    """A fitted estimator, and what happened on the way."""

    estimator: Any
    noise: list[float]  # noise variance after each iteration; empty for noisy-OR
    starts: list[np.ndarray]  # the bounds of every start's first iterations


def learn(setup: Setup, X: np.ndarray, *, seed: int, starts: int, iterations: int) -> Run:
    """Start several times, go on with the start of the highest bound."""

    def begin(start: int) -> tuple[Any, list[float]]:
        noise: list[float] = []

        def note(info: em.StepInfo, state: em.EMState) -> None:
            if hasattr(state.params, "noise_variance"):
                noise.append(float(state.params.noise_variance))

        estimator = setup.estimator(
            n_latents=N_BARS,
            n_states=20,
            n_parents=5,
            n_children=4,
            n_generations=2,
            **setup.operators,
            max_iter=min(FIRST_ITERATIONS, iterations),
            tol=0,
            n_jobs=-1,
            random_state=1000 * seed + start,
            callback=note,
        )
        return estimator.fit(X), noise

    begun = [begin(start) for start in range(starts)]
    bounds = [estimator.free_energies_ for estimator, _ in begun]
    best, noise = max(begun, key=lambda each: each[0].free_energy_)
    if iterations > FIRST_ITERATIONS:
        best.set_params(warm_start=True, tol=1e-4, max_iter=iterations - FIRST_ITERATIONS)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the demo says so in its own words
            best.fit(X)
    return Run(best, noise, bounds)


def as_text(components: np.ndarray) -> str:
    """Five pictures per line; the darker, the larger in size."""
    levels = np.abs(components) / np.abs(components).max() * len(SHADES)
    pictures = np.minimum(levels.astype(int), len(SHADES) - 1).reshape(-1, SIZE, SIZE)
    lines = []
    for group in (pictures[:SIZE], pictures[SIZE:]):
        for row in range(SIZE):
            lines.append(
                "   ".join("".join(SHADES[level] * 2 for level in p[row]) for p in group).rstrip()
            )
        lines.append("")
    return "\n".join("    " + line if line else line for line in lines)


def describe(setup: Setup, run: Run, truth: Any, likelihood: float) -> None:
    """Print how the bound rose, and what was learnt."""
    bounds = run.estimator.free_energies_
    listed = ", ".join(f"{start[-1]:.2f}" for start in run.starts)
    print(f"  bound of each start after {len(run.starts[0])} iterations: {listed}")
    print("  the highest goes on:")
    print("    iteration   bound per data point   noise variance")
    for i in sorted({*(i for i in PRINTED_ITERATIONS if i < len(bounds)), len(bounds)}):
        noise = f"{run.noise[i - 1]:.3f}" if run.noise else "-"
        print(f"    {i:9d}   {bounds[i - 1]:20.3f}   {noise:>14}")
    ending = "converged" if run.estimator.converged_ else "the bound was still rising"
    print(f"    {ending}; the true parameters have {likelihood:.3f}")
    partners = bars.match(truth.components, run.estimator.components_).partners
    print("\n  learnt components (sizes), in the order of the bars:\n")
    print(as_text(run.estimator.components_[partners]))


def mosaic(pictures: np.ndarray) -> np.ndarray:
    """Ten pictures in two lines of five, with NaN between and around them."""
    scale, gap = 8, 3
    step = SIZE * scale + gap
    out = np.full((2 * step + gap, 5 * step + gap), np.nan)
    for i, picture in enumerate(pictures[:10].reshape(-1, SIZE, SIZE)):
        top, left = gap + step * (i // 5), gap + step * (i % 5)
        out[top : top + step - gap, left : left + step - gap] = np.kron(
            picture, np.ones((scale, scale))
        )
    return out


class Result(NamedTuple):
    """All that the picture shows of one model."""

    setup: Setup
    X: np.ndarray
    truth: Any
    run: Run
    likelihood: float


def draw(results: list[Result], path: str) -> None:
    """The picture: a row per model."""
    import matplotlib as mpl  # late: it takes longer to load than everything else

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(
        len(results),
        4,
        figsize=(13, 2.1 * len(results)),
        width_ratios=[1, 1, 1, 0.9],
        layout="constrained",
        squeeze=False,
    )
    figure.get_layout_engine().set(w_pad=0.08, h_pad=0.08)
    for line, (setup, X, truth, run, likelihood) in zip(axes, results, strict=True):
        learnt = run.estimator.components_
        matched = bars.match(truth.components, learnt)
        shown = learnt[matched.partners]
        signed = setup.estimator is not NoisyOr
        if setup.estimator is SpikeSlabCoding:
            shown *= np.sign(matched.correlations)[:, None]  # the slab has no sign of its own
        colours = mpl.colormaps["RdBu_r" if signed else "Greys"].with_extremes(bad="0.82")
        panels = ("data", X), ("true bars", truth.components), ("learnt bars", shown)
        for axis, (title, pictures) in zip(line, panels, strict=False):
            largest = 7.0 if signed else 1.0
            lowest = -largest if signed else 0.0
            axis.imshow(mosaic(pictures), cmap=colours, vmin=lowest, vmax=largest)
            axis.set(xticks=[], yticks=[])
            axis.set_xlabel(title, fontsize=10)
            axis.spines[:].set_visible(False)
        label = f"{setup.name}: {matched.n_found} of {N_BARS} bars found"
        if run.noise:
            label += f", noise variance {run.noise[-1]:.2f} (true 1)"
        line[0].set_title(label, loc="left", fontsize=11, fontweight="bold")
        axis = line[3]
        for bounds in run.starts:
            (other,) = axis.plot(np.arange(1, len(bounds) + 1), bounds, color="0.75", lw=1)
        other.set_label("other starts")
        bounds = run.estimator.free_energies_
        axis.plot(np.arange(1, len(bounds) + 1), bounds, color="C0", lw=1.8, label="kept start")
        axis.axhline(likelihood, color="C3", lw=1, ls="--", label="true parameters")
        # The first iterations would leave no room for the rest.
        lowest = min(start[min(4, len(start) - 1)] for start in run.starts)
        axis.set_ylim(lowest, likelihood + 0.1 * (likelihood - lowest))
        axis.set_xlim(0, len(bounds))
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(labelsize=8)
    axes[0, 3].legend(fontsize=8, frameon=False, loc="lower right")
    axes[0, 3].set_title("bound per data point", fontsize=10)
    axes[-1, 3].set_xlabel("iteration", fontsize=10)
    figure.savefig(path, dpi=100)
    plt.close(figure)


def demo(rows: int, iterations: int, starts: int, seed: int, output: str) -> None:
    """All three models on one set of data each."""
    began = time.perf_counter()
    results = []
    for setup in SETUPS:
        data = bars.generate(setup.kind, rows, seed)
        print(f"{setup.name}: {rows} pictures of {SIZE}×{SIZE}, {starts} starts")
        run = learn(setup, data.X, seed=seed, starts=starts, iterations=iterations)
        likelihood = bars.true_bound(setup.kind, data, n_jobs=2)
        describe(setup, run, data.truth, likelihood)
        found = bars.match(data.truth.components, run.estimator.components_).n_found
        print(f"  {setup.name} found {found} of {N_BARS} bars.\n", flush=True)
        results.append(Result(setup, data.X, data.truth, run, likelihood))
    draw(results, output)
    print(f"The picture is in {output}. All took {time.perf_counter() - began:.0f} s.")


def reliability(seeds: int, rows: int, iterations: int, starts: int) -> None:
    """Bars found with new data and new starts for every seed."""
    for setup in SETUPS:
        counts = []
        for seed in range(seeds):
            truth, X = bars.generate(setup.kind, rows, seed)
            run = learn(setup, X, seed=seed, starts=starts, iterations=iterations)
            counts.append(bars.match(truth.components, run.estimator.components_).n_found)
        complete = sum(count == N_BARS for count in counts)
        listed = " ".join(map(str, counts))
        print(f"{setup.name}: {listed}; all bars in {complete} of {seeds}", flush=True)


def positive(text: str) -> int:
    """An integer of at least one, for the command line."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be an integer at least 1; got {value}.")
    return value


def main() -> None:
    """Read the command line and do what it says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=positive, default=2000, help="pictures (default 2000)")
    parser.add_argument(
        "--iterations", type=positive, default=200, help="at most, of the kept start (default 200)"
    )
    parser.add_argument("--starts", type=positive, default=4, help="starts (default 4)")
    parser.add_argument("--seed", type=int, default=0, help="for data and starts (default 0)")
    parser.add_argument("--output", default="bars.png", help="where the picture goes")
    parser.add_argument(
        "--reliability", type=positive, metavar="SEEDS", help="count bars over seeds instead"
    )
    options = parser.parse_args()
    sys.stdout.reconfigure(encoding="utf-8")  # for the blocks, on any terminal
    if options.reliability:
        reliability(options.reliability, options.rows, options.iterations, options.starts)
    else:
        demo(options.rows, options.iterations, options.starts, options.seed, options.output)


if __name__ == "__main__":
    main()
