"""NPY files: arrays that are pictures, and others."""

import numpy as np
import pytest

from evoem.images import files
from evoem.images.files import FileError


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


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("dtype", ["<u2", ">u2"])
def test_rows_that_are_looked_at_are_those_of_the_file(dtype, turned, tmp_path):
    array = np.random.default_rng(0).integers(0, 60_000, (40, 50)).astype(dtype)
    np.save(tmp_path / "a.npy", np.asfortranarray(array) if turned else array)
    pixels = files.read(tmp_path / "a.npy", rows=lambda n_rows: slice(7, 20)).pixels
    assert pixels.dtype == np.uint16
    assert pixels.shape == array.shape
    np.testing.assert_array_equal(pixels[7:20], array[7:20])
