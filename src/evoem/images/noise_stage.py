"""Deal with the noise of an image before a model learns from its patches.

White Gaussian noise needs nothing: its level is learnt with the dictionary, unless wide areas have
none, which would pull it down. Other noise, and that, is told
from the image (`noise_estimation`) or given, and the image is transformed so that it becomes white
and of unit variance (`noise_transform`); values that are no measurements count as missing.
"""

import math
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evoem.images import canonical_arrays
from evoem.images.canonical_arrays import Canonical
from evoem.images.noise_estimation import estimate, much_is_of_one_value
from evoem.images.noise_model import Noise
from evoem.images.noise_outliers import filled, find_outliers
from evoem.images.noise_transform import LEAST_PHOTONS
from evoem.images.options import NOISES
from evoem.runtime.threads import split
from evoem.validation import choice

# Images of fewer rows or columns say too little about their noise.
SMALLEST = 96
# Noise of a smaller standard deviation than this share of the image's contrast is left to the
# model: it may as well be what the image shows. Details are taken for outliers more easily.
LEAST_NOISE = 0.004
LEAST_NOISE_BESIDE_OUTLIERS = 0.012
# Percentiles between which contrast is measured.
CONTRAST = (1, 99)
# Values that noise is told from: of a larger image tiles of some pixels from all over it. Then
# outliers are looked for in strips as high, with so many rows around.
LARGEST, TILE, AROUND = 1 << 22, 256, 8
# Share of outliers from which they are treated as missing: some are found by chance.
WORTH_TREATING = 1e-3


class Prepared(NamedTuple):
    """An image whose noise suits the models, and what is known of it."""

    canonical: Canonical
    noise: Noise | None  # None if it was not looked for
    notes: tuple[str, ...] = ()


def check(wanted: str | Noise) -> None:
    """Refuse what says nothing about noise."""
    if not isinstance(wanted, Noise):
        choice("noise", wanted, NOISES)


class Found(NamedTuple):
    """What noise an image has, or several that were taken by the same instrument."""

    noise: Noise | None  # None if it was not looked for
    matters: bool = False  # whether anything is done about it
    outliers: NDArray[np.bool_] | None = None  # if there are enough of them
    wide_areas: bool = False  # whether there are some of one value, without noise


def find(canonical: Canonical, wanted: str | Noise) -> Found:
    """The noise of an image, as it is given or told from it."""
    if isinstance(wanted, Noise):
        return Found(wanted, matters=True)
    if min(canonical.shape[:2]) < SMALLEST:
        return Found(None)
    seen = to_be_told_from(canonical)
    noise, outliers = estimate(seen.pixels(seen.values), seen.observed)
    share = share_of_contrast(noise, seen)
    if not noise.told or share < LEAST_NOISE:
        return Found(noise)
    noise, wide_areas = restricted(noise, wanted), much_is_of_one_value(seen.values, seen.observed)
    if outliers.mean() < WORTH_TREATING or share < LEAST_NOISE_BESIDE_OUTLIERS:
        return Found(noise, True, None, wide_areas)
    if seen.values.shape != canonical.shape:
        return Found(noise, True, outliers_by_strips(canonical, noise), wide_areas)
    return Found(noise, True, outliers[canonical.band.rows], wide_areas)


def outliers_of(canonical: Canonical, noise: Noise) -> NDArray[np.bool_]:
    """Outliers of one of several images that have this noise, which no process shares."""
    if canonical.values.size > LARGEST:
        return outliers_by_strips(canonical, noise)
    return estimate(canonical.pixels(canonical.values), canonical.observed)[1]


def is_left_alone(canonical: Canonical, wanted: str | Noise, keep_observed: bool) -> bool:
    """Whether no noise is looked for."""
    return wanted == "gaussian" or keep_observed or canonical_arrays.is_constant(canonical)


def prepare(
    canonical: Canonical, wanted: str | Noise, keep_observed: bool, shared: Found | None = None
) -> Prepared:
    """The image with white noise, by noise that is given or told from the image.

    With `keep_observed` values are without noise that matters, and nothing is done. Noise that an
    image shares with others is not looked for again, but for outliers.
    """
    variance = canonical.noise_variance
    if canonical.implausible_alone and variance is None and not keep_observed:
        canonical = without_implausible(canonical)
    if variance is not None and wanted != "auto":
        raise ValueError(f"noise must be 'auto' beside noise_variance; got {wanted!r}.")
    if is_left_alone(canonical, wanted, keep_observed):
        return Prepared(canonical, wanted if isinstance(wanted, Noise) else None)
    if variance is not None:
        typical = canonical.band.mean(variance, canonical.observed)
        given = Noise(read_variance=typical, notes=("its variance was given for each value",))
        return Prepared(canonical_arrays.with_unit_noise(canonical, variance), given)
    found = find(canonical, wanted) if shared is None else shared
    noise, outliers, notes = found.noise, found.outliers, list[str]()
    if noise is None or not found.matters:
        return Prepared(canonical, noise, not_told(noise))
    if shared is not None and outliers is not None:
        outliers = outliers_of(canonical, noise)
    if canonical.observed is not None and noise.correlation is not None:
        notes.append(
            "The noise is correlated between neighbours; this is ignored because values are "
            "missing."
        )
        noise = without_correlation(noise)
    if outliers is not None:
        notes.append(f"{canonical.band.count(outliers)} outliers were treated as missing.")
        canonical = without_outliers(canonical, outliers, noise)
    if noise.kind == "gaussian" and not found.wide_areas:
        return Prepared(canonical, noise, tuple(notes))
    return Prepared(canonical_arrays.with_white_noise(canonical, noise), noise, tuple(notes))


