"""The yardstick of restoration quality: PSNR on many images, as it grows with time.

    python benchmarks/quality.py --images FOLDER --published FILE --json out.json
    python benchmarks/quality.py --images FOLDER --set choosing --presets fast --no-curves
    python benchmarks/quality.py --plot curves.png --json out.json

Noise is Gaussian and not clipped, missing values are lost one by one in each channel and observed
ones are kept. PSNR has a peak of 255 over all values of the image; nothing is clipped or rounded.
Values are means over the damage seeds, with the standard deviation behind "±".

Images and damage seeds of the set "choosing" served to choose settings; those of the set
"reporting" did not, and only they say how good the choice was.

A curve is a list of [seconds, iteration, PSNR]. Taking a point needs time, which is subtracted
wherever seconds or minutes are given. `evoem.restore` would count it, so with curves no time limit
is passed to it: the run is ended when another iteration and the reconstruction would no longer fit
into the minutes allowed, and has "ended" by "callback". Use --no-curves to measure the time limit
itself. Where Numba has nothing in its cache, the first run includes compilation.

On a machine that others use too, --clock processor counts the processor time of this program,
divided by the speed-up that its threads have on a quiet machine, instead of what a wall clock says.

Baselines are run here on the same arrays. BM3D and NL-means are told the true noise level, `evoem`
is not. BM3D needs the package bm3d, which is free for non-commercial use only, the others
scikit-image; both are the extra `bench`. --plot needs matplotlib, the extra `plot`.

The images are not part of the project; FOLDER holds house.png, peppers.png, barbara.png, lena.png,
cameraman.png, castle.png, new_orleans.png and new_orleans_mask.png. Two come with scikit-image.
"""

import argparse
import importlib
import importlib.metadata
import json
import math
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import restoration
from numpy.typing import NDArray

import evoem
from evoem.images import degrade
from evoem.images.options import PRESETS
from evoem.images.quality import psnr, ssim

SEED = 1
# What settings are chosen by is apart from what is reported: other images, other seeds.
DAMAGE_SEEDS = {"choosing": (1,), "reporting": (11, 12, 13)}
# "paper" is made for days.
DEFAULT_PRESETS = [name for name in PRESETS if name != "paper"]
# Ratio of the iterations at which a curve has its points.
SPACING = 1.3
SAMPLE = "skimage.data."  # names of images that come with scikit-image start so
PACKAGES = ("evoem", "numpy", "numba", "bm3d", "scikit-image")
PAPER = "ES3C, paper (100-640 cores, 6-100 h)"
PANELS_PER_ROW = 3
SPEED_UP = 1.8  # of two threads
CLOCKS = {
    "wall": time.perf_counter,
    "processor": lambda: time.process_time() / (SPEED_UP if (os.cpu_count() or 1) > 1 else 1),
}


class Task(NamedTuple):
    """What to restore, and how well and fast."""

    image: str
    damage: str  # "noise", "missing" or the file of a mask
    amount: float
    minutes: float  # allowed
    asked: float | None  # dB
    set: str
    column: str | None  # of the published values


TASKS = {
    "house-50": Task("house", "noise", 50, 2, 29.83, "choosing", "house_50"),
    "house-25": Task("house", "noise", 25, 5, 33.15, "choosing", "house_25"),
    "house-15": Task("house", "noise", 15, 5, 34.90, "choosing", "house_15"),
    "peppers-25": Task("peppers", "noise", 25, 5, 30.27, "choosing", "peppers_25"),
    "house-missing-50": Task("house", "missing", 0.5, 10, 39.59, "choosing", "house_50%"),
    "house-missing-80": Task("house", "missing", 0.8, 10, 33.06, "choosing", "house_80%"),
    "barbara-25": Task("barbara", "noise", 25, 15, 30.19, "reporting", "barbara_25"),
    "lena-25": Task("lena", "noise", 25, 15, 31.95, "reporting", "lena_25"),
    "barbara-missing-50": Task("barbara", "missing", 0.5, 20, 35.44, "reporting", "barbara_50%"),
    "lena-missing-50": Task("lena", "missing", 0.5, 20, 37.54, "reporting", "lena_50%"),
    "cameraman-missing-50": Task(
        "cameraman", "missing", 0.5, 20, 30.69, "reporting", "cameraman_50%"
    ),
    "castle-missing-50": Task("castle", "missing", 0.5, 20, 38.23, "reporting", "castle_50%"),
    "castle-missing-80": Task("castle", "missing", 0.8, 20, 29.66, "reporting", "castle_80%"),
    "new-orleans": Task("new_orleans", "new_orleans_mask", 0, 15, 30.93, "reporting", None),
    "camera-25": Task(f"{SAMPLE}camera", "noise", 25, 15, None, "reporting", None),
    "coins-25": Task(f"{SAMPLE}coins", "noise", 25, 15, None, "reporting", None),
    "camera-missing-50": Task(f"{SAMPLE}camera", "missing", 0.5, 20, None, "reporting", None),
}


