"""Cut an image into overlapping patches and merge patches into an image.

An image is an array (rows, columns, channels). A patch is a row of numbers, its pixels in reading
order with the channels of a pixel together, so that patches are data for the models. Patches are
numbered row by row of the image.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evoem import validation
from evoem.runtime.communicator import Communicator
from evoem.runtime.compile import kernel, kernel_in_order
from evoem.runtime.row_ranges import Ranges
from evoem.runtime.sums import OF_PIXELS, ExactSum

WINDOWS = ("mean", "centre")
# Standard deviation of a centre window, in patches. It leaves the middle of an edge a third of the
# centre's weight: much narrower, and few patches would be averaged.
WINDOW_WIDTH = 1 / 3

Numbers = NDArray[np.integer] | slice


class Grid(NamedTuple):
    """The patches of an image: every combination of a top row and a left column."""

    shape: tuple[int, int, int]  # of the image
    patch: tuple[int, int]  # height and width of a patch
    tops: NDArray[np.int64]  # from the top of the frame
    lefts: NDArray[np.int64]
    margin: int = 0  # width of a frame around the image, in which patches may lie too
    # Of an image that is put together from slices: how far each of `tops` is from that of its own.
    own_tops: NDArray[np.int64] | None = None

    @property
    def n_patches(self) -> int:
        """Number of patches."""
        return len(self.tops) * len(self.lefts)

    @property
    def n_pixels(self) -> int:
        """Numbers in a patch."""
        return self.patch[0] * self.patch[1] * self.shape[2]

    @property
    def framed(self) -> tuple[int, int, int]:
        """The shape of the image with its frame."""
        rows, columns, channels = self.shape
        return rows + 2 * self.margin, columns + 2 * self.margin, channels

    def inside(self, framed: NDArray[Any], first_row: int = 0) -> NDArray[Any]:
        """The image without its frame, or the part of it from some row of the frame on."""
        rows, columns, _ = self.shape
        start, stop = (max(end - first_row, 0) for end in (self.margin, self.margin + rows))
        return framed[start:stop, self.margin : self.margin + columns]

    @property
    def widest_step(self) -> int:
        """The largest distance from one patch to the next, in pixels."""
        down, across = np.diff(self.tops), np.diff(self.lefts)
        if self.own_tops is not None:  # from slice to slice is no step
            down = down[down == np.diff(self.own_tops)]
        return int(max(down.max(initial=1), across.max(initial=1)))

    @property
    def touching(self) -> int:
        """The largest n for which every n-th patch covers the image."""
        return max(1, min(self.patch) // self.widest_step)

    def places(self, numbers: Numbers | None) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The same as `corners`, within the slices of a stacked image."""
        if self.own_tops is None:
            return self.corners(numbers)
        return self._replace(tops=self.own_tops, own_tops=None).corners(numbers)

    @property
    def extents(self) -> tuple[int, int]:
        """The largest of these rows and columns."""
        tops = self.tops if self.own_tops is None else self.own_tops
        return int(tops.max()), int(self.lefts.max())

    def corners(self, numbers: Numbers | None) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Top rows and left columns of the patches with these numbers; None means all."""
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


def cut(
    image: NDArray[Any], grid: Grid, numbers: Numbers | None = None, first_row: int | None = None
) -> NDArray[Any]:
    """Patches (n, n_pixels) of these numbers, in their order and of the image's type.

    None means all patches. Beyond the edges of the image there are zeros. Memory is needed only for
    the result, and for the image with its frame if there is one. If `first_row` is given, `image`
    has only the rows from there on that these patches need.
    """
    tops, lefts = grid.corners(numbers)
    if first_row is None:
        _require_shape("image", image, grid.shape)
    else:
        tops = tops - first_row
    if len(tops) == 0:
        return np.empty((0, grid.n_pixels), image.dtype)
    # In this layout NumPy gathers in C order, so that the reshape below makes no second copy.
    contiguous = np.ascontiguousarray(image)
    if grid.margin:
        contiguous = np.pad(contiguous, [(grid.margin,) * 2] * 2 + [(0, 0)])
    windows = np.lib.stride_tricks.sliding_window_view(contiguous, grid.patch, axis=(0, 1))
    return np.moveaxis(windows, 2, -1)[tops, lefts].reshape(len(tops), grid.n_pixels)


def window(patch: tuple[int, int], kind: str, channels: int) -> NDArray[np.float64]:
    """Positive weights (n_pixels,) of the pixels of a patch of this height and width.

    "mean" gives all the same weight; "centre" is a Gaussian, because a patch tells most about
    pixels that it contains together with all of their neighbours.
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
def _largest_addend(patches, weights):
    """The largest magnitude of weighted values, of each patch for itself."""
    largest = 0.0
    for n in range(max(len(patches), len(weights))):
        values, w = patches[n if len(patches) > 1 else 0], weights[n if len(weights) > 1 else 0]
        for k in range(patches.shape[1]):
            largest = max(largest, abs(np.float64(w[k]) * np.float64(values[k])))
    return largest