def not_told(noise: Noise | None) -> tuple[str, ...]:
    """A note if the noise of an image was looked for and could not be told."""
    if noise is None or noise.told:
        return ()
    reason = "; ".join(noise.notes)
    return (f"The noise could not be estimated and was assumed to be white: {reason}.",)


def to_be_told_from(canonical: Canonical) -> Canonical:
    """An image, in every process; of a large one tiles from all over it, beside each other.

    They keep their place in blocks of eight pixels, which compression leaves its marks in.
    """
    rows, columns, channels = canonical.shape
    if rows * columns * channels <= LARGEST:
        return canonical_arrays.everywhere(canonical)
    side = math.isqrt(LARGEST // channels)
    tops, lefts = (
        np.linspace(0, length - TILE, max(1, min(side, length) // TILE)).astype(int) // 8 * 8
        for length in (rows, columns)
    )
    across = (lefts[:, None] + np.arange(TILE)).ravel()
    parts = []
    for top in tops.tolist():
        strip = canonical_arrays.window(canonical, np.s_[top : top + TILE, :])
        values, observed = strip.values[:, across], strip.observed
        part = strip._replace(
            values=values,
            observed=None if observed is None else observed[:, across],
            observed_as_given=None,
        )
        parts.append(canonical_arrays.everywhere(part))
    values = np.concatenate([part.values for part in parts])
    masks = [part.observed for part in parts if part.observed is not None]
    return canonical._replace(
        values=values, observed=np.concatenate(masks) if masks else None, shared=None
    )


def outliers_by_strips(canonical: Canonical, noise: Noise) -> NDArray[np.bool_]:
    """Outliers of a large image, strip by strip, in the rows of this process."""
    n_rows, _, channels = canonical.shape
    band, observed = canonical.band, canonical.observed
    near = [
        slice(
            max(own.start // TILE * TILE - AROUND, 0),
            min(-(-own.stop // TILE) * TILE + AROUND, n_rows),
        )
        for own in band.own
    ]
    first = near[band.comm.rank].start
    pixels = band.fetch(canonical.pixels(canonical.values), near)
    known = np.ones(pixels.shape, np.bool_) if observed is None else band.fetch(observed, near)
    laws = [
        np.broadcast_to(value, channels).tolist()
        for value in (noise.gain, noise.offset, noise.read_variance)
    ]
    found = np.zeros(canonical.values.shape, np.bool_)
    for strip in split(n_rows, TILE):
        mine = slice(max(strip.start, band.rows.start), min(strip.stop, band.rows.stop))
        if mine.start >= mine.stop:
            continue
        above = max(strip.start - AROUND, 0)
        part = slice(above - first, min(strip.stop + AROUND, n_rows) - first)
        inside = slice(mine.start - above, mine.stop - above)
        target = slice(mine.start - band.rows.start, mine.stop - band.rows.start)
        for channel, law in enumerate(zip(*laws, strict=True)):
            there = find_outliers(
                pixels[part, :, channel],
                known[part, :, channel],
                partial(_variance, *law),
                law[0],
            )
            found[target, :, channel] = there[inside]
    return found


def _variance(
    gain: float, offset: float, read_variance: float, signal: NDArray[np.float64]
) -> NDArray[np.float64]:
    variance = gain * np.maximum(signal - offset, 0) + read_variance
    return np.maximum(variance, LEAST_PHOTONS * gain**2)


def share_of_contrast(noise: Noise, canonical: Canonical) -> float:
    """Standard deviation of noise relative to the contrast of an image."""
    pixels = canonical.pixels(canonical.values)
    seen = pixels if canonical.observed is None else pixels[canonical.observed]
    low, high = np.percentile(seen, CONTRAST)
    deviation = float(np.sqrt(noise.variance(pixels).mean()))
    return deviation / float(high - low) if high > low else np.inf


def restricted(noise: Noise, kind: str) -> Noise:
    """Noise of the kind that is asked for."""
    return without_correlation(noise) if kind == "poisson-gaussian" else noise


def without_correlation(noise: Noise) -> Noise:
    """The same with independent neighbours and channels."""
    return noise.with_correlation(None, None)


def without_outliers(canonical: Canonical, outliers: NDArray[np.bool_], noise: Noise) -> Canonical:
    """Outliers are missing; where neighbours are correlated they are filled in, to be filtered."""
    if noise.correlation is None:
        return canonical_arrays.without(canonical, outliers)
    return canonical._replace(values=filled_in(canonical, outliers)[0])


def without_implausible(canonical: Canonical) -> Canonical:
    """Few values that no picture has are filled in: an image is learnt in another way, and not as
    well, if something is missing. They stay missing where too little is around them.
    """
    if canonical.observed is None:
        return canonical
    values, known = filled_in(canonical, ~canonical.observed)
    if canonical.band.any(not known.all())[0]:
        return canonical
    return canonical._replace(values=values, observed=None, observed_as_given=None)


def filled_in(
    canonical: Canonical, outliers: NDArray[np.bool_]
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Values with medians of what is around in place of outliers, and where there is one."""
    band = canonical.band
    near = [slice(max(own.start - 1, 0), min(own.stop + 1, band.n_rows)) for own in band.own]
    values = band.fetch(canonical.values, near).astype(np.float64)
    outliers = band.fetch(outliers, near)
    known = np.ones(values.shape, np.bool_)
    everywhere = known[..., 0].copy()
    for channel in range(values.shape[2]):
        there = outliers[..., channel]
        values[..., channel], known[..., channel] = filled(values[..., channel], everywhere, there)
    first = band.rows.start - near[band.comm.rank].start
    own = slice(first, first + len(canonical.values))
    return values[own].astype(np.float32), known[own]
