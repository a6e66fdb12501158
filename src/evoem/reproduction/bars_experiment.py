"""The experiment "bars": one run of each model, with its parameters over iterations."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evoem.reproduction import bars, figures
from evoem.reproduction.bars import KINDS, N_BARS, SIZE, Snapshot
from evoem.reproduction.comparison import Entry, published
from evoem.reproduction.experiment import Contents, Context, Done, Experiment
from evoem.reproduction.recipes import Part, Recipe
from evoem.reproduction.workbook import Arrays, Outcome

# Components are shown before learning, and after these iterations and the last.
SHOWN = (0, 1, 2, 5, 10, 20, 50, 100, 200)
EXAMPLES = 10
# By the name of an entry: its unit, and the digits that are written.
MEASURED = {
    "bars found": ("of 10", 0),
    "active latents": ("expected", 2),
    "within bars": ("amplitude", 2),
    "elsewhere": ("amplitude", 2),
    "noise variance": ("", 2),
    "bound less that of the truth": ("nats per picture", 2),
}


def run(part: Part, context: Context) -> Outcome:
    """Learn, and compare with the truth."""
    settings = part.row.settings
    kind, seed = KINDS[settings["model"]], part.seed + part.repeat
    data = bars.generate(kind, settings["n_rows"], seed)
    learnt = bars.learn(settings, data.X, seed, context.n_jobs)
    matched = bars.match(data.truth.components, learnt.params.components)
    inside, outside = bars.amplitudes(learnt.params, matched.partners)
    values = {
        "bars found": matched.n_found,
        "active latents": float(learnt.params.activation_probs.sum()),
        "within bars": inside,
        "elsewhere": outside,
        "bound": float(learnt.bounds[-1]),
        "bound of the truth": bars.true_bound(kind, data, context.n_jobs),
    }
    values["bound less that of the truth"] = values["bound"] - values["bound of the truth"]
    if hasattr(learnt.params, "noise_variance"):
        values["noise variance"] = float(learnt.params.noise_variance)
    arrays = {
        "examples": data.X[:EXAMPLES],
        "truth": data.truth.components,
        "partners": matched.partners,
        "correlations": matched.correlations,
        "bounds": learnt.bounds,
    }
    return Outcome(values, arrays | traces(learnt.snapshots))


def traces(snapshots: Sequence[Snapshot]) -> Arrays:
    """Parameters over iterations: components now and then, the others always."""
    last = snapshots[-1].iteration
    shown = [one for one in snapshots if one.iteration in (*SHOWN, last)]
    found = {
        "shown": np.array([one.iteration for one in shown]),
        "components": np.array([bars.unit_components(one.params) for one in shown]),
        "activation_probs": np.array([one.params.activation_probs for one in snapshots]),
    }
    for name in ("noise_variance", "slab_means", "slab_covariance"):
        if hasattr(snapshots[0].params, name):
            found[name] = np.array([getattr(one.params, name) for one in snapshots])
    return found


def report(recipe: Recipe, done: Sequence[Done]) -> Contents:
    """Learnt parameters beside true ones, and a figure of each run."""
    entries, drawn = list[Entry](), dict[str, Any]()
    full = recipe.size == "full"
    for row in recipe.rows:
        runs = [one.outcome for one in done if one.part.row == row]
        label = KINDS[row.settings["model"]].label
        for name, (unit, digits) in MEASURED.items():
            values = tuple(float(each.values[name]) for each in runs if name in each.values)
            told = published(f"bars.{row.settings['model']}.{name.replace(' ', '-')}")
            if told is not None:
                entries.append(Entry(f"{label}: {name}", unit, told, values, digits, full))
        for one in done:
            if one.part.row == row:
                drawn[f"parameters-over-iterations-{one.part.name}"] = figure(label, one.outcome)
    notes = [
        "Amplitudes of SSSC are in units of the root mean square of z, since the scale of W and z "
        "is not identified.",
    ]
    return Contents(entries, (), drawn, notes)


def figure(label: str, outcome: Outcome) -> Any:
    """Data and components as pictures, and the other parameters as curves."""
    arrays = outcome.arrays
    signed = label != KINDS["noisy-or"].label
    largest = 1.5 * bars.AMPLITUDE if signed else 1.0
    out = figures.new(11.0, 8.0)
    above, below = out.subfigures(2, 1, height_ratios=[1.5, 1.0])
    panels = [("data", arrays["examples"]), ("truth", arrays["truth"])]
    for iteration, components in zip(arrays["shown"], arrays["components"], strict=True):
        panels.append((f"{iteration}", aligned(components, arrays)))
    columns = above.subplots(1, len(panels))
    for axes, (title, fields) in zip(columns, panels, strict=True):
        picture = figures.mosaic(fields.reshape(-1, SIZE, SIZE), 1, alike=True)
        figures.show_mosaic(axes, picture, largest, signed)
        axes.set_title(title, fontsize=8)
    found, n = outcome.values["bars found"], len(arrays["bounds"])
    above.suptitle(f"{label}: {found} of {N_BARS} bars; W after so many iterations", fontsize=10)
    curves: list[tuple[str, NDArray[np.float64], float | None]] = [
        ("bound per picture", arrays["bounds"], outcome.values["bound of the truth"]),
        ("π", arrays["activation_probs"], 2 / N_BARS),
    ]
    if "noise_variance" in arrays:
        curves.append(("σ²", arrays["noise_variance"], 1.0))
    if "slab_means" in arrays:
        psi = arrays["slab_covariance"]
        if psi.ndim == 3:
            psi = np.diagonal(psi, axis1=1, axis2=2)
        curves += [("μ", arrays["slab_means"], 0.0), ("diagonal of Ψ", psi, 1.0)]
    for axes, (title, values, truth) in zip(below.subplots(1, len(curves)), curves, strict=True):
        axes.plot(np.arange(n + 1)[-len(values) :], values, lw=0.9)
        if truth is not None:
            axes.axhline(truth, color="k", lw=0.8, ls="--")
        axes.set_title(title, fontsize=9)
        axes.set_xlabel("iteration", fontsize=8)
        axes.tick_params(labelsize=7)
    return out


def aligned(components: NDArray[np.float64], arrays: Arrays) -> NDArray[np.float64]:
    """Components in the order and with the signs of the bars that the last are matched with."""
    signs = np.sign(arrays["correlations"])[:, None]
    ordered: NDArray[np.float64] = components[arrays["partners"]]
    return ordered * np.where(signs == 0, 1.0, signs)


EXPERIMENT = Experiment(run, report)
