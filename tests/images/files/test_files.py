"""Pictures come back from files as they were; what cannot be is refused in one sentence."""

import io
import os
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
import tifffile
from PIL import Image, ImageCms, ImageOps

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


# ------------------------------------------------------------------------------- round trips


@pytest.mark.parametrize(
    ("name", "picture"),
    [
        ("a.png", picture_of((7, 9), "uint8")),
        ("a.PNG", picture_of((7, 9, 3), "uint8")),
        ("a.png", picture_of((7, 9), "uint8", alpha=True)),
        ("a.png", picture_of((7, 9, 3), "uint8", alpha=True)),
        ("a.png", picture_of((7, 9), "uint16")),
        ("a.npy", picture_of((7, 9), "float64")),
        ("a.npy", picture_of((7, 9), "int64")),
        ("a.npy", picture_of((7, 9, 1), "float32")),
        ("a.npy", picture_of((7, 9, 3), "uint16")),
        ("a.npy", picture_of((7, 9, 3), "float32", alpha=True)),
        ("a.npy", picture_of((3, 7, 9), "uint8", stack=True)),
        ("a.npy", picture_of((5, 7, 9, 3), "uint8", stack=True)),
        ("a.npy", picture_of((5, 7, 9, 3), "uint8", stack=True, alpha=True)),
    ],
)
def test_a_picture_comes_back_as_it_was(tmp_path, name, picture):
    files.write(tmp_path / name, picture)
    assert_same(files.read(tmp_path / name), picture)


@pytest.mark.parametrize("alpha", [False, True])
@pytest.mark.parametrize(
    ("shape", "stack"),
    [
        ((1, 1), False),
        ((7, 9), False),
        ((7, 9, 2), False),
        ((7, 9, 3), False),
        ((7, 9, 4), False),
        ((7, 9, 6), False),
        ((4, 7, 9), True),
        ((4, 7, 9, 3), True),
        ((4, 7, 9, 5), True),
    ],
)
@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int32", "float32", "float64"])
def test_tiff_keeps_every_type_and_layout(tmp_path, shape, stack, alpha, dtype):
    picture = picture_of(shape, dtype, stack=stack, alpha=alpha)
    files.write(tmp_path / "a.tiff", picture)
    assert_same(files.read(tmp_path / "a.tiff"), picture)


@pytest.mark.parametrize("name", ["a.tif", "a.npy"])
def test_nan_stays(tmp_path, name):
    pixels = random_pixels((7, 9), "float32")
    pixels[2, 3] = np.nan
    files.write(tmp_path / name, grey(pixels))
    assert_same(files.read(tmp_path / name), grey(pixels))


@pytest.mark.parametrize("shape", [(16, 24), (16, 24, 3)])
def test_jpeg_comes_back_nearly_as_it_was(tmp_path, shape):
    ramp = np.linspace(0, 255, 24).round().astype(np.uint8)
    pixels = np.broadcast_to(ramp[:, None] if len(shape) == 3 else ramp, shape).copy()
    picture = Picture(pixels, None, len(shape) == 3, False, {})
    files.write(tmp_path / "a.JPG", picture)
    found = files.read(tmp_path / "a.JPG")
    assert found.pixels.shape == shape
    assert np.abs(found.pixels.astype(int) - pixels).max() <= 3


@pytest.mark.parametrize(
    ("name", "shape", "stack", "alpha"),
    [
        ("a.png", (7, 9, 1), False, False),
        ("a.png", (7, 9, 1), False, True),
        ("a.jpg", (7, 9, 1), False, False),
        ("a.tif", (7, 9, 1), False, False),
        ("a.tif", (7, 9, 1), False, True),
        ("a.tif", (3, 7, 9, 1), True, False),
        ("a.tif", (3, 7, 9, 1), True, True),
    ],
)
def test_one_channel_is_grey(tmp_path, name, shape, stack, alpha):
    picture = picture_of(shape, "uint8", stack=stack, alpha=alpha)
    files.write(tmp_path / name, picture)
    same = picture._replace(pixels=picture.pixels[..., 0], colour=False)
    files.write(tmp_path / f"grey-{name}", same)
    assert (tmp_path / name).read_bytes() == (tmp_path / f"grey-{name}").read_bytes()
    if not name.endswith("jpg"):
        assert_same(files.read(tmp_path / name), same)


