"""Pictures come back from files as they were; what cannot be is refused in one sentence."""

import io
import os
from pathlib import Path

import numpy as np
import pytest
import tifffile
from file_pictures import (
    PROFILE,
    assert_same,
    grey,
    picture_of,
    random_pixels,
    rng,
)
from PIL import Image

from evoem.images import files
from evoem.images.files import FileError, Picture
from evoem.runtime.atomic_files import check_place

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


@pytest.mark.parametrize("name", ["a.tif", "a.npy"])
def test_nan_stays(tmp_path, name):
    pixels = random_pixels((7, 9), "float32")
    pixels[2, 3] = np.nan
    files.write(tmp_path / name, grey(pixels))
    assert_same(files.read(tmp_path / name), grey(pixels))


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


# ------------------------------------------------------------------------------------ metadata


@pytest.mark.parametrize("name", ["a.png", "a.jpg", "a.tif"])
def test_profile_and_resolution_are_kept(tmp_path, name):
    about = {"icc_profile": PROFILE, "resolution": (300.0, 150.0), "resolution_unit": "inch"}
    files.write(tmp_path / name, picture_of((8, 8, 3), "uint8", **about))
    found = files.read(tmp_path / name).metadata
    assert found["icc_profile"] == PROFILE
    assert found["resolution"] == pytest.approx((300, 150), abs=0.02)  # PNG counts per metre
    assert found["resolution_unit"] == "inch"


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
        (b"GIF89a..", r"must be a picture \(PNG, .*NPY.*\); it starts with b'GIF89a\.\.'\.$"),
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
        lambda path: files.check_format(path, picture),
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
        files.write(tmp_path / name, picture_of((4, 5), "uint8"))
    assert (tmp_path / "old.png").read_bytes() == b"old"


def test_a_folder_that_may_not_be_written_is_refused(tmp_path, monkeypatch):
    def refuse(*args, **kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    with pytest.raises(FileError, match=r"a\.png must be a place that can be written to; got Perm"):
        check_place(tmp_path / "a.png", force=False)


def test_a_path_that_can_be_written_is_left_as_it_is(tmp_path):
    (tmp_path / "old.png").write_bytes(b"old")
    check_place(tmp_path / "old.png", force=True)
    check_place(tmp_path / "new.JPEG", force=False)
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
    link, fsync = os.link, os.fsync
    monkeypatch.setattr(os, "fsync", lambda handle: (calls.append("fsync"), fsync(handle)))
    monkeypatch.setattr(os, "link", lambda *paths: (calls.append("link"), link(*paths)))
    picture = picture_of((8, 8), "uint8")
    files.write(tmp_path / "a.png", picture)
    assert calls == ["fsync", "link", "fsync"]  # the last is of the folder
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
