"""Make the noise of an image white and of unit variance; undo that once the image is restored.

Two steps, each of which is left out where the noise does not need it:

- *Stabilise*: photons make noise that grows with the signal. The generalised Anscombe transform
  gives it the same variance everywhere. It is undone by the exact unbiased inverse (Mäkitalo and
  Foi, 2013): the value whose *expected* transform is the one at hand, since the transform of an
  expectation is not the expectation of the transform, above all where photons are few.
- *Whiten*: multiply the spectrum by the inverse square root of that of the noise, at each frequency
  a matrix over channels. A stationary filter for the whole image does for every patch what its own
  C^(-1/2) would.

A model of white noise then fits, and costs what it always costs.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from evoem.images.distributions import poisson_probabilities
from evoem.images.noise_model import Noise

Array = NDArray[np.float64]
Spectrum = NDArray[np.float64 | np.complex128]

# Expected transforms are tabulated up to so many photons; from there on an expansion is exact.
MANY_PHOTONS = 60.0
TABLE = 400
QUADRATURE = 24
FIXED_POINT_STEPS = 4
# Restored values of fewer photons are taken to have the noise of so many: there is always some.
LEAST_PHOTONS = 0.1
# Deviations of fewer photons are those of so many: the transform is flat there, and hides errors.
LEAST_PHOTONS_OF_DEVIATIONS = 0.5
# Frequencies at which there is less noise than this share of its mean are whitened no further: what
# would be divided by is mostly the error of the estimate.
LEAST_POWER = 1e-2
# Powers of the triangle that correlations are tapered by, and frequencies along each axis at which
# it is seen whether that makes them positive.
TAPERS, GRID = (0.0, 0.25, 0.5, 0.75, 1.0), 32
# Rows of frequencies whose roots are taken at once, which bounds the memory for large images.
ROWS_AT_ONCE = 64
# Correlated noise is told less exactly. What is left of it once it should be white is measured
# again, and taken to be up to so many times as large as it should be.
LARGEST_LEVEL = 3.0
# Standard deviation that white noise is held at or above if it was correlated: some of that is
# left, which a dictionary would learn. And if JPEG had taken noise away, more from where the
# picture is flat, by which noise is measured, than from beside its details.
CORRELATED_FLOOR, COMPRESSED_FLOOR = 1.1, 1.4
# Errors of whitened values are not white themselves: most are at low frequencies, where correlated
# noise has its power. Back in the image's units they are about so many times as large as deviations
# of independent errors would be (2.0 to 2.2 where the true ones are known).
CORRELATED_SPREAD = 2.0
# Median of the absolute value of a standard normal variable.
MEDIAN_OF_ABSOLUTE = 0.6745
# Pixels that an image is mirrored by at its edges before it is filtered.
FRAME = 16


class Law(NamedTuple):
    """The variance of a channel's noise: gain · (m − offset) + read variance."""

    gain: float
    offset: float
    read_variance: float


def stabilise(values: Array, law: Law) -> Array:
    """Values whose noise has unit variance."""
    gain, offset, read_variance = law
    if gain == 0:
        return np.asarray(values / np.sqrt(read_variance), np.float64)
    photons = gain * (values - offset) + 0.375 * gain**2 + read_variance
    stable: Array = 2 / gain * np.sqrt(np.maximum(photons, 0.0))
    return stable


def expected_transforms(photons: Array, law: Law) -> Array:
    """Expectation of `stabilise` for so many photons, and read noise."""
    spread = np.sqrt(law.read_variance) / law.gain
    nodes, weights = np.polynomial.hermite_e.hermegauss(QUADRATURE)
    counts = np.arange(int(MANY_PHOTONS + 12 * np.sqrt(MANY_PHOTONS)) + 1)
    inside = counts[:, None] + spread * nodes + 0.375 + spread**2
    each = 2 * np.sqrt(np.maximum(inside, 0.0)) @ (weights / weights.sum())
    expected: Array = poisson_probabilities(counts, photons[:, None]) @ each
    return expected


def table_of_few(law: Law) -> tuple[Array, Array]:
    """Numbers of photons, few of them, and their expected transforms."""
    photons = np.concatenate([[0.0], np.geomspace(1e-3, MANY_PHOTONS, TABLE)])
    return photons, expected_transforms(photons, law)