def test_the_content_tells_the_format_not_the_name(tmp_path):
    pixels = random_pixels((7, 9), "uint8")
    files.write(tmp_path / "a.png", grey(pixels))
    (tmp_path / "a.png").rename(tmp_path / "a.jpg")
    assert_same(files.read(str(tmp_path / "a.jpg")), grey(pixels))


# ------------------------------------------------------------------------ kinds of PNG and JPEG


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
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)  # Pillow warns above, refuses above 200
    assert_same(files.read(tmp_path / "a.png"), grey(pixels))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 50)
    with pytest.raises(FileError, match=r"a\.png must have at most 100 pixels; got more\.$"):
        files.read(tmp_path / "a.png")


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


# -------------------------------------------------------------------------------- kinds of TIFF


def test_big_endian_numbers_become_native(tmp_path):
    pixels = random_pixels((4, 7, 9), "uint16")
    tifffile.imwrite(tmp_path / "a.tif", pixels, byteorder=">", photometric="minisblack")
    np.save(tmp_path / "a.npy", pixels.astype(">u2"))
    for name in ("a.tif", "a.npy"):
        assert_same(files.read(tmp_path / name), Picture(pixels, None, False, True, {}))


def test_channels_in_front_are_turned_to_the_back(tmp_path):
    pixels = random_pixels((7, 9, 3), "uint16")
    front = np.moveaxis(pixels, -1, 0)
    tifffile.imwrite(tmp_path / "a.tif", front, photometric="rgb", planarconfig="separate")
    axes = {"axes": "CYX"}
    tifffile.imwrite(tmp_path / "b.tif", front, photometric="minisblack", metadata=axes)
    tifffile.imwrite(tmp_path / "c.tif", front, photometric="minisblack", metadata=axes, ome=True)
    for name in ("a.tif", "b.tif", "c.tif"):
        assert_same(files.read(tmp_path / name), colour(pixels))


@pytest.mark.parametrize("compression", ["tiff_lzw", "tiff_adobe_deflate", "packbits"])
@pytest.mark.parametrize(
    ("shape", "dtype"), [((7, 9), "uint8"), ((7, 9, 3), "uint8"), ((7, 9), "uint16")]
)
def test_compressed_pictures_are_read(tmp_path, compression, shape, dtype):
    pixels = random_pixels(shape, dtype)
    about = {270: "a leaf"}
    Image.fromarray(pixels).save(tmp_path / "a.tif", compression=compression, tiffinfo=about)
    expected = Picture(pixels, None, len(shape) == 3, False, {"description": "a leaf"})
    assert_same(files.read(tmp_path / "a.tif"), expected)


def test_a_deflated_stack_with_differences_is_read(tmp_path):
    pixels = random_pixels((4, 7, 9), "uint16")
    options = {"compression": "zlib", "predictor": True, "photometric": "minisblack"}
    tifffile.imwrite(tmp_path / "a.tif", pixels, **options)
    assert_same(files.read(tmp_path / "a.tif"), Picture(pixels, None, False, True, {}))


@pytest.mark.parametrize("compression", [None, "group4"])
def test_white_as_zero_is_turned_round(tmp_path, compression):
    pixels = random_pixels((7, 9), "uint16")
    tifffile.imwrite(tmp_path / "a.tif", 65535 - pixels, photometric="miniswhite")
    assert_same(files.read(tmp_path / "a.tif"), grey(pixels))
    marked = pixels > 30000
    Image.fromarray(marked).save(tmp_path / "b.tif", compression=compression, tiffinfo={262: 0})
    assert_same(files.read(tmp_path / "b.tif"), grey(np.where(marked, 255, 0).astype(np.uint8)))


