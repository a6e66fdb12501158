"""Experiments at their quick size, made smaller still."""

from pathlib import Path
from typing import NamedTuple

import pytest

from evoem.reproduction import recipes
from evoem.reproduction.experiment import Context, Done
from evoem.reproduction.kinds import EXPERIMENTS
from evoem.reproduction.pictures import Library
from evoem.reproduction.recipes import Row, joined, load
from evoem.reproduction.workbook import Workbook

SMALLER = {
    "bars": {"n_rows": 100, "search": {"max_iter": 4}},
    "bars-reliability": {"repeats": 2, "n_rows": 60, "search": {"max_iter": 2}},
    "natural-patches": {
        "patches": {"size": 5, "number": 200},
        "search": {"n_latents": 6, "n_states": 8, "n_parents": 3, "max_iter": 2},
    },
}


PICTURE = {"crop": 20, "measured": [1, 2]}


OPTIONS = {"patch_size": 4, "n_latents": 6, "n_states": 8, "n_parents": 3, "max_iter": 2}


def smaller(name, **changes):
    """The quick recipe with less of everything."""
    recipe = load(name, "quick")
    rows = []
    for row in recipe.rows:
        if name == "inpainting" and row.settings.get("base") == "own":
            continue  # as in "denoising"
        less = SMALLER.get(name)
        if less is None:
            own = row.settings.get("base") == "own"
            less = PICTURE | ({"options": {"max_iter": 1} if own else OPTIONS})
        rows.append(Row(row.name, joined(row.settings, less, changes)))
    return recipe._replace(rows=tuple(rows))


class Ran(NamedTuple):
    """An experiment that was run."""

    folder: Path
    done: list[Done]
    table: list[dict[str, str]]

    def text(self, name):
        return (self.folder / name).read_text()


def kind_of(name):
    return EXPERIMENTS[recipes.data(name)["kind"]]


def check_report(found, name):
    """A run of the smaller recipe, and what every report has."""
    assert len(found.done) == len(smaller(name).parts(0))
    assert all(row["ours"] for row in found.table)
    verdicts = {row["verdict"] for row in found.table}
    assert verdicts <= {"reduced: not comparable", "nothing published"}
    assert "Reduced: " in found.text("table.md")
    drawn = {path.suffix for path in (found.folder / "figures").iterdir()}
    assert drawn == {".png", ".pdf"}
    assert len(found.text("report.html")) > 10_000


def goes_on(name, number, folder):
    """A part that was stopped after its second iteration and then went on."""
    kind, part = kind_of(name), smaller(name).parts(0)[number]
    book = Workbook(folder / "stopped")

    def stop(line):
        if "iteration 2" in line:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        kind.run(part, Context(book, Library(None), 1, stop, every=0.0))
    assert book.checkpoint(part).exists()
    told = []
    outcome = kind.run(part, Context(book, Library(None), 1, told.append, every=0.0))
    assert not any("iteration 1," in line for line in told)
    return outcome
