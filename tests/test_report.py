"""What a finished run says of itself."""

import json

import numpy as np
import pytest

from evoem import report
from evoem.images import quality
from evoem.images.files import Picture
from evoem.images.restore import Restoration


def result(noise_level=25.0, n_iterations=3, ended="max_iter", notes=(), seconds=1.25):
    return Restoration(
        image=np.zeros((4, 4)),
        std=np.zeros((4, 4)),
        noise_level=noise_level,
        free_energies=np.arange(float(n_iterations)),
        offset=0.0,
        scale=1.0,
        settings={"seed": 7, "preset": "fast"},
        seconds=seconds,
        ended=ended,
        notes=notes,
    )


def picture(pixels, stack=False):
    return Picture(pixels, None, False, stack, {})


def test_a_summary_has_noise_iterations_time_and_how_it_ended():
    assert report.summary([result()], {}) == (
        "noise level 25, 3 iterations, 1.2 s, all iterations done"
    )
    one = result(n_iterations=1, ended="converged")
    assert report.summary([one], {"PSNR": (20.0, 30.123)}) == (
        "noise level 25, 1 iteration, 1.2 s, converged, PSNR from 20 to 30.12"
    )


def test_a_summary_of_slices_has_all_of_them():
    slices = [result(30.0), result(20.0, ended="interrupted", seconds=2.0)]
    assert report.summary(slices, {}) == (
        "noise level 20 to 30, 3 iterations, 3.2 s, all iterations done, interrupted"
    )


def test_notes_are_those_of_the_slices_and_of_what_was_left():
    assert report.notes([result(notes=("Mind this.",))], 1) == ["Mind this."]
    shared = [result(notes=("Mind this.", "And that.")), result(notes=("Mind this.",))]
    assert report.notes(shared, 2) == ["All slices: Mind this.", "Slice 1: And that."]
    assert report.notes([result(notes=("Mind this.",)), result()], 3) == [
        "Slice 1: Mind this.",
        "Interrupted: the output is the result of what had been learnt so far.",
        "The last 1 of 3 slices are unchanged.",
    ]


@pytest.mark.parametrize("stack", [False, True])
def test_scores_compare_with_a_clean_picture(stack):
    rng = np.random.default_rng(0)
    shape = (2, 20, 20) if stack else (20, 20)
    clean = rng.uniform(0, 255, shape)
    before, after = (clean + rng.normal(0, sigma, shape) for sigma in (20, 5))
    pictures = [picture(pixels, stack) for pixels in (clean, before, after)]
    found = report.scores(*pictures, 255.0)
    assert found["PSNR"] == pytest.approx([quality.psnr(clean, p, 255.0) for p in (before, after)])
    slices = [(clean[k], after[k]) for k in range(2)] if stack else [(clean, after)]
    expected = np.mean([quality.ssim(*pair, 255.0, None) for pair in slices])
    assert found["SSIM"][1] == pytest.approx(expected)


def test_a_picture_that_is_too_small_has_no_ssim():
    small = picture(np.eye(4))
    assert report.scores(small, small, small).keys() == {"PSNR"}


def test_a_record_is_json():
    found = report.record([result()], picture(np.zeros((4, 4))), {"PSNR": (20.0, np.inf)})
    again = json.loads(json.dumps(found, allow_nan=False))
    assert again["seed"] == 7
    assert again["bound"] == [0.0, 1.0, 2.0]
    assert again["psnr"] == {"before": 20.0, "after": None}
    assert {"evoem", "numpy", "numba", "python"} <= again["versions"].keys()
    stack = report.record([result(), result()], picture(np.zeros((2, 4, 4)), stack=True), {})
    assert [one["settings"]["preset"] for one in stack["slices"]] == ["fast", "fast"]
