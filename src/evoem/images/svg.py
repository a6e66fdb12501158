"""Curves and tables of numbers as SVG drawings within a page."""

import html
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

WIDTH, HEIGHT, LEFT, BOTTOM, TOP, EDGE = 560, 220, 72, 42, 28, 16
CELL = 46
STRONG = 0.6  # a cell so much coloured has a number that stands out from it
# Between lines of the grid there are this many, or fewer; their labels fit beside each other.
MOST_STEPS = 5
# Of so few points of a line each is shown.
FEW_POINTS = 24


class Curve(NamedTuple):
    """Points, and whether they are joined by a line."""

    x: Array
    y: Array
    joined: bool = True
    hue: int = 0  # which of the page's colours


def chart(curves: Sequence[Curve], x_label: str, y_label: str, *, from_zero: bool = False) -> str:
    """Curves over the same axes, of which the vertical one may have to begin at zero."""
    x, y = (np.concatenate(each) for each in zip(*(curve[:2] for curve in curves), strict=True))
    (left, right), (low, high) = (float(x.min()), float(x.max())), (float(y.min()), float(y.max()))
    if from_zero:
        low, high = min(low, 0.0), max(high, 0.0)
    rows = ticks(low, high)
    low, high = min(low, rows[0]), max(high, rows[-1])
    bottom, end = HEIGHT - BOTTOM, WIDTH - EDGE

    def across(values: Array) -> Array:
        share: Array = (values - left) / ((right - left) or 1.0)
        return LEFT + share * (end - LEFT)

    def down(values: Array) -> Array:
        share: Array = (values - low) / ((high - low) or 1.0)
        return bottom - share * (bottom - TOP)

    drawn = []
    for value, place in zip(rows, down(np.array(rows)), strict=True):
        drawn.append(
            f'<path class="axis" d="M{LEFT} {place:.1f}H{end}"/><text x="{LEFT - 8}" '
            f'y="{place + 4:.1f}" text-anchor="end">{html.escape(number(value))}</text>'
        )
    least = 1.0 if (x == np.rint(x)).all() else 0.0  # there is nothing between iterations
    columns = [value for value in ticks(left, right, least) if left <= value <= right]
    for value, place in zip(columns, across(np.array(columns)), strict=True):
        drawn.append(
            f'<text x="{place:.1f}" y="{bottom + 17}" text-anchor="middle">{number(value)}</text>'
        )
    for curve in curves:
        places = list(zip(across(curve.x).tolist(), down(curve.y).tolist(), strict=True))
        if curve.joined:
            points = " ".join(f"{right:.1f},{below:.1f}" for right, below in places)
            drawn.append(f'<polyline class="line hue{curve.hue}" points="{points}"/>')
        if not curve.joined or len(places) <= FEW_POINTS:
            drawn += [
                f'<circle class="dot hue{curve.hue}" cx="{right:.1f}" cy="{below:.1f}" r="2.5"/>'
                for right, below in places
            ]
    label = f"{y_label} over {x_label}"
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" role="img" '
        f'aria-label="{html.escape(label)}">{"".join(drawn)}'
        f'<text x="0" y="12">{html.escape(y_label)}</text>'
        f'<text x="{(LEFT + end) / 2}" y="{bottom + 36}" text-anchor="middle">'
        f"{html.escape(x_label)}</text></svg>"
    )


def ticks(low: float, high: float, least: float = 0.0) -> list[float]:
    """Round numbers around two others, at least so far apart: what stands beside an axis."""
    if high <= low:
        return [low]
    rough = max((high - low) / MOST_STEPS, least)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(each * power for each in (1, 2, 5, 10) if each * power >= rough * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [number * step for number in range(first, last + 1)]


def number(value: float, digits: int = 6) -> str:
    """Short enough to stand beside an axis, with a minus that is one."""
    return (
        f"{value:.{digits}g}".replace("e+0", "e")
        .replace("e-0", "e-")
        .replace("-", "\N{MINUS SIGN}")
    )


def correlations(values: Array) -> str:
    """Correlations at lags as a table, coloured by what they are."""
    side, middle = len(values), len(values) // 2
    cells = []
    for row in range(side):
        for column in range(side):
            value = float(values[row, column])
            tone = "above" if value > 0 else "below"
            strength = min(abs(value) / 0.5, 1.0)
            ink = "number strong" if strength > STRONG else "number"
            left, top = column * CELL, row * CELL
            words = "1" if row == column == middle else f"{round(value, 2) or 0.0:.2f}"
            cells.append(
                f'<rect class="{tone}" x="{left}" y="{top}" width="{CELL - 2}" '
                f'height="{CELL - 2}" fill-opacity="{strength:.2f}"/>'
                f'<text class="{ink}" x="{left + CELL / 2 - 1}" y="{top + CELL / 2 + 3}" '
                f'text-anchor="middle">{words}</text>'
            )
    return (
        f'<svg viewBox="0 0 {side * CELL} {side * CELL}" width="{side * CELL}" role="img" '
        f'aria-label="autocorrelation of the residual">{"".join(cells)}</svg>'
    )