class Case(NamedTuple):
    """A damaged image, and what it was."""

    clean: NDArray[np.float64]
    image: NDArray[np.float64]
    mask: NDArray[np.bool_] | None
    sigma: float  # of the noise

    @property
    def channel_axis(self) -> int | None:
        """Where the colours are."""
        return -1 if self.clean.ndim == 3 else None

    def quality(self, restored: NDArray[np.float64]) -> dict[str, float]:
        """How close a restored image comes to the clean one."""
        return {
            "psnr": psnr(self.clean, restored),
            "ssim": ssim(self.clean, restored, channel_axis=self.channel_axis),
        }


def read(folder: Path, name: str) -> NDArray[np.float64]:
    """Values of an image file, or of an image that comes with scikit-image."""
    if not name.startswith(SAMPLE):
        return restoration.read(folder, name)
    from skimage import data

    return getattr(data, name.removeprefix(SAMPLE))().astype(np.float64)


def make_case(task: Task, folder: Path, seed: int) -> Case:
    """The image of a task, damaged."""
    clean = read(folder, task.image)
    if task.damage == "noise":
        return Case(clean, degrade.add_noise(clean, task.amount, seed), None, task.amount)
    if task.damage == "missing":
        mask = degrade.missing_pixels(clean.shape, task.amount, seed, per_channel=True)
    else:
        mask = np.broadcast_to((read(folder, task.damage) > 0)[..., None], clean.shape)
    # Blank, so that no method can look.
    return Case(clean, np.where(mask, 0.0, clean), mask, 0.0)


def damage_seeds(task: Task, given: list[int] | None) -> list[int]:
    """Seeds of a task's damage; one where nothing is random about it."""
    seeds = list(given or DAMAGE_SEEDS[task.set])
    return seeds if task.damage in ("noise", "missing") else seeds[:1]


class Curve:
    """A callback that notes the PSNR now and then, and ends the run when its time is over."""

    def __init__(self, clean: NDArray[np.float64], seconds_allowed: float, clock: str) -> None:
        self.clean = clean
        self.seconds_allowed = seconds_allowed
        self._clock = CLOCKS[clock]
        self._started = self._clock()
        self.points: list[list[float]] = []
        self.own_seconds = 0.0
        self._next = 1
        self._before = 0.0
        self._closing = 0.0

    @property
    def seconds(self) -> float:
        """Since the start, without those for the curve itself."""
        return self._clock() - self._started - self.own_seconds

    def __call__(self, progress: Any) -> bool:
        entered = self._clock()
        seconds = self.seconds
        if progress.stage == "learning" and progress.iteration >= self._next:
            self._add_point(seconds, progress)
        iteration = seconds - self._before
        self._before = seconds
        self.own_seconds += self._clock() - entered
        return bool(seconds + iteration + self._closing > self.seconds_allowed)

    def _add_point(self, seconds: float, progress: Any) -> None:
        started = self._clock()
        restored = progress.restored()
        self._closing = self._clock() - started
        self.points.append([seconds, progress.iteration, psnr(self.clean, restored)])
        self._next = math.ceil(SPACING * progress.iteration)


