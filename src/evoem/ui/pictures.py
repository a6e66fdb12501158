"""Pictures given to the page: read from uploads, kept in memory, and shown."""

import itertools
import re
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from evoem.images import files, viewing
from evoem.images.files import FileError, Picture
from evoem.images.stacks import Stack, of_slices
from evoem.runtime.silence import silent_libraries

# Of a file that is uploaded.
MOST_BYTES = 1 << 29
# That are kept at a time: memory is not for the first pictures of a long day.
MOST_PICTURES = 16
LONGEST_NAME = 80
LARGEST_SIDE = 2048  # of a picture on the page

Array = NDArray[np.float64]
Result = TypeVar("Result")


class Given(NamedTuple):
    """A picture and what its file was called."""

    name: str
    picture: Picture
    mask: NDArray[np.bool_] | None = None  # of (rows, columns), or of each slice or channel

    @property
    def n_slices(self) -> int:
        """One unless it is a stack."""
        return len(self.picture.pixels) if self.picture.stack else 1

    @property
    def slices(self) -> NDArray[Any]:
        """Pixels with a first axis."""
        pixels = self.picture.pixels
        return pixels if self.picture.stack else pixels[None]

    def missing(self, number: int) -> NDArray[np.bool_] | None:
        """What is missing of a slice, by its file and by the mask."""
        found = None
        axes = self.slices.shape[1:]
        for one in (self.picture.missing, self.mask):
            if one is None:
                continue
            if self.picture.stack and one.shape[:1] == (self.n_slices,) and one.ndim > 2:
                one = one[number]
            one = one if one.ndim == len(axes) else one[..., None]
            found = one if found is None else found | one
        if found is None:
            return None
        whole: NDArray[np.bool_] = np.broadcast_to(found, axes)
        return whole

    def stack(self, *, of_noise: bool) -> Stack:
        """What is to be restored; with what the file says of its noise, if that is asked for."""
        picture = self.picture
        variances: list[NDArray[Any] | None] = [None] * self.n_slices
        axis = -1 if picture.colour else None
        if of_noise and picture.noise_variance is not None:
            given = picture.noise_variance
            variances = of_slices(given, picture.pixels, axis) if picture.stack else [given]
        masks = [self.missing(number) for number in range(self.n_slices)]
        return Stack(self.slices, masks, axis, False, variances)

    def facts(self) -> dict[str, Any]:
        """What the page says of it."""
        rows, columns = self.slices.shape[1:3]
        masked = 0 if self.mask is None else int(np.count_nonzero(self.mask))
        pixels = self.slices
        empty = int(np.isnan(pixels).sum()) if pixels.dtype.kind == "f" else 0
        if self.picture.missing is not None:
            empty += int(self.picture.missing.sum())
        return {
            "name": self.name,
            "rows": rows,
            "columns": columns,
            "channels": pixels.shape[3] if self.picture.colour else 1,
            "slices": self.n_slices,
            "type": str(pixels.dtype),
            "notes": list(self.picture.notes),
            "masked": masked,
            "empty": empty,
        }

    def seen(self, number: int) -> tuple[Array, NDArray[np.bool_]]:
        """A slice as (rows, columns, channels), and where there is a value."""
        values = np.atleast_3d(self.slices[number].astype(np.float64))
        known: NDArray[np.bool_] = np.isfinite(values)
        own = self.picture.missing
        if own is not None:
            missing = self._replace(mask=None).missing(number)
            if missing is not None:
                known &= ~np.atleast_3d(missing)
        return values, known

    def png(self, number: int, restored: NDArray[Any] | None = None) -> bytes:
        """A slice as it was given, or what came of it with the same black and white."""
        values, known = self.seen(number)
        low, high = viewing.shown_range(values[known], values[known], self.slices.dtype)
        if restored is not None:
            values = np.atleast_3d(restored.astype(np.float64))
            known = np.isfinite(values)
        shown = viewing.colours(values, known, low, high)
        return viewing.png(viewing.thinned(shown, LARGEST_SIDE))


class Pictures:
    """Those at hand, by their numbers; uploads pass through a folder that is gone in the end."""

    def __init__(self, folder: Path, max_pixels: int) -> None:
        self._folder = folder
        self._max_pixels = max_pixels
        self._given: dict[int, Given] = {}
        self._numbers = itertools.count(1)

    def __getitem__(self, number: int) -> Given:
        if number not in self._given:
            raise FileError("This picture has expired: please add it again.")
        return self._given[number]

    def read(self, name: str, path: Path) -> int:
        """A picture from an uploaded file, and its number."""
        picture = self._read(path, lambda: files.read(path, max_pixels=self._max_pixels))
        number = next(self._numbers)
        self._given[number] = Given(name, picture)
        for old in list(self._given)[:-MOST_PICTURES]:
            del self._given[old]
        return number

    def mask(self, number: int, path: Path | None) -> Given:
        """Take a mask from an uploaded file, or take it away."""
        given = self[number]
        mask = None
        if path is not None:
            shape = given.slices.shape[1:]
            mask = self._read(
                path, lambda: files.read_mask(path, shape, max_pixels=self._max_pixels)
            )
        self._given[number] = given._replace(mask=mask)
        return self._given[number]

    def _read(self, path: Path, read: Callable[[], Result]) -> Result:
        """Nobody cares where an upload was meanwhile."""
        try:
            with silent_libraries():
                return read()
        except ValueError as error:
            raise FileError(str(error).replace(str(path), path.name)) from error

    async def upload(self, name: str, stream: AsyncIterator[bytes]) -> Path:
        """Write what comes to a file of its own, if it is not too much."""
        own = Path(tempfile.mkdtemp(dir=self._folder)) / safe_name(name)
        size = 0
        with own.open("wb") as file:
            async for chunk in stream:
                size += len(chunk)
                if size > MOST_BYTES:
                    break
                file.write(chunk)
        if size > MOST_BYTES:
            discard(own)
            raise too_large(name)
        return own


def discard(upload: Path) -> None:
    """Remove an upload."""
    upload.unlink(missing_ok=True)
    upload.parent.rmdir()


def too_large(name: str) -> FileError:
    """The error for a file of more bytes than are taken."""
    return FileError(f"{safe_name(name)} must have at most {MOST_BYTES >> 20} MB.")


def safe_name(name: str) -> str:
    """The name of a file without folders and without what means something to any system."""
    name = re.sub(r"[^\w.()+ -]", "_", re.split(r"[/\\]", name)[-1]).lstrip(".")
    return name[-LONGEST_NAME:] or "picture"
