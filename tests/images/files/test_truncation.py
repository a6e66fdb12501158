"""What is there of PNG and JPEG files that end early, against the whole pictures."""

import io
import struct
import zlib

import numpy as np
import pytest
from file_pictures import png_chunk, refused
from PIL import Image

from evoem.images import files

rng = np.random.default_rng(4)
PIXELS = rng.integers(0, 256, (40, 30, 3), dtype=np.uint8)


def saved_png(pixels, share, interlaced=False):
    """A PNG file that ends properly, but of whose rows only a share is packed."""
    rows, columns = pixels.shape[:2]
    passes = files.truncation.ADAM7 if interlaced else ((0, 0, 1, 1),)
    packed = b""
    for left, top, across, down in passes:
        for row in pixels[top::down, left::across]:
            packed += b"\0" + row.tobytes() if row.size else b""
    packed = zlib.compress(packed[: int(share * len(packed))])
    header = struct.pack(">IIBBBBB", columns, rows, 8, 2, 0, 0, interlaced)
    chunks = (b"IHDR", header), (b"IDAT", packed[:40]), (b"IDAT", packed[40:]), (b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(png_chunk(*chunk) for chunk in chunks)


def saved_jpeg(pixels, share, ended):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=90)
    content = file.getvalue()
    return content[: int(share * len(content))] + b"\xff\xd9" * ended


@pytest.mark.parametrize("interlaced", [False, True])
def test_a_whole_png_is_read_as_one(tmp_path, interlaced):
    (tmp_path / "a.png").write_bytes(saved_png(PIXELS, 1, interlaced))
    picture = files.read(tmp_path / "a.png", accept_truncated=True)
    assert (picture.pixels == PIXELS).all()
    assert picture.missing is None
    assert picture.notes == ()


@pytest.mark.parametrize("interlaced", [False, True])
@pytest.mark.parametrize("share", [0.2, 0.55, 0.99])
def test_a_png_that_ends_early_is_refused_or_its_rest_is_missing(tmp_path, share, interlaced):
    (tmp_path / "a.png").write_bytes(saved_png(PIXELS, share, interlaced))
    refused(tmp_path / "a.png", "its data end early, after .* accept_truncated takes")
    picture = files.read(tmp_path / "a.png", accept_truncated=True)
    seen = ~picture.missing
    assert (picture.pixels[seen] == PIXELS[seen]).all()
    assert share - 0.1 < seen.mean() <= share
    number = np.count_nonzero(picture.missing)
    assert picture.notes == (f"The file ends early: {number} pixels of it are missing.",)


@pytest.mark.parametrize("ended", [False, True])
@pytest.mark.parametrize("share", [0.6, 0.95])
def test_a_jpeg_that_ends_early_is_refused_or_its_rest_is_missing(tmp_path, share, ended):
    pixels = rng.integers(0, 256, (80, 60, 3), dtype=np.uint8)
    (tmp_path / "whole.jpg").write_bytes(saved_jpeg(pixels, 1, False))
    whole = files.read(tmp_path / "whole.jpg", accept_truncated=True)
    assert whole.missing is None
    (tmp_path / "a.jpg").write_bytes(saved_jpeg(pixels, share, ended))
    refused(tmp_path / "a.jpg", "its data end early")
    picture = files.read(tmp_path / "a.jpg", accept_truncated=True)
    seen = ~picture.missing
    assert (picture.pixels[seen] == whole.pixels[seen]).all()
    assert share - 0.35 < seen.mean() < share
    assert (seen == seen[:, :1]).all()


@pytest.mark.parametrize("progressive", [False, True])
@pytest.mark.parametrize("subsampling", ["4:4:4", "4:2:0"])
@pytest.mark.parametrize("mode", ["L", "RGB", "CMYK"])
def test_whole_jpeg_files_are_not_taken_for_short_ones(tmp_path, mode, subsampling, progressive):
    image = Image.fromarray(PIXELS).convert(mode)
    options = {"progressive": progressive, "subsampling": subsampling}
    for size in (image.size, (7, 5), (1, 1), (64, 64)):
        image.resize(size).save(tmp_path / "a.jpg", **options)
        assert files.read(tmp_path / "a.jpg").missing is None


def test_what_is_left_of_a_turned_picture_is_turned_with_it(tmp_path):
    content = saved_png(PIXELS, 0.5)
    exif = Image.Exif()
    exif[274] = 6  # a quarter turn clockwise: the rows at the bottom come to the left
    turned = content[:33] + png_chunk(b"eXIf", exif.tobytes()[6:]) + content[33:]
    (tmp_path / "a.png").write_bytes(turned)
    picture = files.read(tmp_path / "a.png", accept_truncated=True)
    assert picture.pixels.shape[:2] == picture.missing.shape == (30, 40)
    assert picture.missing[:, :15].all()
    assert not picture.missing[:, 25:].any()


@pytest.mark.parametrize("interlaced", [False, True])
def test_at_every_byte_what_a_png_has_is_what_is_seen(interlaced):
    """A row is there as soon as its last byte is, whatever is missing of the next one."""
    pixels = PIXELS[:9, :5]
    for share in np.linspace(0.01, 1, 60):
        there = files.truncation.png_there(saved_png(pixels, share, interlaced))
        with Image.open(io.BytesIO(there.content)) as image:
            found = np.asarray(image)
        missing = np.zeros((9, 5), bool) if there.missing is None else there.missing
        np.testing.assert_array_equal(found[~missing], pixels[~missing])
        n_bytes = 9 * 5 * 3 + (9 if not interlaced else 16)  # a byte before each row of each pass
        whole_row = 3 * 5 + 1
        assert abs((~missing).sum() * 3 - share * n_bytes) <= 2 * whole_row
