"""Published numbers beside ours, as a table."""

import csv
import io
import math
import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

from evoem.reproduction import recipes

# A value is a finding if it is below the published one by more than the spread and this.
ALLOWED_BELOW = 0.1
COLUMNS = (
    "what", "unit", "published", "±", "source", "ours", "±", "runs", "difference", "verdict",
)  # fmt: skip


class Published(NamedTuple):
    """A number of the paper, or the truth that data were made of."""

    value: float
    spread: float | None = None  # standard deviation over runs, where it is given
    source: str = ""


def published(path: str) -> Published | None:
    """A number of `published.toml` by its path, as in "denoising.house-50.ES3C"."""
    found: Any = recipes.data("published")
    for name in path.split("."):
        if name not in found:
            return None
        found = found[name]
    return Published(float(found["value"]), found.get("spread"), found["source"])


class Entry(NamedTuple):
    """A line of the table."""

    what: str
    unit: str
    published: Published | None
    ours: tuple[float, ...]  # of every run
    digits: int = 2
    comparable: bool = True  # the same experiment, not a reduced one

    @property
    def mean(self) -> float:
        """Of our runs."""
        return statistics.fmean(self.ours) if self.ours else math.nan

    @property
    def deviation(self) -> float | None:
        """Of our runs, as the paper's: over all of them, not estimated for more."""
        return statistics.pstdev(self.ours) if len(self.ours) > 1 else None

    @property
    def difference(self) -> float | None:
        """Ours less the published one, each rounded as it is shown."""
        if self.published is None or not self.ours:
            return None
        return round(round(self.mean, self.digits) - self.published.value, self.digits)

    @property
    def verdict(self) -> str:
        """Whether ours is within the paper's spread."""
        if not self.ours:
            return "not run"
        if self.difference is None or self.published is None:
            return "nothing published"
        if not self.comparable:
            return "reduced: not comparable"
        if self.published.spread is None:
            return "no spread published"
        slack = 0.5 * 10.0**-self.digits  # what rounding hides of a difference
        if abs(self.difference) <= self.published.spread + slack:
            return "within the spread"
        if self.difference > 0:
            return "above the spread"
        far = self.difference < -(self.published.spread + ALLOWED_BELOW + slack)
        return "below: a finding" if far else "below the spread"

    def cells(self) -> list[str]:
        """As they are written."""

        def number(value: float | None) -> str:
            return "" if value is None else f"{value:.{self.digits}f}"

        known = self.published or Published(math.nan)
        return [
            self.what,
            self.unit,
            "" if self.published is None else number(known.value),
            number(known.spread),
            known.source,
            number(self.mean) if self.ours else "",
            number(self.deviation),
            str(len(self.ours)),
            "" if self.difference is None else f"{self.difference:+.{self.digits}f}",
            self.verdict,
        ]


class Table(NamedTuple):
    """Rows of text under a heading."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def markdown(self) -> str:
        """For people."""
        lines = [self.columns, ("---",) * len(self.columns), *self.rows]
        return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"

    def csv(self) -> str:
        """For programs."""
        out = io.StringIO()
        csv.writer(out, lineterminator="\n").writerows([self.columns, *self.rows])
        return out.getvalue()


def table(entries: Sequence[Entry]) -> Table:
    """The table of an experiment."""
    return Table("Published and ours", COLUMNS, tuple(tuple(entry.cells()) for entry in entries))
