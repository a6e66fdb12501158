"""FITS files by astropy: an image or a cube, its data-quality and error planes, and all headers.

What is not the picture is kept byte by byte, and so comes back as it was.
"""

import io
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evoem.images.files import inflation, layout
from evoem.images.files.picture import (
    Format,
    Header,
    Needs,
    OwnMetadata,
    Picture,
    Wanted,
    damaged,
    equal,
    is_number,
)
from evoem.runtime.atomic_files import FileError

QUALITY = ("DQ", "MASK", "FLAGS", "QUALITY", "DATAQUALITY", "BPM", "BADPIX")
DEVIATIONS = ("ERR", "ERROR", "STDDEV", "UNCERT", "UNC", "SIGMA", "RMS", "STD")
VARIANCES = ("VAR", "VARIANCE")
WEIGHTS = ("WHT", "WEIGHT", "IVAR", "IVM", "INVVAR")
NOISE = DEVIATIONS + VARIANCES + WEIGHTS
# What astropy says of the numbers in UNCERT.
UNCERTAINTIES = {"VarianceUncertainty": VARIANCES, "InverseVariance": WEIGHTS}
# Telescopes whose first bit of data quality says that a value is of no use; others tell more.
FIRST_BIT = ("JWST", "ROMAN")
# Keywords of how values are stored, and of sums over them.
OF_VALUES = ("BSCALE", "BZERO", "BLANK", "DATAMIN", "DATAMAX", "CHECKSUM", "DATASUM")
# Columns of packed tiles, and how much they may be unpacked to.
PACKED = ("COMPRESSED_DATA", "GZIP_COMPRESSED_DATA")
SLACK, BYTES_OF_VALUE = 2, 8
BLOCK = 2880  # bytes; headers and data are filled up to whole ones
TYPES = [f"{kind}int{bits}" for kind in ("", "u") for bits in (8, 16, 32, 64)]
TYPES += ["float32", "float64"]


class Rest(NamedTuple):
    """Another part of a file, as it is."""

    content: bytes
    tells_noise: bool


class Fits(OwnMetadata):
    """The header of a picture, and what is around it in its file."""

    def __init__(self, header: Any, before: tuple[Rest, ...], after: tuple[Rest, ...]) -> None:
        self.header = header
        self.before = before
        self.after = after

    def of_deviations(self) -> "Fits":
        """The header alone."""
        return Fits(self.header, (), ())


def fits(picture: Picture) -> bool:
    """Whether a file can hold the picture."""
    return picture.pixels.dtype.name in TYPES


def header(path: Path, wanted: Wanted) -> Header:
    """What a FITS file says of the size of its picture."""
    with _opened(path, inflation.MOST_OF_HEADERS) as file:
        number = _wanted(path, file, wanted.part)
        shape = file[number].shape
        tile = getattr(file[number], "tile_shape", None) or (1,)
        return Header(shape if math.prod(shape) >= math.prod(tile) else tuple(tile))


