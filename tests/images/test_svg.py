"""Curves and tables as drawings."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest

from evoem.images import svg


def test_a_curve_goes_from_corner_to_corner():
    x = np.array([1.0, 2.0, 3.0])  # whole numbers have nothing between them
    drawn = svg.chart([svg.Curve(x, 10 * x)], "iteration", "bound")
    ElementTree.fromstring(drawn)
    (points,) = re.findall(r'points="([^"]*)"', drawn)
    (left, bottom), (middle, halfway), (right, top) = (
        map(float, point.split(",")) for point in points.split()
    )
    assert (left, top) == (svg.LEFT, svg.TOP)
    assert (right, bottom) == (svg.WIDTH - svg.EDGE, svg.HEIGHT - svg.BOTTOM)
    assert 2 * middle == left + right
    assert 2 * halfway == top + bottom
    assert re.findall(r">([^<>]+)</text>", drawn) == [
        "10", "15", "20", "25", "30", "1", "2", "3", "bound", "iteration",
    ]  # fmt: skip


def test_an_axis_may_begin_at_zero():
    x = np.array([1.0, 2.0])
    drawn = svg.chart([svg.Curve(x, np.array([630.0, 640.0]))], "x", "y", from_zero=True)
    heights = [float(point.split(",")[1]) for point in re.findall(r"[\d.]+,[\d.]+", drawn)]
    assert 0 < heights[0] - heights[1] < 0.02 * svg.HEIGHT
    assert ">0</text>" in drawn


@pytest.mark.parametrize(
    ("low", "high"), [(0.0, 1.0), (-293.35, -286.37), (0.0, 3.7022e6), (1e-9, 3e-9), (5.0, 5.0)]
)
def test_ticks_are_few_round_and_around(low, high):
    found = svg.ticks(low, high)
    slack = 1e-9 * (high - low)
    assert found[0] <= low + slack
    assert found[-1] >= high - slack
    assert len(found) <= svg.MOST_STEPS + 2
    steps = np.diff(found)
    if len(steps):
        np.testing.assert_allclose(steps, steps[0])
        assert f"{steps[0]:.0e}"[0] in "125"


def test_numbers_are_short():
    assert [svg.number(value) for value in (-0.25, 4e6, 12345.678, 2e-9)] == [
        "\N{MINUS SIGN}0.25", "4e6", "12345.7", "2e\N{MINUS SIGN}9",
    ]  # fmt: skip


def test_curves_share_their_axes_and_points_are_dots():
    flat = svg.Curve(np.array([0.0, 1.0]), np.array([5.0, 5.0]))
    dots = svg.Curve(np.array([0.5]), np.array([0.0]), joined=False, hue=1)
    drawn = svg.chart([flat, dots], "x", "y")
    assert f'cy="{svg.HEIGHT - svg.BOTTOM:.1f}"' in drawn  # the lowest of all
    assert drawn.count('class="dot hue1"') == 1


def test_correlations_are_written_and_coloured_by_sign_and_size():
    values = np.array([[0.0, 0.2, -0.001], [-0.5, 1.0, -0.5], [0.0, 0.2, 0.0]])
    drawn = svg.correlations(values)
    ElementTree.fromstring(drawn)
    assert re.findall(r">([-\d.]+)</text>", drawn) == [
        "0.00", "0.20", "0.00", "-0.50", "1", "-0.50", "0.00", "0.20", "0.00",
    ]  # fmt: skip
    assert drawn.count('class="above"') == 3
    assert drawn.count('fill-opacity="1.00"') == drawn.count("strong") == 3
