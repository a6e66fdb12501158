"""Estimate the noise of a picture from that picture alone.

What is decided, and by which rule:

- *Flat blocks* are the 8 × 8 ones whose power at low frequencies is what the noise explains; the
  variance is measured at other frequencies of theirs (`noise_blocks`).
- *Signal-dependent* is noise whose variance grows with the signal by more than `SIGNIFICANT`
  standard errors and, over the signals that flat blocks have, by more than `LEAST_GROWTH` of its
  middle (of correlated noise, which is harder to tell from texture, `LEAST_GROWTH_CORRELATED`,
  and only if it does not fall again where it is bright, as that of photographs does);
  otherwise the variance is one number. It takes half of the channels.
- *Correlated* is noise whose nearest neighbours are correlated by more than `LEAST_CORRELATION` in
  the flattest 16 × 16 blocks and whose power still falls at the highest frequencies, by `FALLS`.
  Where it does not, what is correlated is texture, and the noise white; where even those blocks are
  full of texture it cannot be told, and a note says so. Channels are correlated from
  `LEAST_BETWEEN_CHANNELS`.
- *Clipped* are ends of the range where values pile up (`noise_clipping`).
- *Compressed* are pictures with more cosine coefficients of zero in one grid of blocks than in any
  other (`noise_compression`). If most of high frequencies are, or if what is left is nearly the
  same in all channels (`MOST_BETWEEN_CHANNELS`), the noise is gone.
- *No noise* have pictures much of which is of one value, if many neighbours are equal in the rest
  of them too.
- *Few photons* are what is left where none of this can be told, if steps between levels have the
  variance that numbers of photons have (`noise_counts`).
- *Outliers* stand out from all but one of their neighbours (`noise_outliers`).
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from evoem.images import noise_correlation
from evoem.images.noise_blocks import (
    SIDE,
    STEP,
    Blocks,
    Curve,
    Line,
    cut_blocks,
    measure_curve,
    split_frequencies,
)
from evoem.images.noise_clipping import (
    Levels,
    clipping_levels,
    of_photons,
    on_levels,
    rounding_step,
)
from evoem.images.noise_compression import zeros
from evoem.images.noise_correlation import (
    Flattest,
    block_spectrum,
    covariances,
    kernel,
    measure_flattest,
    mirrored,
    unit_variance,
)
from evoem.images.noise_counts import are_few_photons
from evoem.images.noise_model import Noise
from evoem.images.noise_outliers import filled, find_outliers
from evoem.validation import Mask

Array = NDArray[np.float64]


SIGNIFICANT, LEAST_GROWTH, LEAST_GROWTH_CORRELATED = 4.0, 0.14, 0.3
LEAST_CORRELATION, LEAST_BETWEEN_CHANNELS = 0.2, 0.15
# Channels of a picture's details are correlated by nearly one, those of noise are not. Of noise in
# pictures that JPEG compressed so much is believed at most.
MOST_BETWEEN_CHANNELS = 0.9
# The power of correlated noise falls even in the highest frequencies: in the lowest of the three
# highest bands it is so many times that of the other two. Texture falls as well, but sinks below
# the noise and levels out: between these it falls by less than this power of the fall before, and
# by less than this ratio, which photographs with little power there exceed.
FALLS, STILL_FALLING, LEVELLED = 1.4, 0.8, 2.0
TEXTURE_EVERYWHERE = "texture everywhere: correlation could not be estimated"
COMPRESSED = "JPEG compression: this is the noise that remains"
# Large blocks whose low frequencies have so many times the power, relative to high ones, that small
# blocks have are textured, for noise is the same in both. Noise that is correlated further looks a
# little like that, since the quietest small blocks are chosen: the second is per lag beyond three.
TEXTURED, TEXTURED_PER_LAG = 1.28, 0.06
LEAST_BLOCKS = 40
# Square root of the number of pixels from which on blocks are cut further apart.
LARGEST = 1000
LEAST_VARIANCE = 1e-9  # of a picture between 0 and 1
# Between these the square of a contrast, and of a small share of it, is a number as well.
LEAST_CONTRAST, LARGEST_CONTRAST = 1e-140, 1e150
# Noise of less than this many times the variance of rounding cannot be told from it.
ABOVE_ROUNDING = 1.5
# Of pictures with more constant blocks than this the others are looked at if in that share of them
# fewer neighbours are equal than the last.
MOST_CONSTANT, LEAST_NOISY, FEW_EQUAL = 0.3, 0.35, 0.2
# Noise of a smaller deviation than this share of the contrast could as well be the picture.
LEAST_OF_CONTRAST = 0.0015


def estimate(values: Array, observed: Mask | None = None) -> tuple[Noise, Mask]:
    """The noise of a picture (rows, columns, channels), and where its outliers are.

    Values that are not `observed` are not looked at.
    """
    observed = np.ones(values.shape, bool) if observed is None else observed
    values = np.where(observed, values, 0.0).astype(np.float64)
    nowhere = np.zeros(values.shape, bool)
    seen = values[observed]
    if seen.size == 0 or seen.min() == seen.max():
        return _untold("the picture is constant"), nowhere
    # In units of its own contrast, so that scale and offset of a picture change nothing else.
    low = float(seen.min())
    contrast = float(seen.max()) - low
    if not LEAST_CONTRAST < contrast < LARGEST_CONTRAST:
        return _untold("its variance is too large or too small a number"), nowhere
    picture = _Picture(np.where(observed, (values - low) / contrast, 0.0), observed)
    noise, outliers = _of_unit_picture(picture)
    step = rounding_step(picture.values[observed])
    if not noise.told and are_few_photons(picture.values, observed, step):
        noise, outliers = Noise(gain=step), nowhere
    return noise.scaled(-low / contrast, 1 / contrast), outliers


def _untold(reason: str) -> Noise:
    return Noise(notes=(reason,), told=False)


@dataclass(frozen=True)
class _Picture:
    """Values between 0 and 1, which of them are known, and the levels they are clipped at."""

    values: Array
    known: Mask
    levels: tuple[Levels, ...] = ()

    def step(self, step: int) -> int:
        """Distance of blocks: of a large picture, so many times as large that no more are cut."""
        return step * max(1, round(float(np.sqrt(self.known[..., 0].size)) / LARGEST))

    def blocks(self, side: int, step: int) -> list[Blocks]:
        """Blocks of each channel."""
        found = []
        step = self.step(step)
        for channel in range(self.values.shape[2]):
            values = self.values[..., channel]
            low, high = self.levels[channel] if self.levels else (None, None)
            clipped = np.zeros(values.shape, bool)
            clipped |= False if low is None else values <= low
            clipped |= False if high is None else values >= high
            found.append(cut_blocks(values, self.known[..., channel], clipped, side, step))
        return found


@dataclass(frozen=True)
class _Scaled:
    """A multiple of the variance that a line gives, and not less than that of rounding.

    Values that are rounded differ by a whole step or not at all, however little noise there is.
    """

    line: Line
    factor: float
    rounding: float

    def __call__(self, signal: Array) -> Array:
        return np.maximum(self.factor * self.line(signal), self.rounding)


def _of_unit_picture(picture: _Picture) -> tuple[Noise, Mask]:
    values, observed = picture.values, picture.known
    outliers = np.zeros(values.shape, bool)
    step = rounding_step(values[observed])
    values = on_levels(values, step)
    picture = _Picture(values, observed)
    if step >= 1:
        return _untold("the picture has two values only"), outliers
    if min(values.shape[:2]) < noise_correlation.SIDE:
        return _untold("the picture is too small"), outliers
    compression = zeros(values, step)
    if compression.gone:
        return _untold("JPEG compression removed nearly all of it"), outliers
    least = max(step**2 / 120, LEAST_VARIANCE)
    white = [np.ones((SIDE, SIDE))] * values.shape[2]
    reason = _why_not(picture)
    if reason:
        return _untold(reason), outliers
    curves = _curves(picture, white, least)
    # The first variances are those of high frequencies: of correlated noise, a small part.
    outliers = _outliers(picture, curves, [max(curve.ratio, 1.0) for curve in curves], step)
    picture = _without(picture, outliers, curves, step)
    if min(len(blocks.mean) for blocks in picture.blocks(SIDE, STEP)) < LEAST_BLOCKS:
        return _untold("nearly all of the picture is clipped or constant"), outliers
    curves = _curves(picture, white, least)
    flattest = _flattest(picture, curves)
    measured = None
    if flattest is None:
        cross, between, note = None, None, "too few flat blocks to estimate correlation"
    else:
        covariance = covariances(flattest.powers)
        if flattest.smooth or covariance is None:
            return _untold("it is as smooth as the picture"), outliers
        measured = mirrored(_own(unit_variance(covariance)).mean(0))
        cross, between, note = _correlation(covariance, flattest, curves)
        if compression.compressed and between is not None and between.min() > MOST_BETWEEN_CHANNELS:
            return _untold("after JPEG compression only detail is left"), outliers
    if cross is not None:
        curves = _whole_variances(picture, curves, _own(cross), least)
        cross = unit_variance(cross)
    outliers = _outliers(_Picture(values, observed), curves, [1.0] * len(curves), step)
    low, high = np.quantile(values[observed], (0.01, 0.99))
    hardly_any = (LEAST_OF_CONTRAST * (high - low)) ** 2
    noise = _law(curves, picture, step, least, cross is not None, hardly_any)
    if not noise.told:
        return noise, outliers
    lows, highs = zip(*picture.levels, strict=True)
    noise = replace(
        noise,
        correlation=None if cross is None else kernel(_own(cross).mean(0)),
        channel_correlation=between,
        measured_correlation=measured,
        cross_correlation=None if cross is None or len(cross) == 1 else kernel(cross),
        clipped=(
            min((low for low in lows if low is not None), default=None),
            max((high for high in highs if high is not None), default=None),
        ),
        outliers=float(outliers.sum() / observed.sum()),
        compressed=compression.compressed,
        notes=(
            *noise.notes,
            *((note,) if note else ()),
            *((COMPRESSED,) if compression.compressed else ()),
        ),
    )
    return noise, outliers


def _why_not(picture: _Picture) -> str:
    """A reason why there is no noise to be found; empty if there is none."""
    sets = picture.blocks(SIDE, STEP)
    known = [
        np.lib.stride_tricks.sliding_window_view(picture.known[..., channel], (SIDE, SIDE))[
            :: picture.step(STEP), :: picture.step(STEP)
        ].all((-1, -2))
        for channel in range(len(sets))
    ]
    if min(whole.sum() for whole in known) < LEAST_BLOCKS:
        return "the picture is too small, or too much of it is missing"
    varying = min(len(blocks.mean) / whole.sum() for blocks, whole in zip(sets, known, strict=True))
    if min(len(blocks.mean) for blocks in sets) < LEAST_BLOCKS or (
        varying < 1 - MOST_CONSTANT and _noisy_share(picture) < LEAST_NOISY
    ):
        return "much of the picture is of one value, without noise"
    return ""


def much_is_of_one_value(values: NDArray[np.floating], observed: Mask | None) -> bool:
    """Whether many blocks of a picture (rows, columns, channels) are without noise."""
    known = values if observed is None else np.where(observed, values, np.nan)
    shares = [
        float((np.ptp(blocks, axis=(1, 2)) == 0).mean()) if len(blocks) else 0.0
        for blocks in map(_separate_blocks, np.moveaxis(known, 2, 0))
    ]
    return max(shares) > MOST_CONSTANT


def _separate_blocks(channel: NDArray[np.floating]) -> NDArray[np.floating]:
    """Blocks beside each other of which nothing is NaN."""
    rows, columns = (size // SIDE * SIDE for size in channel.shape)
    parts = channel[:rows, :columns].reshape(rows // SIDE, SIDE, columns // SIDE, SIDE)
    blocks = parts.swapaxes(1, 2).reshape(-1, SIDE, SIDE)
    return np.asarray(blocks[~np.isnan(blocks).any((1, 2))])


def _noisy_share(picture: _Picture) -> float:
    """Share of the blocks of more than one value in which few neighbours are equal.

    It is small in drawings and screenshots, and large where a detector clips what is dark.
    """
    noisy, number = 0, 0
    for channel in np.moveaxis(np.where(picture.known, picture.values, np.nan), 2, 0):
        blocks = _separate_blocks(channel)
        blocks = blocks[np.ptp(blocks, axis=(1, 2)) > 0]
        along, across = ((np.diff(blocks, axis=axis) == 0).mean((1, 2)) for axis in (1, 2))
        noisy += int(np.count_nonzero(along + across < 2 * FEW_EQUAL))
        number += len(blocks)
    return noisy / max(number, 1)


def _curves(picture: _Picture, spectra: list[Array], least: float) -> list[Curve]:
    levels = picture.levels or ((None, None),) * picture.values.shape[2]
    return [
        measure_curve(blocks, spectrum, least, of_channel)
        for blocks, spectrum, of_channel in zip(
            picture.blocks(SIDE, STEP), spectra, levels, strict=True
        )
    ]


def _whole_variances(
    picture: _Picture, curves: list[Curve], own: Array, least: float
) -> list[Curve]:
    """Curves of correlated noise from those of its high frequencies alone.

    Either the flattest blocks tell what these lack, or the variance is measured at the frequencies
    where most of the noise is. The picture's own details add to one at high frequencies and to the
    other at the rest, and nothing takes away from either, so the smaller is right.
    """
    factors = own[:, 0, 0]
    spectra = [block_spectrum(one / one[0, 0], SIDE) for one in own]
    return [
        min(high.times(factor), most, key=lambda curve: float(curve.bend(blocks.mean).mean()))
        for high, factor, most, blocks in zip(
            curves,
            factors,
            _curves(picture, spectra, least),
            picture.blocks(SIDE, STEP),
            strict=True,
        )
    ]


def _outliers(picture: _Picture, curves: list[Curve], factors: list[float], step: float) -> Mask:
    found = np.zeros(picture.values.shape, bool)
    for channel, (curve, factor) in enumerate(zip(curves, factors, strict=True)):
        found[..., channel] = find_outliers(
            picture.values[..., channel],
            picture.known[..., channel],
            _Scaled(curve.line, factor, step**2 / 12),
            curve.line.gain,
        )
    return found


def _without(picture: _Picture, outliers: Mask, curves: list[Curve], step: float) -> _Picture:
    """The picture with outliers filled in, and the levels that the rest is clipped at."""
    values, known = picture.values.copy(), picture.known.copy()
    levels = []
    for channel, curve in enumerate(curves):
        here, there = picture.values[..., channel], picture.known[..., channel]
        values[..., channel], known[..., channel] = filled(here, there, outliers[..., channel])
        deviation = float(np.sqrt(np.median(curve.variance)))
        left = here[there & ~outliers[..., channel]]
        levels.append(clipping_levels(left, deviation, step, curve.line.gain))
    return _Picture(values, known, tuple(levels))


def _flattest(picture: _Picture, curves: list[Curve]) -> Flattest | None:
    """What the flattest large blocks show; None if there are too few."""
    sets = picture.blocks(noise_correlation.SIDE, noise_correlation.STEP)
    common = np.logical_and.reduce([blocks.usable for blocks in sets])
    if common.sum() < noise_correlation.FLATTEST:
        return None
    variances = [curve.bend(blocks.mean) for curve, blocks in zip(curves, sets, strict=True)]
    return measure_flattest(sets, variances)


def _correlation(
    cross: Array, flattest: Flattest, curves: list[Curve]
) -> tuple[Array | None, Array | None, str]:
    """Covariances of pairs of channels at lags, and correlations at lag zero; a note.

    Either is None if values are independent. Covariances are relative to the variances so far.
    """
    typical = _own(unit_variance(cross)).mean(0)
    middle, high, highest = flattest.high_powers
    falls = middle > FALLS * (high + highest) / 2
    if max(abs(typical[1, 0]), abs(typical[0, 1])) < LEAST_CORRELATION or not falls:
        return None, _unless_apart(flattest.between_high), ""
    if 1 <= high / highest < min((middle / high) ** STILL_FALLING, LEVELLED):
        return None, None, TEXTURE_EVERYWHERE
    small = block_spectrum(typical, SIDE)
    measured, choosing = split_frequencies(np.ones((SIDE, SIDE)))
    expected = small[choosing].mean() / small[measured].mean()
    seen = float(np.mean([curve.ratio for curve in curves]))
    if expected > seen * (TEXTURED + TEXTURED_PER_LAG * (len(typical) - 4)):
        return None, None, TEXTURE_EVERYWHERE
    between = _unless_apart(unit_variance(cross)[..., 0, 0])
    if between is None:
        cross = cross * np.eye(len(cross))[..., None, None]
    return cross, between, ""


def _own(cross: Array) -> Array:
    """Correlations of each channel with itself."""
    return np.asarray(cross[range(len(cross)), range(len(cross))])


def _unless_apart(between: Array) -> Array | None:
    apart = np.abs(between - np.eye(len(between))).max() < LEAST_BETWEEN_CHANNELS
    return None if apart else between


def _law(
    curves: list[Curve],
    picture: _Picture,
    step: float,
    least: float,
    correlated: bool,
    hardly_any: float,
) -> Noise:
    """Gain, pedestal and read variance of each channel, by the rule of this module."""
    least_growth = LEAST_GROWTH_CORRELATED if correlated else LEAST_GROWTH
    grows = []
    for curve in curves:
        line, low, high = curve.line, curve.signal[0], curve.signal[-1]
        middle = line.gain * (low + high) / 2 + line.intercept
        growth = line.gain * (high - low) / max(middle, least)
        significant = line.gain > SIGNIFICANT * line.gain_error
        # Clipping makes a curve fall as well, so that of independent noise need not rise.
        straight = curve.bend.rises or not correlated
        grows.append(growth > least_growth and significant and straight)
    # Channels are of one instrument: it takes half of them to call noise signal-dependent.
    signal_dependent = 2 * sum(grows) >= len(grows)
    gains, offsets, reads = [], [], []
    for channel, (curve, growing) in enumerate(zip(curves, grows, strict=True)):
        line = curve.line
        if signal_dependent and growing:
            rounding = 0.0 if of_photons(step, line.gain) else step**2 / 12
            gains.append(line.gain)
            reads.append(rounding)
            offsets.append((rounding - line.intercept) / line.gain)
        else:
            gains.append(0.0)
            offsets.append(0.0)
            known = picture.known[..., channel]
            mean = curve.bend(picture.values[..., channel][known]).mean()
            reads.append(float(mean) if correlated else max(curve.level, 0.0))
    bins = min(len(curve.signal) for curve in curves)
    thinned = [np.linspace(0, len(curve.signal) - 1, bins).round().astype(int) for curve in curves]
    signal = np.stack([curve.signal[at] for curve, at in zip(curves, thinned, strict=True)])
    variance = np.stack([curve.variance[at] for curve, at in zip(curves, thinned, strict=True)])
    if np.median(variance) < max(ABOVE_ROUNDING * step**2 / 12, 2 * least, hardly_any):
        return _untold("there is hardly any noise")

    def one_or_each(numbers: list[float]) -> float | tuple[float, ...]:
        return numbers[0] if len(numbers) == 1 else tuple(numbers)

    return Noise(
        gain=one_or_each(gains),
        offset=one_or_each(offsets),
        read_variance=one_or_each(reads),
        curve_signal=signal,
        curve_variance=variance,
    )