def test_four_bits_in_tiff_are_stretched_or_looked_up(tmp_path):
    tags = {256: ("H", [4]), 257: ("H", [1]), 258: ("H", [4]), 262: ("H", [1]), 279: ("I", [2])}
    (tmp_path / "a.tif").write_bytes(tiff(tags, b"\x03\xf3"))
    assert_same(files.read(tmp_path / "a.tif"), grey(np.array([[0, 51, 255, 51]], np.uint8)))
    palette = random_pixels((3, 16), "uint8")
    tags |= {262: ("H", [3]), 320: ("H", [257 * int(value) for value in palette.ravel()])}
    (tmp_path / "b.tif").write_bytes(tiff(tags, b"\x03\xf3"))
    assert_same(files.read(tmp_path / "b.tif"), colour(palette.T[[[0, 3, 15, 3]]]))


def test_alpha_is_found_among_extra_channels(tmp_path):
    samples = random_pixels((7, 9, 5), "uint16")
    extra = ["assocalpha", "unspecified"]
    tifffile.imwrite(tmp_path / "a.tif", samples, photometric="rgb", extrasamples=extra)
    found = files.read(tmp_path / "a.tif")
    pixels, alpha = samples[..., [0, 1, 2, 4]], samples[..., 3]
    assert_same(found, Picture(pixels, alpha, True, False, {"premultiplied": True}))
    files.write(tmp_path / "b.tif", found)
    assert_same(files.read(tmp_path / "b.tif"), found)


def test_a_palette_with_alpha_is_read(tmp_path):
    rgba = Image.fromarray(random_pixels((7, 9, 4), "uint8")).convert("PA")
    rgba.save(tmp_path / "a.tif")
    samples = np.array(rgba.convert("RGBA"))
    expected = Picture(samples[..., :3], samples[..., 3], True, False, {})
    assert_same(files.read(tmp_path / "a.tif"), expected)


def test_a_hyperstack_stays_one(tmp_path):
    pixels = random_pixels((2, 3, 4, 7, 9), "uint16")
    about = {"axes": "TZCYX", "unit": "um", "spacing": 0.5, "finterval": 2.0}
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, pixels, imagej=True, resolution=(3.5, 3.5), metadata=about)
    found = files.read(path)
    slices = np.moveaxis(pixels, 2, -1).reshape(6, 7, 9, 4)
    metadata = {"resolution": (3.5, 3.5), "resolution_unit": "none"}
    assert_same(found, Picture(slices, None, True, True, metadata))
    files.write(path, found, force=True)
    with tifffile.TiffFile(path) as file:
        assert file.series[0].axes == "TZCYX"
        np.testing.assert_array_equal(file.asarray(), pixels)
        assert {
            "unit": "um",
            "spacing": 0.5,
            "finterval": 2.0,
        }.items() <= file.imagej_metadata.items()
    assert_same(files.read(path), found)


@pytest.mark.parametrize(
    "pixels",
    [random_pixels((7, 9), "float32"), random_pixels((5, 7, 9, 3), "uint8")],
    ids=["one slice", "rgb"],
)
def test_other_pictures_of_imagej_stay_so(tmp_path, pixels):
    axes = "YX" if pixels.ndim == 2 else "ZYXS"
    tifffile.imwrite(tmp_path / "a.tif", pixels, imagej=True, metadata={"axes": axes, "unit": "nm"})
    found = files.read(tmp_path / "a.tif")
    assert_same(found, Picture(pixels, None, pixels.ndim == 4, pixels.ndim == 4, {}))
    files.write(tmp_path / "b.tif", found)
    assert_same(files.read(tmp_path / "b.tif"), found)


def test_what_imagej_cannot_hold_is_written_plainly(tmp_path):
    pixels = random_pixels((3, 7, 9), "float64")
    picture = Picture(pixels, None, False, True, {"imagej": {"frames": 3, "unit": "um"}})
    files.write(tmp_path / "a.tif", picture)
    assert_same(files.read(tmp_path / "a.tif"), picture._replace(metadata={}))


