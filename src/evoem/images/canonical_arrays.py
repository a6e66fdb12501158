"""Convert any image array to floats (rows, columns, channels) with a mask, and back."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evoem import validation
from evoem.images import bands, missing_values, noise_map
from evoem.images.bands import Band
from evoem.images.files.picture import equal
from evoem.images.noise_map import VarianceMap
from evoem.images.noise_model import Noise
from evoem.images.noise_transform import NoiseTransform
from evoem.runtime.communicator import ALONE, Communicator

# Single precision is enough for pictures, but not for small differences on a large offset: an image
# whose mean is this many standard deviations from zero is moved nearer to it.
LARGEST_OFFSET = 10.0
USUAL_OFFSET = 3.0
# Values whose standard deviation is outside of this range are measured in units of it, for their
# squares to stay within single precision.
LEAST_DEVIATION, LARGEST_DEVIATION = 1e-6, 1e6


class Canonical(NamedTuple):
    """An image in the form from which patches are cut, and how to convert it back.

    If several processes share it, arrays have the rows of this one.
    """

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
    notes: tuple[str, ...] = ()  # what of it was taken to be missing
    implausible_alone: bool = False  # whether nothing else is missing
    shared: Band | None = None  # which rows each process has; None if this one has all

    @property
    def band(self) -> Band:
        """The rows of pixels that each process has."""
        return bands.whole(len(self.values)) if self.shared is None else self.shared

    @property
    def shape(self) -> tuple[int, int, int]:
        """(rows, columns, channels) of the whole image."""
        _, columns, channels = self.values.shape
        return self.band.n_rows, columns, channels

    @property
    def noise_floor(self) -> float:
        """Known lower limit of the variance of the noise of `values`."""
        if self.transform is None:
            return 0.0
        return float(self.transform.floor / self.scale) ** 2

    @property
    def noise_unit(self) -> float:
        """A typical standard deviation of one, in units of the image."""
        return self.scale * (1.0 if self.transform is None else self.transform.typical_deviation)

    @property
    def own_values(self) -> NDArray[np.float64]:
        """Observed values as they were given, zeros elsewhere: (rows, columns, channels)."""
        given = _channels_last(self.image, self.channel_axis)[..., : self.values.shape[2]]
        return np.where(True if self.observed is None else self.observed, given, 0.0)

    def pixels(self, values: NDArray[np.floating]) -> NDArray[np.float64]:
        """Values in the image's own units."""
        own = self.scale * values.astype(np.float64) + self.offset
        if self.transform is None:
            return own
        if not self.transform.correlated:
            return self.transform.backward(own)
        # A filter reaches far.
        return self.transform.backward(self.band.everywhere(own))[self.band.rows]


def read(
    image: ArrayLike,
    mask: ArrayLike | None,
    channel_axis: int | None,
    alpha: bool,
    noise_variance: ArrayLike | None = None,
    missing_value: float | Sequence[float] | None = None,
    comm: Communicator = ALONE,
) -> Canonical:
    """Check an image, its mask, True where a value is missing, and its noise variances.

    With several processes each reads only its own rows.
    """
    given = np.asarray(image)
    if 0 in given.shape:
        raise ValueError(f"image must have pixels; got the shape {given.shape}.")
    channels_last = _channels_last(given, channel_axis)
    kept_alpha = None
    if alpha and channel_axis is not None and channels_last.shape[2] == 4:
        kept_alpha, channels_last = channels_last[..., 3], channels_last[..., :3]
    shape, band = channels_last.shape, bands.even(len(channels_last), comm)
    rows = band.rows
    channels_last = channels_last[rows]
    values = channels_last.astype(np.float64)
    missing = np.isnan(values)
    for holes in (mask, np.ma.getmask(image)):
        if holes is not None and holes is not np.ma.nomask:
            missing |= _missing(np.asarray(holes), given, channel_axis, shape, rows)
    variance = None
    if noise_variance is not None:
        variance = _variance(np.asarray(noise_variance), given, channel_axis, shape)[rows]
        variance, unknown = noise_map.checked(variance, values.shape)
        missing |= unknown
    notes = []
    for value in [] if missing_value is None else np.atleast_1d(missing_value):
        declared = ~missing & equal(channels_last, float(value))
        missing |= declared
        notes += _counted(declared, f"equal to missing_value, {value:g},", band)
    if not band.any(not missing.all())[0]:
        what = "image" if mask is None else "mask"
        raise ValueError(f"{what} must leave observed values; got all missing.")
    seen = values[~missing]
    if np.isinf(seen).any():
        raise ValueError(f"image must be finite or NaN; got {seen[np.isinf(seen)][0]}.")
    implausible_alone = False
    if given.dtype.itemsize > 1:  # else nothing is far from anything
        odd = missing_values.implausible(values, missing, band)
        if band.any(odd.any())[0]:
            like = band.comm.collect(values[odd][0] if odd.any() else None)
            example = next(value for value in like if value is not None)
            notes += _counted(odd, f"far from all others, such as {example:g},", band)
            implausible_alone = not band.any(missing.any())[0]
            missing |= odd
    offset, scale = _offset_and_scale(values, ~missing, band)
    values = np.where(missing, 0.0, (values - offset) / scale)
    observed = ~missing if band.any(missing.any())[0] else None
    return Canonical(
        values.astype(np.float32),
        observed,
        observed,
        offset,
        scale,
        given if comm.size == 1 else _rows_of(given, channel_axis, rows),
        channel_axis,
        kept_alpha if kept_alpha is None else kept_alpha[rows],
        noise_variance=variance,
        notes=tuple(notes),
        implausible_alone=implausible_alone,
        shared=band if comm.size > 1 else None,
    )


