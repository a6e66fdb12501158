"""Curves and tables of numbers as SVG drawings within a page."""

import html
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

WIDTH, HEIGHT, LEFT, BOTTOM, EDGE = 560, 200, 72, 42, 10
CELL = 46


class Curve(NamedTuple):
    """Points, and whether they are joined by a line."""

    x: Array
    y: Array
    joined: bool = True
    hue: int = 0  # which of the page's colours


def chart(curves: Sequence[Curve], x_label: str, y_label: str) -> str:
    """Curves over the same axes."""
    x, y = (np.concatenate(each) for each in zip(*(curve[:2] for curve in curves), strict=True))
    (left, right), (low, high) = (float(x.min()), float(x.max())), (float(y.min()), float(y.max()))
    bottom, end = HEIGHT - BOTTOM, WIDTH - EDGE

    def places(curve: Curve) -> list[tuple[float, float]]:
        across = LEFT + (curve.x - left) / ((right - left) or 1.0) * (end - LEFT)
        down = bottom - (curve.y - low) / ((high - low) or 1.0) * (bottom - EDGE)
        return list(zip(across.tolist(), down.tolist(), strict=True))

    drawn = []
    for curve in curves:
        if curve.joined:
            points = " ".join(f"{across:.1f},{down:.1f}" for across, down in places(curve))
            drawn.append(f'<polyline class="line hue{curve.hue}" points="{points}"/>')
        else:
            drawn += [
                f'<circle class="dot hue{curve.hue}" cx="{across:.1f}" cy="{down:.1f}" r="2.5"/>'
                for across, down in places(curve)
            ]
    label = f"{y_label} over {x_label}"
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" role="img" '
        f'aria-label="{html.escape(label)}">'
        f'<path class="axis" d="M{LEFT} {EDGE}V{bottom}H{end}"/>{"".join(drawn)}'
        f'<text x="{LEFT - 6}" y="{EDGE + 8}" text-anchor="end">{high:.5g}</text>'
        f'<text x="{LEFT - 6}" y="{bottom}" text-anchor="end">{low:.5g}</text>'
        f'<text x="{LEFT}" y="{bottom + 16}">{left:.5g}</text>'
        f'<text x="{end}" y="{bottom + 16}" text-anchor="end">{right:.5g}</text>'
        f'<text x="{(LEFT + end) / 2}" y="{bottom + 32}" text-anchor="middle">'
        f"{html.escape(x_label)}</text></svg>"
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
            left, top = column * CELL, row * CELL
            words = "1" if row == column == middle else f"{round(value, 2) or 0.0:.2f}"
            cells.append(
                f'<rect class="{tone}" x="{left}" y="{top}" width="{CELL - 2}" '
                f'height="{CELL - 2}" fill-opacity="{strength:.2f}"/>'
                f'<text class="number" x="{left + CELL / 2 - 1}" y="{top + CELL / 2 + 3}" '
                f'text-anchor="middle">{words}</text>'
            )
    return (
        f'<svg viewBox="0 0 {side * CELL} {side * CELL}" width="{side * CELL}" role="img" '
        f'aria-label="autocorrelation of the residual">{"".join(cells)}</svg>'
    )
