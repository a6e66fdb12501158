"""TIFF files: any number type, any number of channels and pages, and ImageJ's hyperstacks."""

from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

import numpy as np
import tifffile
from tifffile import COMPRESSION, EXTRASAMPLE, PHOTOMETRIC, RESUNIT, TiffPage, TiffPageSeries

from evoem.images.files import pillow
from evoem.images.files.picture import (
    Format,
    Picture,
    Pixels,
    damaged,
    is_number,
    n_channels,
    upright,
    with_alpha,
)
from evoem.runtime.atomic_files import FileError

FOREIGN_COLOURS = (PHOTOMETRIC.SEPARATED, PHOTOMETRIC.YCBCR, PHOTOMETRIC.CIELAB)
COLOURS = (PHOTOMETRIC.MINISWHITE, PHOTOMETRIC.MINISBLACK, PHOTOMETRIC.RGB, PHOTOMETRIC.PALETTE)
ALPHAS = (EXTRASAMPLE.ASSOCALPHA, EXTRASAMPLE.UNASSALPHA)
# What tifffile unpacks by itself.
COMPRESSIONS = (
    COMPRESSION.NONE,
    COMPRESSION.ADOBE_DEFLATE,
    COMPRESSION.DEFLATE,
    COMPRESSION.PACKBITS,
    COMPRESSION.LZMA,
)
# Their descriptions are free text; those of others tell the layout, which may change here.
PLAIN_SERIES = ("generic", "uniform")
IMAGEJ_TYPES = ("uint8", "uint16", "int16", "float32")


def fits(picture: Picture) -> bool:
    """Whether a file can hold the picture."""
    return is_number(picture.pixels.dtype)


def read(path: Path) -> Picture:
    """The picture or the stack in a TIFF file."""
    try:
        with tifffile.TiffFile(path) as file:
            return _decoded(path, file)
    except FileError:
        raise
    # Tags may hold anything, and tifffile looks at few before use: a damaged file ends in
    # whatever error the nonsense leads to, from KeyError to ZeroDivisionError and zlib.error.
    except Exception as error:
        raise damaged(path, error) from error


def write(file: IO[bytes], picture: Picture) -> None:
    """Write a picture or a stack."""
    metadata = picture.metadata
    options: dict[str, Any] = {"iccprofile": metadata.get("icc_profile")}
    if "resolution" in metadata:
        unit = metadata["resolution_unit"].upper()
        options |= {"resolution": metadata["resolution"], "resolutionunit": unit}
    if "imagej" in metadata and _suits_imagej(picture):
        _write_imagej(file, picture, options)
    else:
        _write_plain(file, picture, options)


def _write_plain(file: IO[bytes], picture: Picture, options: dict[str, Any]) -> None:
    pixels = with_alpha(picture)
    n_samples = n_channels(picture) + (picture.alpha is not None)
    if picture.colour and n_samples == 1:
        pixels = pixels[..., 0]
    if n_samples > 1:
        n_colours = 3 if n_channels(picture) == 3 else 1
        extra: list[EXTRASAMPLE] = [EXTRASAMPLE.UNSPECIFIED] * (n_samples - n_colours)
        if picture.alpha is not None:
            straight = not picture.metadata.get("premultiplied")
            extra[-1] = EXTRASAMPLE.UNASSALPHA if straight else EXTRASAMPLE.ASSOCALPHA
        options |= {"planarconfig": "contig", "extrasamples": extra}
    tifffile.imwrite(
        file,
        pixels,
        photometric="rgb" if n_channels(picture) == 3 else "minisblack",
        description=picture.metadata.get("description", "").encode(),
        metadata=None,
        **options,
    )


def _is_imagej_rgb(picture: Picture) -> bool:
    return n_channels(picture) == 3 and picture.metadata["imagej"].get("channels") != 3


