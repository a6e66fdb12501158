"""From any image array to (rows, columns, channels) of floats with a mask, and back."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evoem import validation
from evoem.images import noise_map
from evoem.images.noise_map import VarianceMap
from evoem.images.noise_model import Noise
from evoem.images.noise_transform import NoiseTransform

# Single precision is enough for pictures, but not for small differences on a large offset: an image
# whose mean is this many standard deviations from zero is moved nearer to it.
LARGEST_OFFSET = 10.0
USUAL_OFFSET = 3.0
# Values whose standard deviation is outside of this range are measured in units of it, for their
# squares to stay within single precision.
LEAST_DEVIATION, LARGEST_DEVIATION = 1e-6, 1e6


# Standard deviation of noise that was correlated, once it is white: some of the correlation is
# left, which a dictionary would learn.
CORRELATED_FLOOR = 1.1


class Canonical(NamedTuple):
    """An image as the patches are cut from it, and what is needed to go back."""

    values: NDArray[np.float32]  # (rows, columns, channels), zero where nothing was observed
    observed: NDArray[np.bool_] | None  # of the same shape; None if everything was
    observed_as_given: NDArray[np.bool_] | None  # with what `without` has taken from the above
    offset: float  # was subtracted,
    scale: float  # and this divided by
    image: NDArray[Any]  # as given
    channel_axis: int | None
    alpha: NDArray[Any] | None  # (rows, columns)
    # What made the noise white and of unit variance before offset and scale, if anything did.
    transform: NoiseTransform | VarianceMap | None = None
    # Of the noise of each value, in the image's units, if that is given.
    noise_variance: NDArray[np.float64] | None = None

    @property
    def noise_floor(self) -> float:
        """Variance below which the noise of `values` is known not to lie."""
        if self.transform is None:
            return 0.0
        return float((CORRELATED_FLOOR if self.transform.correlated else 1.0) / self.scale) ** 2

    @property
    def noise_unit(self) -> float:
        """What a standard deviation of one is in the image's units, typically."""
        return self.scale * (1.0 if self.transform is None else self.transform.typical_deviation)

    def pixels(self, values: NDArray[np.floating]) -> NDArray[np.float64]:
        """Values in the image's own units."""
        own = self.scale * values.astype(np.float64) + self.offset
        return own if self.transform is None else self.transform.backward(own)


def read(
    image: ArrayLike,
    mask: ArrayLike | None,
    channel_axis: int | None,
    alpha: bool,
    noise_variance: ArrayLike | None = None,
) -> Canonical:
    """Check an image, its mask of missing values, True where something is, and its variances."""
    given = np.asarray(image)
    channels_last = _channels_last(given, channel_axis)
    kept_alpha = None
    if alpha and channel_axis is not None and channels_last.shape[2] == 4:
        kept_alpha, channels_last = channels_last[..., 3], channels_last[..., :3]
    values = channels_last.astype(np.float64)
    missing = np.isnan(values)
    for holes in (mask, np.ma.getmask(image)):
        if holes is not None and holes is not np.ma.nomask:
            missing |= _missing(np.asarray(holes), given, channel_axis, values.shape)
    variance = None
    if noise_variance is not None:
        variance = _variance(np.asarray(noise_variance), given, channel_axis, values.shape)
        variance, unknown = noise_map.checked(variance, values.shape)
        missing |= unknown
    if missing.all():
        what = "image" if mask is None else "mask"
        raise ValueError(f"{what} must leave something to learn from; got all missing.")
    seen = values[~missing]
    if np.isinf(seen).any():
        raise ValueError(f"image must be finite or NaN; got {seen[np.isinf(seen)][0]}.")
    offset, scale = _offset_and_scale(seen)
    values = np.where(missing, 0.0, (values - offset) / scale)
    observed = ~missing if missing.any() else None
    return Canonical(
        values.astype(np.float32),
        observed,
        observed,
        offset,
        scale,
        given,
        channel_axis,
        kept_alpha,
        noise_variance=variance,
    )


def _offset_and_scale(seen: NDArray[np.float64]) -> tuple[float, float]:
    largest = float(np.abs(seen).max())
    if (seen == seen[0]).all():
        return float(seen[0]), 1.0
    unit = seen / largest  # squares of very large or small values are no doubles
    mean, deviation = largest * float(unit.mean()), largest * float(unit.std())
    scale = 1.0 if LEAST_DEVIATION <= deviation <= LARGEST_DEVIATION else deviation
    return _shift(mean, deviation), scale


def centred(canonical: Canonical) -> Canonical:
    """The same image with a mean of zero."""
    seen = True if canonical.observed is None else canonical.observed
    mean = float(canonical.values.mean(dtype=np.float64, where=seen))
    values = np.where(seen, canonical.values - mean, 0.0).astype(np.float32)
    return canonical._replace(values=values, offset=canonical.offset + canonical.scale * mean)


def window(canonical: Canonical, where: tuple[slice, slice]) -> Canonical:
    """A part of the image, of the same offset and scale."""
    masks = (canonical.observed, canonical.observed_as_given)
    observed, as_given = (None if mask is None else mask[where] for mask in masks)
    values = canonical.values[where]
    return canonical._replace(values=values, observed=observed, observed_as_given=as_given)


def without(canonical: Canonical, held_out: NDArray[np.bool_]) -> Canonical:
    """The same image as if these values were missing too.

    How it is to be learnt and restored is still decided by what is missing of it as given.
    """
    left = ~held_out if canonical.observed is None else canonical.observed & ~held_out
    values = np.where(left, canonical.values, np.float32(0.0))
    return canonical._replace(values=values, observed=left)