def test_a_thumbnail_is_passed_over_but_not_a_second_picture(tmp_path):
    pixels = random_pixels((8, 8), "uint8")
    for name, kind in (("a.tif", 1), ("b.tif", 0)):
        with tifffile.TiffWriter(tmp_path / name) as file:
            file.write(pixels, photometric="minisblack", metadata=None)
            file.write(pixels[:5, :3], photometric="minisblack", metadata=None, subfiletype=kind)
    assert_same(files.read(tmp_path / "a.tif"), grey(pixels))
    with pytest.raises(FileError, match=r"b\.tif must hold one picture.*got 2 different ones"):
        files.read(tmp_path / "b.tif")


@pytest.mark.parametrize(
    ("pixels", "options", "message"),
    [
        (np.zeros((4, 4), "uint8"), {"photometric": "cfa"}, "grey, RGB or palette.*got CFA"),
        (np.zeros((4, 4), "float32"), {"photometric": "miniswhite"}, "palette.*got MINISWHITE"),
        (np.zeros((4, 4), "complex64"), {}, "integers or real numbers; got complex64"),
        (np.zeros((4, 4, 4), "uint16"), {"photometric": "separated"}, "palette.*got SEPARATED"),
    ],
)
def test_tiff_of_other_kinds_is_refused(tmp_path, pixels, options, message):
    tifffile.imwrite(tmp_path / "a.tif", pixels, **{"photometric": "minisblack"} | options)
    with pytest.raises(FileError, match=f"a.tif must .*{message}"):
        files.read(tmp_path / "a.tif")


def test_a_compression_that_nothing_here_reads_is_named(tmp_path, monkeypatch):
    frames = [Image.fromarray(random_pixels((4, 4), "uint8")) for _ in range(2)]
    options = {"save_all": True, "append_images": frames[1:], "compression": "tiff_lzw"}
    frames[0].save(tmp_path / "a.tif", **options)
    monkeypatch.setattr("evoem.images.files.tiff.find_spec", lambda name: None)
    with pytest.raises(FileError, match=r"a\.tif must be uncompressed.*imagecodecs.*got LZW"):
        files.read(tmp_path / "a.tif")


# ------------------------------------------------------------------------------------ metadata


@pytest.mark.parametrize("name", ["a.png", "a.jpg", "a.tif"])
def test_profile_and_resolution_are_kept(tmp_path, name):
    about = {"icc_profile": PROFILE, "resolution": (300.0, 150.0), "resolution_unit": "inch"}
    files.write(tmp_path / name, picture_of((8, 8, 3), "uint8", **about))
    found = files.read(tmp_path / name).metadata
    assert found["icc_profile"] == PROFILE
    assert found["resolution"] == pytest.approx((300, 150), abs=0.02)  # PNG counts per metre
    assert found["resolution_unit"] == "inch"


def test_tiff_keeps_description_and_unit(tmp_path):
    about = {"description": "Blätter", "resolution": (118.5, 80.0), "resolution_unit": "centimeter"}
    picture = picture_of((3, 8, 8), "uint16", stack=True, **about)
    files.write(tmp_path / "a.tif", picture)
    assert_same(files.read(tmp_path / "a.tif"), picture)


@pytest.mark.parametrize(("name", "expected"), [("a.png", 254000), ("a.jpg", None)])
def test_a_resolution_in_centimetres_becomes_one_in_inches_if_it_fits(tmp_path, name, expected):
    about = {"resolution": (1e5, 1e5), "resolution_unit": "centimeter"}
    files.write(tmp_path / name, picture_of((8, 8), "uint8", **about))
    with Image.open(tmp_path / name) as image:
        found = image.info.get("dpi")
    assert found == (expected and pytest.approx((expected, expected)))


