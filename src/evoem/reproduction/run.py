"""Run an experiment part by part, and write its report after each."""

import json
import platform
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import evoem
from evoem.reproduction import figures, page
from evoem.reproduction.comparison import Table, table
from evoem.reproduction.experiment import Context, Done, Experiment
from evoem.reproduction.pictures import Library
from evoem.reproduction.recipes import Part, Recipe
from evoem.reproduction.workbook import Workbook
from evoem.runtime import interrupts
from evoem.runtime.atomic_files import write_whole
from evoem.runtime.communicator import ALONE, Communicator

PACKAGES = ("numpy", "scipy", "numba", "scikit-learn", "matplotlib")


def reproduce(
    recipe: Recipe,
    experiment: Experiment,
    folder: Path,
    *,
    seed: int = 0,
    images: Path | None = None,
    n_jobs: int = 1,
    tell: Callable[[str], None] = lambda line: None,
    comm: Communicator = ALONE,
) -> list[Done]:
    """Run what is not finished, and write the report into the folder.

    Parts that are finished are not repeated. After an interrupt the report has those that are, and
    what was measured of the one that is not.
    Processes take turns with the parts, all in the same folder; the first one writes the report.
    """
    figures.need_matplotlib()
    library = Library(images)
    for row in recipe.rows:  # before hours have passed
        for name in experiment.needs(row.settings):
            library.get(name)
    book = Workbook(folder)
    context = Context(book, library, n_jobs, tell)
    parts = recipe.parts(seed)

    def report() -> list[Done]:
        outcomes = ((part, book.outcome(part)) for part in parts)
        done = [Done(part, outcome) for part, outcome in outcomes if outcome is not None]
        if comm.rank == 0:
            write_report(recipe, experiment, book, done, seed)
        return done

    report()
    for number, part in list(enumerate(parts, 1))[comm.rank :: comm.size]:
        if book.outcome(part) is not None:
            tell(f"{number} of {len(parts)}: {part.name} is finished.")
            continue
        tell(f"{number} of {len(parts)}: {part.name}")
        try:
            with book.timed(part):
                outcome = experiment.run(part, context)
        except KeyboardInterrupt:
            report()
            raise
        book.finish(part, outcome)
        report()
        interrupts.check()
    comm.collect(None)  # the others have finished theirs
    return report()


def write_report(
    recipe: Recipe, experiment: Experiment, book: Workbook, done: Sequence[Done], seed: int
) -> None:
    """Tables, figures, settings and the page that shows all of it."""
    contents = experiment.report(recipe, done)
    main = table(contents.entries)
    tables = [main, *contents.tables, *unfinished(book, recipe.parts(seed))]
    facts = {
        "times": times(done, seed),
        "settings": settings_table(recipe),
        "versions": versions_table(),
    }
    notes = list(contents.notes)
    if len(done) < len(recipe.parts(seed)):
        notes.insert(0, f"{len(done)} of {len(recipe.parts(seed))} runs are finished.")
    text = [f"# {recipe.title}\n", f"{recipe.shows} In the paper: {recipe.where}.\n"]
    if recipe.reduced:
        text.append(f"Reduced: {recipe.reduced}\n")
    text += [f"- {note}" for note in notes]
    text += [f"\n## {one.title}\n\n{one.markdown()}" for one in [*tables, *facts.values()]]
    figures.save(contents.figures, book.folder / "figures")
    shown = page.Page(
        recipe.title, recipe.where, recipe.shows, recipe.reduced, notes, tables,
        contents.figures, facts,
    )  # fmt: skip
    record = {
        "experiment": recipe.name,
        "size": recipe.size,
        "seed": seed,
        "rows": {row.name: row.settings for row in recipe.rows},
        "versions": versions(),
    }
    written = {
        "table.md": "\n".join(text) + "\n",
        "table.csv": main.csv(),
        "settings.json": json.dumps(record, indent=2, ensure_ascii=False) + "\n",
        "report.html": page.write(shown),
    }
    for number, one in enumerate(tables[1:], 2):
        written[f"table-{number}.csv"] = one.csv()
    for name, content in written.items():
        coded = content.encode()
        write_whole(
            book.folder / name,
            lambda file, coded=coded: file.write(coded),  # type: ignore[misc]
            force=True,
        )


def unfinished(book: Workbook, parts: Sequence[Part]) -> list[Table]:
    """What was measured so far of parts that are not finished, a table for each."""
    tables = []
    for part in parts:
        records = book.records(part)
        if not records:
            continue
        hours = book.spent(part).core_seconds / 3600
        title = f"{part.name}, not finished after {hours:.3f} core-hours"
        rows = tuple(tuple(f"{value:.6g}" for value in one.values()) for one in records)
        tables.append(Table(title, tuple(records[0]), rows))
    return tables


def times(done: Sequence[Done], seed: int) -> Table:
    """Seconds and core-hours of every run, and of all."""

    def line(name: str, seed: str, seconds: float, core_seconds: float) -> tuple[str, ...]:
        return name, seed, f"{seconds:.0f}", f"{core_seconds / 3600:.3f}"

    rows = [line(one.part.name, str(seed + one.part.repeat), *one.outcome[2:]) for one in done]
    total = [sum(column) for column in zip(*(one.outcome[2:] for one in done), strict=True)]
    rows.append(line("all", "", *(total or (0.0, 0.0))))
    return Table("Time", ("run", "seed", "seconds", "core-hours"), tuple(rows))


def settings_table(recipe: Recipe) -> Table:
    """Every setting of every row."""
    rows = [
        (row.name, name, json.dumps(value, ensure_ascii=False))
        for row in recipe.rows
        for name, value in flattened(row.settings)
    ]
    return Table("Settings", ("row", "setting", "value"), tuple(rows))


def flattened(settings: dict[str, Any], above: str = "") -> list[tuple[str, Any]]:
    """Settings within settings by their paths.

    >>> flattened({"a": 1, "b": {"c": 2}})
    [('a', 1), ('b.c', 2)]
    """
    found = []
    for name, value in settings.items():
        path = f"{above}{name}"
        found += flattened(value, f"{path}.") if isinstance(value, dict) else [(path, value)]
    return found


def versions() -> dict[str, str]:
    """Of Python and the packages that numbers depend on."""
    found = {"evoem": evoem.__version__, "python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found | {"machine": f"{platform.system()} {platform.machine()}"}


def versions_table() -> Table:
    """The same as a table."""
    return Table("Versions", ("of", "version"), tuple(versions().items()))