def _suits_imagej(picture: Picture) -> bool:
    n_slices = len(picture.pixels) if picture.stack else 1
    return (
        picture.alpha is None
        and picture.pixels.dtype in (["uint8"] if _is_imagej_rgb(picture) else IMAGEJ_TYPES)
        and n_slices % picture.metadata["imagej"].get("frames", 1) == 0
    )


def _write_imagej(file: IO[bytes], picture: Picture, options: dict[str, Any]) -> None:
    about, rgb = picture.metadata["imagej"], _is_imagej_rgb(picture)
    pixels = picture.pixels if picture.stack else picture.pixels[None]
    pixels = pixels if picture.colour else pixels[..., None]
    pixels = pixels.reshape(about.get("frames", 1), -1, *pixels.shape[1:])
    tifffile.imwrite(
        file,
        pixels if rgb else np.moveaxis(pixels, -1, 2),
        imagej=True,
        photometric="rgb" if rgb else "minisblack",
        metadata=about | {"axes": "TZYXS" if rgb else "TZCYX"},
        **options,
    )


def _decoded(path: Path, file: tifffile.TiffFile) -> Picture:
    _check_chain(path, file)
    series = _only_series(path, file)
    page = series.keyframe
    metadata = _metadata(file, series)
    if _is_for_pillow(series):
        picture = pillow.read(path)
        if page.photometric in FOREIGN_COLOURS:
            metadata.pop("icc_profile", None)
        return picture._replace(metadata=metadata)
    _check_series(path, file, series)
    pixels, colour, stack = _channels_last(series.asarray(), series.axes)
    pixels = upright(pixels, page.tags.valueof(274, 1), stack)
    if page.photometric == PHOTOMETRIC.PALETTE:
        palette = np.right_shift(page.tags.valueof(320), 8).astype(np.uint8).reshape(3, -1)
        pixels = np.moveaxis(palette[:, pixels.astype(np.intp)], 0, -1)
        return Picture(pixels, None, True, stack, metadata)
    bits = page.bitspersample
    if bits in (1, 2, 4):
        pixels = pixels.astype(np.uint8) * np.uint8(255 // (2**bits - 1))
    alpha = None
    kinds = [kind for kind in page.extrasamples if kind in ALPHAS]
    if kinds and "S" in series.axes:
        pixels, alpha = _split_alpha(pixels, page)
        metadata |= {"premultiplied": True} if kinds[0] == EXTRASAMPLE.ASSOCALPHA else {}
        colour = pixels.shape[-1] > 1
        pixels = pixels if colour else pixels[..., 0]
    if page.photometric == PHOTOMETRIC.MINISWHITE:
        pixels = (2 ** max(bits, 8) - 1 - pixels).astype(pixels.dtype)
    return Picture(pixels, alpha, colour, stack, metadata)


def _check_chain(path: Path, file: tifffile.TiffFile) -> None:
    """Refuse a file that ends before its last page, which tifffile only logs."""
    offset = file.pages.next_page_offset
    size = file.tiff.offsetsize
    file.filehandle.seek(offset or 0)
    if file.filehandle.read(size) != bytes(size):
        raise damaged(path, f"the list of pages breaks off after {len(file.pages)}")


def _only_series(path: Path, file: tifffile.TiffFile) -> TiffPageSeries:
    pictures = [series for series in file.series if not series.keyframe.is_reduced]
    if len(pictures) != 1:
        raise FileError(
            f"{path} must hold one picture, or pages of one size and type; got {len(pictures)} "
            "different ones."
        )
    return pictures[0]


def _check_series(path: Path, file: tifffile.TiffFile, series: TiffPageSeries) -> None:
    page = series.keyframe
    if series.dtype is None or not (series.dtype == np.bool_ or is_number(series.dtype)):
        raise FileError(f"{path} must hold integers or real numbers; got {series.dtype}.")
    if 0 in series.shape:
        raise FileError(f"{path} must have no empty axis; got the shape {series.shape}.")
    inverted_numbers = page.photometric == PHOTOMETRIC.MINISWHITE and series.dtype.kind not in "bu"
    if page.photometric not in COLOURS or inverted_numbers:
        kind = getattr(page.photometric, "name", page.photometric)
        raise FileError(f"{path} must be grey, RGB or palette colours; got {kind}.")
    if page.compression not in COMPRESSIONS and find_spec("imagecodecs") is None:
        kind = getattr(page.compression, "name", page.compression)
        raise FileError(
            f"{path} must be uncompressed or deflated, or the package imagecodecs installed; "
            f"got {kind}."
        )
    # tifffile would fill with zeros what is not there.
    if any(page is None or page.parent is not file for page in series.pages):
        raise damaged(path, "some of its pages are missing or in other files")
    if _end(series) > file.filehandle.size:
        raise damaged(path, f"it has {file.filehandle.size} bytes instead of {_end(series)}")


def _end(series: TiffPageSeries) -> int:
    """Where in the file the pixels end."""
    if series.dataoffset is not None:
        return series.dataoffset + series.nbytes
    pages = [page for page in series.pages if page is not None]
    return max(int(np.add(page.dataoffsets, page.databytecounts).max()) for page in pages)


def _is_for_pillow(series: TiffPageSeries) -> bool:
    """Whether Pillow reads what tifffile alone does not, and reads it exactly."""
    page = series.keyframe
    exact = series.dtype in (np.bool_, np.uint8) or (
        series.dtype == np.uint16 and page.samplesperpixel == 1
    )
    if len(series.pages) > 1 or page.index != 0 or not exact:
        return False
    palette_with_alpha = page.photometric == PHOTOMETRIC.PALETTE and page.samplesperpixel > 1
    if page.photometric in FOREIGN_COLOURS or palette_with_alpha or page.bitspersample in (2, 4):
        return True
    known_extras = all(kind in ALPHAS for kind in page.extrasamples)
    return known_extras and page.compression not in COMPRESSIONS


def _metadata(file: tifffile.TiffFile, series: TiffPageSeries) -> dict[str, Any]:
    page = series.keyframe
    metadata: dict[str, Any] = {}
    if page.iccprofile:
        metadata["icc_profile"] = page.iccprofile
    resolution = [page.tags.valueof(code, (0, 1)) for code in (282, 283)]
    if all(numerator and denominator for numerator, denominator in resolution):
        unit = RESUNIT(page.tags.valueof(296, RESUNIT.INCH)).name.lower()
        metadata |= {"resolution": tuple(n / d for n, d in resolution), "resolution_unit": unit}
    if series.kind in PLAIN_SERIES and page.description:
        metadata["description"] = page.description
    if series.kind == "imagej":
        metadata["imagej"] = file.imagej_metadata
    return metadata


def _channels_last(pixels: Pixels, axes: str) -> tuple[Pixels, bool, bool]:
    """Pixels with slices first and channels last, and whether there are channels and slices."""
    channels = "S" if "S" in axes else "C"
    last = [axes.index(axis) for axis in "YX" + channels if axis in axes]
    slices = [axis for axis in range(len(axes)) if axis not in last]
    pixels = pixels.transpose(slices + last)
    if slices:
        pixels = pixels.reshape(-1, *pixels.shape[len(slices) :])
    return pixels, channels in axes, bool(slices)


def _split_alpha(pixels: Pixels, page: TiffPage) -> tuple[Pixels, Pixels]:
    """Channels without the first of the extra ones that is alpha, and that one."""
    kinds = list(page.extrasamples)
    position = next(index for index, kind in enumerate(kinds) if kind in ALPHAS)
    position += page.samplesperpixel - len(kinds)
    return np.delete(pixels, position, axis=-1), pixels[..., position]


TIFF = Format(
    (".tif", ".tiff"),
    (b"II*\x00", b"MM\x00*", b"II+\x00", b"MM\x00+"),
    "integers and floats of up to 64 bits",
    fits,
    read,
    write,
)
