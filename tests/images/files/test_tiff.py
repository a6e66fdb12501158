"""Kinds of TIFF."""

import numpy as np
import pytest
import tifffile
from file_pictures import assert_same, colour, grey, picture_of, random_pixels, tiff
from PIL import Image

from evoem.images import files
from evoem.images.files import FileError, Picture


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


def test_tiff_keeps_description_and_unit(tmp_path):
    about = {"description": "Blätter", "resolution": (118.5, 80.0), "resolution_unit": "centimeter"}
    picture = picture_of((3, 8, 8), "uint16", stack=True, **about)
    files.write(tmp_path / "a.tif", picture)
    assert_same(files.read(tmp_path / "a.tif"), picture)


def test_a_layout_in_the_description_is_not_kept(tmp_path):
    tifffile.imwrite(
        tmp_path / "a.tif", random_pixels((3, 7, 9), "uint8"), photometric="minisblack"
    )
    assert "description" not in files.read(tmp_path / "a.tif").metadata


@pytest.mark.parametrize(
    ("dtype", "declared", "value"),
    [
        ("float32", "-3.4028234663852886e+38", -3.4028234663852886e38),
        ("float64", "-9999", -9999),
        ("int16", "-9999", -9999),
        ("uint8", "255", 255),
    ],
)
@pytest.mark.parametrize("options", [{}, {"compression": "zlib", "tile": (16, 16)}])
def test_gdal_declares_a_value_that_stands_for_missing(tmp_path, dtype, declared, value, options):
    pixels = np.random.default_rng(4).integers(1, 100, (20, 30)).astype(dtype)
    pixels[3, 4] = pixels[10, 2:5] = np.asarray(value, dtype)
    tag = [(42113, "s", 0, declared, True)]
    tifffile.imwrite(tmp_path / "a.tif", pixels, extratags=tag, metadata=None, **options)
    picture = files.read(tmp_path / "a.tif")
    assert (picture.missing == (pixels == pixels[3, 4])).all()
    assert picture.missing.sum() == 4
    assert picture.notes[0].startswith("4 pixels are ")
    assert picture.notes[0].endswith("which the file declares as missing (GDAL_NODATA).")


def test_nothing_is_missing_if_no_pixel_has_the_declared_value(tmp_path):
    pixels = random_pixels((8, 9, 3), "uint8")
    for declared in ("-9999", "nonsense", "nan"):
        tag = [(42113, "s", 0, declared, True)]
        tifffile.imwrite(tmp_path / "a.tif", pixels, extratags=tag, photometric="rgb")
        assert files.read(tmp_path / "a.tif").missing is None


def test_a_declared_value_is_found_among_colours_but_not_in_alpha(tmp_path):
    samples = np.full((6, 7, 4), 9, np.uint8)
    samples[0, 0, 1] = samples[..., 3] = 7
    options = {"photometric": "rgb", "extrasamples": ["unassalpha"]}
    tifffile.imwrite(tmp_path / "a.tif", samples, extratags=[(42113, "s", 0, "7", True)], **options)
    picture = files.read(tmp_path / "a.tif")
    assert np.argwhere(picture.missing).tolist() == [[0, 0, 1]]


STORED = {
    "plain": {},
    "of the other byte order": {"byteorder": ">"},
    "strips": {"compression": "zlib", "rowsperstrip": 7},
    "tiles": {"compression": "zlib", "tile": (16, 16)},
    "differences": {"compression": "zlib", "tile": (16, 32), "predictor": True},
    "planes": {"compression": "zlib", "tile": (16, 16), "planarconfig": "separate"},
}


@pytest.mark.parametrize("n_samples", [1, 3])
@pytest.mark.parametrize("kind", STORED)
@pytest.mark.parametrize("own", [slice(0, 9), slice(9, 37), slice(37, 40), slice(40, 40)])
def test_rows_that_are_looked_at_are_those_of_the_file(own, kind, n_samples, tmp_path):
    shape = (40, 50, 3) if n_samples == 3 else (40, 50)
    pixels = random_pixels(shape, "uint16")
    options = STORED[kind] | {"photometric": "rgb" if n_samples == 3 else "minisblack"}
    if n_samples == 3 and kind == "planes":
        stored = np.moveaxis(pixels, -1, 0)
    else:
        stored = pixels
        options.pop("planarconfig", None)
    tifffile.imwrite(tmp_path / "a.tif", stored, **options)
    picture = files.read(tmp_path / "a.tif", rows=lambda n_rows: own)
    assert picture.pixels.shape == shape
    np.testing.assert_array_equal(picture.pixels[own], pixels[own])


def test_strips_that_nobody_looks_at_are_not_unpacked(tmp_path):
    pixels = 1 + random_pixels((40, 50), "uint8") % 200
    tifffile.imwrite(tmp_path / "a.tif", pixels, compression="zlib", rowsperstrip=10)
    found = files.read(tmp_path / "a.tif", rows=lambda n_rows: slice(12, 15)).pixels
    np.testing.assert_array_equal(found[10:20], pixels[10:20])
    assert not found[:10].any()
    assert not found[20:].any()


@pytest.mark.parametrize("orientation", [1, 3])
def test_rows_that_are_looked_at_are_those_of_a_picture_that_stands_upright(orientation, tmp_path):
    pixels = random_pixels((40, 50), "uint8")
    tag = [(274, "H", 1, orientation, True)]
    tifffile.imwrite(tmp_path / "a.tif", pixels, compression="zlib", rowsperstrip=5, extratags=tag)
    whole = files.read(tmp_path / "a.tif").pixels
    found = files.read(tmp_path / "a.tif", rows=lambda n_rows: slice(0, 11)).pixels
    np.testing.assert_array_equal(found[:11], whole[:11])


def test_a_stack_is_read_whole(tmp_path):
    pixels = random_pixels((4, 20, 30), "uint8")
    tifffile.imwrite(tmp_path / "a.tif", pixels, compression="zlib", photometric="minisblack")
    found = files.read(tmp_path / "a.tif", rows=lambda n_rows: slice(3, 5)).pixels
    np.testing.assert_array_equal(found, pixels)