@kernel_in_order
def _add(tops, begins, height, patches, weights, rounders, total):
    """Rows of `total` hold pixels and channels, slice by slice; `begins` are left columns in them.

    See `sums` for slices, of which there are three.
    """
    span = patches.shape[1] // height
    first, second, third = rounders
    for n in range(len(tops)):
        values, w = patches[n if len(patches) > 1 else 0], weights[n if len(weights) > 1 else 0]
        for i in range(height):
            row = slice(begins[n], begins[n] + span)
            upper, middle, lower = (
                total[0, tops[n] + i, row], total[1, tops[n] + i, row], total[2, tops[n] + i, row]
            )  # fmt: skip
            for k in range(span):
                rest = np.float64(w[i * span + k]) * values[i * span + k]
                part = (rest + first) - first
                upper[k] += part
                rest -= part
                part = (rest + second) - second
                middle[k] += part
                lower[k] += ((rest - part) + third) - third


@kernel
def _mark(tops, begins, height, span, marked):
    for n in range(len(tops)):
        for i in range(height):
            marked[tops[n] + i, begins[n] : begins[n] + span] = True


class PatchSum:
    """The sum of weighted patches, each where it lies: exact, and so the same in any order.

    `strip` are rows of the image with its frame, which the patches lie in; all of them by default.
    """

    def __init__(self, grid: Grid, strip: slice | None = None) -> None:
        self.grid = grid
        self.strip = slice(0, grid.framed[0]) if strip is None else strip
        self.sum = ExactSum((self.strip.stop - self.strip.start, *grid.framed[1:]), OF_PIXELS)

    @property
    def value(self) -> NDArray[np.float64]:
        """The sum, of those rows of the image that it is over."""
        return self.grid.inside(self.sum.value(), self.strip.start)

    def add(
        self, numbers: Numbers | None, patches: NDArray[Any], weights: NDArray[np.floating]
    ) -> None:
        """Add patches of these numbers, (n, n_pixels) or (1, n_pixels), as are their weights."""
        tops, lefts = self.grid.corners(numbers)
        if len(tops) == 0:
            return
        own, weights = np.ascontiguousarray(patches), np.ascontiguousarray(weights)
        self.sum.make_room(int(np.float64(_largest_addend(own, weights)).view(np.int64)))
        slices = self.sum.slices.reshape(len(self.sum.slices), self.sum.shape[0], -1)
        height, channels = self.grid.patch[0], self.grid.shape[2]
        tops = tops - self.strip.start
        _add(tops, lefts * channels, height, own, weights, self.sum.rounders(), slices)

    def add_rows(self, first: int, sums: NDArray[np.float64]) -> None:
        """Add sums over whole rows of an image without a frame, from a first one on."""
        self.sum.add(sums, (first - self.strip.start) * self.grid.shape[1] * self.grid.shape[2])

    def share(self, rows: Ranges, comm: Communicator) -> None:
        """Keep the sum over the processes' patches of the rows that this one is to have.

        `rows` are what each is to have. All must have agreed on the levels of the sum.
        """
        old, own = self.sum, rows[comm.rank]
        new = ExactSum((own.stop - own.start, *old.shape[1:]), old.slicing)
        new.raise_to(old.level)
        pairs = [(old.slices, new.slices)]
        if old.special is not None:
            pairs.append((old.special[None], new.allow_special()[None]))
        width = old.shape[1] * old.shape[2]
        for before, after in pairs:
            mine = before.reshape(len(before), old.shape[0], width).swapaxes(0, 1)
            whole = after.reshape(len(after), new.shape[0], width).swapaxes(0, 1)
            for first, piece in _exchanged(mine, self.strip, rows, comm):
                whole[first : first + len(piece)] += piece
        self.sum, self.strip = new, own


