"""What may be asked of restoration, and what is refused."""

import inspect

import numpy as np
import pytest
from sample_images import COLOURS, GREY, MASK, STACK, TINY

from evoem import denoise, inpaint, restore
from evoem.images import nonlocal_bayes
from evoem.images.options import OPTIONS


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"mask": np.zeros((24, 23), bool)}, r"mask must have the shape \(24, 24\) of the image; "),
        ({"mask": np.zeros((24, 24))}, r"mask must be boolean or of integers; got float64\."),
        ({"mask": np.ones((24, 24), bool)}, r"mask must leave observed values; got all missing\."),
        ({"image": np.where(MASK, np.inf, 0.0)}, r"image must be finite or NaN; got inf\."),
        ({"image": np.full((4, 4), "a")}, r"image must hold real numbers; got <U1\."),
        ({"image": GREY + 1j}, r"image must hold real numbers; got complex128\."),
        ({"image": GREY.astype("M8[s]")}, r"image must hold real numbers; got datetime64\[s\]\."),
        ({"image": GREY[0]}, r"image must be 2-D; got 1 dimensions\."),
        ({"image": COLOURS}, r"image must be 2-D; got 4 dimensions\."),
        (
            {"image": STACK},
            r"image must be 2-D unless channel_axis says where its channels are; got the shape ",
        ),
        ({"image": GREY[:0]}, r"image must have pixels; got the shape \(0, 24\)\."),
        ({"channel_axis": -1}, r"image must be 3-D with a channel_axis; got 2 dimensions\."),
        (
            {"image": STACK, "channel_axis": 3},
            r"channel_axis must be an integer between -3 and 2; got 3\.",
        ),
        ({"model": "pca"}, r"model must be one of 'subspaces', 'es3c', 'ebsc'; got 'pca'\."),
        (
            {"model": "subspaces", "preset": "paper"},
            r'preset must not be "paper" with model="subspaces"; got "paper"\.',
        ),
        ({"model": "es3c", "rank": 3}, r'rank must not be given with model="es3c"; got 3\.'),
        ({"model": "ebsc", "slab": "full"}, r"slab must not be given with model=.ebsc.; got 'full"),
        (
            {"model": "subspaces", "updates": "printed"},
            r"updates must not be given with model=.subspaces.; got 'printed'\.",
        ),
        ({"slab": "round"}, r"slab must be one of 'diagonal', 'full', 'fixed'; got 'round'\."),
        (
            {"updates": "old"},
            r"updates must be one of 'monotone', 'printed', 'authors'; got 'old'\.",
        ),
        ({"crossover": 1}, r"crossover must be True or False; got 1\."),
        ({"model": "subspaces", "rank": 0}, r"rank must be an integer at least 1; got 0\."),
        (
            {"preset": "slow"},
            r"preset must be one of 'fast', 'balanced', 'best', 'paper'; got 'slow'\.",
        ),
        (
            {"nonlocal_passes": 4},
            r"nonlocal_passes must be an integer between 0 and 3; got 4\.",
        ),
        (
            {"nonlocal_passes": -1},
            r"nonlocal_passes must be an integer between 0 and 3; got -1\.",
        ),
        ({"merge": "median"}, r"merge must be one of 'mean', 'centre', 'variance'; got 'median'\."),
        ({"keep_observed": 1}, r"keep_observed must be True or False; got 1\."),
        ({"alpha": "no"}, r"alpha must be True or False; got 'no'\."),
        ({"seed": -1}, r"seed must be an integer between 0 and 4294967295; got -1\."),
        ({"seed": None}, r"seed must be an integer between 0 and 4294967295; got None\."),
        ({"stride": 0}, r"stride must be an integer at least 1; got 0\."),
        ({"stride": 4}, r"stride must be an integer between 1 and 3 \(patch_size\); got 4\."),
        ({"tol": -1e-3}, r"tol must be a number at least 0; got -0\.001\."),
        ({"tol": float("nan")}, r"tol must be a number at least 0; got nan\."),
        ({"time_limit": -1}, r"time_limit must be a number at least 0; got -1\."),
        ({"time_limit": float("nan")}, r"time_limit must be a number at least 0; got nan\."),
        ({"time_limit": "1 h"}, r"time_limit must be a number at least 0; got '1 h'\."),
        ({"memory": 0}, r"memory must be an integer at least 1; got 0\."),
        ({"memory": 1e9}, r"memory must be an integer at least 1; got 1000000000\.0\."),
        (
            {"memory": 1800},
            r"memory must hold 6 patches of these settings; got 1800 bytes, enough for 5\.",
        ),
        ({"n_states": 65}, r"n_states must be an integer between 1 and 64 \(2\*\*n_latents\); "),
        ({"n_parents": 9}, r"n_parents must be an integer between 1 and 8 \(n_states\); got 9\."),
        ({"n_children": 7}, r"n_children must be an integer between 1 and 6 \(n_latents\); got 7"),
    ],
)
def test_what_cannot_be_restored_is_refused_in_a_sentence(options, sentence):
    with pytest.raises(ValueError, match=f"^{sentence}"):
        restore(**{"image": GREY} | TINY | options)


COUNTS = (
    "patch_size", "n_latents", "n_states", "n_parents", "n_children", "n_generations", "n_parts",
    "max_iter",
)  # fmt: skip


@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.parametrize("value", [0, -1, 2.0, True, "3"])
def test_counts_that_are_not_positive_integers_are_refused(name, value):
    with pytest.raises(ValueError, match=f"^{name} must be an integer at least 1; got {value!r}.$"):
        restore(GREY, **TINY | {name: value})


def test_unknown_options_are_refused():
    for function in (restore, denoise, inpaint):
        with pytest.raises(TypeError, match="sigma"):
            function(GREY, sigma=25)
    with pytest.raises(TypeError, match="mask"):
        denoise(GREY, mask=MASK)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"n_jobs": 0}, "n_jobs must be "),
        ({"resume": True}, "checkpoint must be given with resume; got none."),
        ({"n_jobs": "two"}, "n_jobs must be "),
        ({"callback": 3}, "callback must be callable or None; got 3"),
        ({"seed": 2**64}, "seed must be "),
        ({"image": STACK[:0]}, "image must "),
    ],
)
def test_these_are_refused_in_a_sentence_too(options, sentence):
    with pytest.raises(ValueError, match=f"^{sentence}"):
        denoise(**{"image": GREY} | TINY | options)


@pytest.mark.parametrize("name", ["mask", "keep_observed"])
def test_denoising_has_no_mask(name):
    with pytest.raises(TypeError, match=f"^denoise has no {name}: use inpaint or restore.$"):
        denoise(GREY, **{name: None})


def test_signatures_and_documentation_have_every_option():
    for function in (restore, denoise, inpaint):
        parameters = inspect.signature(function).parameters
        for name, option in OPTIONS.items():
            assert parameters[name].default == option.setting.default
            assert parameters[name].kind is inspect.Parameter.KEYWORD_ONLY
            assert f"    {name} : " in function.__doc__
            assert option.setting.doc.split()[0] in function.__doc__
        assert "options" not in parameters
        assert "{options}" not in function.__doc__


def test_there_are_as_many_nonlocal_passes_as_may_be_asked_for():
    assert len(nonlocal_bayes.WIDTHS) == OPTIONS["nonlocal_passes"].setting.most