def read(path: Path, wanted: Wanted) -> Picture:
    """The image or the cube in a FITS file, with what its other planes say of it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*truncated.*")
        with _opened(path) as file:
            _check_tiles(path, file)
            return _decoded(path, file, wanted)


def _decoded(path: Path, file: Any, wanted: Wanted) -> Picture:
    number = _wanted(path, file, wanted.part)
    own, told = file[number], file[number].header.copy()
    if wanted.axes is not None:
        lies = layout.checked(str(path), wanted.axes, own.shape)
    else:
        lies = layout.of_slices(own.shape)
    values = np.array(own.data)
    if not is_number(values.dtype):
        raise FileError(f"{path} must hold integers or real numbers; got {values.dtype}.")
    missing = _blank(values, told)
    notes, variance = [], None
    if missing.any():
        notes.append(f"{np.count_nonzero(missing)} pixels are BLANK and count as missing.")
    for name, plane in _companions(file, number):
        if name in QUALITY:
            bad = _bad(plane, [file[0].header, told])
            notes.append(
                f"{np.count_nonzero(bad)} pixels are marked as missing by the extension {name}."
            )
            missing |= bad
        elif variance is None:
            variance = _variance(plane)
            notes += [f"The extension {name} gives the noise of each pixel."]
    pixels, colour, stack = layout.arranged(values, lies)
    around = _around(path, file, number)
    metadata: dict[str, Any] = {"layout": lies, "fits": Fits(told, *around)}
    return Picture(
        pixels,
        None,
        colour,
        stack,
        metadata,
        layout.arranged(missing, lies)[0] if missing.any() else None,
        tuple(notes),
        None if variance is None else layout.arranged(variance, lies)[0],
    )


def write(file: IO[bytes], picture: Picture) -> None:
    """Write a picture with its header, and with what was around it."""
    from astropy.io import fits as astropy_fits

    known = picture.metadata.get("fits") or Fits(astropy_fits.Header(), (), ())
    lies = layout.layout_of(picture)
    if "fits" not in picture.metadata:
        lies = layout.rows_and_columns_last(lies)
    told = known.header.copy()
    for keyword in OF_VALUES:
        told.remove(keyword, ignore_missing=True, remove_all=True)
    told.add_history(f"Restored by evoem {version('evoem')}.")
    first = not known.before
    kind = astropy_fits.PrimaryHDU if first else astropy_fits.ImageHDU
    own = kind(layout.in_file(picture, lies), told)
    sums = "CHECKSUM" in known.header
    for rest in known.before:
        if picture.noise_variance is not None or not rest.tells_noise:
            file.write(rest.content)
    content = io.BytesIO()
    parts = [own] if first else [astropy_fits.PrimaryHDU(), own]
    astropy_fits.HDUList(parts).writeto(content, checksum=sums, output_verify="fix+ignore")
    file.write(content.getvalue()[0 if first else BLOCK :])
    for rest in known.after:
        if picture.noise_variance is not None or not rest.tells_noise:
            file.write(rest.content)


def _blank(values: NDArray[Any], told: Any) -> NDArray[np.bool_]:
    """Where whole numbers, perhaps scaled, stand for nothing."""
    if "BLANK" not in told or told["BITPIX"] < 0:
        return np.zeros(values.shape, np.bool_)
    scale = float(told.get("BSCALE", 1))
    blank = scale * told["BLANK"] + told.get("BZERO", 0)
    if values.dtype.kind in "ui":
        return equal(values, blank)
    return np.asarray(np.abs(values - blank) < abs(scale) / 4)


@contextmanager
def _opened(path: Path, most: int | None = None, **options: bool) -> Iterator[Any]:
    from astropy.io import fits as astropy_fits

    with (
        inflation.opened(path, most) as plain,
        astropy_fits.open(plain, memmap=False, uint=True, ignore_blank=True, **options) as file,
    ):
        yield file


def _images(file: Any) -> list[int]:
    """Which parts of a file are arrays of two axes or more."""
    return [n for n, hdu in enumerate(file) if hdu.is_image and len(hdu.shape) > 1]


def _wanted(path: Path, file: Any, part: str | None) -> int:
    """The number of the extension that holds the picture."""
    images = _images(file)
    if part is not None:
        for number in images:
            if part in (str(number), file[number].name, f"{file[number].name},{file[number].ver}"):
                return number
    else:
        chosen = [n for n in images if file[n].name not in QUALITY + NOISE]
        if len(chosen) == 1:
            return chosen[0]
        sciences = [n for n in chosen if file[n].name == "SCI"]
        if len(sciences) == 1:
            return sciences[0]
        images = chosen or images
    names = [f":/{file[n].name},{file[n].ver}" if file[n].name else f":/{n}" for n in images]
    asked = "none asked for" if part is None else f"{part!r}"
    raise FileError(
        f"{path} must have one picture, or the one that is asked for, of "
        f"{', '.join(names[:8]) or 'none'}; got {asked}."
    )


def _check_tiles(path: Path, file: Any) -> None:
    """Refuse tiles of gzip that are unpacked to more than they have room for."""
    rooms = {
        number: SLACK * BYTES_OF_VALUE * math.prod(map(int, one.tile_shape))
        for number, one in enumerate(file)
        if getattr(one, "tile_shape", None) is not None
    }
    if not rooms:
        return
    with _opened(path, disable_image_compression=True) as tables:
        for number, room in rooms.items():
            packed = tables[number].data
            for name in PACKED:
                for content in packed[name] if name in packed.names else ():
                    if inflation.gunzipped(np.asarray(content).tobytes(), room) > room:
                        raise damaged(path, f"a tile of {room // SLACK} bytes unpacks to far more")


def _companions(file: Any, number: int) -> list[tuple[str, NDArray[Any]]]:
    """Planes of quality and noise of a picture, deviations before weights: kinds and values."""
    own, found = file[number], []
    for other in file:
        name = other.name.upper()
        if not other.is_image or other.shape != own.shape or other.ver != own.ver:
            continue
        if name not in QUALITY + NOISE:
            continue
        kinds = UNCERTAINTIES.get(other.header.get("UTYPE", ""), (name,))
        plane = np.array(other.data)
        if name in WEIGHTS or kinds == WEIGHTS:
            plane = _inverse(plane.astype(np.float64))
        elif name in NOISE and kinds != VARIANCES and name not in VARIANCES:
            plane = plane.astype(np.float64) ** 2
        found.append((name, plane))
    order = (*QUALITY, *NOISE)
    return sorted(found, key=lambda pair: order.index(pair[0]))


def _inverse(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Variances of weights; none where there is no weight."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(weights > 0, 1 / weights, np.inf)


def _variance(plane: NDArray[Any]) -> NDArray[np.float64] | None:
    """Variances as they are asked for: infinite where there is no measurement."""
    values = plane.astype(np.float64)
    known = np.isfinite(values) & (values > 0)
    return np.where(known, values, np.inf) if known.any() else None


def _bad(quality: NDArray[Any], headers: list[Any]) -> NDArray[np.bool_]:
    """Where data quality says that values are of no use."""
    if quality.dtype.kind not in "ui":
        return np.asarray(quality != 0)
    first = any(told.get("TELESCOP", "").strip().upper() in FIRST_BIT for told in headers)
    return np.asarray((quality & quality.dtype.type(1) if first else quality) != 0)


def _around(path: Path, file: Any, number: int) -> tuple[tuple[Rest, ...], tuple[Rest, ...]]:
    """What is before and behind the picture in its file."""
    own = file[number]
    before: list[Rest] = []
    after: list[Rest] = []
    with inflation.opened(path) as plain:
        for other_number, other in enumerate(file):
            place = file.fileinfo(other_number)
            if other_number == number:
                continue
            plain.seek(place["hdrLoc"])
            content = plain.read(place["datLoc"] + place["datSpan"] - place["hdrLoc"])
            tells_noise = other.is_image and other.name.upper() in NOISE and other.ver == own.ver
            (before if other_number < number else after).append(Rest(content, tells_noise))
    return tuple(before), tuple(after)


FITS = Format(
    (".fits", ".fit", ".fts"),
    (b"SIMPLE  =",),
    "integers of up to 64 bits and floats of 32 or 64",
    fits,
    header,
    read,
    write,
    needs=Needs("astropy", "astro"),
    several="extensions",
)
