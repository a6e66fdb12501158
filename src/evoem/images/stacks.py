"""Stacks of images: their slices and masks."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evoem import validation
from evoem.images import canonical_arrays
from evoem.images.canonical_arrays import Canonical
from evoem.runtime.communicator import ALONE, Communicator


class Stack(NamedTuple):
    """Images along the first axis, each with or without a channel axis."""

    pixels: NDArray[Any]
    masks: Sequence[NDArray[Any] | None]
    channel_axis: int | None
    alpha: bool
    noise_variances: Sequence[NDArray[Any] | None]
    missing_value: float | Sequence[float] | None = None
    comm: Communicator = ALONE  # of the processes that share a single slice

    def slices(self) -> Iterator[Canonical]:
        """The images, checked; if there are several, every process has all of them."""
        comm = self.comm if len(self.pixels) == 1 else ALONE
        for one, mask, variance in zip(self.pixels, self.masks, self.noise_variances, strict=True):
            yield canonical_arrays.read(
                one,
                mask,
                self.channel_axis,
                self.alpha,
                variance,
                self.missing_value,
                comm,
            )


def is_stack(pixels: NDArray[Any], channel_axis: int | None) -> bool:
    """Whether there is one more axis than an image has."""
    return pixels.ndim == (3 if channel_axis is None else 4)


def stack_of(
    pixels: NDArray[Any],
    mask: ArrayLike | None,
    channel_axis: int | None,
    alpha: bool,
    noise_variance: ArrayLike | None = None,
    missing_value: float | Sequence[float] | None = None,
) -> Stack:
    """A stack, checked; of it `channel_axis` is one of all its axes."""
    if channel_axis is None and pixels.shape[-1] in (3, 4):
        raise ValueError(
            f"channel_axis must be given for what looks like colour; got None for an image of the "
            f"shape {pixels.shape}."
        )
    if len(pixels) == 0:
        raise ValueError(f"image must have slices; got the shape {pixels.shape}.")
    of_slice = channel_axis
    if channel_axis is not None:
        validation.integer("channel_axis", channel_axis, -3, 3)
        if channel_axis == 0:
            raise ValueError("channel_axis of a stack must not be its first axis; got 0.")
        of_slice = channel_axis - 1 if channel_axis > 0 else channel_axis
    masks, variances = (of_slices(each, pixels, channel_axis) for each in (mask, noise_variance))
    return Stack(pixels, masks, of_slice, alpha, variances, missing_value)


def of_slices(
    given: ArrayLike | None, pixels: NDArray[Any], channel_axis: int | None
) -> list[NDArray[Any] | None]:
    """The mask, or the variances, of each slice of a stack: one for all, or each its own."""
    if given is None:
        return [None] * len(pixels)
    given = np.asarray(given)
    shape = pixels.shape
    per_pixel = shape if channel_axis is None else tuple(np.delete(shape, channel_axis))
    return list(given) if given.shape in (shape, per_pixel) else [given] * len(pixels)
