"""Experiments that restore pictures: "denoising", "inpainting", "bound-and-psnr"."""

import signal

import numpy as np
import pytest
from small_experiments import check_report, goes_on, kind_of, smaller

from evoem.images.quality import psnr
from evoem.reproduction import recipes, restoration
from evoem.reproduction.experiment import Context
from evoem.reproduction.pictures import Library
from evoem.reproduction.recipes import load
from evoem.reproduction.run import reproduce
from evoem.reproduction.workbook import Workbook

NAMES = [name for name in recipes.NAMES if kind_of(name) is restoration.EXPERIMENT]


@pytest.mark.parametrize("name", NAMES)
def test_every_picture_is_restored_and_reported(name, ran):
    check_report(ran(name), name)


def test_psnr_is_that_of_the_restored_picture(ran):
    folder, done, _ = ran("denoising")
    for one in done:
        arrays, values = one.outcome.arrays, one.outcome.values
        if one.part.row.name != "house-50-balanced":
            assert arrays["components"].shape == (6, 16)
            assert (np.diff(arrays["activation_probs"]) <= 0).all()
        assert values["psnr"] == pytest.approx(psnr(arrays["clean"], arrays["restored"]), abs=1e-3)
        last = values["measured"][-1]
        assert last["psnr"] == pytest.approx(values["psnr"])
        assert last["bound"] == values["bound"] == arrays["bounds"][-1]
    text = (folder / "table-2.csv").read_text()
    assert text.splitlines()[0].startswith("group,must be told,method,house-15")
    assert "DE1,nothing,evoem's default preset," in text


def test_inpainting_leaves_observed_values_alone(ran):
    done = ran("inpainting").done
    for one in done:
        arrays = one.outcome.arrays
        seen = ~np.isnan(arrays["damaged"])
        assert 0 < seen.mean() < 1
        np.testing.assert_array_equal(arrays["restored"][seen], arrays["clean"][seen])
    castle = done[1].outcome.arrays["damaged"]
    assert (np.isnan(castle).any(2) != np.isnan(castle).all(2)).any()  # each value for itself


@pytest.mark.parametrize(("name", "same"), [("bound-and-psnr", True), ("denoising", False)])
def test_repeats_have_one_noise_or_their_own(name, same, tmp_path):
    recipe = smaller(name, repeats=2)
    context = Context(Workbook(tmp_path), Library(None), 1, lambda line: None)
    row = recipe.rows[0]
    parts = [part for part in recipe.parts(7) if part.row == row]
    one, other = (restoration.damaged(part, context)[0] for part in parts)
    np.testing.assert_array_equal(one.clean, other.clean)
    assert (one.values == other.values).all() == same


def test_a_run_of_a_picture_that_is_interrupted_is_not_finished(tmp_path):
    def press_ctrl_c(line):
        if "iteration 1," in line:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        reproduce(smaller("bound-and-psnr"), kind_of("bound-and-psnr"), tmp_path, tell=press_ctrl_c)
    assert not list((tmp_path / "parts").glob("*.npz"))


def test_an_unfinished_picture_goes_on_from_its_checkpoint(ran, tmp_path):
    straight = ran("inpainting").done[0].outcome
    outcome = goes_on("inpainting", 0, tmp_path)
    assert outcome.values["measured"] == straight.values["measured"]
    np.testing.assert_array_equal(outcome.arrays["restored"], straight.arrays["restored"])


def test_pictures_are_looked_for_before_anything_is_run(tmp_path):
    with pytest.raises(ValueError, match=r"^images must hold house, "):
        reproduce(load("inpainting", "full"), kind_of("inpainting"), tmp_path / "out")
    assert not (tmp_path / "out").exists()
    orleans = load("inpainting", "full").only(["new-orleans-es3c"]).rows[0].settings
    assert restoration.needs(orleans) == ["new-orleans", "new-orleans-mask"]