def test_a_layout_in_the_description_is_not_kept(tmp_path):
    tifffile.imwrite(
        tmp_path / "a.tif", random_pixels((3, 7, 9), "uint8"), photometric="minisblack"
    )
    assert "description" not in files.read(tmp_path / "a.tif").metadata


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


# --------------------------------------------------------------------------------------- masks


def save_mask(path, pixels):
    if path.suffix == ".npy":
        np.save(path, pixels)
    else:
        files.write(path, Picture(pixels, None, pixels.ndim == 3, False, {}))
    return path


@pytest.mark.parametrize(
    ("name", "values", "missing"),
    [
        ("m.png", np.array([[0, 255]], np.uint8), [[False, True]]),
        ("m.png", np.array([[0, 1]], np.uint8), [[False, True]]),
        ("m.png", np.array([[0, 0]], np.uint8), [[False, False]]),
        ("m.png", np.array([[255, 255]], np.uint8), [[True, True]]),
        ("m.png", np.array([[0, 127, 128, 255]], np.uint8), [[False, False, True, True]]),
        ("m.png", np.array([[0, 32767, 32768]], np.uint16), [[False, False, True]]),
        ("m.png", np.array([[0, 1, 2]], np.uint8), [[False, True, True]]),
        ("m.npy", np.array([[False, True]]), [[False, True]]),
        ("m.npy", np.array([[0, 0.4, 0.5, 1, np.nan]]), [[False, False, True, True, True]]),
        ("m.npy", np.array([[0, np.nan]]), [[False, True]]),
        ("m.npy", np.array([[np.nan, np.nan]]), [[True, True]]),
        ("m.tif", np.array([[0, 1, 0]], np.int32), [[False, True, False]]),
    ],
)
def test_bright_or_marked_values_are_missing(tmp_path, name, values, missing):
    path = save_mask(tmp_path / name, values)
    found = files.read_mask(path, values.shape)
    assert found.dtype == np.bool_
    np.testing.assert_array_equal(found, missing)
    np.testing.assert_array_equal(files.read_mask(path, (*values.shape, 3)), missing)


def test_a_mask_of_colours_is_per_channel_where_they_differ(tmp_path):
    missing = rng.random((7, 9, 3)) < 0.3
    path = save_mask(tmp_path / "m.png", missing * np.uint8(255))
    np.testing.assert_array_equal(files.read_mask(path, (7, 9, 3)), missing)
    same = np.repeat(missing[..., :1], 3, axis=-1)
    path = save_mask(tmp_path / "n.png", same * np.uint8(255))
    np.testing.assert_array_equal(files.read_mask(path, (7, 9, 3)), missing[..., 0])
    np.testing.assert_array_equal(files.read_mask(path, (7, 9)), missing[..., 0])


def test_a_mask_may_have_any_number_of_channels(tmp_path):
    missing = rng.random((7, 9, 6)) < 0.3
    path = save_mask(tmp_path / "m.npy", missing)
    np.testing.assert_array_equal(files.read_mask(path, (7, 9, 6)), missing)


@pytest.mark.parametrize(
    ("mask_shape", "shape", "message"),
    [
        ((32, 48), (64, 48), r"the size of the picture, 64 x 48; got 32 x 48\.$"),
        ((32, 48), (64, 48, 3), r"the size of the picture, 64 x 48 or 64 x 48 x 3; got 32 x 48\.$"),
        ((64, 48, 3), (64, 48), r"the size of the picture, 64 x 48; got 64 x 48 x 3\.$"),
        ((5, 64, 48), (64, 48), r"the size of the picture, 64 x 48; got 5 x 64 x 48\.$"),
    ],
)
def test_a_mask_of_another_size_is_refused(tmp_path, mask_shape, shape, message):
    path = save_mask(tmp_path / "m.npy", rng.random(mask_shape) < 0.5)
    with pytest.raises(FileError, match=r"^mask .*m\.npy must have " + message):
        files.read_mask(path, shape)


