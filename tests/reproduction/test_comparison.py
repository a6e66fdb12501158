"""Published numbers, ours, and what is said of their difference."""

import csv
import io
import statistics

import pytest

from evoem.reproduction import recipes
from evoem.reproduction.comparison import COLUMNS, Entry, Published, published, table

# tab:app_den_inp_all_runs, run by run.
RUNS = {
    "denoising.house-15.EBSC": (33.70, 33.65, 33.63),
    "denoising.house-15.ES3C": (34.86, 34.93, 34.93),
    "denoising.house-25.EBSC": (32.39, 32.47, 32.34),
    "denoising.house-25.ES3C": (33.16, 33.20, 33.09),
    "denoising.house-50.EBSC": (29.03, 28.91, 29.01),
    "denoising.house-50.ES3C": (29.88, 29.85, 29.74),
    "denoising.barbara-25.EBSC": (28.33, 28.39, 28.42),
    "denoising.barbara-25.ES3C": (30.17, 30.14, 30.24),
    "denoising.lena-25.EBSC": (30.91, 30.90, 30.84),
    "denoising.lena-25.ES3C": (31.90, 31.94, 32.01),
    "denoising.peppers-25.EBSC": (29.01, 28.87, 28.90),
    "denoising.peppers-25.ES3C": (30.35, 30.22, 30.26),
    "inpainting.barbara-50.ES3C": (35.39, 35.51, 35.42),
    "inpainting.cameraman-50.ES3C": (30.91, 30.46, 30.70),
    "inpainting.lena-50.ES3C": (37.57, 37.47, 37.58),
    "inpainting.house-50.ES3C": (39.55, 39.70, 39.54),
    "inpainting.house-80.ES3C": (32.99, 33.21, 32.99),
    "inpainting.castle-50.ES3C": (38.14, 38.39, 38.14),
    "inpainting.castle-80.ES3C": (29.65, 29.68, 29.64),
    "bound-and-psnr.house-50.ES3C": (28.94, 28.95, 28.94, 28.96, 28.95),
}


@pytest.mark.parametrize("path", RUNS)
def test_published_means_and_spreads_are_those_of_the_published_runs(path):
    found = published(path)
    assert found.value == pytest.approx(statistics.fmean(RUNS[path]), abs=0.0075)
    assert found.spread == pytest.approx(statistics.pstdev(RUNS[path]), abs=0.0075)


def entries(table):
    for value in table.values():
        yield from [value] if "source" in value else entries(value)


def test_every_published_number_has_a_source():
    assert all(entry["source"] for entry in entries(recipes.data("published")))


def test_what_recipes_call_published_is_there_or_is_not_in_the_paper_s_text():
    absent = set()
    for name in recipes.NAMES:
        for row in recipes.load(name, "full").rows:
            path = row.settings.get("published")
            if path is not None and published(f"{name}.{path}") is None:
                absent.add(path)
    in_a_figure_alone = {"es3c-8-64.ES3C", "es3c-8-256.ES3C"}
    in_a_figure_alone |= {f"ebsc-{size}.EBSC" for size in ("8-64", "8-256", "12-512")}
    assert absent == in_a_figure_alone | {"new-orleans.ES3C"}


def test_the_table_of_methods_has_every_published_one_once():
    for name, told in recipes.data("methods").items():
        listed = [method for group in told["groups"].values() for method in group["methods"]]
        known = {method for column in recipes.data("published")[name].values() for method in column}
        assert len(set(listed)) == len(listed)
        assert set(listed) == known


@pytest.mark.parametrize(
    ("ours", "verdict"),
    [
        ((29.83,), "within the spread"),
        ((29.77,), "within the spread"),
        ((29.89,), "within the spread"),
        ((29.894,), "within the spread"),
        ((29.70, 29.96), "within the spread"),
        ((29.90,), "above the spread"),
        ((29.76,), "below the spread"),
        ((29.67,), "below the spread"),
        ((29.66,), "below: a finding"),
        ((), "not run"),
    ],
)
def test_verdicts_are_about_rounded_means(ours, verdict):
    assert Entry("House", "dB", Published(29.83, 0.06), ours).verdict == verdict


def test_nothing_is_said_where_there_is_nothing_to_compare():
    assert Entry("a", "", None, (1.0,)).verdict == "nothing published"
    assert Entry("a", "", Published(2.0), (1.0,)).verdict == "no spread published"
    reduced = Entry("a", "", Published(2.0, 0.1), (2.0,), comparable=False)
    assert reduced.verdict == "reduced: not comparable"


def test_tables_are_for_people_and_for_programs():
    shown = table(
        [
            Entry("one", "dB", Published(29.83, 0.06, "here"), (29.6, 29.8)),
            Entry("two, or so", "", None, (7.0,), digits=0),
        ]
    )
    first = ["one", "dB", "29.83", "0.06", "here", "29.70", "0.10", "2", "-0.13"]
    second = ["two, or so", "", "", "", "", "7", "", "1", "", "nothing published"]
    rows = [[*first, "below the spread"], second]
    assert list(csv.reader(io.StringIO(shown.csv()))) == [list(COLUMNS), *rows]
    lines = shown.markdown().splitlines()
    assert lines[1].count("---") == len(COLUMNS)
    assert [line.strip("| ").split(" | ") for line in lines[2:3]] == rows[:1]
