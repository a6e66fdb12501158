"""The experiment "natural-patches"."""

import numpy as np
import pytest
from small_experiments import check_report, goes_on, kind_of

from evoem.reproduction.recipes import load
from evoem.reproduction.run import reproduce


def test_every_model_is_run_and_reported(ran):
    check_report(ran("natural-patches"), "natural-patches")


def test_dictionaries_are_in_the_order_of_activation(ran):
    folder, done, _ = ran("natural-patches")
    for one in done:
        assert (np.diff(one.outcome.arrays["activation_probs"]) <= 0).all()
        assert one.outcome.arrays["fields"].shape == (6, 5, 5)
    noisy_or = done[0].outcome.arrays["activation_probs"]
    assert noisy_or.min() >= 1 / 6 - 1e-12
    assert "stands for it" in (folder / "table.md").read_text()


def test_an_unfinished_dictionary_goes_on_from_its_checkpoint(ran, tmp_path):
    straight = ran("natural-patches").done[1].outcome
    outcome = goes_on("natural-patches", 1, tmp_path)
    np.testing.assert_array_equal(outcome.arrays["fields"], straight.arrays["fields"])


def test_the_picture_is_looked_for_before_anything_is_run(tmp_path):
    with pytest.raises(ValueError, match=r"^images must hold van-hateren, "):
        reproduce(load("natural-patches", "full"), kind_of("natural-patches"), tmp_path / "out")
    assert not (tmp_path / "out").exists()
