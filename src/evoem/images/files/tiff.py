"""TIFF files: any number type, any number of channels and pages, OME-TIFF, ImageJ's hyperstacks."""

import logging
import math
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

import numpy as np
import tifffile
from numpy.typing import NDArray
from tifffile import (
    COMPRESSION,
    EXTRASAMPLE,
    PHOTOMETRIC,
    PLANARCONFIG,
    RESUNIT,
    TiffFrame,
    TiffPage,
    TiffPageSeries,
)

from evoem.images.files import inflation, layout, ome, pillow
from evoem.images.files.layout import Layout
from evoem.images.files.picture import (
    Format,
    Header,
    Picture,
    Pixels,
    Rows,
    Wanted,
    damaged,
    equal,
    is_number,
    n_channels,
    upright,
    with_alpha,
)
from evoem.runtime.atomic_files import FileError

# It tells of damage in lines of its own; who wants them still has them, by a handler.
logging.getLogger("tifffile").addHandler(logging.NullHandler())

FOREIGN_COLOURS = (PHOTOMETRIC.SEPARATED, PHOTOMETRIC.YCBCR, PHOTOMETRIC.CIELAB)
COLOURS = (PHOTOMETRIC.MINISWHITE, PHOTOMETRIC.MINISBLACK, PHOTOMETRIC.RGB, PHOTOMETRIC.PALETTE)
PLAIN_COLOURS = (PHOTOMETRIC.MINISBLACK, PHOTOMETRIC.RGB)
ALPHAS = (EXTRASAMPLE.ASSOCALPHA, EXTRASAMPLE.UNASSALPHA)
# What tifffile unpacks by itself.
COMPRESSIONS = (
    COMPRESSION.NONE,
    COMPRESSION.ADOBE_DEFLATE,
    COMPRESSION.DEFLATE,
    COMPRESSION.PACKBITS,
    COMPRESSION.LZMA,
)
# How many bytes a strip or tile is unpacked to.
INFLATED: dict[int, Callable[[bytes, int], int]] = {
    COMPRESSION.ADOBE_DEFLATE: inflation.deflated,
    COMPRESSION.DEFLATE: inflation.deflated,
    COMPRESSION.PACKBITS: inflation.run_lengths,
    COMPRESSION.LZMA: inflation.lzma_packed,
}
# Some strips have rows to spare.
SLACK = 2
GDAL_NODATA = 42113  # the tag of a value that stands for missing
# Their descriptions are free text; those of others tell the layout, which may change here.
PLAIN_SERIES = ("generic", "uniform")
# Their axes are told, and kept in their order.
NAMED_AXES = ("ome", "imagej", "shaped")
IMAGEJ_TYPES = ("uint8", "uint16", "int16", "float32")


def fits(picture: Picture) -> bool:
    """Whether a file can hold the picture."""
    return is_number(picture.pixels.dtype)


def header(path: Path, wanted: Wanted) -> Header:
    """What a TIFF file says of its size."""
    with tifffile.TiffFile(path) as file:
        _check_chain(path, file)
        _, series = _series(path, file, wanted.part)
        segment = _segment(series.keyframe)
        # Tiles that stand out of the picture are unpacked as well.
        if math.prod(segment) > math.prod(series.shape):
            return Header(segment)
        return Header(series.shape)


def read(path: Path, wanted: Wanted) -> Picture:
    """The picture or the stack in a TIFF file."""
    with tifffile.TiffFile(path) as file:
        return _decoded(path, file, wanted)


def write(file: IO[bytes], picture: Picture) -> None:
    """Write a picture or a stack."""
    known = picture.metadata
    if "imagej" in known and _suits_imagej(picture):
        _write_imagej(file, picture, _options(known))
    elif any(name in known for name in ("ome", "pixel_size")) and _suits_ome(picture):
        _write_ome(file, picture, _options(known))
    elif layout.layout_of(picture) != layout.plain(picture):
        _write_shaped(file, picture, _options(known))
    else:
        _write_plain(file, picture, _options(known))


def write_ome(file: IO[bytes], picture: Picture) -> None:
    """Write a picture or a stack as OME-TIFF."""
    _write_ome(file, picture, _options(picture.metadata))


def _options(metadata: dict[str, Any]) -> dict[str, Any]:
    options: dict[str, Any] = {"iccprofile": metadata.get("icc_profile")}
    if "resolution" in metadata:
        unit = metadata["resolution_unit"].upper()
        options |= {"resolution": metadata["resolution"], "resolutionunit": unit}
    return options


def _suits_ome(picture: Picture) -> bool:
    return picture.pixels.dtype.name in ome.TYPES


