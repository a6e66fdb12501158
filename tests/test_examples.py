"""The examples run, and so does the Python in the documentation."""

import re
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from evoem.evolution import OPERATORS

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PNG = b"\x89PNG\r\n\x1a\n"


def run_demo(folder, *arguments):
    return subprocess.run(
        [sys.executable, ROOT / "examples" / "bars.py", *arguments],
        cwd=folder,
        capture_output=True,
        encoding="utf-8",
        timeout=900,
        check=False,
    )


def test_the_demo_prints_bars_and_writes_a_picture(tmp_path):
    done = run_demo(tmp_path, "--rows", "300", "--iterations", "10", "--starts", "2")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout.count("of 10 bars.") == 3
    assert "█" in done.stdout
    assert (tmp_path / "bars.png").read_bytes().startswith(PNG)


def test_the_demo_counts_bars_over_seeds(tmp_path):
    done = run_demo(
        tmp_path, "--reliability", "1", "--rows", "100", "--iterations", "3", "--starts", "1"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("of 1\n") == 3
    assert list(tmp_path.iterdir()) == []


def test_the_demo_refuses_no_rows_in_one_sentence(tmp_path):
    done = run_demo(tmp_path, "--rows", "0")
    assert done.returncode == 2
    assert "argument --rows: must be an integer at least 1; got 0." in done.stderr


@pytest.mark.parametrize(
    ("example", "largest_error"),
    [
        ("poisson_sparse_coding", 0.03),
        ("sigmoid_belief_network", 0.15),
        ("maximal_causes", 0.05),
    ],
)
def test_models_of_one_s_own_find_the_parameters_their_data_were_made_of(example, largest_error):
    main = runpy.run_path(str(ROOT / "examples" / f"{example}.py"))["main"]
    assert np.max(main(seed=0)) < largest_error


def python_blocks(page):
    return re.findall(r"^```python\n(.*?)^```$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_python_of_the_documentation_runs(page, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    # A page may add an operator; other tests must not meet it.
    for kind, operators in OPERATORS.items():
        monkeypatch.setitem(OPERATORS, kind, dict(operators))
    namespace = {"__name__": "__main__"}
    for number, block in enumerate(python_blocks(page)):
        exec(compile(block, f"{page.name}, block {number}", "exec"), namespace)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text("utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), target