def with_white_noise(canonical: Canonical, noise: Noise) -> Canonical:
    """The same image, transformed so that this noise is white and of unit variance."""
    pixels = canonical.pixels(canonical.values)
    return _transformed(canonical, pixels, NoiseTransform(noise, pixels))


def with_unit_noise(canonical: Canonical, variance: NDArray[np.float64]) -> Canonical:
    """The same image, transformed so that noise of these variances is of unit variance."""
    pixels = canonical.pixels(canonical.values)
    return _transformed(canonical, pixels, VarianceMap(variance, pixels, canonical.observed))


def _transformed(
    canonical: Canonical, pixels: NDArray[np.float64], transform: NoiseTransform | VarianceMap
) -> Canonical:
    seen = True if canonical.observed is None else canonical.observed
    values = np.where(seen, transform.forward(pixels), 0.0).astype(np.float32)
    return canonical._replace(values=values, offset=0.0, scale=1.0, transform=transform)


def is_constant(canonical: Canonical) -> bool:
    """Whether all observed values are the same, which is then the offset."""
    return not canonical.values.any()


def _shift(mean: float, deviation: float) -> float:
    if abs(mean) <= LARGEST_OFFSET * deviation:
        return 0.0
    return mean - float(np.sign(mean)) * USUAL_OFFSET * deviation


def _channels_last(image: NDArray[Any], channel_axis: int | None) -> NDArray[Any]:
    if image.dtype.kind not in "buif":
        raise ValueError(f"image must hold real numbers; got {image.dtype}.")
    if 0 in image.shape:
        raise ValueError(f"image must have pixels; got the shape {image.shape}.")
    if channel_axis is None:
        if image.ndim == 3:
            raise ValueError(
                f"image must be 2-D unless channel_axis says where its channels are; got the "
                f"shape {image.shape}."
            )
        if image.ndim != 2:
            raise ValueError(f"image must be 2-D; got {image.ndim} dimensions.")
        image = image[..., None]
    else:
        if image.ndim != 3:
            raise ValueError(f"image must be 3-D with a channel_axis; got {image.ndim} dimensions.")
        validation.integer("channel_axis", channel_axis, -3, 2)
        image = np.moveaxis(image, channel_axis, -1)
    return image


def _missing(
    mask: NDArray[Any],
    image: NDArray[Any],
    channel_axis: int | None,
    shape: tuple[int, ...],
) -> NDArray[np.bool_]:
    """A mask per pixel, or per value, in the shape of the canonical image."""
    if mask.dtype.kind not in "bui":
        raise ValueError(f"mask must be boolean or of integers; got {mask.dtype}.")
    return _per_value("mask", mask.astype(np.bool_), image, channel_axis, shape)


def _variance(
    variance: NDArray[Any],
    image: NDArray[Any],
    channel_axis: int | None,
    shape: tuple[int, ...],
) -> NDArray[Any]:
    if variance.dtype.kind not in "uif":
        raise ValueError(f"noise_variance must hold real numbers; got {variance.dtype}.")
    return _per_value("noise_variance", variance, image, channel_axis, shape)


def _per_value(
    name: str,
    given: NDArray[Any],
    image: NDArray[Any],
    channel_axis: int | None,
    shape: tuple[int, ...],
) -> NDArray[Any]:
    """What is given per pixel, or per value, in the shape of the canonical image."""
    if given.shape == shape[:2]:
        return np.broadcast_to(given[..., None], shape)
    if channel_axis is not None and given.shape == image.shape:
        return np.moveaxis(given, channel_axis, -1)[..., : shape[2]]
    rule = f"{shape[:2]}" + (f" or {image.shape}" if channel_axis is not None else "")
    raise ValueError(f"{name} must have the shape {rule} of the image; got {given.shape}.")


def write(canonical: Canonical, values: NDArray[np.float64], keep_observed: bool) -> NDArray[Any]:
    """A restored image with the layout, type and alpha of the one given."""
    image = canonical.image
    restored = canonical.pixels(values)
    if image.dtype.kind == "b":
        restored = np.clip(np.rint(restored), 0, 1)
    elif image.dtype.kind == "f":
        limits = np.finfo(image.dtype)
        restored = np.clip(restored, float(limits.min), float(limits.max))
    else:
        info = np.iinfo(image.dtype)
        highest = float(info.max)
        if highest > info.max:  # the largest 64-bit integers are no doubles
            highest = np.nextafter(highest, 0)
        restored = np.clip(np.rint(restored), info.min, highest)
    restored = restored.astype(image.dtype)
    if keep_observed:
        own = _channels_last(image, canonical.channel_axis)[..., : restored.shape[2]]
        seen = True if canonical.observed_as_given is None else canonical.observed_as_given
        restored = np.where(seen, own, restored)
    return layout(canonical, restored, canonical.alpha).astype(image.dtype, copy=False)


def layout(
    canonical: Canonical, values: NDArray[Any], alpha: NDArray[Any] | None = None
) -> NDArray[Any]:
    """(rows, columns, channels) with the axes of the given image, and alpha as one more channel."""
    if canonical.channel_axis is None:
        return values[..., 0]
    if alpha is not None:
        values = np.concatenate([values, alpha[..., None]], axis=-1)
    return np.moveaxis(values, -1, canonical.channel_axis)
