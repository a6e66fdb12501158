"""Fit Gabor functions, plane waves under a Gaussian envelope, to fields."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import optimize

# Widths of the envelope that fits start from, along and across the wave, as shares of the field's
# own; the best fit counts.
STARTS = ((0.12, 0.12), (0.25, 0.25), (0.12, 0.3))
PADDED = 8  # times the width of the field: how finely its spectrum is sampled
MOST_EVALUATIONS = 400

Field = NDArray[Any]


class Gabor(NamedTuple):
    """A fit; lengths in pixels."""

    centre: tuple[float, float]  # row, column
    frequency: tuple[float, float]  # cycles per pixel, along rows and columns
    widths: tuple[float, float]  # standard deviations of the envelope along and across the wave
    explained: float  # R²: the share of the field's variance


def waves(parameters: NDArray[np.float64], shape: tuple[int, int]) -> NDArray[np.float64]:
    """Even and odd wave under the envelope, (n_pixels, 2): a field is a sum of both."""
    row, column, up, across, *log_widths = parameters
    rows, columns = np.mgrid[: shape[0], : shape[1]]
    y, x = rows - row, columns - column
    frequency = np.hypot(up, across) + np.finfo(float).tiny
    along = (y * up + x * across) / frequency
    beside = (x * up - y * across) / frequency
    with np.errstate(over="ignore", under="ignore"):
        one, other = np.exp(np.clip(log_widths, -5, 5))
        envelope = np.exp(-0.5 * ((along / one) ** 2 + (beside / other) ** 2))
    phase = 2 * np.pi * frequency * along
    return np.stack([envelope * np.cos(phase), envelope * np.sin(phase)], -1).reshape(-1, 2)


def left_over(parameters: NDArray[np.float64], field: Field) -> NDArray[np.float64]:
    """What the best amplitudes of the two waves leave of a field."""
    basis = waves(parameters, (field.shape[0], field.shape[1]))
    gram = basis.T @ basis + 1e-12 * np.eye(2)
    values: NDArray[np.float64] = field.ravel()
    found: NDArray[np.float64] = values - basis @ np.linalg.solve(gram, basis.T @ values)
    return found


def main_frequency(field: Field) -> tuple[float, float]:
    """The strongest frequency of a field without its mean."""
    size = PADDED * max(field.shape)
    spectrum = np.abs(np.fft.rfft2(field - field.mean(), (size, size)))
    up, across = np.unravel_index(int(spectrum.argmax()), spectrum.shape)
    return float(np.fft.fftfreq(size)[up]), float(np.fft.rfftfreq(size)[across])


def fit(field: Field) -> Gabor:
    """The Gabor function nearest to a field (rows, columns), by least squares."""
    field = field.astype(np.float64)
    total = float(np.square(field - field.mean()).sum())
    if total == 0:
        return Gabor((0.0, 0.0), (0.0, 0.0), (0.0, 0.0), 0.0)
    energy = np.square(field) / np.square(field).sum()
    y, x = np.mgrid[: field.shape[0], : field.shape[1]]
    first = [float((energy * y).sum()), float((energy * x).sum()), *main_frequency(field)]
    fits = (
        optimize.least_squares(
            left_over,
            np.array(first + [np.log(share * max(field.shape)) for share in widths]),
            args=(field,),
            method="lm",
            max_nfev=MOST_EVALUATIONS,
        )
        for widths in STARTS
    )
    best = min(fits, key=lambda found: found.cost)
    row, column, up, across, *log_widths = best.x
    one, other = np.exp(np.clip(log_widths, -5, 5))
    return Gabor(
        (float(row), float(column)),
        (float(up), float(across)),
        (float(one), float(other)),
        1 - 2 * float(best.cost) / total,
    )