# ---------------------------------------------------------------------------- files not to read


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"must be an existing file; found none\.$"),
        (b"", r"must hold a picture; got an empty file\.$"),
        (b"GIF89a..", r"must be a PNG, JPEG, TIFF or NPY file; it starts with b'GIF89a\.\.'\.$"),
    ],
)
def test_a_file_that_is_no_picture_is_refused(tmp_path, content, message):
    if content is not None:
        (tmp_path / "a.png").write_bytes(content)
    with pytest.raises(FileError, match=r"a\.png " + message):
        files.read(tmp_path / "a.png")


def test_a_folder_is_refused(tmp_path):
    with pytest.raises(FileError, match=r"must be a file; got a folder\.$"):
        files.read(tmp_path)


def test_a_file_that_may_not_be_read_is_refused(tmp_path, monkeypatch):
    def refuse(*args, **kwargs):
        raise PermissionError(13, "Permission denied")

    (tmp_path / "a.png").write_bytes(b"x")
    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(FileError, match=r"a\.png must be a file that can be read; got Permission"):
        files.read(tmp_path / "a.png")


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros(3), r"must have 2 to 4 axes, none empty; got the shape \(3,\)"),
        (np.zeros((2, 2, 2, 2, 2)), r"must have 2 to 4 axes.*got the shape \(2, 2, 2, 2, 2\)"),
        (np.zeros((0, 3)), r"must "),
        (np.zeros((2, 2), complex), "must hold integers or real numbers; got complex128"),
        (np.zeros((2, 2), "U3"), "must hold integers or real numbers; got <U3"),
        (np.array([[{}]]), "must be a whole and readable picture; .*Python objects"),
    ],
)
def test_arrays_that_are_no_pictures_are_refused(tmp_path, array, message):
    np.save(tmp_path / "a.npy", array, allow_pickle=True)
    with pytest.raises(FileError, match=r"a\.npy " + message):
        files.read(tmp_path / "a.npy")


def saved(save):
    file = io.BytesIO()
    save(file)
    return file.getvalue()


