"""Make the noise of an image white and of unit variance; undo that once the image is restored.

Three steps, each of which is left out where the noise does not need it:

- *Stabilise*: photons make noise that grows with the signal. The generalised Anscombe transform
  gives it the same variance everywhere. It is undone by the exact unbiased inverse (Mäkitalo and
  Foi, 2013): the value whose *expected* transform is the one at hand, since the transform of an
  expectation is not the expectation of the transform, above all where photons are few.
- *Decorrelate channels* by the inverse square root of their correlation.
- *Whiten*: divide the spectrum by the square root of that of the noise. A stationary filter for the
  whole image does for every patch what its own C^(-1/2) would.

A model of white noise then fits, and costs what it always costs.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import fft, stats

from evoem.images.noise_model import Noise

Array = NDArray[np.float64]

# Expected transforms are tabulated up to so many photons; from there on an expansion is exact.
MANY_PHOTONS = 60.0
TABLE = 400
QUADRATURE = 24
# Frequencies at which there is less noise than this share of its mean are whitened no further: what
# would be divided by is mostly the error of the estimate.
LEAST_POWER = 1e-2
LEAST_EIGENVALUE = 1e-2
# Correlated noise is told less exactly. What is left of it once it should be white is measured
# again, and taken to be up to so many times as large as it should be.
LARGEST_LEVEL = 3.0
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
    expected: Array = stats.poisson.pmf(counts, photons[:, None]) @ each
    return expected


def unstabilise(stable: Array, law: Law) -> Array:
    """Expectations whose expected transforms are these: the exact unbiased inverse."""
    gain, offset, read_variance = law
    if gain == 0:
        return np.asarray(stable * np.sqrt(read_variance), np.float64)
    photons = np.concatenate([[0.0], np.geomspace(1e-3, MANY_PHOTONS, TABLE)])
    expected = expected_transforms(photons, law)
    many = np.maximum(stable, expected[-1])
    root = np.sqrt(1.5)
    expansion = many**2 / 4 + root / 4 / many - 11 / 8 / many**2 + 5 * root / 8 / many**3
    expansion -= 1 / 8 + read_variance / gain**2
    few = np.interp(stable, expected, photons)
    photons = np.where(stable > expected[-1], expansion, few)
    return np.asarray(offset + gain * photons, np.float64)


class NoiseTransform:
    """To white noise of unit variance and back, for one image.

    `values` are (rows, columns, channels) in the image's own units.
    """

    def __init__(self, noise: Noise, values: Array) -> None:
        n_channels = values.shape[2]
        columns = (
            np.broadcast_to(np.asarray(value, np.float64), (n_channels,))
            for value in (noise.gain, noise.offset, noise.read_variance)
        )
        self.noise = noise
        self.laws = [Law(*map(float, law)) for law in zip(*columns, strict=True)]
        self.typical_deviation = float(np.sqrt(noise.variance(values).mean()))
        self._roots = None
        if noise.channel_correlation is not None:
            eigenvalues, vectors = np.linalg.eigh(noise.channel_correlation)
            roots = np.sqrt(np.maximum(eigenvalues, LEAST_EIGENVALUE))
            self._roots = (vectors / roots) @ vectors.T, (vectors * roots) @ vectors.T
        self._amplitude = None
        if noise.correlation is not None:
            rows, columns_ = (length + 2 * FRAME for length in values.shape[:2])
            self._amplitude = np.sqrt(power_spectrum(noise.correlation, (rows, columns_)))
        self._levels = np.ones(n_channels)
        if self.correlated:
            self._levels = np.clip(noise_levels(self._white(values)), 1.0, LARGEST_LEVEL)

    @property
    def correlated(self) -> bool:
        """Whether neighbours or channels were."""
        return self._amplitude is not None or self._roots is not None

    def forward(self, values: Array) -> Array:
        """The image with white noise."""
        return self._white(values) / self._levels

    def _white(self, values: Array) -> Array:
        pairs = zip(np.moveaxis(values, 2, 0), self.laws, strict=True)
        stable = np.stack([stabilise(channel, law) for channel, law in pairs], axis=2)
        if self._roots is not None:
            stable = stable @ self._roots[0]
        if self._amplitude is not None:
            stable = filtered(stable, 1 / self._amplitude)
        return stable

    def backward(self, white: Array) -> Array:
        """The restored image in its own units."""
        white = white * self._levels
        if self._amplitude is not None:
            white = filtered(white, self._amplitude)
        if self._roots is not None:
            white = white @ self._roots[1]
        pairs = zip(np.moveaxis(white, 2, 0), self.laws, strict=True)
        return np.stack([unstabilise(channel, law) for channel, law in pairs], axis=2)

    def deviations(self, std: Array, restored: Array) -> Array:
        """Standard deviations in the image's units, of those in units of the noise."""
        return std * np.sqrt(self.noise.variance(restored))


def noise_levels(white: Array) -> Array:
    """Standard deviation of white noise in each channel, by differences across both axes, most of
    which hold little else."""
    crossed = np.diff(np.diff(white, axis=0), axis=1) / 2
    levels: Array = np.median(np.abs(crossed), axis=(0, 1)) / MEDIAN_OF_ABSOLUTE
    return levels


def power_spectrum(correlation: Array, shape: tuple[int, int]) -> Array:
    """Of noise with this autocorrelation, its mean being one; nowhere less than LEAST_POWER."""
    rows, columns = (length // 2 for length in correlation.shape)
    lags = np.zeros(shape)
    lags[: 2 * rows + 1, : 2 * columns + 1] = correlation
    spectrum = fft.fft2(np.roll(lags, (-rows, -columns), (0, 1))).real
    return np.maximum(spectrum, LEAST_POWER)


def filtered(values: Array, amplitudes: Array) -> Array:
    """Values with their spectrum multiplied, mirrored at the edges."""
    framed = np.pad(values, [(FRAME, FRAME), (FRAME, FRAME), (0, 0)], mode="symmetric")
    spectrum = fft.fft2(framed, axes=(0, 1)) * amplitudes[..., None]
    inside = slice(FRAME, -FRAME)
    found: Array = fft.ifft2(spectrum, axes=(0, 1)).real[inside, inside]
    return found
