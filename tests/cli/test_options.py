"""Options of the command line are those of `restore`."""

import inspect
import json

import numpy as np
import pytest
from command_line import SAME, TINY, invoke, noisy
from PIL import Image

from evoem.cli import restoring
from evoem.cli.options import UNASKED, n_seconds
from evoem.images.options import OPTIONS
from evoem.images.restore import restore


@pytest.mark.parametrize("command", [restoring.denoise, restoring.inpaint])
def test_the_options_of_restore_have_its_names_and_defaults(command):
    theirs = inspect.signature(restore).parameters
    ours = inspect.signature(command).parameters
    for name in OPTIONS.keys() - {*UNASKED, "every"}:
        assert ours[name].default == theirs[name].default, name
    assert n_seconds(ours["every"].default) == theirs["every"].default


def test_nonlocal_passes_can_be_turned_off(tmp_path, picture):
    arguments = "denoise", picture, "-o", tmp_path / "out.png", "--json", tmp_path / "out.json"
    assert invoke(*arguments, *TINY, "--nonlocal-passes", 0).exit_code == 0
    expected = restore(noisy(), **SAME, nonlocal_passes=0)
    assert (np.array(Image.open(tmp_path / "out.png")) == expected.image).all()
    assert json.loads((tmp_path / "out.json").read_text())["settings"]["nonlocal_passes"] == 0


@pytest.mark.parametrize(
    ("option", "value", "sentence"),
    [
        (
            "--preset",
            "slow",
            "preset must be one of 'fast', 'balanced', 'best', 'paper'; got 'slow'.",
        ),
        ("--model", "x", "model must be one of"),
        ("--memory", "4X", "memory must be a number of bytes, such as 500M or 4G; got '4X'."),
        ("--memory", "1K", "memory must hold"),
        (
            "--memory",
            "9" * 400 + "x",
            "memory must be a number of bytes, such as 500M or 4G; got '999",
        ),
        ("--patch-size", 0, "patch_size must be an integer at least 1; got 0."),
        ("--time-limit", -1, "time_limit must be a number at least 0"),
        ("--stride", 0, "stride must be an integer at least 1; got 0."),
    ],
)
def test_settings_that_cannot_be_are_errors(tmp_path, picture, option, value, sentence):
    target = tmp_path / "out.png"
    result = invoke("denoise", picture, "-o", target, *TINY, option, value)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"evoem: {sentence}")
    assert not target.exists()


def test_any_amount_of_memory_can_be_given(picture, tmp_path):
    result = invoke("denoise", picture, "-o", tmp_path / "o.png", "--memory", "9" * 400, *TINY)
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("option", ["--time-limit", "--tol"])
def test_numbers_without_end_are_refused_before_the_work(picture, tmp_path, option):
    result = invoke("denoise", picture, "-o", tmp_path / "o.png", option, "inf", *TINY)
    name = option.strip("-").replace("-", "_")
    assert result.exit_code == 1
    assert result.output == f"evoem: {name} must be a number at least 0; got inf.\n"
    assert not (tmp_path / "o.png").exists()