NOISE = random_pixels((40, 30, 3), "uint8")
SLICES = random_pixels((4, 40, 30), "uint16")
FORMS = {
    "png": saved(lambda file: Image.fromarray(NOISE).save(file, "PNG")),
    "jpg": saved(lambda file: Image.fromarray(NOISE).save(file, "JPEG")),
    "npy": saved(lambda file: np.save(file, SLICES)),
    "lzw.tif": saved(
        lambda file: Image.fromarray(NOISE).save(file, "TIFF", compression="tiff_lzw")
    ),
    "imagej.tif": saved(lambda file: tifffile.imwrite(file, SLICES, imagej=True)),
    "pages.tif": saved(
        lambda file: tifffile.imwrite(file, SLICES, photometric="minisblack", metadata=None)
    ),
    "deflated.tif": saved(
        lambda file: tifffile.imwrite(file, SLICES, photometric="minisblack", compression="zlib")
    ),
    "tiles.tif": saved(
        lambda file: tifffile.imwrite(file, NOISE, photometric="rgb", tile=(16, 16), bigtiff=True)
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_truncated_file_is_refused_wherever_it_ends(tmp_path, form):
    whole = FORMS[form]
    path = tmp_path / f"a.{form}"
    path.write_bytes(whole)
    expected = files.read(path)
    lengths = [10, 20, 100, *np.linspace(200, len(whole) - 40, 25).astype(int)]
    for length in lengths:
        path.write_bytes(whole[:length])
        with pytest.raises(
            FileError, match="must be a whole and readable picture; reading failed: "
        ):
            files.read(path)
    path.write_bytes(whole)
    assert_same(files.read(path), expected)


@pytest.mark.parametrize("form", FORMS)
def test_a_damaged_file_is_read_or_refused_but_no_other_error_comes(tmp_path, form, recwarn):
    path = tmp_path / f"a.{form}"
    damage = np.random.default_rng(1)
    n_refused = 0
    for _ in range(60):
        content = bytearray(FORMS[form])
        for place in damage.integers(8, 400, 6):
            content[place] = damage.integers(256)
        path.write_bytes(content)
        try:
            files.read(path)
        except FileError:
            n_refused += 1
    assert n_refused > 0


# --------------------------------------------------------------------------------- what is held


@pytest.mark.parametrize(
    ("name", "picture", "message"),
    [
        (
            "a.png",
            picture_of((4, 5), "float32"),
            "a.png is PNG, .*; got 4 x 5 float32 pixels with 1 channel\\.$",
        ),
        ("a.png", picture_of((4, 5, 3), "uint16"), "uint16 pixels with 3 channels"),
        (
            "a.png",
            picture_of((4, 5), "uint16", alpha=True),
            "uint16 pixels with 1 channel and alpha",
        ),
        ("a.png", picture_of((4, 5, 5), "uint8"), "uint8 pixels with 5 channels"),
        ("a.png", picture_of((2, 4, 5), "uint8", stack=True), "a stack of 4 x 5 uint8 pixels"),
        (
            "a.png",
            picture_of((4, 5, 3), "uint8", alpha=True, premultiplied=True),
            r"straight alpha.* 3 channels and alpha \(premultiplied\)",
        ),
        ("a.png", grey(np.ones((4, 5), bool)), "bool pixels"),
        ("a.jpg", picture_of((4, 5), "float32"), "a.jpg is JPEG, .*float32"),
        ("a.jpg", picture_of((4, 5), "uint16"), "uint16"),
        ("a.jpg", picture_of((4, 5), "uint8", alpha=True), "without alpha.*and alpha"),
        ("a.jpg", picture_of((2, 4, 5), "uint8", stack=True), "a stack of"),
        ("a.jpg", picture_of((4, 5, 4), "uint8"), "4 channels"),
        ("a.jpg", grey(np.zeros((1, 65501), np.uint8)), "at most 65500 x 65500; got 1 x 65501 "),
        ("a.tif", grey(np.zeros((4, 5), complex)), "a.tif is TIFF, .*complex128"),
        ("a.npy", grey(np.zeros((4, 5), object)), "a.npy is NPY, .*object"),
        (
            "a.npy",
            picture_of((4, 5), "uint8", alpha=True),
            "three channels only.*1 channel and alpha",
        ),
        ("a.npy", grey(np.zeros((0, 5))), "must hold at least one pixel; got 0 x 5"),
        (
            "a.tif",
            Picture(np.zeros((4, 5)), np.zeros((4, 5), np.uint8), False, False, {}),
            "must have alpha of float64, as pixels; got uint8",
        ),
    ],
)
def test_what_a_format_cannot_hold_is_refused(tmp_path, name, picture, message):
    for refuse in (
        lambda path: files.check_output(path, force=True, picture=picture),
        lambda path: files.write(path, picture),
    ):
        with pytest.raises(FileError, match=message):
            refuse(tmp_path / name)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a.gif", r"a\.gif must end in one of \.png, \.jpg, .*; got '\.gif'\.$"),
        ("a", r"must end in one of .*; got ''\.$"),
        ("none/a.png", r"must be in an existing folder; found no .*none\.$"),
        ("old.png", r"old\.png must not exist yet unless force is given; found a file\.$"),
        ("folder.png", r"folder\.png must be a file; got a folder\.$"),
        ("x" * 300 + ".png", r"must be a place that can be written to; got File name too long\.$"),
    ],
)
def test_a_path_that_cannot_be_written_is_refused(tmp_path, name, message):
    (tmp_path / "old.png").write_bytes(b"old")
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(FileError, match=message):
        files.check_output(tmp_path / name, force=False)
    with pytest.raises(FileError, match=message):
        files.write(tmp_path / name, picture_of((4, 5), "uint8"))
    assert (tmp_path / "old.png").read_bytes() == b"old"