def _counted(missing: NDArray[np.bool_], what: str, band: Band) -> list[str]:
    """A note about missing values, if there are any."""
    number = band.count(missing)
    values = "value" if number == 1 else "values"
    verb = "was" if number == 1 else "were"
    return [f"{number} {values} {what} {verb} treated as missing."] if number else []


def _offset_and_scale(
    values: NDArray[np.float64], where: NDArray[np.bool_], band: Band
) -> tuple[float, float]:
    """Offset and scale of observed values."""
    highest = band.largest(float(values.max(where=where, initial=-np.inf)))
    lowest = -band.largest(float(-values.min(where=where, initial=np.inf)))
    if lowest == highest:
        return lowest, 1.0
    largest = max(abs(lowest), abs(highest))
    # In a unit of their own: squares of very large or small values are no doubles.
    mean, deviation = band.mean_and_deviation(np.where(where, values, 0.0) / largest, where)
    mean, deviation = largest * mean, largest * deviation
    scale = 1.0 if LEAST_DEVIATION <= deviation <= LARGEST_DEVIATION else deviation
    return _shift(mean, deviation), scale


def _rows_of(image: NDArray[Any], channel_axis: int | None, rows: slice) -> NDArray[Any]:
    """Some rows of an image, in its own layout."""
    if channel_axis is None:
        return np.array(image[rows])
    return np.moveaxis(np.array(np.moveaxis(image, channel_axis, -1)[rows]), -1, channel_axis)


def on_common_scale(several: Sequence[Canonical]) -> list[Canonical]:
    """The same images with a common offset and scale, those of all their values."""
    number, mean, squares, largest = 0, 0.0, 0.0, 0.0
    for one in several:
        seen = _seen(one)
        largest = max(largest, float(np.abs(seen).max()))
    for one in several:
        seen = _seen(one) / (largest or 1.0)  # squares of very large or small ones are no doubles
        moved = float(seen.mean()) - mean
        squares += seen.size * (float(seen.var()) + moved**2 * number / (number + seen.size))
        number += seen.size
        mean += moved * seen.size / number
    mean, deviation = largest * mean, largest * float(np.sqrt(squares / number))
    scale = 1.0 if LEAST_DEVIATION <= deviation <= LARGEST_DEVIATION else deviation or 1.0
    return [_rescaled(one, _shift(mean, deviation), scale) for one in several]


def _seen(canonical: Canonical) -> NDArray[np.float64]:
    own = canonical.own_values
    return own.ravel() if canonical.observed is None else own[canonical.observed]


def _rescaled(canonical: Canonical, offset: float, scale: float) -> Canonical:
    seen = True if canonical.observed is None else canonical.observed
    values = np.where(seen, (canonical.own_values - offset) / scale, 0.0).astype(np.float32)
    return canonical._replace(values=values, offset=offset, scale=scale)


def moved(canonical: Canonical, by: float) -> Canonical:
    """The same image with a constant subtracted from its values."""
    seen = True if canonical.observed is None else canonical.observed
    values = np.where(seen, canonical.values - by, 0.0).astype(np.float32)
    return canonical._replace(values=values, offset=canonical.offset + canonical.scale * by)


def stacked(parts: Sequence[Canonical]) -> Canonical:
    """Parts of images with a common offset and scale, one below the other."""
    first = parts[0]
    masks = []
    for name in ("observed", "observed_as_given"):
        own = [getattr(part, name) for part in parts]
        whole = [
            np.ones(part.values.shape, np.bool_) if mask is None else mask
            for part, mask in zip(parts, own, strict=True)
        ]
        masks.append(None if all(mask is None for mask in own) else np.concatenate(whole))
    return first._replace(
        values=np.concatenate([part.values for part in parts]),
        observed=masks[0],
        observed_as_given=masks[1],
        noise_variance=None,
    )


def centred(canonical: Canonical) -> Canonical:
    """The same image with a mean of zero."""
    return moved(canonical, mean_of(canonical))


def mean_of(canonical: Canonical) -> float:
    """The mean of observed values."""
    return canonical.band.mean(canonical.values, canonical.observed)


def window(canonical: Canonical, where: tuple[slice, slice]) -> Canonical:
    """A part of the image, with its offset and scale, or the rows of it that this process has."""
    rows, columns = where
    band = canonical.band
    mine = (band.inside(rows), columns)
    masks = (canonical.observed, canonical.observed_as_given)
    observed, as_given = (None if mask is None else mask[mine] for mask in masks)
    return canonical._replace(
        values=canonical.values[mine],
        observed=observed,
        observed_as_given=as_given,
        shared=None if canonical.shared is None else band.window(rows),
    )