def _write_ome(file: IO[bytes], picture: Picture, options: dict[str, Any]) -> None:
    lies = layout.layout_of(picture)
    n_samples = lies.size("S")
    if n_samples > 1:
        options |= {"planarconfig": "contig", "extrasamples": _extra_samples(picture)}
    options["photometric"] = "rgb" if n_samples in (3, 4) else "minisblack"
    if "ome" in picture.metadata:
        xml, number = picture.metadata["ome"]
        full = ome.full_layout(ome.images(xml)[number], n_samples)
        if math.prod(full.shape) == math.prod(lies.shape):
            pixels = layout.in_file(picture, lies).reshape(full.shape)
            n_planes = math.prod(full.shape[:3])
            text = ome.of_restored(xml, number, pixels.dtype, n_planes)
            pages = pixels.reshape(-1, *pixels.shape[3:])
            tifffile.imwrite(file, pages, description=text.encode(), metadata=None, **options)
            return
    own = ome.nearest(lies)
    about = ome.new(own, picture.metadata)
    tifffile.imwrite(file, layout.in_file(picture, own), ome=True, metadata=about, **options)


def _write_shaped(file: IO[bytes], picture: Picture, options: dict[str, Any]) -> None:
    """Write an array of any axes, named as tifffile does."""
    lies = layout.layout_of(picture)
    if lies.axes[-1] == "S" and lies.shape[-1] > 1:
        options |= {"planarconfig": "contig", "extrasamples": _extra_samples(picture)}
        options["photometric"] = "rgb" if lies.shape[-1] in (3, 4) else "minisblack"
    else:
        options["photometric"] = "minisblack"
    tifffile.imwrite(file, layout.in_file(picture, lies), metadata={"axes": lies.axes}, **options)


def _extra_samples(picture: Picture) -> list[EXTRASAMPLE]:
    """What samples are beside grey or RGB."""
    n_samples = n_channels(picture) + (picture.alpha is not None)
    n_colours = 3 if n_channels(picture) == 3 else 1
    extra: list[EXTRASAMPLE] = [EXTRASAMPLE.UNSPECIFIED] * (n_samples - n_colours)
    if picture.alpha is not None:
        straight = not picture.metadata.get("premultiplied")
        extra[-1] = EXTRASAMPLE.UNASSALPHA if straight else EXTRASAMPLE.ASSOCALPHA
    return extra


def _write_plain(file: IO[bytes], picture: Picture, options: dict[str, Any]) -> None:
    pixels = with_alpha(picture)
    n_samples = n_channels(picture) + (picture.alpha is not None)
    if picture.colour and n_samples == 1:
        pixels = pixels[..., 0]
    if n_samples > 1:
        options |= {"planarconfig": "contig", "extrasamples": _extra_samples(picture)}
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


def _decoded(path: Path, file: tifffile.TiffFile, wanted: Wanted) -> Picture:
    number, series = _series(path, file, wanted.part)
    page = series.keyframe
    lies = Layout(series.axes, series.shape)
    if wanted.axes is not None:
        lies = layout.checked(str(path), wanted.axes, series.shape)
    metadata = _metadata(file, series, number)
    if page.photometric != PHOTOMETRIC.PALETTE and (
        series.kind in NAMED_AXES or wanted.axes is not None
    ):
        metadata["layout"] = lies
    stands_for_missing = _stands_for_missing(page)
    if _is_for_pillow(series):
        picture = pillow.read_tiff(path)
        if page.photometric in FOREIGN_COLOURS:
            metadata.pop("icc_profile", None)
        picture = picture._replace(metadata=metadata)
        if stands_for_missing is None:
            return picture
        if page.photometric not in PLAIN_COLOURS or page.bitspersample < 8:
            raise FileError(
                f"{path} must be grey or RGB to declare a value for missing (GDAL_NODATA); "
                f"got {stands_for_missing:g}."
            )
        return _without(picture, equal(picture.pixels, stands_for_missing), stands_for_missing)
    _check_series(path, file, series)
    moved = "layout" not in metadata and page.tags.valueof(274, 1) != 1
    rows = None if moved or stands_for_missing is not None else wanted.rows
    stored = _stored(series, lies, rows)
    pixels, colour, stack = layout.arranged(stored, lies)
    if "layout" not in metadata:
        pixels = upright(pixels, page.tags.valueof(274, 1), stack)
    missing = None if stands_for_missing is None else equal(pixels, stands_for_missing)
    picture = _in_colour(Picture(pixels, None, colour, stack, metadata), series)
    if missing is None or stands_for_missing is None:
        return picture
    if picture.alpha is not None:
        missing, _ = _split_alpha(missing, page)
        missing = missing if picture.colour else missing[..., 0]
    return _without(picture, missing, stands_for_missing)


def _stored(series: TiffPageSeries, lies: Layout, rows: Rows | None) -> NDArray[Any]:
    """The array of a series, of which only some strips or tiles are unpacked if that is enough."""
    if rows is None:
        return series.asarray()
    page = series.keyframe
    if series.dataoffset is not None or lies.slices or len(series.pages) > 1:
        return series.asarray(out="memmap")  # of what is compressed in a temporary file
    own, file = rows(lies.size("Y")), page.parent.filehandle
    found = np.zeros(page.shaped, page.dtype)
    for number, (offset, n_bytes) in enumerate(
        zip(page.dataoffsets, page.databytecounts, strict=True)
    ):
        _, (_, _, top, _, _), (_, height, _, _) = page.decode(None, number)
        if top >= own.stop or top + height <= own.start:
            continue
        file.seek(offset)
        data = file.read(n_bytes) if n_bytes else None  # nothing is stored of some segments
        segment, (sample, depth, top, left, _), (thick, height, width, _) = page.decode(
            data, number, jpegtables=page.jpegtables
        )
        where = found[sample, depth : depth + thick, top : top + height, left : left + width]
        where[...] = (
            page.nodata
            if segment is None
            else segment[: len(where), : where.shape[1], : where.shape[2]]
        )
    return found.reshape(series.shape)


