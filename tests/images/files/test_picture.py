"""Which way up a picture is."""

import numpy as np
import pytest
from file_pictures import ORIENTATION, assert_same, colour, random_pixels
from PIL import Image, ImageOps

from evoem.images import files


def exif_of(orientation):
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    exif[0x010F] = "a maker"
    exif.get_ifd(0x8769)[0x9003] = "2020:01:02 03:04:05"
    return exif


def as_shown(path):
    """Read by a file, as Pillow scrambles uncompressed TIFF on its side when given the path."""
    with path.open("rb") as file, Image.open(file) as image:
        return np.array(ImageOps.exif_transpose(image).convert("RGB"))[..., 0]


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("source", ["png", "jpg", "tif"])
@pytest.mark.parametrize("target", ["png", "jpg", "tif", "npy"])
def test_a_picture_stays_the_same_way_up(tmp_path, orientation, source, target):
    blocks = np.array([[0, 80, 160], [255, 200, 40]], np.uint8)
    image = Image.fromarray(np.kron(blocks, np.ones((8, 8), np.uint8)))
    image.save(tmp_path / f"a.{source}", exif=exif_of(orientation))
    files.write(tmp_path / f"b.{target}", files.read(tmp_path / f"a.{source}"))
    written = tmp_path / f"b.{target}"
    shown = np.load(written) if target == "npy" else as_shown(written)
    expected = as_shown(tmp_path / f"a.{source}").astype(int)
    np.testing.assert_allclose(shown, expected, atol=2 if "jpg" in (source, target) else 0)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("compression", [None, "tiff_lzw"])
@pytest.mark.parametrize("mode", ["RGB", "CMYK"])
def test_tiff_that_pillow_reads_is_turned_once(tmp_path, orientation, compression, mode):
    pixels = random_pixels((2, 3, 3), "uint8")
    for name, turn in (("plain.tif", 1), ("turned.tif", orientation)):
        image = Image.fromarray(pixels).convert(mode)
        image.save(tmp_path / name, compression=compression, exif=exif_of(turn))
    plain, turned = (files.read(tmp_path / name) for name in ("plain.tif", "turned.tif"))
    np.testing.assert_array_equal(plain.pixels, pixels)
    transpose, flip = orientation > 4, {2: 1, 3: (0, 1), 4: 0, 6: 1, 7: (0, 1), 8: 0}
    expected = pixels.swapaxes(0, 1) if transpose else pixels
    assert_same(turned, colour(np.flip(expected, flip.get(orientation, ()))))


@pytest.mark.parametrize("orientation", [1, 6])
@pytest.mark.parametrize("name", ["a.png", "a.jpg"])
def test_exif_is_kept(tmp_path, name, orientation):
    Image.new("L", (8, 4)).save(tmp_path / name, exif=exif_of(orientation))
    files.write(tmp_path / name, files.read(tmp_path / name), force=True)
    with Image.open(tmp_path / name) as image:
        exif = image.getexif()
        assert exif[0x010F] == "a maker"
        assert exif.get_ifd(0x8769)[0x9003] == "2020:01:02 03:04:05"
        assert exif.get(ORIENTATION, 1) == 1
