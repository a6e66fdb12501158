"""The intact part of a PNG or JPEG file whose data end early.

Decoders fill what is not there with zeros or grey, and say nothing if the file ends properly after
it. So rows are counted here: those of PNG by the bytes that are packed, those of JPEG by decoding
over two backgrounds.
"""

import re
import struct
import zlib
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

import numpy as np
from PIL import Image, JpegImagePlugin

from evoem.images.files import inflation
from evoem.validation import Mask

PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
SAMPLES = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # of each PNG colour type
# First column and row of each pass of interlaced PNG, and the steps to the next ones.
ADAM7 = (
    (0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)
)  # fmt: skip

# Where entropy-coded data of JPEG end: a marker other than a restart.
SCAN_END = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]")
START_OF_SCAN, END_OF_IMAGE = 0xDA, 0xD9
STANDALONE = (0x01, 0xD8, *range(0xD0, 0xD8))
SEQUENTIAL = (0xC0, 0xC1)
# The decoder looks so far ahead, and waits for more if it cannot.
LOOK_AHEAD = bytes(16)


class PngHeader(NamedTuple):
    """What a PNG file says of itself."""

    width: int
    height: int
    depth: int
    colour_type: int
    interlaced: bool

    @property
    def n_samples(self) -> int:
        """Values per pixel."""
        return SAMPLES[self.colour_type]


class There(NamedTuple):
    """What is there of a picture."""

    content: bytes  # a whole file, with zeros or grey in place of what is missing
    missing: Mask | None  # (rows, columns); None if nothing is


# --------------------------------------------------------------------------------------------- PNG


def png_header(start: bytes) -> PngHeader:
    """The header, of the first 29 bytes of a file."""
    length, name, width, height, depth, colour_type, _, _, interlace = struct.unpack(
        ">I4sIIBBBBB", start[8:29]
    )
    if (length, name) != (13, b"IHDR") or colour_type not in SAMPLES or not width or not height:
        raise ValueError("it does not begin with a header")
    return PngHeader(width, height, depth, colour_type, interlace == 1)


def png_there(content: bytes) -> There:
    """What is there of a PNG file. Damaged data are left to the decoder."""
    header = png_header(content)
    rows = list(_rows(header))
    expected = sum(n_rows * length for _, n_rows, length in rows)
    before, packed = _png_parts(content)
    try:
        unpacked = inflation.deflated(packed, expected)
    except zlib.error:
        return There(content, None)
    if unpacked >= expected:
        return There(content, None)
    missing = np.ones((header.height, header.width), np.bool_)
    left = unpacked
    for (left_edge, top, across, down), n_rows, length in rows:
        whole = min(left // length, n_rows)
        missing[top : top + whole * down : down, left_edge::across] = False
        left -= min(left, n_rows * length)
    known = zlib.decompressobj().decompress(packed, max(unpacked, 1))
    filled = zlib.compress(known.ljust(expected, b"\0"), 1)
    repaired = PNG_SIGNATURE + before + _png_chunk(b"IDAT", filled) + _png_chunk(b"IEND", b"")
    return There(repaired, missing)


def _rows(header: PngHeader) -> Iterator[tuple[tuple[int, int, int, int], int, int]]:
    """Of each pass: where it lies, its number of rows, and the bytes of one."""
    bits = header.depth * header.n_samples
    for place in ADAM7 if header.interlaced else ((0, 0, 1, 1),):
        left, top, across, down = place
        n_columns = max(0, -(-(header.width - left) // across))
        n_rows = max(0, -(-(header.height - top) // down))
        if n_columns and n_rows:
            yield place, n_rows, 1 + -(-n_columns * bits // 8)


def _png_parts(content: bytes) -> tuple[bytes, bytes]:
    """All chunks before the data, and the data."""
    position = first = len(PNG_SIGNATURE)
    packed: list[bytes] = []
    while position + 8 <= len(content):
        length, name = struct.unpack(">I4s", content[position : position + 8])
        if name == b"IDAT":
            first = first if packed else position
            packed.append(content[position + 8 : position + 8 + length])
        elif packed or name == b"IEND":
            break
        position += 12 + length
    if not packed:
        raise ValueError("it ends before its data begin")
    return content[len(PNG_SIGNATURE) : first], b"".join(packed)


def _png_chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


# -------------------------------------------------------------------------------------------- JPEG


def jpeg_there(content: bytes, image: JpegImagePlugin.JpegImageFile) -> There:
    """What is there of a JPEG file that was opened."""
    ends, end, row_by_row = _jpeg_scan(content)
    if not row_by_row:  # every row needs data from all over the file
        if not ends:
            raise ValueError("it ends early, and no row of it is whole")
        return There(content, None)
    if ends and _decoded_rows(content[:end] + LOOK_AHEAD, image).all():
        return There(content, None)
    rows = _decoded_rows(content[:end], image)
    if not rows.any():
        raise ValueError("it ends before its first row is whole")
    missing = np.repeat(~rows[:, None], image.width, axis=1)
    return There(content[:end] + bytes([0xFF, END_OF_IMAGE]), missing)


def _jpeg_scan(content: bytes) -> tuple[bool, int, bool]:
    """Whether an end follows the first scan, where that is, and whether one scan has all rows."""
    position, row_by_row, n_components = 2, False, 0
    while position + 4 <= len(content):
        if content[position] != 0xFF:
            position += 1
            continue
        marker = content[position + 1]
        if marker == 0xFF:
            position += 1
            continue
        if marker in STANDALONE:
            position += 2
            continue
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            row_by_row = marker in SEQUENTIAL
            n_components = content[position + 9] if position + 9 < len(content) else 0
        start = position + 4
        position += 2 + int.from_bytes(content[position + 2 : position + 4], "big")
        if marker == START_OF_SCAN:
            row_by_row = row_by_row and content[start : start + 1] == bytes([n_components])
            break
    if row_by_row:
        found = SCAN_END.search(content, position)
        if found is None:
            return False, len(content), True
        return True, found.start(), content[found.start() + 1] == END_OF_IMAGE
    last = content.rfind(bytes([0xFF, END_OF_IMAGE]), position)
    return last >= 0, last, False


def _decoded_rows(content: bytes, image: JpegImagePlugin.JpegImageFile) -> Mask:
    """Rows that the decoder fills in, whatever was there before."""
    decoded = []
    for background in (0, 255):
        canvas = Image.new(image.mode, image.size, (background,) * len(image.getbands()))
        name, _, _, arguments = image.tile[0]
        with suppress(ValueError):  # it ends early
            canvas.frombytes(content, name, arguments)
        decoded.append(np.array(canvas).reshape(image.height, -1))
    return np.asarray((decoded[0] == decoded[1]).all(axis=1))