def _without(picture: Picture, missing: NDArray[np.bool_], value: float) -> Picture:
    """The picture without the values that the file declares to be missing."""
    number = np.count_nonzero(missing)
    if not number:
        return picture
    note = f"{number} pixels are {value:g}, which the file declares as missing (GDAL_NODATA)."
    return picture._replace(missing=missing, notes=(*picture.notes, note))


def _stands_for_missing(page: TiffPage) -> float | None:
    """The value of GDAL_NODATA, if there is a number in it."""
    try:
        return float(page.tags.valueof(GDAL_NODATA, "").strip("\0 "))
    except (ValueError, AttributeError):
        return None


def _in_colour(stored: Picture, series: TiffPageSeries) -> Picture:
    """What the stored numbers mean: colours, alpha, or brightness."""
    page = series.keyframe
    pixels, colour, stack, metadata = stored.pixels, stored.colour, stored.stack, stored.metadata
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


def _series(path: Path, file: tifffile.TiffFile, part: str | None) -> tuple[int, TiffPageSeries]:
    """The picture that is wanted of a file, and its number; small versions of others are none."""
    pictures = [series for series in file.series if not series.keyframe.is_reduced]
    if part is not None:
        if not part.isdecimal() or int(part) >= len(pictures):
            raise FileError(
                f"{path} must have the picture that is asked for, :/0 to :/{len(pictures) - 1}; "
                f"got {part!r}."
            )
        return int(part), pictures[int(part)]
    if len(pictures) != 1:
        raise FileError(
            f"{path} must hold one picture, or pages of one size and type, or be given with the "
            f"number of one, as in {path.name}:/0; got {len(pictures)} different ones."
        )
    return 0, pictures[0]


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
    for part in series.pages:
        if part is not None:
            _check_segments(path, file, part, series.keyframe)


def _check_segments(
    path: Path, file: tifffile.TiffFile, page: TiffPage | TiffFrame, key: TiffPage
) -> None:
    """Refuse strips and tiles that are empty, or are unpacked to more than they have room for."""
    counts = page.databytecounts
    absent = max(0, math.prod(page.chunked) - len(counts)) + counts.count(0)
    if absent and _stands_for_missing(key) is None:
        raise damaged(path, f"{absent} of its strips or tiles are empty")
    count = INFLATED.get(key.compression)
    if count is None:
        return
    rows, columns, samples = _segment(key)
    room = rows * columns * samples * max(1, -(-key.bitspersample // 8))
    for offset, packed in zip(page.dataoffsets, page.databytecounts, strict=True):
        file.filehandle.seek(offset)
        if count(file.filehandle.read(packed), SLACK * room) > SLACK * room:
            raise damaged(path, f"a strip or tile of {room} bytes unpacks to far more")


def _segment(page: TiffPage) -> tuple[int, int, int]:
    """Rows, columns and samples of a strip or a tile."""
    samples = page.samplesperpixel if page.planarconfig == PLANARCONFIG.CONTIG else 1
    if page.is_tiled:
        return page.tiledepth * page.tilelength, page.tilewidth, samples
    return min(page.rowsperstrip, page.imagelength), page.imagewidth, samples


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


def _metadata(file: tifffile.TiffFile, series: TiffPageSeries, number: int) -> dict[str, Any]:
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
        metadata |= _imagej_sizes(file.imagej_metadata or {}, metadata.get("resolution"))
    if series.kind == "ome" and file.ome_metadata is not None:
        metadata |= {"ome": (file.ome_metadata, number)}
        metadata |= ome.told(ome.images(file.ome_metadata)[number])
    return metadata


def _imagej_sizes(about: dict[str, Any], per_unit: tuple[float, float] | None) -> dict[str, Any]:
    """Sizes of pixels, as ImageJ has them: a unit, and how many there are in it."""
    unit = str(about.get("unit", ""))
    sizes: dict[str, tuple[float, str]] = {}
    if unit and per_unit is not None:
        sizes = {"X": (1 / per_unit[0], unit), "Y": (1 / per_unit[1], unit)}
    if unit and about.get("spacing"):
        sizes["Z"] = float(about["spacing"]), unit
    if about.get("finterval"):
        sizes["T"] = float(about["finterval"]), "s"
    return {"pixel_size": sizes} if sizes else {}


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
    header,
    read,
    write,
    several="pictures",
)
OME_TIFF = TIFF._replace(
    suffixes=(".ome.tif", ".ome.tiff"),
    holds="integers of up to 32 bits and floats of 32 or 64",
    fits=_suits_ome,
    write=write_ome,
)
