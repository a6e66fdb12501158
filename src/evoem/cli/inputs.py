"""Inputs of a restoration besides its picture: masks, variances, a reference."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]
    from evoem.images.files import Picture


class MaskFile(NamedTuple):
    """A picture of what is missing, and how it is taken."""

    path: Path
    threshold: float | None = None  # values above it are missing
    n_grown: int = 0  # pixels around those that it marks are missing too


def read_masks(
    mask: MaskFile | None,
    picture: "Picture",
    max_pixels: int,
    tell: Callable[[str], None] = lambda line: None,
) -> list["Array | None"]:
    """What is missing of each slice: what the mask says, and the picture's own file."""
    from evoem.images.stacks import of_slices

    axis = -1 if picture.colour else None
    own: list[Array | None] = [picture.missing]
    if picture.stack:
        own = of_slices(picture.missing, picture.pixels, axis)
    if mask is None:
        return own
    masks = slice_masks(mask, picture, max_pixels, tell)
    return [
        marked if marked is None or missing is None else joined(marked, missing)
        for marked, missing in zip(masks, own, strict=True)
    ]


def slice_masks(
    mask: MaskFile, picture: "Picture", max_pixels: int, tell: Callable[[str], None]
) -> list["Array | None"]:
    """The mask of each slice, from a file, of which is told how much it marks."""
    import numpy as np

    from evoem.images import files, masks
    from evoem.images.stacks import of_slices

    path, threshold, n_grown = mask
    shape = picture.pixels.shape
    given = files.read(path, max_pixels=max_pixels)
    if picture.stack:
        shape = shape[: given.pixels.ndim] if given.stack else shape[1:]
    marked = files.read_mask(path, shape, max_pixels=max_pixels, threshold=threshold)
    values = given.pixels if marked.ndim == given.pixels.ndim else given.pixels[..., 0]
    left_grey = masks.grey(values, marked)
    if picture.stack and given.stack:
        missing = np.stack([masks.grown(one, n_grown) for one in marked])
    else:
        missing = masks.grown(marked, n_grown)
    tell(f"{path}: {masks.description(missing, left_grey, n_grown)}")
    if not picture.stack:
        return [missing]
    return of_slices(missing, picture.pixels, -1 if picture.colour else None)


def joined(mask: "Array", missing: "Array") -> "Array":
    """Where either is true: masks of pixels, or of the channels of each."""
    if mask.ndim < missing.ndim:
        mask = mask[..., None]
    elif missing.ndim < mask.ndim:
        missing = missing[..., None]
    return mask | missing


def read_variances(
    path: str | None, picture: "Picture", max_pixels: int, own: bool = False
) -> list["Array | None"]:
    """The variances of the noise of each slice, if they are given; the picture's `own` if not."""
    from evoem.images import files
    from evoem.images.stacks import of_slices

    given = picture.noise_variance if own else None
    if path is not None:
        given = files.read(Path(path), max_pixels=max_pixels).pixels
    if not picture.stack:
        return [given]
    return of_slices(given, picture.pixels, -1 if picture.colour else None)


def read_reference(
    path: Path, picture: "Picture", max_pixels: int, axes: str | None = None
) -> "Picture":
    """The clean picture."""
    import numpy as np

    from evoem.images import files, quality
    from evoem.validation import LARGEST

    reference = files.read(path, max_pixels=max_pixels, axes=axes)
    if reference.pixels.shape != picture.pixels.shape:
        raise ValueError(
            f"reference {path} must have the shape of the picture, {picture.pixels.shape}; "
            f"got {reference.pixels.shape}."
        )
    if not float(np.abs(reference.pixels.astype(np.float64)).max()) <= LARGEST:
        raise ValueError(f"reference {path} must have values of at most {LARGEST:g}; got others.")
    if not quality.peak_of(reference.pixels) > 0:
        raise ValueError(f"reference {path} must have a range of values; got none.")
    if reference.missing is not None:
        raise ValueError(f"reference {path} must be complete; got one with missing values.")
    return reference