def beside_square(stable: Array, law: Law) -> Array:
    """What is to be added to a quarter of the square of an expected transform of many photons."""
    root = np.sqrt(1.5)
    expansion: Array = root / 4 / stable - 11 / 8 / stable**2 + 5 * root / 8 / stable**3
    return expansion - 1 / 8 - law.read_variance / law.gain**2


def unstabilise(stable: Array, law: Law) -> Array:
    """Expectations whose expected transforms are these: the exact unbiased inverse."""
    if law.gain == 0:
        return np.asarray(stable * np.sqrt(law.read_variance), np.float64)
    photons, expected = table_of_few(law)
    many = np.maximum(stable, expected[-1])
    few = np.interp(stable, expected, photons)
    found = np.where(stable > expected[-1], many**2 / 4 + beside_square(many, law), few)
    return np.asarray(law.offset + law.gain * found, np.float64)


def expected_stable(values: Array, law: Law) -> Array:
    """Expected transforms of these expectations: the way back from `unstabilise`."""
    if law.gain == 0:
        return np.asarray(values / np.sqrt(law.read_variance), np.float64)
    photons = np.maximum((values - law.offset) / law.gain, 0.0)
    few = np.interp(photons, *table_of_few(law))
    many = 2 * np.sqrt(np.maximum(photons, MANY_PHOTONS))
    for _ in range(FIXED_POINT_STEPS):
        many = 2 * np.sqrt(np.maximum(photons, MANY_PHOTONS) - beside_square(many, law))
    return np.where(photons > MANY_PHOTONS, many, few)


class NoiseTransform:
    """To white noise of unit variance and back, for one image.

    `values` are (rows, columns, channels) in the image's own units. Of independent noise they may
    be some rows, if the `typical_variance` of the noise in all of them is given.
    """

    def __init__(self, noise: Noise, values: Array, typical_variance: float | None = None) -> None:
        n_channels = values.shape[2]
        columns = (
            np.broadcast_to(np.asarray(value, np.float64), (n_channels,))
            for value in (noise.gain, noise.offset, noise.read_variance)
        )
        self.noise = noise
        self.laws = [Law(*map(float, law)) for law in zip(*columns, strict=True)]
        if typical_variance is None:
            typical_variance = float(noise.variance(values).mean())
        self.typical_deviation = float(np.sqrt(typical_variance))
        self._roots = None
        if noise.kind.startswith("correlated"):
            shape = (values.shape[0] + 2 * FRAME, values.shape[1] + 2 * FRAME)
            self._roots = spectral_roots(positive(cross_correlation(noise, n_channels)), shape)
        self._levels = np.ones(n_channels)
        if self.correlated:
            self._levels = np.clip(noise_levels(self._white(values)), 1.0, LARGEST_LEVEL)

    @property
    def correlated(self) -> bool:
        """Whether neighbours or channels were."""
        return self._roots is not None

    @property
    def floor(self) -> float:
        """Standard deviation below which the white noise is known not to lie."""
        if not self.correlated:
            return 1.0
        return COMPRESSED_FLOOR if self.noise.compressed else CORRELATED_FLOOR

    def forward(self, values: Array) -> Array:
        """The image with white noise."""
        return self._white(values) / self._levels

    def _white(self, values: Array) -> Array:
        pairs = zip(np.moveaxis(values, 2, 0), self.laws, strict=True)
        stable = np.stack([stabilise(channel, law) for channel, law in pairs], axis=2)
        return stable if self._roots is None else filtered(stable, self._roots.inverse)

    def backward(self, white: Array) -> Array:
        """The restored image in its own units."""
        white = white * self._levels
        if self._roots is not None:
            white = filtered(white, self._roots.root)
        pairs = zip(np.moveaxis(white, 2, 0), self.laws, strict=True)
        return np.stack([unstabilise(channel, law) for channel, law in pairs], axis=2)

    def expected(self, values: Array) -> Array:
        """The way back from `backward`, of independent noise."""
        pairs = zip(np.moveaxis(values, 2, 0), self.laws, strict=True)
        return np.stack([expected_stable(channel, law) for channel, law in pairs], axis=2)

    def variances(self, restored: Array) -> Array:
        """Of the noise of each value."""
        return self._variances(restored, LEAST_PHOTONS)

    def _variances(self, restored: Array, least_photons: float) -> Array:
        gains = np.array([law.gain for law in self.laws])
        return np.maximum(self.noise.variance(restored), least_photons * gains**2)

    def deviations(self, std: Array, restored: Array) -> Array:
        """Standard deviations in the image's units, of those in units of the noise."""
        spread = CORRELATED_SPREAD if self.correlated else 1.0
        deviation = np.sqrt(self._variances(restored, LEAST_PHOTONS_OF_DEVIATIONS))
        return np.asarray(spread * std * deviation)


