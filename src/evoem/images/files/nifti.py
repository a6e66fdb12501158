"""NIfTI files by nibabel: volumes of medical imaging, with affine, header and extensions."""

import gzip
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from evoem.images.files import inflation, layout
from evoem.images.files.layout import Layout
from evoem.images.files.picture import (
    Format,
    Header,
    Needs,
    OwnMetadata,
    Picture,
    Wanted,
    is_number,
)
from evoem.runtime.atomic_files import FileError

# It tells of damage in lines of its own; without any handler Python would print them.
logging.getLogger("nibabel").addHandler(logging.NullHandler())

# Rows, columns and slices of what is on the screen of a reader: x runs fastest in the file.
AXES = "XYZTUVW"
UNITS = {"mm": "mm", "micron": "µm", "meter": "m", "sec": "s", "msec": "ms", "usec": "µs"}
# What is said of how values are shown, which is not true of others.
SHOWN = {"cal_max": 0, "cal_min": 0}


class Nifti(OwnMetadata):
    """The header of a volume and where it lies."""

    def __init__(self, header: Any, affine: Any) -> None:
        self.header = header
        self.affine = affine

    def of_deviations(self) -> "Nifti":
        """The same, but for how values are shown."""
        header = self.header.copy()
        for name, value in SHOWN.items():
            header[name] = value
        return Nifti(header, self.affine)


def fits(picture: Picture) -> bool:
    """Whether a file can hold the picture."""
    dtype = picture.pixels.dtype
    return is_number(dtype) and dtype.name != "float16"


def header(path: Path, wanted: Wanted) -> Header:
    """What a NIfTI file says of its size."""
    with _opened(path, inflation.MOST_OF_HEADERS) as image:
        return Header(tuple(map(int, image.shape)))


def read(path: Path, wanted: Wanted) -> Picture:
    """The volume in a NIfTI file."""
    with _opened(path) as image:
        kind = image.header.get_data_dtype()
        if not is_number(kind):
            raise FileError(f"{path} must hold integers or real numbers; got {kind}.")
        if len(image.shape) < 2:
            raise FileError(f"{path} must have two axes or more; got the shape {image.shape}.")
        lies = Layout(AXES[: len(image.shape)], image.shape)
        if wanted.axes is not None:
            lies = layout.checked(str(path), wanted.axes, image.shape)
        pixels, colour, stack = layout.arranged(_values(image), lies)
        metadata: dict[str, Any] = {"layout": lies, "nifti": Nifti(image.header, image.affine)}
        sizes = _sizes(image.header)
    if sizes:
        metadata["pixel_size"] = sizes
    return Picture(pixels, None, colour, stack, metadata)


def write(file: IO[bytes], picture: Picture) -> None:
    """Write a volume."""
    file.write(_content(picture))


def write_packed(file: IO[bytes], picture: Picture) -> None:
    """Write a volume, compressed."""
    with gzip.GzipFile("", "wb", 6, file, mtime=0) as packed:
        packed.write(_content(picture))


def _content(picture: Picture) -> bytes:
    import nibabel

    known = picture.metadata.get("nifti")
    if known is None:
        lies = _as_volume(layout.layout_of(picture))
        known = Nifti(None, np.diag([*_steps(picture), 1.0]))
    else:
        lies = layout.layout_of(picture)
    values = layout.in_file(picture, lies)
    kind = nibabel.Nifti2Image if _is_second(known.header, values) else nibabel.Nifti1Image
    header = None
    if known.header is not None:
        header = known.header.copy()
        header.set_data_dtype(values.dtype)
        # Values are those that they stand for: what was scaled is written as it is.
        header.set_slope_inter(1, 0)
        for name in SHOWN:
            if not float(header["cal_max"]) > float(header["cal_min"]):
                header[name] = 0
    with np.errstate(invalid="ignore"):  # an affine may be damaged
        image = kind(values, known.affine, header, dtype=values.dtype)
    if known.header is None:
        image.header.set_xyzt_units("mm")
    return bytes(image.to_bytes())


def _is_second(header: Any, values: Any) -> bool:
    """Whether it is NIfTI-2, which longer axes need."""
    first = header is None or header["sizeof_hdr"] == 348
    return not first or max(values.shape) > np.iinfo(np.int16).max


def _as_volume(lies: Layout) -> Layout:
    """The layout of what was no volume: x, y, slices, then channels."""
    order = [lies.axes.index("X"), lies.axes.index("Y"), *lies.slices]
    if not lies.slices and lies.channels:
        return Layout("XYZ" + lies.channels, (lies.size("X"), lies.size("Y"), 1, lies.size("C")))
    order += [lies.axes.index(letter) for letter in lies.channels]
    return Layout("".join(lies.axes[k] for k in order), tuple(lies.shape[k] for k in order))


def _steps(picture: Picture) -> list[float]:
    sizes = picture.metadata.get("pixel_size", {})
    to_mm = {"m": 1e3, "cm": 10.0, "mm": 1.0, "µm": 1e-3, "um": 1e-3, "micron": 1e-3, "nm": 1e-6}
    return [
        sizes[letter][0] * to_mm[sizes[letter][1]]
        if letter in sizes and sizes[letter][1] in to_mm
        else 1.0
        for letter in "XYZ"
    ]


@contextmanager
def _opened(path: Path, most: int | None = None) -> Iterator[Any]:
    import nibabel
    from nibabel.imageglobals import LoggingOutputSuppressor

    with inflation.opened(path, most) as plain, LoggingOutputSuppressor():
        start = plain.read(4)
        plain.seek(0)
        second = 540 in (int.from_bytes(start, "little"), int.from_bytes(start, "big"))
        kind = nibabel.Nifti2Image if second else nibabel.Nifti1Image
        holder = nibabel.FileHolder(fileobj=plain)
        yield kind.from_file_map({"image": holder, "header": holder})


def _values(image: Any) -> Any:
    """Values as they were measured: integers, unless a slope says otherwise."""
    slope, inter = image.dataobj.slope, image.dataobj.inter
    if (slope, inter) == (1, 0):
        return np.array(image.dataobj.get_unscaled())
    values = np.asarray(image.dataobj)
    return values.astype(np.float32) if image.header.get_data_dtype().itemsize < 4 else values


def _sizes(header: Any) -> dict[str, tuple[float, str]]:
    length, time = header.get_xyzt_units()
    units = dict.fromkeys("XYZ", UNITS.get(length)) | {"T": UNITS.get(time)}
    zooms = zip(AXES[:4], header.get_zooms(), strict=False)
    found = {letter: (float(size), units[letter]) for letter, size in zooms}
    return {letter: (size, unit) for letter, (size, unit) in found.items() if unit and size > 0}


NIFTI = Format(
    (".nii",),
    (b"n+1\0",),
    "integers of up to 64 bits and floats of 32 or 64",
    fits,
    header,
    read,
    write,
    needs=Needs("nibabel", "medical"),
    signed_at=344,
)
NIFTI_PACKED = NIFTI._replace(suffixes=(".nii.gz",), write=write_packed)
NIFTI_2 = NIFTI._replace(suffixes=(), signatures=(b"n+2\0",), signed_at=4)
