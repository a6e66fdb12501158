"""Cut an image into overlapping patches and merge patches into an image.

An image is an array (rows, columns, channels). A patch is a row of numbers, its pixels in reading
order with the channels of a pixel together, so that patches are data for the models. Patches are
numbered row by row of the image.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evoem import validation
from evoem.runtime.compile import kernel

WINDOWS = ("mean", "centre")
# Standard deviation of a centre window, in patches. It leaves the middle of an edge a third of the
# centre's weight: much narrower, and few patches would be averaged.
WINDOW_WIDTH = 1 / 3

Numbers = NDArray[np.integer] | slice


class Grid(NamedTuple):
    """Where the patches of an image lie: every combination of a top row and a left column."""

    shape: tuple[int, int, int]  # of the image
    patch: tuple[int, int]  # height and width of a patch
    tops: NDArray[np.int64]  # from the top of the frame
    lefts: NDArray[np.int64]
    margin: int = 0  # width of a frame around the image, in which patches may lie too

    @property
    def n_patches(self) -> int:
        """Number of patches."""
        return len(self.tops) * len(self.lefts)

    @property
    def n_pixels(self) -> int:
        """Numbers in a patch."""
        return self.patch[0] * self.patch[1] * self.shape[2]

    @property
    def widest_step(self) -> int:
        """From one patch to the next, in pixels."""
        steps = (np.diff(starts).max(initial=1) for starts in (self.tops, self.lefts))
        return int(max(steps))

    def corners(self, numbers: Numbers | None) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Top rows and left columns of the patches of these numbers; None is all of them."""
        if numbers is None:
            numbers = slice(None)
        if isinstance(numbers, slice):
            chosen = range(self.n_patches)[numbers]
            numbers = np.arange(chosen.start, chosen.stop, chosen.step)
        elif numbers.size:  # kernels do not look whether a patch lies in the image
            for extreme in (numbers.min(), numbers.max()):
                validation.integer("numbers", extreme.item(), 0, self.n_patches - 1)
        row, column = np.divmod(numbers.astype(np.int64), len(self.lefts))
        return self.tops[row], self.lefts[column]


def starts(length: int, size: int, stride: int) -> NDArray[np.int64]:
    """Every stride-th start of a patch, and the last one, so that every pixel is covered."""
    last = length - size
    found = np.arange(0, last + 1, stride)
    return found if found[-1] == last else np.append(found, last)


def regular_grid(
    shape: tuple[int, int, int], patch_size: int, stride: int = 1, beyond: float = 0.0
) -> Grid:
    """Patches of `patch_size` square, or as large as the image is where it is smaller.

    Up to a share `beyond` of a patch may lie beyond an edge, by whole strides. A stride above
    `patch_size` would leave pixels without a patch and is refused.
    """
    for length in shape:
        validation.integer("shape's entries", length, 1)
    validation.integer("patch_size", patch_size, 1)
    validation.integer("stride", stride, 1, patch_size, " (patch_size)")
    height, width = min(patch_size, shape[0]), min(patch_size, shape[1])
    margin = int(beyond * min(height, width)) // stride * stride
    return Grid(
        shape,
        (height, width),
        starts(shape[0] + 2 * margin, height, stride),
        starts(shape[1] + 2 * margin, width, stride),
        margin,
    )


def cut(image: NDArray[Any], grid: Grid, numbers: Numbers | None = None) -> NDArray[Any]:
    """Patches (n, n_pixels) of these numbers, in their order and of the image's type.

    None is all patches. Beyond the edges of the image there are zeros. No memory is taken beyond
    that of the result, and of an image with its frame if there is one.
    """
    _require_shape("image", image, grid.shape)
    tops, lefts = grid.corners(numbers)
    # In this layout NumPy gathers in C order, so that the reshape below makes no second copy.
    contiguous = np.ascontiguousarray(image)
    if grid.margin:
        contiguous = np.pad(contiguous, [(grid.margin,) * 2] * 2 + [(0, 0)])
    windows = np.lib.stride_tricks.sliding_window_view(contiguous, grid.patch, axis=(0, 1))
    return np.moveaxis(windows, 2, -1)[tops, lefts].reshape(len(tops), grid.n_pixels)


def window(patch: tuple[int, int], kind: str, channels: int) -> NDArray[np.float64]:
    """Positive weights (n_pixels,) of the pixels of a patch of this height and width.

    "mean" weighs all alike; "centre" is a Gaussian, because a patch tells most about pixels that
    it shows together with all of their neighbours.
    """
    validation.choice("kind", kind, WINDOWS)
    if kind == "mean":
        return np.ones(patch[0] * patch[1] * channels)
    profiles = []
    for size in patch:
        from_centre = np.arange(size) - (size - 1) / 2
        profiles.append(np.exp(-0.5 * (from_centre / (WINDOW_WIDTH * size)) ** 2))
    return np.repeat(np.outer(*profiles), channels)


@kernel
def _add(tops, begins, height, patches, weights, total, weight):
    """Rows of `total` hold pixels and channels; `begins` are left columns in them."""
    span = patches.shape[1] // height
    for n in range(len(patches)):
        w = weights[n if len(weights) > 1 else 0]
        for i in range(height):
            row = slice(begins[n], begins[n] + span)
            sums, weight_sums = total[tops[n] + i, row], weight[tops[n] + i, row]
            for k in range(span):
                share = np.float64(w[i * span + k])
                sums[k] += share * patches[n, i * span + k]
                weight_sums[k] += share


class Canvas:
    """Weighted sums of patches, each where it lies, to which patches are added in any order.

    `total` and `weight` have the image's shape. One thread may add at a time.
    """

    def __init__(self, grid: Grid) -> None:
        self.grid = grid
        rows, columns, channels = grid.shape
        margin = grid.margin
        self._framed = np.zeros((2, rows + 2 * margin, columns + 2 * margin, channels))
        inside = self._framed[:, margin : margin + rows, margin : margin + columns]
        self.total, self.weight = inside

    def add(
        self, numbers: Numbers | None, patches: NDArray[Any], weights: NDArray[np.floating]
    ) -> None:
        """Add the patches (n, n_pixels) of these numbers; None is all of the grid.

        `weights` are those of every patch, (n_pixels,), or of each, (n, n_pixels).
        """
        tops, lefts = self.grid.corners(numbers)
        _require_shape("patches", patches, (len(tops), self.grid.n_pixels))
        if weights.ndim == 1:
            _require_shape("weights", weights, patches.shape[1:])
            weights = weights[None]
        else:
            _require_shape("weights", weights, patches.shape)
        total, weight = self._framed.reshape(*self._framed.shape[:2], -1)
        _add(
            tops,
            lefts * self.grid.shape[2],
            self.grid.patch[0],
            np.ascontiguousarray(patches),
            np.ascontiguousarray(weights),
            total,
            weight,
        )

    def mean(self) -> NDArray[np.float64]:
        """The weighted mean of what was added to each pixel, NaN where nothing was."""
        image = np.full(self.grid.shape, np.nan)
        np.divide(self.total, self.weight, out=image, where=self.weight != 0)
        return image


def _require_shape(name: str, array: NDArray[Any], shape: tuple[int, ...]) -> None:
    if array.shape != shape:
        raise ValueError(f"{name} must have the shape {shape}; got {array.shape}.")
