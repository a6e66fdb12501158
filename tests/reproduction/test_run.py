"""Runs are kept, gone on with, and reported."""

import csv
import json
import re
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from evoem.reproduction import figures
from evoem.reproduction.comparison import Entry, Published
from evoem.reproduction.experiment import Contents, Experiment
from evoem.reproduction.recipes import Recipe, Row
from evoem.reproduction.run import reproduce
from evoem.reproduction.workbook import Outcome, Workbook

ROWS = (Row("a", {"repeats": 2, "value": 1.0}), Row("b", {"repeats": 1, "value": 5.0}))
RECIPE = Recipe("sums", "full", "Sums & more", "nowhere", "What is added.", "", ROWS)
PNG = b"\x89PNG"


def sums(done=None, fail_at=None):
    """An experiment that notes what it ran, and may be stopped."""
    ran = [] if done is None else done

    def run(part, context):
        if part.name == fail_at:
            context.workbook.note(part, [{"iteration": 3}])
            raise KeyboardInterrupt
        ran.append(part.name)
        time.sleep(0.01)
        value = part.row.settings["value"] + part.repeat
        return Outcome({"value": value}, {"squares": np.arange(3) ** 2 + value})

    def report(recipe, finished):
        entries = [
            Entry(
                row.name,
                "",
                Published(1.5, 0.1, "a guess"),
                tuple(one.outcome.values["value"] for one in finished if one.part.row == row),
            )
            for row in recipe.rows
        ]
        figure = figures.new(2, 2)
        figure.subplots().plot([1, 2])
        return Contents(entries, (), {"a-line": figure}, ["Said < so."])

    return Experiment(run, report), ran


def test_a_report_has_tables_figures_settings_and_times(tmp_path):
    experiment, ran = sums()
    done = reproduce(RECIPE, experiment, tmp_path / "out", seed=4)
    assert ran == ["a-1", "b-1", "a-2"]
    assert [one.outcome.values["value"] for one in done] == [1.0, 5.0, 2.0]
    folder = tmp_path / "out"
    assert (folder / "figures" / "a-line.png").read_bytes().startswith(PNG)
    assert (folder / "figures" / "a-line.pdf").read_bytes().startswith(b"%PDF")
    with (folder / "table.csv").open(newline="") as file:
        table = list(csv.DictReader(file))
    assert [row["ours"] for row in table] == ["1.50", "5.00"]
    assert [row["verdict"] for row in table] == ["within the spread", "above the spread"]
    text = (folder / "table.md").read_text()
    assert "| a |  | 1.50 | 0.10 | a guess | 1.50 | 0.50 | 2 | +0.00 | within the spread |" in text
    assert "| a-2 | 5 | 0 | 0.000 |" in text
    record = json.loads((folder / "settings.json").read_text())
    assert record["rows"]["b"] == {"repeats": 1, "value": 5.0}
    assert (record["seed"], record["size"]) == (4, "full")
    assert {"evoem", "numpy", "python"} <= record["versions"].keys()


def test_the_page_needs_no_network(tmp_path):
    reproduce(RECIPE, sums()[0], tmp_path)
    page = (tmp_path / "report.html").read_text()
    assert not re.findall(r'(?:src|href)="(?!data:)|https?://|@import|url\(', page)
    assert page.count("data:image/png;base64,") == 1
    for shown in ("Sums &amp; more", "Said &lt; so.", "within the spread", "core-hours", "numpy"):
        assert shown in page


def test_finished_parts_are_not_repeated(tmp_path):
    experiment, ran = sums()
    first = reproduce(RECIPE, experiment, tmp_path)
    again = reproduce(RECIPE, experiment, tmp_path)
    assert ran == ["a-1", "b-1", "a-2"]
    for one, other in zip(first, again, strict=True):
        assert one.part.name in ("a-1", "b-1", "a-2")
        assert one.outcome.values == other.outcome.values
        np.testing.assert_array_equal(
            one.outcome.arrays["squares"], other.outcome.arrays["squares"]
        )
        assert one.outcome[2:] == other.outcome[2:]


def test_other_settings_are_run_anew(tmp_path):
    experiment, ran = sums()
    reproduce(RECIPE, experiment, tmp_path)
    more = RECIPE._replace(rows=(ROWS[0]._replace(settings={"repeats": 1, "value": 2.0}), ROWS[1]))
    reproduce(more, experiment, tmp_path)
    assert ran == ["a-1", "b-1", "a-2", "a-1"]
    reproduce(RECIPE, experiment, tmp_path, seed=1)
    assert ran[4:] == ["a-1", "b-1", "a-2"]


def test_what_was_finished_before_an_interrupt_is_reported_and_kept(tmp_path):
    stopped, before = sums(fail_at="b-1")
    with pytest.raises(KeyboardInterrupt):
        reproduce(RECIPE, stopped, tmp_path)
    assert before == ["a-1"]
    text = (tmp_path / "table.md").read_text()
    assert "1 of 3 runs are finished." in text
    assert re.search(
        r"## b-1, not finished after 0\.\d+ core-hours\n\n\| iteration \|\n.*\n\| 3 \|", text
    )
    part = RECIPE.parts(0)[1]
    book = Workbook(tmp_path)
    assert book.records(part) == [{"iteration": 3}]
    spent = book.spent(part)
    experiment, ran = sums()
    done = reproduce(RECIPE, experiment, tmp_path)
    assert ran == ["b-1", "a-2"]
    assert book.records(part) == []  # no longer needed
    assert done[1].outcome.seconds > spent.seconds > 0
    assert "finished" not in (tmp_path / "table.md").read_text()


class Turns:
    """One of two processes, the other of which has been here before."""

    size, exact = 2, True

    def __init__(self, rank):
        self.rank = rank

    def collect(self, item):
        return [item, item]


def test_processes_take_turns_with_the_parts_and_the_first_reports(tmp_path):
    experiment, ran = sums()
    reproduce(RECIPE, experiment, tmp_path, comm=Turns(1))
    assert ran == ["b-1"]
    assert not (tmp_path / "table.md").exists()
    done = reproduce(RECIPE, experiment, tmp_path, comm=Turns(0))
    assert ran == ["b-1", "a-1", "a-2"]
    assert [one.part.name for one in done] == ["a-1", "b-1", "a-2"]
    assert "runs are finished" not in (tmp_path / "table.md").read_text()


@pytest.mark.skipif(find_spec("mpi4py") is None, reason="MPI is not installed")
def test_processes_of_mpi_share_an_experiment(tmp_path):
    given = ["reproduce", "bars", "-o", str(tmp_path), "--n-jobs", "1", "--only", "bsc"]
    given += ["--only", "noisy-or"]
    launcher = Path(sys.executable).with_name("mpiexec")
    done = subprocess.run(
        [launcher, "-n", "2", sys.executable, "-m", "evoem", *given],
        capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert {"1 of 2: noisy-or-1", "2 of 2: bsc-1"} <= set(done.stdout.splitlines())
    assert "runs are finished" not in (tmp_path / "table.md").read_text()


def test_without_matplotlib_nothing_is_begun(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    experiment, ran = sums()
    with pytest.raises(
        ValueError, match=r"^reproduce needs matplotlib: pip install 'evoem\[plot\]'"
    ):
        reproduce(RECIPE, experiment, tmp_path / "out")
    assert ran == []
    assert not (tmp_path / "out").exists()