def noise_levels(white: Array) -> Array:
    """Standard deviation of white noise in each channel, by differences across both axes, most of
    which hold little else."""
    crossed = np.diff(np.diff(white, axis=0), axis=1) / 2
    levels: Array = np.median(np.abs(crossed), axis=(0, 1)) / MEDIAN_OF_ABSOLUTE
    return levels


class Roots(NamedTuple):
    """Square roots of the noise's spectrum, and their inverses, for each frequency of `rfft2`.

    They are matrices over channels, (rows, columns // 2 + 1, channels, channels).
    """

    root: Spectrum
    inverse: Spectrum


def cross_correlation(noise: Noise, n_channels: int) -> Array:
    """Correlation of each channel with each at lags, (channels, channels, rows, columns)."""
    if noise.cross_correlation is not None:
        return noise.cross_correlation
    space = np.ones((1, 1)) if noise.correlation is None else noise.correlation
    between = noise.channel_correlation
    channels = np.eye(n_channels) if between is None else between
    return np.asarray(channels[:, :, None, None] * space)


def positive(cross: Array) -> Array:
    """Correlations, tapered towards the outer lags as mildly as makes their spectrum positive.

    Those that are cut off at some lag are of no noise at all: there are frequencies at which its
    power would be negative. The strongest taper is a triangle.
    """
    frequencies = fft.fftfreq(GRID)
    for power in TAPERS:
        tapered = cross * np.multiply.outer(*(_triangle(size) ** power for size in cross.shape[2:]))
        if np.linalg.eigvalsh(spectrum(tapered, frequencies, frequencies)).min() >= LEAST_POWER:
            break
    return np.asarray(tapered)


def _triangle(size: int) -> Array:
    half = size // 2
    return np.asarray(1 - np.abs(np.arange(size) - half) / (half + 1))


def spectrum(cross: Array, rows: Array, columns: Array) -> Spectrum:
    """Of noise with these correlations, Hermitian matrices at frequencies (in cycles a pixel)."""
    n_rows, n_columns = cross.shape[2:]
    along_rows = np.exp(2j * np.pi * np.outer(rows, np.arange(n_rows) - n_rows // 2))
    along_columns = np.exp(2j * np.pi * np.outer(columns, np.arange(n_columns) - n_columns // 2))
    found = np.einsum("ri,abij,cj->rcab", along_rows, cross, along_columns, optimize=True)
    same_at_opposite_lags = np.allclose(cross, cross[..., ::-1, ::-1], atol=1e-12)
    return np.asarray(found.real if same_at_opposite_lags else found)


def spectral_roots(cross: Array, shape: tuple[int, int]) -> Roots:
    """Symmetric roots; nowhere has the noise less than LEAST_POWER of its mean."""
    parts = []
    columns = fft.rfftfreq(shape[1])
    for rows in np.array_split(fft.fftfreq(shape[0]), -(-shape[0] // ROWS_AT_ONCE)):
        powers, vectors = np.linalg.eigh(spectrum(cross, rows, columns))
        roots = np.sqrt(np.maximum(powers, LEAST_POWER))[..., None, :]
        adjoint = np.conj(np.swapaxes(vectors, -1, -2))
        parts.append(((vectors * roots) @ adjoint, (vectors / roots) @ adjoint))
    root, inverse = (np.concatenate(each) for each in zip(*parts, strict=True))
    return Roots(root, inverse)


def filtered(values: Array, matrices: Spectrum) -> Array:
    """Values with their spectrum multiplied by a matrix over channels, mirrored at the edges."""
    framed = np.pad(values, [(FRAME, FRAME), (FRAME, FRAME), (0, 0)], mode="symmetric")
    coefficients = fft.rfft2(framed, axes=(0, 1))
    multiplied = (matrices @ coefficients[..., None])[..., 0]
    inside = slice(FRAME, -FRAME)
    found: Array = fft.irfft2(multiplied, framed.shape[:2], axes=(0, 1))[inside, inside]
    return found
