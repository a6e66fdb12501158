"""DICOM files by pydicom: one picture or frames, with all elements that remain valid."""

import logging
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
    damaged,
)
from evoem.runtime.atomic_files import FileError

# It tells of damage in lines of its own; who wants them still has them, by a handler.
logging.getLogger("pydicom").addHandler(logging.NullHandler())

COLOURS = ("RGB", "YBR_FULL", "YBR_FULL_422", "YBR_ICT", "YBR_RCT")
GREYS = ("MONOCHROME1", "MONOCHROME2")
# What is told of values as they were, or of their packing.
OF_VALUES = (
    "SmallestImagePixelValue", "LargestImagePixelValue", "PixelDataProviderURL",
    "ExtendedOffsetTable", "ExtendedOffsetTableLengths", "DigitalSignaturesSequence",
    "MACParametersSequence", "IconImageSequence",
)  # fmt: skip
# Where elements begin, and types of such as have four bytes for their length.
START_OF_META = 128 + 4
LONG = (b"OB", b"OW", b"OF", b"OD", b"OL", b"OV", b"SQ", b"UC", b"UR", b"UT", b"UN")
# Bytes that a file packed as a whole may be unpacked to, or this many times as many as it has.
MOST_UNPACKED, UNPACKED_TIMES = 1 << 26, 8
TYPES = ("uint8", "int8", "uint16", "int16")


class Dicom(OwnMetadata):
    """All elements of a file but its pixels."""

    def __init__(self, elements: Any) -> None:
        self.elements = elements

    def of_deviations(self) -> "Dicom":
        """The same: which values a window shows is told when these are written."""
        return self


def fits(picture: Picture) -> bool:
    """Whether a file can hold the picture."""
    known = picture.metadata.get("dicom") is not None
    return known and picture.pixels.dtype.name in TYPES and picture.alpha is None


def header(path: Path, wanted: Wanted) -> Header:
    """What a DICOM file says of its size."""
    told = _elements(path, without_pixels=True)
    frames = int(told.get("NumberOfFrames", 1) or 1)
    return Header((frames, int(told.Rows), int(told.Columns), int(told.SamplesPerPixel)))


def read(path: Path, wanted: Wanted) -> Picture:
    """The picture, or the frames, in a DICOM file."""
    from pydicom.pixels import pixel_array

    told = _elements(path, without_pixels=False)
    interpretation = str(told.get("PhotometricInterpretation", ""))
    if interpretation not in COLOURS + GREYS:
        raise FileError(f"{path} must be grey or RGB; got {interpretation}.")
    try:
        values = np.array(pixel_array(told))
    except (RuntimeError, NotImplementedError) as error:  # no package for its compression
        said = str(error).splitlines()[0].rstrip(".")
        raise FileError(
            f"{path} must be uncompressed, or a package installed that unpacks it; {said:.200}."
        ) from error
    samples = "S" * (interpretation in COLOURS)
    lies = Layout("ZYX"[-(values.ndim - len(samples)) :] + samples, values.shape)
    if wanted.axes is not None:
        lies = layout.checked(str(path), wanted.axes, values.shape)
    pixels, colour, stack = layout.arranged(values, lies)
    del told.PixelData
    return Picture(pixels, None, colour, stack, {"layout": lies, "dicom": Dicom(told)})


def write(file: IO[bytes], picture: Picture) -> None:
    """Write a picture, uncompressed, as a derived one."""
    import copy

    from pydicom.uid import ExplicitVRLittleEndian, generate_uid

    told = copy.deepcopy(picture.metadata["dicom"].elements)
    values = layout.in_file(picture, layout.layout_of(picture))
    for name in OF_VALUES:
        if name in told:
            del told[name]
    bits = 8 * values.dtype.itemsize
    if bits != told.BitsAllocated or (values.dtype.kind == "i") != bool(told.PixelRepresentation):
        told.BitsStored, told.HighBit = bits, bits - 1
    else:
        # Values that are no larger than they were are stored in as many bits.
        most = int(values.max()) if values.dtype.kind == "u" else 0
        if most >= 1 << int(told.BitsStored):
            told.BitsStored, told.HighBit = bits, bits - 1
    told.BitsAllocated = bits
    told.PixelRepresentation = int(values.dtype.kind == "i")
    if picture.colour:
        told.PhotometricInterpretation, told.PlanarConfiguration = "RGB", 0
    # It is another picture, made of that one. Whether that was compressed with loss stays true.
    source = str(told.get("SOPInstanceUID", ""))
    told.SOPInstanceUID = generate_uid()
    told.file_meta.MediaStorageSOPInstanceUID = told.SOPInstanceUID
    told.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    kind = list(told.get("ImageType", None) or ["ORIGINAL", "PRIMARY"])
    told.ImageType = ["DERIVED", *kind[1:]]
    told.DerivationDescription = "Restored by evoem"
    if source:
        told.SourceImageSequence = [_reference(told, source)]
    content = values.astype(values.dtype.newbyteorder("<")).tobytes()
    told.PixelData = content + b"\0" * (len(content) % 2)
    told["PixelData"].VR = "OB" if bits == 8 else "OW"
    told.save_as(file, enforce_file_format=True, little_endian=True, implicit_vr=False)


def _reference(told: Any, source: str) -> Any:
    from pydicom.dataset import Dataset

    one = Dataset()
    one.ReferencedSOPClassUID = told.get("SOPClassUID", "")
    one.ReferencedSOPInstanceUID = source
    return one


def _elements(path: Path, *, without_pixels: bool) -> Any:
    import pydicom

    _check_deflated(path)
    told = pydicom.dcmread(path, stop_before_pixels=without_pixels)
    for name in ("Rows", "Columns", "SamplesPerPixel", "BitsAllocated"):
        if name not in told:
            raise FileError(f"{path} must hold a picture; got DICOM without {name}.")
    return told


def _check_deflated(path: Path) -> None:
    """Refuse a file, packed as a whole, that is unpacked to too much."""
    from pydicom.filereader import read_file_meta_info
    from pydicom.uid import DeflatedExplicitVRLittleEndian

    about = read_file_meta_info(path)
    if about.get("TransferSyntaxUID") != DeflatedExplicitVRLittleEndian:
        return
    content = path.read_bytes()
    packed = content[_end_of_meta(content) :]
    most = max(MOST_UNPACKED, UNPACKED_TIMES * len(packed))
    if inflation.deflated(packed, most, inflation.RAW) > most:
        raise damaged(path, f"it is unpacked to more than {most} bytes")


def _end_of_meta(content: bytes) -> int:
    """Where the elements end that tell of the file, which are never packed."""
    position = START_OF_META
    while content[position : position + 2] == b"\x02\x00":
        long = content[position + 4 : position + 6] in LONG
        where = slice(position + 8, position + 12) if long else slice(position + 6, position + 8)
        position = where.stop + int.from_bytes(content[where], "little")
    return position


DICOM = Format(
    (".dcm", ".dicom"),
    (b"DICM",),
    "integers of 8 or 16 bits, with the elements of the DICOM file that they were read from",
    fits,
    header,
    read,
    write,
    needs=Needs("pydicom", "medical"),
    signed_at=128,
)
