"""What is done about the noise of an image before its patches are learnt from.

White Gaussian noise needs nothing: its level is learnt with the dictionary. Other noise is told
from the image (`noise_estimation`) or given, and the image is transformed so that it becomes white
and of unit variance (`noise_transform`); values that are no measurements count as missing.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evoem.images import canonical_arrays
from evoem.images.canonical_arrays import Canonical
from evoem.images.noise_estimation import estimate
from evoem.images.noise_model import Noise
from evoem.images.noise_outliers import filled
from evoem.images.options import NOISES
from evoem.validation import choice

# Images of fewer rows or columns say too little about their noise.
SMALLEST = 96
# Of images with more rows or columns the middle is looked at, and outliers are not looked for: it
# would take long, and much memory.
LARGEST = 1400
# Noise of a smaller standard deviation than this share of the image's contrast is left to the
# model: it may as well be what the image shows. Details are taken for outliers more easily.
LEAST_NOISE = 0.004
LEAST_NOISE_BESIDE_OUTLIERS = 0.012
# Percentiles between which contrast is measured.
CONTRAST = (1, 99)
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


def prepare(canonical: Canonical, wanted: str | Noise, keep_observed: bool) -> Prepared:
    """The image with white noise, by noise that is given or told from the image.

    With `keep_observed` values are without noise that matters, and nothing is done.
    """
    variance = canonical.noise_variance
    if variance is not None and wanted != "auto":
        raise ValueError(f"noise must be 'auto' beside noise_variance; got {wanted!r}.")
    if wanted == "gaussian" or keep_observed or canonical_arrays.is_constant(canonical):
        return Prepared(canonical, wanted if isinstance(wanted, Noise) else None)
    if variance is not None:
        seen = True if canonical.observed is None else canonical.observed
        typical = float(np.mean(variance, where=seen))
        given = Noise(read_variance=typical, notes=("its variance was given for each value",))
        return Prepared(canonical_arrays.with_unit_noise(canonical, variance), given)
    outliers, notes = None, list[str]()
    if isinstance(wanted, Noise):
        noise = wanted
    else:
        if min(canonical.values.shape[:2]) < SMALLEST:
            return Prepared(canonical, None)
        noise, outliers = told(canonical)
        share = share_of_contrast(noise, canonical)
        if not noise.told or share < LEAST_NOISE:
            return Prepared(canonical, noise)
        noise = restricted(noise, wanted)
        if outliers is not None and (
            outliers.mean() < WORTH_TREATING or share < LEAST_NOISE_BESIDE_OUTLIERS
        ):
            outliers = None
    if canonical.observed is not None and noise.correlation is not None:
        notes.append(
            "The noise of neighbours is correlated, which is not taken into account where values "
            "are missing."
        )
        noise = without_correlation(noise)
    if outliers is not None:
        notes.append(f"{np.count_nonzero(outliers)} outliers were treated as missing.")
        canonical = without_outliers(canonical, outliers, noise)
    if noise.kind == "gaussian":
        return Prepared(canonical, noise, tuple(notes))
    return Prepared(canonical_arrays.with_white_noise(canonical, noise), noise, tuple(notes))


def told(canonical: Canonical) -> tuple[Noise, NDArray[np.bool_] | None]:
    """Noise and outliers of an image, or the noise of the middle of a large one."""
    shape = canonical.values.shape[:2]
    if max(shape) <= LARGEST:
        return estimate(canonical.pixels(canonical.values), canonical.observed)
    starts = [max(0, (length - LARGEST) // 2) for length in shape]
    middle = canonical_arrays.window(
        canonical, (slice(starts[0], starts[0] + LARGEST), slice(starts[1], starts[1] + LARGEST))
    )
    return estimate(middle.pixels(middle.values), middle.observed)[0], None


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
    values = canonical.values.astype(np.float64)
    everywhere = np.ones(values.shape[:2], np.bool_)
    for channel in range(values.shape[2]):
        there = outliers[..., channel]
        values[..., channel] = filled(values[..., channel], everywhere, there)[0]
    return canonical._replace(values=values.astype(np.float32))