def run(
    name: str, case: Case, seed: int, preset: str, arguments: argparse.Namespace
) -> dict[str, Any]:
    """Restore the image of a task."""
    task, options = TASKS[name], arguments.options
    seconds_allowed = options.get("time_limit", 60 * task.minutes)
    curve = Curve(case.clean, seconds_allowed, arguments.clock)
    limit: dict[str, Any] = {"time_limit": seconds_allowed}
    if arguments.curves:
        limit = {"callback": curve, "time_limit": None}
    restored = evoem.restore(
        case.image,
        mask=case.mask,
        keep_observed=case.mask is not None,
        channel_axis=case.channel_axis,
        **{"preset": preset, "seed": SEED, **options, **limit},
    )
    seconds = curve.seconds
    quality = case.quality(restored.image)
    iterations = len(restored.free_energies)
    return {
        "task": name,
        "preset": preset,
        "damage_seed": seed,
        **quality,
        "psnr_before": psnr(case.clean, case.image) if case.mask is None else None,
        "minutes": seconds / 60,
        "iterations": iterations,
        "noise_level": restored.noise_level,
        "asked": task.asked,
        "minutes_allowed": task.minutes,
        "ended": restored.ended,
        "notes": restored.notes,
        "settings": restored.settings,
        "curve": [*curve.points, [seconds, iterations, quality["psnr"]]],
    }


def bm3d(case: Case) -> NDArray[np.float64]:
    """BM3D, told the noise level."""
    from bm3d import bm3d

    return bm3d(case.image, sigma_psd=case.sigma)


def nl_means(case: Case) -> NDArray[np.float64]:
    """Non-local means, told the noise level, with the `h` that its documentation recommends."""
    from skimage.restoration import denoise_nl_means

    return denoise_nl_means(
        case.image,
        patch_size=7,
        patch_distance=11,
        h=0.8 * case.sigma,
        fast_mode=True,
        sigma=case.sigma,
        channel_axis=case.channel_axis,
    )


def biharmonic(case: Case) -> NDArray[np.float64]:
    """Biharmonic inpainting, channel by channel: each misses other values."""
    from skimage.restoration import inpaint_biharmonic

    # scikit-image refuses views that are not contiguous.
    images, masks = (
        np.ascontiguousarray(np.moveaxis(np.atleast_3d(values), -1, 0))
        for values in (case.image, case.mask)
    )
    channels = [inpaint_biharmonic(*channel) for channel in zip(images, masks, strict=True)]
    return np.stack(channels, axis=-1).reshape(case.clean.shape)


class Baseline(NamedTuple):
    """Another method."""

    package: str
    inpaints: bool  # or denoises
    restore: Callable[[Case], NDArray[np.float64]]


BASELINES = {
    "BM3D": Baseline("bm3d", False, bm3d),
    "NL-means": Baseline("skimage", False, nl_means),
    "biharmonic": Baseline("skimage", True, biharmonic),
}


def installed_baselines() -> list[str]:
    """Those that can be run; says which cannot."""
    found = []
    for name, baseline in BASELINES.items():
        try:
            importlib.import_module(baseline.package)
        except ImportError:
            print(f"No {name}: {baseline.package} (extra `bench`) is not installed.\n")
        else:
            found.append(name)
    return found


def run_baselines(methods: list[str], name: str, case: Case, seed: int) -> Iterator[dict[str, Any]]:
    """Restore the image of a task by other methods."""
    for method in methods:
        baseline = BASELINES[method]
        if baseline.inpaints != (case.mask is not None):
            continue
        started = time.perf_counter()
        restored = baseline.restore(case)
        seconds = time.perf_counter() - started
        yield {
            "task": name,
            "method": method,
            "damage_seed": seed,
            **case.quality(restored),
            "seconds": seconds,
        }


def published_values(file: Path | None) -> dict[str, dict[str, float]]:
    """Published PSNRs by task and method."""
    values: dict[str, dict[str, float]] = {name: {} for name in TASKS}
    if file is None:
        return values
    content = json.loads(file.read_text())
    for section in (content["denoising"], content["inpainting"]):
        columns = section["columns"]
        for name, task in TASKS.items():
            if task.column not in columns:
                continue
            place = columns.index(task.column)
            for method, row in section.items():
                if method != "columns" and row[place] is not None:
                    values[name][method] = row[place]
    return values


