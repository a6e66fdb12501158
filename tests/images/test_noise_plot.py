"""The plot shows what was measured and what the law makes of it."""

import sys

import numpy as np
import pytest

from evoem.images.noise_model import Noise
from evoem.images.noise_plot import draw_correlation, draw_variance, drawn

figure = pytest.importorskip("matplotlib.figure")

SIGNAL = np.array([[10.0, 60.0, 200.0], [20.0, 90.0, 250.0]])
CORRELATION = np.array([[0.1, 0.2, 0.3], [0.4, 1.0, 0.4], [0.3, 0.2, 0.1]])


def lines(draw, noise):
    axes = figure.Figure().subplots()
    draw(axes, noise)
    return {line.get_label(): line.get_xydata() for line in axes.lines}, axes


def test_each_channel_has_its_measurements_and_its_law():
    noise = Noise(gain=(0.5, 2.0), curve_signal=SIGNAL, curve_variance=0.6 * SIGNAL)
    found, axes = lines(draw_variance, noise)
    measured = [line.get_xydata() for line in axes.lines if line.get_marker() == "."]
    for channel, (points, gain) in enumerate(zip(measured, (0.5, 2.0), strict=True)):
        np.testing.assert_array_equal(points.T, [SIGNAL[channel], 0.6 * SIGNAL[channel]])
        means, variance = found[f"channel {channel}"].T
        assert (means[0], means[-1]) == (10, 250)
        np.testing.assert_allclose(variance, gain * means)
    assert len(axes.get_legend().texts) == 2


def test_correlations_are_those_along_rows_columns_and_diagonals():
    found, _ = lines(draw_correlation, Noise(measured_correlation=CORRELATION))
    np.testing.assert_array_equal(found["rows"], [[0, 1], [1, 0.4]])
    np.testing.assert_array_equal(found["columns"], [[0, 1], [1, 0.2]])
    np.testing.assert_array_equal(found["diagonals"], [[0, 1], [1, 0.1]])


def test_nothing_is_drawn_of_what_was_not_measured():
    for draw in (draw_variance, draw_correlation):
        found, _ = lines(draw, Noise())
        assert all(name.startswith("_") for name in found)  # the axis alone


STARTS = {".png": b"\x89PNG", ".pdf": b"%PDF", ".svg": b"<?xml", "": b"\x89PNG"}


@pytest.mark.parametrize(("suffix", "start"), STARTS.items())
def test_the_suffix_is_the_format(suffix, start):
    assert drawn(Noise(), suffix).startswith(start)


def test_what_it_needs_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ValueError, match=r"^plot needs matplotlib: pip install 'evoem\[plot\]'\.$"):
        drawn(Noise(), ".png")
