"""The interface of an experiment to the code that runs and reports it."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from evoem.reproduction.comparison import Entry, Table
from evoem.reproduction.figures import Figures
from evoem.reproduction.pictures import Library
from evoem.reproduction.recipes import Part, Recipe, Settings
from evoem.reproduction.workbook import CHECKPOINT_EVERY, Outcome, Workbook


class Context(NamedTuple):
    """What runs have at hand."""

    workbook: Workbook
    pictures: Library
    n_jobs: int
    tell: Callable[[str], None]  # how it goes
    every: float = CHECKPOINT_EVERY  # seconds between checkpoints


class Done(NamedTuple):
    """A part and what came of it."""

    part: Part
    outcome: Outcome


class Contents(NamedTuple):
    """What a report of an experiment shows."""

    entries: Sequence[Entry] = ()
    tables: Sequence[Table] = ()
    figures: Figures = {}  # noqa: RUF012 - nothing changes it
    notes: Sequence[str] = ()


def no_pictures(settings: Settings) -> list[str]:
    """What an experiment with data of its own needs."""
    return []


class Experiment(NamedTuple):
    """One kind of experiment."""

    run: Callable[[Part, Context], Outcome]
    report: Callable[[Recipe, Sequence[Done]], Contents]
    needs: Callable[[Settings], list[str]] = no_pictures  # that must be at hand, by their names