def rows_for(canonical: Canonical, comm: Communicator) -> Canonical:
    """The rows of this process, if several that have the whole image share it evenly."""
    if comm.size == 1:
        return canonical
    band = bands.even(len(canonical.values), comm)
    alpha, variance = (
        None if each is None else each[band.rows].copy()
        for each in (canonical.alpha, canonical.noise_variance)
    )
    return share_again(canonical, band)._replace(
        image=_rows_of(canonical.image, canonical.channel_axis, band.rows),
        alpha=alpha,
        noise_variance=variance,
    )


def share_again(canonical: Canonical, shared: Band | None) -> Canonical:
    """The rows of this process, of an image that was `everywhere`."""
    if shared is None:
        return canonical
    rows = shared.rows
    observed, as_given = (
        None if mask is None else mask[rows].copy()
        for mask in (canonical.observed, canonical.observed_as_given)
    )
    transform = canonical.transform
    return canonical._replace(
        values=canonical.values[rows].copy(),
        observed=observed,
        observed_as_given=as_given,
        transform=transform.rows(rows) if isinstance(transform, VarianceMap) else transform,
        shared=shared,
    )


def everywhere(canonical: Canonical) -> Canonical:
    """All rows of an image in every process: for small images."""
    if canonical.shared is None:
        return canonical
    band = canonical.shared
    observed, as_given = (
        None if each is None else band.everywhere(each)
        for each in (canonical.observed, canonical.observed_as_given)
    )
    values = band.everywhere(canonical.values)
    return canonical._replace(
        values=values, observed=observed, observed_as_given=as_given, shared=None
    )


def without(canonical: Canonical, held_out: NDArray[np.bool_]) -> Canonical:
    """The same image as if these values were missing too.

    How to learn and restore it is still decided by what is missing in the input.
    """
    left = ~held_out if canonical.observed is None else canonical.observed & ~held_out
    values = np.where(left, canonical.values, np.float32(0.0))
    return canonical._replace(values=values, observed=left)


def with_white_noise(canonical: Canonical, noise: Noise) -> Canonical:
    """The same image, transformed so that this noise is white and of unit variance."""
    shared = canonical.shared
    if noise.kind.startswith("correlated"):  # a filter reaches far
        canonical = everywhere(canonical)
    pixels = canonical.pixels(canonical.values)
    variances = noise.variance(pixels)
    typical = canonical.band.mean(variances)
    found = _transformed(canonical, pixels, NoiseTransform(noise, pixels, typical))
    return found if found.shared == shared else share_again(found, shared)


def with_unit_noise(canonical: Canonical, variance: NDArray[np.float64]) -> Canonical:
    """The same image, transformed so that noise of these variances is of unit variance."""
    variance, shared = canonical.band.everywhere(variance), canonical.shared
    canonical = everywhere(canonical)
    pixels = canonical.pixels(canonical.values)
    transform = VarianceMap(variance, pixels, canonical.observed)
    return share_again(_transformed(canonical, pixels, transform), shared)


def _transformed(
    canonical: Canonical, pixels: NDArray[np.float64], transform: NoiseTransform | VarianceMap
) -> Canonical:
    seen = True if canonical.observed is None else canonical.observed
    values = np.where(seen, transform.forward(pixels), 0.0).astype(np.float32)
    return canonical._replace(values=values, offset=0.0, scale=1.0, transform=transform)


def is_constant(canonical: Canonical) -> bool:
    """Whether all observed values are the same, which is then the offset."""
    return not canonical.band.any(bool(canonical.values.any()))[0]


def _shift(mean: float, deviation: float) -> float:
    if abs(mean) <= LARGEST_OFFSET * deviation:
        return 0.0
    return mean - float(np.sign(mean)) * USUAL_OFFSET * deviation


def _channels_last(image: NDArray[Any], channel_axis: int | None) -> NDArray[Any]:
    if image.dtype.kind not in "buif":
        raise ValueError(f"image must hold real numbers; got {image.dtype}.")
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
    rows: slice,
) -> NDArray[np.bool_]:
    """Rows of a mask per pixel, or per value, in the shape of the canonical image."""
    if mask.dtype.kind not in "bui":
        raise ValueError(f"mask must be boolean or of integers; got {mask.dtype}.")
    return _per_value("mask", mask, image, channel_axis, shape)[rows].astype(np.bool_)


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
    """Values given per pixel, or per value, in the shape of the canonical image."""
    if given.shape == shape[:2]:
        return np.broadcast_to(given[..., None], shape)
    if channel_axis is not None and given.shape == image.shape:
        return np.moveaxis(given, channel_axis, -1)[..., : shape[2]]
    rule = f"{shape[:2]}" + (f" or {image.shape}" if channel_axis is not None else "")
    raise ValueError(f"{name} must have the shape {rule} of the image; got {given.shape}.")


def write(canonical: Canonical, values: NDArray[np.float64], keep_observed: bool) -> NDArray[Any]:
    """A restored image with the layout, type and alpha of the input."""
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
