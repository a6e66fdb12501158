"""Noise with a given variance for each value, as in the error planes of FITS and MRI."""

from copy import copy
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter

Array = NDArray[np.float64]

# Width, in pixels, of the first guess of the image that deviations are taken from.
PILOT = 2.0


class VarianceMap:
    """To noise of unit variance and back, for one image with a variance for each value.

    Dividing values by their deviations would print the map into the image. Only what is left beside
    a smooth first guess m is divided: z = (m − m̄) / s̄ + (y − m) / s, where s̄ is a typical
    deviation and m̄ the mean. Values of infinite variance are missing, and have none.
    """

    correlated = False
    floor = 1.0  # standard deviation below which the white noise is known not to lie

    def __init__(self, variance: Array, values: Array, observed: NDArray[np.bool_] | None) -> None:
        seen = np.ones(values.shape, np.bool_) if observed is None else observed
        typical = float(np.median(variance[seen]))
        self.typical_deviation = float(np.sqrt(typical))
        self._deviation = np.sqrt(np.where(seen, variance, typical))
        self._pilot = pilot(values, np.where(seen, typical / variance, 0.0))
        self._typical = (self._pilot - self._pilot.mean()) / self.typical_deviation

    def rows(self, rows: slice) -> Self:
        """The same for some rows of the image."""
        other = copy(self)
        other._deviation, other._pilot = self._deviation[rows].copy(), self._pilot[rows].copy()
        other._typical = self._typical[rows].copy()
        return other

    def forward(self, values: Array) -> Array:
        """The image with noise of unit variance."""
        return np.asarray(self._typical + (values - self._pilot) / self._deviation)

    def backward(self, white: Array) -> Array:
        """The restored image in its own units."""
        return np.asarray(self._pilot + self._deviation * (white - self._typical))

    def expected(self, values: Array) -> Array:
        """The way back from `backward`."""
        return self.forward(values)

    def variances(self, restored: Array) -> Array:
        """Of the noise of each value."""
        return np.asarray(self._deviation**2)

    def deviations(self, std: Array, restored: Array) -> Array:
        """Standard deviations in the image's units, of those in units of the noise."""
        return np.asarray(std * self._deviation)


def pilot(values: Array, precision: Array) -> Array:
    """A smooth guess of the image: means of what is around, weighted by precision."""
    width = (PILOT, PILOT, 0)
    weight = gaussian_filter(precision, width)
    blurred = gaussian_filter(precision * values, width)
    overall = float((precision * values).sum() / precision.sum())
    return np.where(weight > 0, blurred / np.where(weight > 0, weight, 1.0), overall)


def checked(variance: NDArray[Any], shape: tuple[int, ...]) -> tuple[Array, NDArray[np.bool_]]:
    """A variance for each value of (rows, columns, channels), and where it is infinite or NaN."""
    each = np.broadcast_to(variance, shape).astype(np.float64)
    missing = ~np.isfinite(each)
    wrong = ~missing & (each <= 0)
    wrong |= np.isneginf(each)
    if wrong.any():
        raise ValueError(
            "noise_variance must be positive, or infinite or NaN where a value is missing; "
            f"got {each[wrong][0]:g}."
        )
    return each, missing
