"""Axes of arrays in files."""

import numpy as np
import pytest
from file_pictures import random_pixels

from evoem.images import files
from evoem.images.files import FileError, Picture
from evoem.images.files.layout import Layout, arranged, checked, guessed, in_file, layout_of


@pytest.mark.parametrize(
    ("axes", "shape", "expected", "order"),
    [
        ("YX", (7, 9), (7, 9), "YX"),
        ("XY", (9, 7), (7, 9), "YX"),
        ("CYX", (2, 7, 9), (7, 9, 2), "YXC"),
        ("ZCYX", (3, 2, 7, 9), (3, 7, 9, 2), "ZYXC"),
        ("TCZYX", (2, 4, 3, 7, 9), (6, 7, 9, 4), "TZYXC"),
        ("XYZT", (9, 7, 3, 2), (6, 7, 9), "ZTYX"),
        ("TCYXS", (2, 2, 7, 9, 3), (4, 7, 9, 3), "TCYXS"),
        ("ZCYX", (1, 1, 7, 9), (7, 9), "ZCYX"),
    ],
)
def test_any_axes_become_slices_rows_columns_channels_and_back(axes, shape, expected, order):
    array = random_pixels(shape, "int32")
    lies = Layout(axes, shape)
    pixels, colour, stack = arranged(array, lies)
    turned = np.einsum(f"{axes.lower()}->{order.lower()}", array)
    np.testing.assert_array_equal(pixels, turned.reshape(expected))
    assert colour == (len(expected) - stack == 3)
    picture = Picture(pixels, None, colour, stack, {"layout": lies})
    assert layout_of(picture) == lies
    np.testing.assert_array_equal(in_file(picture, lies), array)


def test_a_layout_that_is_no_longer_true_is_passed_over():
    picture = Picture(np.zeros((4, 7, 9)), None, False, True, {"layout": Layout("ZYX", (4, 9, 7))})
    assert layout_of(picture) == Layout("ZYX", (4, 7, 9))


@pytest.mark.parametrize(
    ("shape", "axes"),
    [((7, 9), "YX"), ((7, 9, 3), "YXC"), ((5, 7, 9), "ZYX"), ((2, 3, 7, 9, 4), "TZYXC")],
)
def test_axes_that_nobody_names_are_guessed(shape, axes):
    assert guessed(shape) == Layout(axes, shape)


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ("ZYX", r"axes must be 4 letters for .*a\.npy, whose shape is \(2, 3, 7, 9\); got 'ZYX'"),
        ("ZZYX", "axes must be different letters, such as ZYX; got 'ZZYX'"),
        ("Z?YX", "axes must be different letters, such as ZYX; got 'Z"),
        ("ZCTX", "axes must have Y and X, rows and columns; got 'ZCTX'"),
    ],
)
def test_axes_that_cannot_be_are_refused(tmp_path, axes, message):
    np.save(tmp_path / "a.npy", np.zeros((2, 3, 7, 9)))
    with pytest.raises(FileError, match=message):
        files.read(tmp_path / "a.npy", axes=axes)


@pytest.mark.parametrize("name", ["a.npy", "a.tif"])
def test_axes_may_be_named_and_an_array_comes_back_in_them(tmp_path, name):
    array = random_pixels((2, 3, 7, 9), "float32")
    np.save(tmp_path / "in.npy", array)
    found = files.read(tmp_path / "in.npy", axes="ZCYX")
    np.testing.assert_array_equal(found.pixels, np.moveaxis(array, 1, -1))
    files.write(tmp_path / name, found)
    again = files.read(tmp_path / name, axes="ZCYX")
    np.testing.assert_array_equal(again.pixels, found.pixels)
    assert checked("it", "zcyx", array.shape) == again.metadata["layout"]


def test_formats_with_axes_of_their_own_have_no_others(tmp_path):
    files.write(tmp_path / "a.png", Picture(np.zeros((7, 9), "u1"), None, False, False, {}))
    with pytest.raises(
        FileError, match=r"^axes must not be given for .*a\.png, as PNG has its own"
    ):
        files.read(tmp_path / "a.png", axes="XY")
