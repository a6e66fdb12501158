"""The experiment "bars-reliability": final bounds of combinations of operators over many data sets.

A part is all combinations of one model on one data set.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from evoem.reproduction import bars, figures
from evoem.reproduction.bars import KINDS, N_BARS
from evoem.reproduction.comparison import Entry, Table, published
from evoem.reproduction.experiment import Contents, Context, Done, Experiment
from evoem.reproduction.recipes import Part, Recipe, joined
from evoem.reproduction.workbook import Outcome


def run(part: Part, context: Context) -> Outcome:
    """Final bound and bars found of every combination."""
    settings = part.row.settings
    kind, seed = KINDS[settings["model"]], part.seed + part.repeat
    data = bars.generate(kind, settings["n_rows"], seed)
    found, bounds = dict[str, int](), dict[str, float]()
    for name, operators in settings["operators"].items():
        learnt = bars.learn(joined(settings, {"search": operators}), data.X, seed, context.n_jobs)
        bounds[name] = float(learnt.bounds[-1])
        matched = bars.match(data.truth.components, learnt.params.components)
        found[name] = matched.n_found
    truth = bars.true_bound(kind, data, context.n_jobs)
    return Outcome({"bounds": bounds, "found": found, "truth": truth}, {})


def ranks(bounds: dict[str, float]) -> list[str]:
    """Combinations from the best to the worst."""
    return sorted(bounds, key=lambda name: -bounds[name])


def report(recipe: Recipe, done: Sequence[Done]) -> Contents:
    """Ranking, shares of runs that find all bars, and box plots."""
    entries, rows = list[Entry](), list[tuple[str, ...]]()
    panels = list[tuple[str, dict[str, list[float]]]]()
    for row in recipe.rows:
        runs = [one.outcome.values for one in done if one.part.row == row]
        label, names = KINDS[row.settings["model"]].label, list(row.settings["operators"])
        best = row.settings["best"]
        lost = {name: [each["bounds"][name] - each["truth"] for each in runs] for name in names}
        means = {name: float(np.mean(values)) for name, values in lost.items() if values}
        order = ranks(means)
        place = (order.index(best) + 1.0,) if order else ()
        told = published(f"bars-reliability.{row.settings['model']}")
        entries.append(Entry(f"{label}: rank of {best}", "", told, place, 0, recipe.size == "full"))
        for number, name in enumerate(order, 1):
            complete = [each["found"][name] == N_BARS for each in runs]
            rows.append(
                (
                    label,
                    name,
                    str(number),
                    f"{means[name]:.3f}",
                    f"{np.median(lost[name]):.3f}",
                    f"{sum(complete)} of {len(complete)}",
                )
            )
        panels.append((label, lost))
    columns = (
        "model", "operators", "rank", "mean of bound less that of the truth", "median",
        "runs that found all bars",
    )  # fmt: skip
    table = Table("Combinations of operators", columns, tuple(rows))
    notes = ["Combinations are ranked by the mean of their final bounds over the data sets."]
    drawn = {"final-bounds": figure(panels)} if any(panels) and done else {}
    return Contents(entries, (table,), drawn, notes)


def figure(panels: Sequence[tuple[str, dict[str, list[float]]]]) -> Any:
    """Box plots as those of fig:app_norbscssscReliability, less the bound of the truth."""
    out = figures.new(4.2 * len(panels), 4.6)
    for axes, (label, lost) in zip(
        np.atleast_1d(out.subplots(1, len(panels))), panels, strict=True
    ):
        shown = {name: values for name, values in lost.items() if values}
        axes.boxplot(list(shown.values()), showmeans=True)
        axes.set_xticks(np.arange(1, len(shown) + 1), shown, rotation=60, ha="right", fontsize=7)
        axes.axhline(0.0, color="k", lw=0.8, ls="--")
        axes.set_title(label, fontsize=10)
        axes.tick_params(axis="y", labelsize=7)
    out.supylabel("final bound less that of the truth, nats per picture", fontsize=9)
    return out


EXPERIMENT = Experiment(run, report)
