"""How far a restoration is, for who asks for it."""

import sys

import numpy as np
import pytest
from sample_images import GREY, STACK, TINY, assert_same, tiny_run

from evoem import denoise, restore


@pytest.fixture
def without_tqdm(monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)


def test_nothing_is_said_unless_it_is_asked_for(capsys):
    restore(GREY, **TINY)
    assert capsys.readouterr() == ("", "")


def test_a_bar_counts_iterations_and_changes_nothing(capsys):
    seen = []
    result = restore(GREY, verbose=True, callback=seen.append, **TINY)
    assert_same(result, tiny_run())
    assert [progress.iteration for progress in seen] == [1, 2, 3]
    out, told = capsys.readouterr()
    assert out == ""
    last = told.rstrip("\n").split("\r")[-1]
    assert last.startswith("learning: 100%")
    assert "3/3" in last
    assert f"noise={result.noise_level:.4g}" in last


@pytest.mark.usefixtures("without_tqdm")
def test_lines_are_written_where_there_is_no_tqdm(capsys):
    result = restore(GREY, verbose=True, **TINY | {"start": "coarse"})
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("coarse start: 1/")
    assert lines[-1] == (
        f"learning: 3/3, noise {result.noise_level:.4g}, bound {result.free_energies[-1]:.2f}"
    )


@pytest.mark.usefixtures("without_tqdm")
def test_slices_of_a_stack_learn_together(capsys):
    denoise(STACK[:2], verbose=True, **TINY)
    told = [line.split(":")[0] for line in capsys.readouterr().err.splitlines()]
    assert set(told) == {"learning"}


def test_a_callback_may_still_end_the_run(capsys):
    result = restore(GREY, verbose=True, callback=lambda told: told.iteration == 2, **TINY)
    assert result.ended == "callback"
    assert "2/3" in capsys.readouterr().err
    assert np.isfinite(result.image).all()
