"""Recipes: the experiments of the paper as data, in `evoem/experiments`.

Settings that all rows of a recipe share stand in its table `common`, and those that some share in
`bases`, of which a row names one, "paper" unless it says otherwise. Those of the row come on top,
and those of the table `quick` above all. Tables within tables are joined likewise.
"""

import hashlib
import json
import tomllib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any, NamedTuple

from evoem import validation

FOLDER = files("evoem").joinpath("experiments")
# In the order in which they are listed.
NAMES = (
    "bars",
    "bars-reliability",
    "natural-patches",
    "bound-and-psnr",
    "controlled",
    "denoising",
    "inpainting",
)
SIZES = ("quick", "full")
DIGEST = 8  # characters
BASE = "paper"
# Options of models of bars and patches as in the authors' programs, beside their M-steps.
AUTHORS = {"noisy-or": {"updates": "printed"}, "sssc": {"init": "authors"}}

Settings = dict[str, Any]


class Row(NamedTuple):
    """A row of a table, or a panel of a figure."""

    name: str
    settings: Settings


class Part(NamedTuple):
    """One run of a row: what is done at once, and not repeated."""

    row: Row
    repeat: int
    seed: int  # of the whole reproduction

    @property
    def name(self) -> str:
        """Row and repeat, for people."""
        return f"{self.row.name}-{self.repeat + 1}"

    @property
    def key(self) -> str:
        """The same with a digest of all settings: the name of what is kept of it."""
        told = json.dumps([self.row.settings, self.seed], sort_keys=True)
        return f"{self.name}-{hashlib.sha256(told.encode()).hexdigest()[:DIGEST]}"


class Recipe(NamedTuple):
    """An experiment, at one of its sizes."""

    name: str
    size: str
    title: str
    where: str  # in the paper
    shows: str
    reduced: str  # what is smaller at this size; empty for the full one
    rows: tuple[Row, ...]

    def parts(self, seed: int) -> list[Part]:
        """All runs: every row once, then every row that has more runs again."""
        most = max(row.settings["repeats"] for row in self.rows)
        return [
            Part(row, repeat, seed)
            for repeat in range(most)
            for row in self.rows
            if repeat < row.settings["repeats"]
        ]

    def only(self, names: Sequence[str]) -> "Recipe":
        """Some of its rows."""
        for name in names:
            validation.choice("only", name, [row.name for row in self.rows])
        return self._replace(rows=tuple(row for row in self.rows if row.name in names))

    def with_updates(self, updates: str) -> "Recipe":
        """The same with other M-steps, in the rows that have a choice of them."""

        def changed(row: Row) -> Row:
            if "updates" not in row.settings["options"]:
                return row
            own = {"updates": updates}
            if updates == "authors":
                own |= AUTHORS.get(row.settings.get("model", ""), {})
            return Row(row.name, joined(row.settings, {"options": own}))

        return self._replace(rows=tuple(changed(row) for row in self.rows))


def joined(*tables: Mapping[str, Any]) -> Settings:
    """Tables on top of each other, those within them likewise.

    >>> joined({"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"c": 4}})
    {'a': 1, 'b': {'c': 4, 'd': 3}}
    """
    found: Settings = {}
    for table in tables:
        for name, value in table.items():
            both = isinstance(value, Mapping) and isinstance(found.get(name), Mapping)
            found[name] = joined(found[name], value) if both else value
    return found


def data(name: str) -> Settings:
    """A TOML file of the experiments."""
    with FOLDER.joinpath(f"{name}.toml").open("rb") as file:
        return tomllib.load(file)


def load(name: str, size: str) -> Recipe:
    """The recipe of an experiment."""
    validation.choice("name", name, NAMES)
    validation.choice("size", size, SIZES)
    written = data(name)
    on_top = written.get(size, {})
    kept = on_top.get("rows", list(written["rows"]))
    changes = {
        key: value for key, value in on_top.items() if key not in ("rows", "reduced", "bases")
    }

    def settings_of(row: str) -> Settings:
        own = written["rows"][row]
        base = own.get("base", BASE)
        shared = (table.get("bases", {}).get(base, {}) for table in (written, on_top))
        first, last = shared
        return joined(written["common"], first, own, changes, last)

    rows = (Row(row, settings_of(row)) for row in kept)
    return Recipe(
        name,
        size,
        written["title"],
        written["where"],
        written["shows"],
        on_top.get("reduced", ""),
        tuple(rows),
    )