def versions() -> dict[str, str]:
    """What was measured, and with what."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found


def write(file: Path | None, report: dict[str, Any]) -> None:
    """Replace the file at once: readers never see half of it."""
    if file is None:
        return
    unfinished = file.with_name(f"{file.name}.part")
    unfinished.write_text(json.dumps(report, indent=1))
    os.replace(unfinished, file)


def mean_and_sd(values: list[float]) -> str:
    """Mean, and standard deviation if there is one."""
    if not values:
        return "–"
    mean = f"{np.mean(values):.2f}"
    return f"{mean} ± {np.std(values, ddof=1):.2f}" if len(values) > 1 else mean


def print_head() -> None:
    """The table's head."""
    head = (
        "task", "preset", "PSNR, dB", "SSIM", "minutes", "iterations", "learnt σ", "asked", "met",
        "ES3C (published)", "WNNM (published)", "BM3D (run here)",
        "NL-means or biharmonic (run here)",
    )  # fmt: skip
    print(f"| {' | '.join(head)} |")
    print("| --- " * len(head) + "|", flush=True)


def line(
    runs: list[dict[str, Any]], baselines: list[dict[str, Any]], published: dict[str, float]
) -> str:
    """A line of the table: a task and a preset, over all damage seeds."""
    mean = {
        key: np.mean([result[key] for result in runs])
        for key in ("psnr", "ssim", "minutes", "iterations", "noise_level")
    }
    asked, allowed = runs[0]["asked"], runs[0]["minutes_allowed"]
    in_time = max(result["minutes"] for result in runs) <= allowed
    others = {
        method: [result["psnr"] for result in baselines if result["method"] == method]
        for method in BASELINES
    }
    cells = (
        runs[0]["task"],
        runs[0]["preset"],
        mean_and_sd([result["psnr"] for result in runs]),
        f"{mean['ssim']:.3f}",
        f"{mean['minutes']:.1f}",
        f"{mean['iterations']:.0f}",
        f"{mean['noise_level']:.1f}",
        f"in {allowed:g}" if asked is None else f"{asked:.2f} in {allowed:g}",
        "–" if asked is None else "yes" if mean["psnr"] >= asked and in_time else "no",
        *(f"{published[key]:.2f}" if key in published else "–" for key in ("ES3C", "WNNM")),
        mean_and_sd(others["BM3D"]),
        mean_and_sd(others["NL-means"] or others["biharmonic"]),
    )
    return f"| {' | '.join(cells)} |"


def measure(names: list[str], arguments: argparse.Namespace) -> None:
    """Run the tasks and print their table."""
    print(", ".join(f"{name} {version}" for name, version in versions().items()), end="\n\n")
    methods = installed_baselines() if arguments.baselines else []
    published = published_values(arguments.published)
    report: dict[str, Any] = {
        "versions": versions(),
        "processors": os.cpu_count(),
        "options": arguments.options,
        "curves": arguments.curves,
        "clock": arguments.clock,
        "published": {name: published[name] for name in names},
        "baselines": [],
        "runs": [],
    }
    print_head()
    for name in names:
        task = TASKS[name]
        seeds = damage_seeds(task, arguments.damage_seeds)
        cases = {seed: make_case(task, arguments.images, seed) for seed in seeds}
        baselines = []
        for seed, case in cases.items():
            baselines += run_baselines(methods, name, case, seed)
        report["baselines"] += baselines
        write(arguments.json, report)
        for preset in arguments.presets:
            runs = []
            for seed, case in cases.items():
                runs.append(run(name, case, seed, preset, arguments))
                report["runs"].append(runs[-1])
                write(arguments.json, report)
                print(
                    f"{name}, {preset}, damage seed {seed}: {runs[-1]['psnr']:.2f} dB",
                    file=sys.stderr,
                )
            print(line(runs, baselines, published[name]), flush=True)