def test_a_folder_that_may_not_be_written_is_refused(tmp_path, monkeypatch):
    def refuse(*args, **kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    with pytest.raises(FileError, match=r"a\.png must be a place that can be written to; got Perm"):
        files.check_output(tmp_path / "a.png", force=False)


def test_a_path_that_can_be_written_is_left_as_it_is(tmp_path):
    (tmp_path / "old.png").write_bytes(b"old")
    files.check_output(tmp_path / "old.png", force=True)
    files.check_output(str(tmp_path / "new.JPEG"), force=False)
    assert [path.name for path in tmp_path.iterdir()] == ["old.png"]
    assert (tmp_path / "old.png").read_bytes() == b"old"


# ------------------------------------------------------------------------------ whole or nothing


@pytest.mark.parametrize("name", ["a.png", "a.jpg", "a.tif", "a.npy"])
@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, OSError, ValueError])
@pytest.mark.parametrize("existing", [False, True])
def test_a_write_that_breaks_off_changes_nothing(tmp_path, monkeypatch, name, kind, existing):
    path = tmp_path / name
    picture = picture_of((8, 8), "uint8")
    if existing:
        files.write(path, picture)
    before = {entry: entry.read_bytes() for entry in tmp_path.iterdir()}
    name = files.BY_SUFFIX[path.suffix]
    form = files.FORMATS[name]

    def break_off(file, picture):
        form.write(file, picture)
        file.truncate(20)
        raise kind("broken off")

    monkeypatch.setitem(files.FORMATS, name, form._replace(write=break_off))
    expected = FileError if kind in (OSError, ValueError) else kind
    with pytest.raises(expected, match="broken off"):
        files.write(path, picture_of((8, 8), "uint8"), force=True)
    assert {entry: entry.read_bytes() for entry in tmp_path.iterdir()} == before


def test_the_file_is_on_the_disk_before_it_takes_its_name(tmp_path, monkeypatch):
    calls = []
    replace, fsync = os.replace, os.fsync
    monkeypatch.setattr(os, "fsync", lambda handle: (calls.append("fsync"), fsync(handle)))
    monkeypatch.setattr(os, "replace", lambda *paths: (calls.append("replace"), replace(*paths)))
    picture = picture_of((8, 8), "uint8")
    files.write(tmp_path / "a.png", picture)
    assert calls == ["fsync", "replace"]
    assert [path.name for path in tmp_path.iterdir()] == ["a.png"]
    assert_same(files.read(tmp_path / "a.png"), picture)


def test_force_replaces_a_file(tmp_path):
    files.write(tmp_path / "a.png", picture_of((8, 8), "uint8"))
    picture = picture_of((3, 5, 3), "uint8")
    files.write(tmp_path / "a.png", picture, force=True)
    assert_same(files.read(tmp_path / "a.png"), picture)


@pytest.mark.skipif(os.name == "nt", reason="permissions are POSIX's")
def test_permissions_are_those_of_a_new_file_or_of_the_old_one(tmp_path):
    path = tmp_path / "a.png"
    before = os.umask(0o027)
    try:
        files.write(path, picture_of((8, 8), "uint8"))
        assert path.stat().st_mode & 0o777 == 0o640
        path.chmod(0o604)
        files.write(path, picture_of((8, 8), "uint8"), force=True)
        assert path.stat().st_mode & 0o777 == 0o604
    finally:
        os.umask(before)


@pytest.mark.skipif(os.name == "nt", reason="links need rights there")
def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "far").mkdir()
    link = tmp_path / "a.png"
    link.symlink_to(tmp_path / "far" / "b.png")
    picture = picture_of((8, 8), "uint8")
    files.write(link, picture)
    assert link.is_symlink()
    assert_same(files.read(tmp_path / "far" / "b.png"), picture)


def test_what_pillow_refuses_late_is_said_in_a_sentence(tmp_path):
    picture = picture_of((8, 8), "uint8", exif=bytes(2**16))
    with pytest.raises(FileError, match=r"a\.jpg must be written in full; writing failed: "):
        files.write(tmp_path / "a.jpg", picture)
    assert not list(tmp_path.iterdir())
