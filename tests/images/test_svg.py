"""Curves and tables as drawings."""

import re
from xml.etree import ElementTree

import numpy as np

from evoem.images import svg


def test_a_curve_goes_from_corner_to_corner():
    x = np.array([1.0, 2.0, 3.0])
    drawn = svg.chart([svg.Curve(x, 10 * x)], "iteration", "bound")
    ElementTree.fromstring(drawn)
    (points,) = re.findall(r'points="([^"]*)"', drawn)
    (left, bottom), (middle, halfway), (right, top) = (
        map(float, point.split(",")) for point in points.split()
    )
    assert (left, top) == (svg.LEFT, svg.EDGE)
    assert (right, bottom) == (svg.WIDTH - svg.EDGE, svg.HEIGHT - svg.BOTTOM)
    assert 2 * middle == left + right
    assert 2 * halfway == top + bottom
    for label in ("10", "30", "1", "3", "iteration"):
        assert f">{label}</text>" in drawn


def test_curves_share_their_axes_and_points_are_dots():
    flat = svg.Curve(np.array([0.0, 1.0]), np.array([5.0, 5.0]))
    dots = svg.Curve(np.array([0.5]), np.array([0.0]), joined=False, hue=1)
    drawn = svg.chart([flat, dots], "x", "y")
    assert f'cy="{svg.HEIGHT - svg.BOTTOM:.1f}"' in drawn  # the lowest of all
    assert drawn.count("<circle") == 1


def test_correlations_are_written_and_coloured_by_sign_and_size():
    values = np.array([[0.0, 0.2, -0.001], [-0.5, 1.0, -0.5], [0.0, 0.2, 0.0]])
    drawn = svg.correlations(values)
    ElementTree.fromstring(drawn)
    assert re.findall(r">([-\d.]+)</text>", drawn) == [
        "0.00", "0.20", "0.00", "-0.50", "1", "-0.50", "0.00", "0.20", "0.00",
    ]  # fmt: skip
    assert drawn.count('class="above"') == 3
    assert drawn.count('fill-opacity="1.00"') == 3