def plot(report: dict[str, Any], file: Path) -> None:
    """Draw the curves, one panel per task."""
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(result["task"] for result in report["runs"]))
    if not names:
        raise SystemExit("There are no runs to draw.")
    columns = min(len(names), PANELS_PER_ROW)
    rows = math.ceil(len(names) / columns)
    figure = Figure(figsize=(5 * columns, 4 * rows + 0.5), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    labelled: dict[str, Any] = {}
    for name, panel in zip(names, panels, strict=False):
        draw_panel(panel, name, report)
        lines, labels = panel.get_legend_handles_labels()
        labelled |= dict(zip(labels, lines, strict=True))
    for panel in panels[len(names) :]:
        panel.remove()
    figure.legend(
        list(labelled.values()), list(labelled), loc="outside lower center", ncols=columns
    )
    figure.savefig(file, dpi=150)


def draw_panel(panel: Any, name: str, report: dict[str, Any]) -> None:
    """The curves of a task, and what other methods reach."""
    from matplotlib.ticker import LogLocator

    presets = list(dict.fromkeys(result["preset"] for result in report["runs"]))
    for result in report["runs"]:
        if result["task"] == name:
            seconds, _, decibels = zip(*result["curve"], strict=True)
            colour = f"C{presets.index(result['preset'])}"
            label = f"evoem, {result['preset']}"
            panel.plot(seconds, decibels, color=colour, marker=".", alpha=0.8, label=label)
    for method, style in zip(BASELINES, ("--", ":", ":"), strict=True):
        reached = [
            result["psnr"]
            for result in report["baselines"]
            if (result["task"], result["method"]) == (name, method)
        ]
        if reached:
            panel.axhline(
                np.mean(reached), color="grey", linestyle=style, label=f"{method}, run here"
            )
    if "ES3C" in report["published"][name]:
        panel.axhline(report["published"][name]["ES3C"], color="black", label=PAPER)
    panel.set(title=name, xlabel="seconds", ylabel="PSNR, dB", xscale="log")
    panel.xaxis.set_major_locator(LogLocator(subs=(1, 2, 3, 5)))
    panel.xaxis.set_major_formatter("{x:g}")
    panel.xaxis.set_minor_formatter("")


def parse() -> tuple[argparse.ArgumentParser, argparse.Namespace]:
    """What was asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    switch = argparse.BooleanOptionalAction
    parser.add_argument("--images", type=Path, metavar="FOLDER")
    parser.add_argument("--published", type=Path, metavar="FILE", help="published values, JSON")
    parser.add_argument("--only", nargs="+", choices=list(TASKS), default=list(TASKS),
                        metavar="TASK")  # fmt: skip
    parser.add_argument("--set", choices=list(DAMAGE_SEEDS))
    parser.add_argument("--presets", nargs="+", choices=list(PRESETS), default=DEFAULT_PRESETS)
    parser.add_argument("--damage-seeds", nargs="+", type=int, metavar="SEED",
                        help=f"other than {DAMAGE_SEEDS}")  # fmt: skip
    parser.add_argument("--baselines", action=switch, default=True, help="run other methods too")
    parser.add_argument("--curves", action=switch, default=True, help="PSNR along the run")
    parser.add_argument("--clock", choices=list(CLOCKS), default="wall")
    parser.add_argument("--options", type=json.loads, default={}, metavar="JSON",
                        help="other settings of evoem.restore by name")  # fmt: skip
    parser.add_argument("--json", type=Path, metavar="FILE", help="written after every run")
    parser.add_argument("--plot", type=Path, metavar="PNG",
                        help="draw what the file of --json holds, and run nothing")  # fmt: skip
    return parser, parser.parse_args()


def main() -> None:
    """Measure, or draw what was measured."""
    parser, arguments = parse()
    if arguments.plot:
        if arguments.json is None:
            parser.error("--plot needs --json")
        plot(json.loads(arguments.json.read_text()), arguments.plot)
        return
    if arguments.images is None:
        parser.error("--images is needed")
    names = [name for name in arguments.only if arguments.set in (None, TASKS[name].set)]
    if not names:
        parser.error(f"none of --only is in the set {arguments.set}")
    measure(names, arguments)


if __name__ == "__main__":
    main()
