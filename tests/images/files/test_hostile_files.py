"""Files made to take memory or time, to block, or to pass for whole."""

import io
import logging
import lzma
import os
import struct
import zlib
from contextlib import suppress

import numpy as np
import pytest
import tifffile
from file_pictures import png_chunk, refused
from PIL import Image

from evoem.images import files
from evoem.images.files import FileError

rng = np.random.default_rng(4)
PIXELS = rng.integers(0, 256, (40, 30, 3), dtype=np.uint8)


def npy(path, header):
    """An NPY file of any header, and nothing behind it."""
    text = header.encode().ljust(117) + b"\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text)
    return path


@pytest.mark.parametrize(
    ("dtype", "shape", "message"),
    [
        ("|V0", "(1000000000000, 5)", r"must hold integers or real numbers; got \|V0"),
        ("<f8", "(1000000000000, 5)", "it has 0 bytes of pixels instead of 40000000000000"),
        ("<f8", "(9223372036854775808, 9223372036854775808)", "bytes of pixels instead of"),
        ("|u1", "(True, 5)", r"its shape is \(True, 5\)"),
        ("|u1", "(-1, 5)", r"its shape is \(-1, 5\)"),
        ("|O", "(4, 5)", "it holds Python objects"),
        ("<f8", "[4, 5]", "must be a whole and readable picture"),
        ("<c16", "(4, 5)", "must hold integers or real numbers; got complex128"),
    ],
)
def test_an_npy_header_promises_nothing_that_is_not_there(tmp_path, dtype, shape, message):
    header = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}"
    refused(npy(tmp_path / "a.npy", header), message)


@pytest.mark.parametrize("name", ["a.png", "a.jpg", "a.npy", "a.tif", "lzw.tif", "tiles.tif"])
def test_every_format_has_the_same_limit(tmp_path, name):
    path = tmp_path / name
    if name == "lzw.tif":
        Image.fromarray(PIXELS).save(path, compression="tiff_lzw")
    elif name == "tiles.tif":
        tifffile.imwrite(path, PIXELS, photometric="rgb", tile=(16, 16))
    else:
        files.write(path, files.Picture(PIXELS, None, True, False, {}))
    assert files.read(path, max_pixels=3600).pixels.shape == (40, 30, 3)
    refused(path, r"must have at most 3599 pixels \(max_pixels\).*got 40 x 30 x 3", max_pixels=3599)


def test_a_small_png_of_many_pixels_is_refused(tmp_path):
    header = struct.pack(">IIBBBBB", 10**9, 10**9, 8, 0, 0, 0, 0)
    content = png_chunk(b"IHDR", header) + png_chunk(b"IDAT", zlib.compress(bytes(10)))
    (tmp_path / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n" + content + png_chunk(b"IEND", b""))
    refused(tmp_path / "a.png", "must have at most 268435456 pixels")


def tiff(path, tags, content=b""):
    """A little-endian TIFF file of one page, with `content` at byte 1000."""
    kinds = {2: "s", 3: "H", 4: "I"}
    head = b"II*\0" + struct.pack("<IH", 8, len(tags))
    for code, (kind, value) in sorted(tags.items()):
        if kind == 2:
            data, count = value.ljust(4, b"\0"), len(value)
        else:
            data, count = struct.pack("<" + kinds[kind], value).ljust(4, b"\0"), 1
        head += struct.pack("<HHI", code, kind, count) + data
    path.write_bytes((head + bytes(4)).ljust(1000, b"\0") + content)
    return path


def page(width, height, compression=1, offset=1000, count=0, **more):
    names = {"tile_width": 322, "tile_height": 323}
    tags = {256: (4, width), 257: (4, height), 258: (3, 8), 259: (3, compression), 262: (3, 1)}
    tags |= {273: (4, offset), 277: (3, 1), 278: (4, height), 279: (4, count)}
    tags |= {names[name]: (4, value) for name, value in more.items() if name in names}
    if "tile_width" in more:
        tags |= {324: tags.pop(273), 325: tags.pop(279)}
        del tags[278]
    return tags


def test_a_sparse_tiff_of_many_pixels_is_refused(tmp_path):
    refused(tiff(tmp_path / "a.tif", page(60_000, 60_000)), "must have at most 268435456 pixels")


def test_a_tile_counts_with_all_that_stands_out_of_the_picture(tmp_path):
    tags = page(10, 10, tile_width=65_536, tile_height=65_536)
    refused(tiff(tmp_path / "a.tif", tags), "at most 268435456 pixels .*got 65536 x 65536 x 1")


def test_empty_strips_are_not_taken_for_zeros(tmp_path):
    refused(tiff(tmp_path / "a.tif", page(10, 10, 8)), "1 of its strips or tiles are empty")


@pytest.mark.parametrize(
    ("compression", "packed"),
    [
        (8, zlib.compress(bytes(1 << 28))),
        (32946, zlib.compress(bytes(1 << 28))),
        (34925, lzma.compress(bytes(1 << 28))),
        (32773, b"\x81\0" * (1 << 19)),
    ],
    ids=["deflate", "old deflate", "lzma", "packbits"],
)
def test_a_strip_is_not_unpacked_beyond_its_room(tmp_path, compression, packed):
    tags = page(20, 20, compression, count=len(packed))
    refused(tiff(tmp_path / "a.tif", tags, packed), "400 bytes unpacks to far more")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes have no names there")
def test_a_pipe_does_not_block(tmp_path):
    os.mkfifo(tmp_path / "a.png")
    refused(tmp_path / "a.png", "must be a file; got a pipe, a device or the like")


@pytest.mark.skipif(os.name == "nt", reason="devices have no names there")
def test_a_device_is_no_file():
    refused("/dev/zero", "must be a file; got a pipe, a device or the like")


# Nothing but the sentence


def test_readers_say_nothing_of_their_own(tmp_path, capfd, recwarn):
    file = io.BytesIO()
    Image.fromarray(PIXELS).save(file, "TIFF", compression="tiff_lzw")
    for place in range(8, 300, 3):
        content = bytearray(file.getvalue())
        content[place] ^= 0xFF
        (tmp_path / "a.tif").write_bytes(content)
        with suppress(FileError):
            files.read(tmp_path / "a.tif")
    assert not recwarn.list
    assert logging.getLogger("tifffile").handlers
    assert "evoem" not in capfd.readouterr().err
