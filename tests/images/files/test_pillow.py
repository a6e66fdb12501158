"""Kinds of PNG and JPEG."""

import struct

import numpy as np
import pytest
from file_pictures import PROFILE, assert_same, colour, grey, picture_of, png, random_pixels
from PIL import Image, ImageCms

from evoem.images import files
from evoem.images.files import FileError, Picture


@pytest.mark.parametrize("shape", [(16, 24), (16, 24, 3)])
def test_jpeg_comes_back_nearly_as_it_was(tmp_path, shape):
    ramp = np.linspace(0, 255, 24).round().astype(np.uint8)
    pixels = np.broadcast_to(ramp[:, None] if len(shape) == 3 else ramp, shape).copy()
    picture = Picture(pixels, None, len(shape) == 3, False, {})
    files.write(tmp_path / "a.JPG", picture)
    found = files.read(tmp_path / "a.JPG")
    assert found.pixels.shape == shape
    assert np.abs(found.pixels.astype(int) - pixels).max() <= 3


def test_one_bit_becomes_eight(tmp_path):
    marked = random_pixels((7, 9), "uint8") > 127
    Image.fromarray(marked).save(tmp_path / "a.png")
    np.save(tmp_path / "a.npy", marked)
    Image.fromarray(marked).save(tmp_path / "a.tif")
    for name in ("a.png", "a.npy", "a.tif"):
        assert_same(files.read(tmp_path / name), grey(np.where(marked, 255, 0).astype(np.uint8)))


def test_a_palette_becomes_rgb(tmp_path):
    palette = random_pixels((256, 3), "uint8")
    indices = random_pixels((7, 9), "uint8")
    image = Image.fromarray(indices)
    image.putpalette(palette.ravel())
    image.save(tmp_path / "a.png")
    image.save(tmp_path / "a.tif")
    for name in ("a.png", "a.tif"):
        assert_same(files.read(tmp_path / name), colour(palette[indices]))
    image.save(tmp_path / "b.png", transparency=bytes(range(256)))
    expected = Picture(palette[indices], indices, True, False, {})
    assert_same(files.read(tmp_path / "b.png"), expected)


def test_the_transparent_value_becomes_alpha(tmp_path):
    def transparent(pixels, key, dtype):
        same = (pixels == key).all(-1) if pixels.ndim == 3 else pixels == key
        top = np.iinfo(dtype).max
        return Picture(pixels, np.where(same, 0, top).astype(dtype), pixels.ndim == 3, False, {})

    cases = {
        "grey": (random_pixels((7, 9), "uint8"), "uint8"),
        "deep": (random_pixels((7, 9), "uint16"), "uint16"),
        "rgb": (random_pixels((7, 9, 3), "uint8"), "uint8"),
    }
    for name, (pixels, dtype) in cases.items():
        key = pixels[2, 3]
        saved = tuple(map(int, key)) if key.ndim else int(key)
        Image.fromarray(pixels).save(tmp_path / f"{name}.png", transparency=saved)
        assert_same(files.read(tmp_path / f"{name}.png"), transparent(pixels, key, dtype))


def test_grey_of_four_bits_is_stretched_with_its_transparent_value(tmp_path):
    key = (b"tRNS", struct.pack(">H", 3))
    (tmp_path / "a.png").write_bytes(png(4, 1, 4, 0, [b"\x03\xf3"], key))
    expected = Picture(
        np.array([[0, 51, 255, 51]], np.uint8),
        np.array([[255, 0, 255, 0]], np.uint8),
        *[False] * 2,
        {},
    )
    assert_same(files.read(tmp_path / "a.png"), expected)


# libtiff, which unpacks LZW, rounds YCbCr in its own way.
@pytest.mark.parametrize(
    ("mode", "compression", "tolerance"),
    [("CMYK", None, 0), ("LAB", None, 0), ("YCbCr", "tiff_lzw", 2)],
)
def test_other_colours_become_rgb_without_their_profile(tmp_path, mode, compression, tolerance):
    image = Image.fromarray(random_pixels((8, 8, 3), "uint8"))
    if mode == "LAB":
        srgb, lab = ImageCms.createProfile("sRGB"), ImageCms.createProfile("LAB")
        image = ImageCms.profileToProfile(image, srgb, lab, outputMode="LAB")
    else:
        image = image.convert(mode)
    image.save(tmp_path / "a.tif", icc_profile=PROFILE, compression=compression)
    found = files.read(tmp_path / "a.tif")
    expected = np.array(image.convert("RGB")).astype(int)
    np.testing.assert_allclose(found.pixels, expected, atol=tolerance)
    assert found.colour
    assert found.pixels.dtype == np.uint8
    assert "icc_profile" not in found.metadata


def test_cmyk_jpeg_becomes_rgb(tmp_path):
    image = Image.new("CMYK", (8, 8), (255, 0, 0, 0))
    image.save(tmp_path / "a.jpg", icc_profile=PROFILE)
    found = files.read(tmp_path / "a.jpg")
    assert found.colour
    assert "icc_profile" not in found.metadata
    np.testing.assert_allclose(found.pixels, np.full((8, 8, 3), [0, 255, 255]), atol=2)


def test_large_pictures_are_read_and_huge_ones_refused(tmp_path, monkeypatch):
    pixels = random_pixels((12, 12), "uint8")
    files.write(tmp_path / "a.png", grey(pixels))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)  # Pillow's own limit is none here
    assert_same(files.read(tmp_path / "a.png", max_pixels=144), grey(pixels))
    message = r"a\.png must have at most 143 pixels \(max_pixels\), .*; got 12 x 12 x 1\.$"
    with pytest.raises(FileError, match=message):
        files.read(tmp_path / "a.png", max_pixels=143)


@pytest.mark.parametrize(("colour_type", "n_samples"), [(2, 3), (4, 2), (6, 4)])
def test_sixteen_bits_of_colour_or_alpha_in_png_are_refused(tmp_path, colour_type, n_samples):
    (tmp_path / "a.png").write_bytes(png(1, 1, 16, colour_type, [bytes(2 * n_samples)]))
    with pytest.raises(FileError, match=r"a\.png must be converted to TIFF.*got colour or alpha"):
        files.read(tmp_path / "a.png")


def test_an_animation_is_refused(tmp_path):
    frames = [Image.fromarray(random_pixels((4, 4), "uint8")) for _ in range(2)]
    frames[0].save(tmp_path / "a.png", save_all=True, append_images=frames[1:])
    with pytest.raises(FileError, match=r"a\.png must be a single picture; got an animation"):
        files.read(tmp_path / "a.png")


@pytest.mark.parametrize(("name", "expected"), [("a.png", 254000), ("a.jpg", None)])
def test_a_resolution_in_centimetres_becomes_one_in_inches_if_it_fits(tmp_path, name, expected):
    about = {"resolution": (1e5, 1e5), "resolution_unit": "centimeter"}
    files.write(tmp_path / name, picture_of((8, 8), "uint8", **about))
    with Image.open(tmp_path / name) as image:
        found = image.info.get("dpi")
    assert found == (expected and pytest.approx((expected, expected)))


def test_what_pillow_refuses_late_is_said_in_a_sentence(tmp_path):
    picture = picture_of((8, 8), "uint8", exif=bytes(2**16))
    with pytest.raises(FileError, match=r"a\.jpg must be written in full; writing failed: "):
        files.write(tmp_path / "a.jpg", picture)
    assert not list(tmp_path.iterdir())