def _exchanged(
    values: NDArray[Any], strip: slice, rows: Ranges, comm: Communicator
) -> list[tuple[int, NDArray[Any]]]:
    """What each process has, in its strip, of the rows of this one, and from which of them on."""
    pieces = []
    for other in rows:
        start, stop = max(strip.start, other.start), min(strip.stop, other.stop)
        inside = slice(start - strip.start, max(stop, start) - strip.start)
        pieces.append((start - other.start, values[inside]))
    own = pieces[comm.rank]
    pieces[comm.rank] = (0, values[:0])  # which need not be sent
    return [found for found in (*comm.exchange(pieces), own) if len(found[1])]


class Canvas:
    """Weighted sums of patches at their places; patches can be added in any order.

    Only one thread may add at a time. `strip` is as in `PatchSum`.
    """

    def __init__(self, grid: Grid, strip: slice | None = None) -> None:
        self.grid = grid
        self.totals, self.weights = PatchSum(grid, strip), PatchSum(grid, strip)

    @property
    def total(self) -> NDArray[np.float64]:
        """Weighted sums, with the shape of the image."""
        return self.totals.value

    @property
    def weight(self) -> NDArray[np.float64]:
        """Sums of weights, with the shape of the image."""
        return self.weights.value

    def add(
        self, numbers: Numbers | None, patches: NDArray[Any], weights: NDArray[np.floating]
    ) -> None:
        """Add the patches (n, n_pixels) with these numbers; None means all of the grid.

        `weights` are those of every patch, (n_pixels,), or of each, (n, n_pixels).
        """
        n_patches = len(self.grid.corners(numbers)[0])
        _require_shape("patches", patches, (n_patches, self.grid.n_pixels))
        if weights.ndim == 1:
            _require_shape("weights", weights, patches.shape[1:])
            weights = weights[None]
        else:
            _require_shape("weights", weights, patches.shape)
        self.totals.add(numbers, patches, weights)
        self.weights.add(numbers, np.ones((1, self.grid.n_pixels)), weights)

    def mean(self) -> NDArray[np.float64]:
        """The weighted mean of the patches at each pixel, NaN where there is none."""
        return self.mean_of(self.totals)

    def mean_of(self, totals: PatchSum) -> NDArray[np.float64]:
        """The weighted mean of other patches with the same weights."""
        weight = self.weight
        image = np.full(weight.shape, np.nan)
        np.divide(totals.value, weight, out=image, where=weight != 0)
        return image


class Marks:
    """The pixels that patches cover. `strip` is as in `PatchSum`."""

    def __init__(self, grid: Grid, strip: slice | None = None) -> None:
        self.grid = grid
        self.strip = slice(0, grid.framed[0]) if strip is None else strip
        self._framed = np.zeros((self.strip.stop - self.strip.start, *grid.framed[1:]), np.bool_)

    def add(self, numbers: Numbers) -> None:
        """Mark the pixels that patches cover."""
        tops, lefts = self.grid.corners(numbers)
        (height, width), channels = self.grid.patch, self.grid.shape[2]
        flat = self._framed.reshape(len(self._framed), self.grid.framed[1] * channels)
        _mark(tops - self.strip.start, lefts * channels, height, width * channels, flat)

    def share(self, rows: Ranges, comm: Communicator) -> None:
        """Keep what patches of any process cover of the rows that this one is to have."""
        own = rows[comm.rank]
        found = np.zeros((own.stop - own.start, *self.grid.framed[1:]), np.bool_)
        for first, piece in _exchanged(self._framed, self.strip, rows, comm):
            found[first : first + len(piece)] |= piece
        self._framed, self.strip = found, own

    @property
    def value(self) -> NDArray[np.bool_]:
        """What is covered of those rows of the image that patches lie in."""
        return self.grid.inside(self._framed, self.strip.start)


def _require_shape(name: str, array: NDArray[Any], shape: tuple[int, ...]) -> None:
    if array.shape != shape:
        raise ValueError(f"{name} must have the shape {shape}; got {array.shape}.")
