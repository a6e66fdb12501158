"""Pictures of the paper, recognised by their content in a folder of the user's.

None is shipped. A file is told by a digest of its pixels, so that it may be of any format and name;
a file of the right name with other pixels is another variant of the picture, and is named as that.
"""

import hashlib
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evoem.images import files
from evoem.images.files import Picture
from evoem.reproduction import recipes
from evoem.runtime.atomic_files import FileError

SUFFIXES = tuple(files.BY_SUFFIX)
SHOWN = 12  # characters of a digest


def digest(pixels: NDArray[Any]) -> str:
    """What tells pictures apart: type, shape and pixels."""
    told = f"{pixels.dtype.name} {'x'.join(map(str, pixels.shape))} ".encode()
    return hashlib.sha256(told + np.ascontiguousarray(pixels).tobytes()).hexdigest()


class Wanted(NamedTuple):
    """A picture of an experiment."""

    name: str
    size: str
    sha256: str  # see `digest`
    source: str
    others: dict[str, str]  # known variants, by their digest


def wanted_by_paper(name: str) -> Wanted:
    """What `pictures.toml` says of a picture."""
    told = recipes.data("pictures")[name]
    others = {other["sha256"]: other["what"] for other in told.get("others", [])}
    return Wanted(name, told["size"], told["sha256"], told["source"], others)


class Shown(NamedTuple):
    """A picture that an experiment takes."""

    pixels: NDArray[Any]
    real: bool  # whether it is the paper's
    says: str  # what it is, if it is not


class Library:
    """The folder of a user."""

    def __init__(
        self, folder: Path | None, wanted: Callable[[str], Wanted] = wanted_by_paper
    ) -> None:
        if folder is not None and not folder.is_dir():
            raise FileError(f"images must be a folder; got {folder}.")
        self.folder = folder
        self.wanted = wanted

    @cached_property
    def found(self) -> dict[str, tuple[Path, Picture]]:
        """Every picture in the folder by its digest."""
        if self.folder is None:
            return {}
        pictures = {}
        for path in sorted(self.folder.iterdir()):
            if path.suffix.lower() in SUFFIXES and path.is_file():
                picture = files.read(path)
                pictures[digest(picture.pixels)] = path, picture
        return pictures

    def get(self, name: str) -> Shown:
        """A picture of the paper, refused with where to get it if it is not there."""
        one = self.wanted(name)
        if one.sha256 in self.found:
            return Shown(self.found[one.sha256][1].pixels, True, "")
        raise FileError(f"images must hold {name}, {one.size}; {self._instead(one)} {one.source}")

    def get_or_substitute(self, name: str) -> Shown:
        """The same, or another picture in its place, which says so."""
        one = self.wanted(name)
        if one.sha256 in self.found:
            return Shown(self.found[one.sha256][1].pixels, True, "")
        pixels, what = substitute(colour=one.size.endswith("RGB"))
        return Shown(pixels, False, f"{name} was not at hand: {what} stands for it.")

    def _instead(self, one: Wanted) -> str:
        """What is in the folder in place of a picture."""
        if self.folder is None:
            return "got no folder."
        for key, what in one.others.items():
            if key in self.found:
                return f"got another variant, {self.found[key][0]}: {what}."
        for key, (path, picture) in self.found.items():
            if path.stem.lower() == one.name.replace("-", "_"):
                size = "x".join(map(str, picture.pixels.shape))
                return (
                    f"got another variant, {path}, {size}, whose pixels have the digest "
                    f"{key[:SHOWN]} and not {one.sha256[:SHOWN]}."
                )
        return f"found none in {self.folder}."


def substitute(*, colour: bool) -> tuple[NDArray[np.uint8], str]:
    """A photograph of scikit-image, or a drawing if that is not installed; and what it is."""
    try:
        from skimage import data
    except ImportError:
        return leaves(colour=colour), "a drawing of random discs"
    if colour:
        return np.asarray(data.astronaut()), "scikit-image's picture of an astronaut"
    return np.asarray(data.camera()), "scikit-image's picture of a cameraman"


def leaves(size: int = 256, *, colour: bool) -> NDArray[np.uint8]:
    """Discs of all sizes that hide each other, with edges like those of photographs."""
    rng = np.random.default_rng(0)
    y, x = np.mgrid[:size, :size]
    channels = 3 if colour else 1
    out = np.full((size, size, channels), 128.0)
    for _ in range(400):
        radius = size * 0.02 / rng.uniform(0.08, 1.0)
        row, column = rng.uniform(0, size, 2)
        out[np.hypot(y - row, x - column) < radius] = rng.uniform(20, 235, channels)
    drawn: NDArray[np.uint8] = np.rint(out).astype(np.uint8)
    return drawn if colour else drawn[..., 0]
