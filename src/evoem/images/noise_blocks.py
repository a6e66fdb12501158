"""Variance of the noise against the signal, from the flat blocks of one channel.

A block of a picture is turned into cosine coefficients. White noise puts the same power into each
of them, independently; texture puts most of its power into the low ones. So blocks are *chosen* by
some coefficients, and the noise is *measured* in others: what noise does to the former by chance
then does not bias the latter. A block is flat if the power that it is chosen by is what the noise
explains.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import comb

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from scipy.fft import dct
from scipy.optimize import least_squares

from evoem.images.noise_clipping import Levels, clipped_law

Array = NDArray[np.float64]

SIDE = 8
STEP = 4
# Share of the quietest blocks at each signal that the search for flat ones starts from.
QUIETEST = 0.1
ROUNDS, FITS = 6, 5
# Flat are blocks whose power exceeds that of noise by at most so many standard deviations of it.
WITHIN = 1.5
# Distance of the quartiles of a normal variable, in standard deviations.
QUARTILES_APART = 1.349
# No variance is below this share of the least one that was measured.
FLOOR = 0.3
MOST_BINS, LEAST_IN_BIN = 32, 40
LEAST_FLAT, LEAST_SHARE_FLAT = 30, 0.04
# A parabola rises if its end is this high, relative to the highest of so many points.
STILL_HIGH, RISING_AT = 0.75, 50
# Blocks with a larger share of values at a clipping level say nothing about the noise.
MOST_CLIPPED = 0.4
# Variance of the median of block powers, relative to that of their mean, and of powers from
# overlapping blocks relative to separate ones: both enlarge the standard errors below.
MEDIAN_AND_OVERLAP = 3.2


def cosines(side: int) -> Array:
    """The orthonormal cosine basis, one function a row."""
    return np.asarray(dct(np.eye(side), axis=0, norm="ortho"))


@dataclass(frozen=True)
class Blocks:
    """Overlapping blocks of one channel: where they are, their means and coefficients."""

    usable: NDArray[np.bool_]  # of all blocks on the grid; the rest is of the usable ones
    mean: Array
    coefficients: Array

    @property
    def power(self) -> Array:
        return self.coefficients**2


def cut_blocks(
    channel: Array,
    observed: NDArray[np.bool_],
    clipped: NDArray[np.bool_],
    side: int = SIDE,
    step: int = STEP,
) -> Blocks:
    """Blocks without a missing value, with few clipped ones, and with more than one value."""

    def windows(of: NDArray[np.generic]) -> NDArray[np.generic]:
        return sliding_window_view(of, (side, side))[::step, ::step]

    usable = windows(observed).all((-1, -2))
    usable &= windows(clipped).mean((-1, -2)) <= MOST_CLIPPED
    values = windows(channel)
    usable &= values.max((-1, -2)) > values.min((-1, -2))
    basis = cosines(side)
    coefficients = basis @ values[usable] @ basis.T
    return Blocks(usable, coefficients[:, 0, 0] / side, coefficients)


@dataclass(frozen=True)
class Line:
    """Variance of noise, gain · signal + intercept, as it is seen between two clipping levels."""

    gain: float
    intercept: float
    gain_error: float
    least: float  # no variance is below: that of rounding
    levels: Levels = (None, None)
    span: tuple[float, float] = (0.0, 0.0)  # of the signal

    def __call__(self, signal: Array) -> Array:
        """Variance of values that have this mean once they are clipped."""
        if self.levels == (None, None):
            return np.maximum(self.gain * signal + self.intercept, self.least)
        _, after, _, variance = self._law()
        return np.maximum(np.interp(signal, after, variance), self.least)

    def before_clipping(self, signal: Array, variance: Array) -> tuple[Array, Array]:
        """Means and variances of values before they were clipped, from those after."""
        if self.levels == (None, None):
            return signal, variance
        before, after, full, left = self._law()
        lost = full / np.maximum(left, self.least)
        return np.interp(signal, after, before), variance * np.interp(signal, after, lost)

    def _law(self) -> tuple[Array, Array, Array, Array]:
        return clipped_law(self.gain, self.intercept, self.least, self.levels, self.span)


@dataclass(frozen=True)
class Bend:
    """Variance of noise as a parabola between two signals, and constant outside.

    What a camera makes of light has a steep dark end and a flat bright one, and so has its noise:
    least where it is darkest and where it is brightest.
    """

    span: tuple[float, float]
    heights: Array  # first, middle (of the control polygon), last
    least: float

    def __call__(self, signal: Array) -> Array:
        low, high = self.span
        place = np.clip((signal - low) / max(high - low, 1e-12), 0, 1)
        return np.maximum(bernstein(place, len(self.heights) - 1) @ self.heights, self.least)

    @property
    def rises(self) -> bool:
        """Whether the variance is about largest where it is brightest, as that of photons is."""
        within = self(np.linspace(*self.span, RISING_AT))
        return bool(within[-1] > STILL_HIGH * within.max())


@dataclass(frozen=True)
class Curve:
    """Variance measured at signals, the line through it, and which blocks are flat."""

    signal: Array
    variance: Array
    counts: NDArray[np.int64]
    line: Line
    flat: NDArray[np.bool_]
    level: float  # the one variance that explains it best
    bend: Bend  # the parabola that does
    ratio: float  # power that blocks are chosen by, relative to the power measured

    def times(self, factor: float) -> "Curve":
        """The curve of so many times the variance."""
        line, bend = self.line, self.bend
        return replace(
            self,
            variance=factor * self.variance,
            line=replace(
                line,
                gain=factor * line.gain,
                intercept=factor * line.intercept,
                gain_error=factor * line.gain_error,
                least=factor * line.least,
            ),
            level=factor * self.level,
            bend=replace(bend, heights=factor * bend.heights, least=factor * bend.least),
        )


def split_frequencies(spectrum: Array) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Coefficients to measure noise in and those to choose flat blocks by.

    Power of texture falls about with the square of the frequency, so noise stands out most where
    its spectrum times that square is large; for white noise in the high frequencies.
    """
    side = len(spectrum)
    frequency = np.add.outer(np.arange(side), np.arange(side))
    prominence = spectrum * frequency**2
    measured = prominence >= np.sort(prominence, axis=None)[-(side * (side - 1) // 2)]
    measured &= frequency > 0
    return measured, ~measured & (frequency > 0)


def binned(mean: Array, power: Array, freedom: int) -> tuple[Array, Array, NDArray[np.int64]]:
    """Signal, variance and number of blocks in bins of equal numbers.

    Medians, so that the few textured blocks among the flat ones do not count; that of a χ² variable
    by the approximation of Wilson and Hilferty.
    """
    n_bins = int(np.clip(len(mean) // LEAST_IN_BIN, 1, MOST_BINS))
    parts = np.array_split(np.argsort(mean, kind="stable"), n_bins)
    signal = np.array([mean[part].mean() for part in parts])
    median_of_unit = (1 - 2 / (9 * freedom)) ** 3
    variance = np.array([np.median(power[part]) for part in parts]) / median_of_unit
    return signal, variance, np.array([len(part) for part in parts])


@dataclass(frozen=True)
class _RelativeErrors:
    """Logarithms of measured over explained variances, in standard errors."""

    place: Array  # of the bins, from 0 to 1
    measured: Array
    error: Array
    floor: float

    def __call__(self, heights: Array) -> Array:
        height = bernstein(self.place, len(heights) - 1) @ heights
        return np.asarray((self.measured - np.log(np.maximum(height, self.floor))) / self.error)

    def fit(self, starts: Sequence[tuple[float, ...]]) -> Array:
        """The heights with the least robust sum of squares, of those that starts lead to."""
        scale = float(np.exp(np.median(self.measured)))
        fits = [
            least_squares(self, start, loss="soft_l1", f_scale=2.0, x_scale=scale)
            for start in starts
        ]
        return np.asarray(min(fits, key=lambda fit: float(fit.cost)).x)


def bernstein(place: Array, degree: int) -> Array:
    """The polynomials that are positive wherever their coefficients are, (places, degree + 1)."""
    return np.stack(
        [comb(degree, k) * place**k * (1 - place) ** (degree - k) for k in range(degree + 1)], -1
    )


def fit_line(
    signal: Array,
    variance: Array,
    counts: NDArray[np.int64],
    freedom: int,
    least: float,
    levels: Levels,
    slope: bool = True,
) -> Line:
    """The line through a curve that has the least robust sum of squared relative errors.

    Relative ones, as logarithms of ratios, since variances may differ by orders of magnitude from
    the dark to the bright. They have several minima, so it is started from several lines. The curve
    is taken back to what it would be without clipping by the line itself.
    """
    relative = np.sqrt(2 / freedom * MEDIAN_AND_OVERLAP / counts)
    span = float(signal[0]), float(signal[-1])
    middle = max(float(np.median(variance)), least)
    line = Line(0.0, middle, np.inf, least, levels, span)
    sloping = slope and span[1] - span[0] > 1e-6 * max(abs(span[0]), abs(span[1]))
    for _ in range(1 if levels == (None, None) else FITS):
        x, y = line.before_clipping(signal, variance)
        # What clipping took away is known by the line alone, and only as far as it is right.
        error = relative * np.maximum(y / np.maximum(variance, least), 1) ** 2
        floor = max(least, FLOOR * float(y.min()))
        place = (x - x[0]) / (x[-1] - x[0]) if sloping else np.zeros_like(x)
        off = _RelativeErrors(place, np.log(np.maximum(y, least)), error, floor)
        quarter = max(len(y) // 4, 1)
        first, last = float(np.median(y[:quarter])), float(np.median(y[-quarter:]))
        starts: list[tuple[float, ...]] = [(middle,)]
        if sloping:
            starts = [(first, last), (middle, middle), (floor, 2 * middle)]
        best = off.fit(starts)
        gain = float((best[-1] - best[0]) / (x[-1] - x[0])) if sloping else 0.0
        intercept = float(best[0] - gain * x[0])
        precision = 1 / (error * np.maximum(gain * x + intercept, floor)) ** 2
        centre = (precision * x).sum() / precision.sum()
        spread = float((precision * (x - centre) ** 2).sum())
        uncertain = 1 / np.sqrt(spread) if sloping and spread > 0 else np.inf
        line = Line(gain, intercept, float(uncertain), floor, levels, span)
    return line


def fit_bend(
    signal: Array, variance: Array, counts: NDArray[np.int64], freedom: int, least: float
) -> Bend:
    """The parabola through a curve, as it is seen, by the same errors as the line."""
    span = float(signal[0]), float(signal[-1])
    floor = max(least, FLOOR * float(variance.min()))
    error = np.sqrt(2 / freedom * MEDIAN_AND_OVERLAP / counts)
    place = (signal - span[0]) / max(span[1] - span[0], 1e-12)
    off = _RelativeErrors(place, np.log(np.maximum(variance, least)), error, floor)
    middle = max(float(np.median(variance)), least)
    starts = [(middle, middle, middle), (middle / 2, 2 * middle, middle / 2)]
    return Bend(span, off.fit(starts), floor)


def effective_freedom(power: Array, freedom: int) -> int:
    """Degrees of freedom of χ² variables, from their quartiles.

    Coefficients of interpolated noise are not independent of each other.
    """
    lower, middle, upper = np.quantile(power, (0.25, 0.5, 0.75))
    spread = (upper - lower) / (middle * QUARTILES_APART)
    return int(np.clip(2 / max(spread, 1e-3) ** 2, freedom // 4, freedom))


def quietest(mean: Array, power: Array) -> NDArray[np.bool_]:
    """The blocks of least power at each signal."""
    chosen = np.zeros(len(mean), bool)
    for part in np.array_split(np.argsort(mean, kind="stable"), min(24, len(mean))):
        chosen[part[power[part] <= np.quantile(power[part], QUIETEST)]] = True
    return chosen


def measure_curve(blocks: Blocks, spectrum: Array, least: float, levels: Levels) -> Curve:
    """Variance against signal of noise with this spectrum (1 on average over all frequencies).

    Starting from the quietest blocks, the line through their variances tells which blocks are flat,
    and those give the next line.
    """
    measured, choosing = split_frequencies(spectrum)
    freedom = int(measured.sum())
    power = (blocks.power[:, measured] / spectrum[measured]).mean(1)
    chosen_by = (blocks.power[:, choosing] / spectrum[choosing]).mean(1)
    flat = quietest(blocks.mean, chosen_by)
    white = bool(np.ptp(spectrum) == 0)
    for turn in range(ROUNDS):
        signal, variance, counts = binned(blocks.mean[flat], power[flat], freedom)
        line = fit_line(signal, variance, counts, freedom, least, levels)
        relative = chosen_by / line(blocks.mean)
        if turn < ROUNDS // 2:  # later it would creep up, texture by texture
            ratio = float(np.median(relative[flat]))
        now = relative <= ratio * (1 + WITHIN * np.sqrt(2 / choosing.sum()))
        if now.sum() < max(LEAST_FLAT, LEAST_SHARE_FLAT * len(now)):
            break  # they would be those of one signal only, where the line happens to fit
        flat = now
        if not white:
            freedom = effective_freedom((power / line(blocks.mean))[flat], int(measured.sum()))
    level = fit_line(signal, variance, counts, freedom, least, levels, slope=False).intercept
    bend = fit_bend(signal, variance, counts, freedom, least)
    return Curve(signal, variance, counts, line, flat, level, bend, ratio)
