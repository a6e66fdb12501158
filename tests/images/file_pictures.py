"""Pictures and the bytes of their files, made by hand."""

import struct
import tracemalloc
import zlib

import numpy as np
import pytest
from PIL import ImageCms

from evoem.images import files
from evoem.images.files import FileError, Picture

rng = np.random.default_rng(0)


PROFILE = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()


ORIENTATION = 0x0112


def random_pixels(shape, dtype):
    if np.dtype(dtype).kind == "f":
        return rng.normal(size=shape).astype(dtype)
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)


def grey(pixels, **metadata):
    return Picture(pixels, None, False, False, metadata)


def colour(pixels, **metadata):
    return Picture(pixels, None, True, False, metadata)


def picture_of(shape, dtype, *, stack=False, alpha=False, **metadata):
    sides = shape[: 2 + stack]
    return Picture(
        random_pixels(shape, dtype),
        random_pixels(sides, dtype) if alpha else None,
        len(shape) > len(sides),
        stack,
        metadata,
    )


def assert_same(found, expected):
    """The same values, types and layout; `found` may have more metadata."""
    assert found.pixels.dtype == expected.pixels.dtype
    assert found.pixels.dtype.isnative
    np.testing.assert_array_equal(found.pixels, expected.pixels)
    assert (found.alpha is None) == (expected.alpha is None)
    if expected.alpha is not None:
        assert found.alpha.dtype == expected.alpha.dtype
        np.testing.assert_array_equal(found.alpha, expected.alpha)
    assert (found.colour, found.stack) == (expected.colour, expected.stack)
    assert expected.metadata.items() <= found.metadata.items()


def refused(path, match, **options):
    """The file is refused, and no more memory is taken than a few megabytes."""
    tracemalloc.start()
    try:
        with pytest.raises(FileError, match=match) as told:
            files.read(path, **options)
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()
    sentence = str(told.value)
    assert sentence.endswith(".")
    assert "\n" not in sentence


def png_chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(width, height, depth, colour_type, rows, *chunks):
    """A PNG file of kinds that Pillow does not write; `rows` are packed already."""
    header = struct.pack(">IIBBBBB", width, height, depth, colour_type, 0, 0, 0)
    content = zlib.compress(b"".join(b"\0" + row for row in rows))
    parts = [(b"IHDR", header), *chunks, (b"IDAT", content), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(png_chunk(*part) for part in parts)


def tiff(tags, content):
    """A little-endian TIFF file of one strip; `tags` are code: (letter, values)."""
    sizes = {"H": 2, "I": 4}
    after = 8 + 2 + 12 * (len(tags) + 1) + 4
    extra, entries = b"", b""
    offset = after + sum(sizes[t] * len(v) for t, v in tags.values() if sizes[t] * len(v) > 4)
    for code, (letter, values) in sorted({**tags, 273: ("I", [offset])}.items()):
        data = struct.pack(f"<{len(values)}{letter}", *values)
        if len(data) > 4:
            extra, data = extra + data, struct.pack("<I", after + len(extra))
        kind = {"H": 3, "I": 4}[letter]
        entries += struct.pack("<HHI", code, kind, len(values)) + data.ljust(4, b"\0")
    head = b"II*\0" + struct.pack("<IH", 8, len(tags) + 1)
    return head + entries + bytes(4) + extra + content
