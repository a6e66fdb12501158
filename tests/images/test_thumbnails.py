"""A restoration at a glance."""

import base64
import io
import re
import sys
from dataclasses import replace

import matplotlib
import numpy as np
import pytest
from PIL import Image
from sample_images import COLOURS, GREY, TINY, tiny_run

from evoem import restore
from evoem.images import files


@pytest.fixture(autouse=True)
def no_screen():
    with matplotlib.rc_context({"backend": "agg"}):
        yield


def test_notebooks_show_thumbnails_and_notes():
    result = replace(tiny_run(), notes=("<b>Mind</b> this.",))
    text = result._repr_html_()
    assert "Restoration(24 x 24 float64" in text
    assert "&lt;b&gt;Mind&lt;/b&gt; this." in text
    pictures = [
        np.asarray(Image.open(io.BytesIO(base64.b64decode(coded))).convert("RGB"))
        for coded in re.findall(r'base64,([^"]*)"', text)
    ]
    assert [each.shape for each in pictures] == [(24, 24, 3)] * 3
    given, restored, _ = (each[..., 0].astype(float) for each in pictures)
    for shown, values in ((given, GREY), (restored, result.image)):
        assert np.corrcoef(shown.ravel(), values.ravel())[0, 1] > 0.95
    assert replace(result, _given=None)._repr_html_() is None


def test_a_plot_has_the_same_three_panels():
    from matplotlib import pyplot

    figure = tiny_run().plot()
    titles = [axes.get_title() for axes in figure.axes]
    assert titles[:2] == ["given", "restored"]
    assert titles[2].startswith("standard deviation, 0 to ")
    assert figure.axes[1].images[0].get_array().shape == (24, 24, 3)
    pyplot.close(figure)


def test_without_matplotlib_a_plot_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ValueError, match=r"plot needs matplotlib: pip install 'evoem\[plot\]'"):
        tiny_run().plot()


@pytest.mark.parametrize("axis", [None, 0, -1])
def test_what_is_saved_is_the_image_and_its_uncertainty(axis, tmp_path):
    given = GREY if axis is None else np.moveaxis(COLOURS[0], -1, axis)
    given = given.clip(0, 255).astype(np.uint8)
    result = restore(given, channel_axis=axis, **TINY)
    result.save(tmp_path / "a.png", uncertainty=tmp_path / "std.tif")
    last = (lambda array: array) if axis is None else (lambda array: np.moveaxis(array, axis, -1))
    np.testing.assert_array_equal(files.read(tmp_path / "a.png").pixels, last(result.image))
    std = files.read(tmp_path / "std.tif").pixels
    np.testing.assert_array_equal(std, last(result.std).astype(np.float32))
    with pytest.raises(files.FileError, match="must not exist yet unless force is given"):
        result.save(tmp_path / "a.png")
    with pytest.raises(files.FileError, match="JPEG, which holds"):
        result.save(tmp_path / "a.jpg", uncertainty=tmp_path / "std.jpg", force=True)
    assert not (tmp_path / "a.jpg").exists()


def test_alpha_is_saved_too(tmp_path):
    alpha = np.full((*COLOURS[0].shape[:2], 1), 200)
    given = np.concatenate([COLOURS[0].clip(0, 255), alpha], axis=2).astype(np.uint8)
    restore(given, channel_axis=-1, **TINY).save(tmp_path / "a.png")
    assert (files.read(tmp_path / "a.png").alpha == 200).all()
