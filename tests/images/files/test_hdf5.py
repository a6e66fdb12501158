"""HDF5: a dataset and what is around it."""

import zlib

import numpy as np
import pytest
from file_pictures import assert_same, random_pixels, refused

from evoem.images import files
from evoem.images.files import FileError, Picture

h5py = pytest.importorskip("h5py", reason="h5py is not installed: HDF5")


def nexus(path, values, **options):
    """A file with a picture at /entry/data, attributes all the way, and things beside it."""
    with h5py.File(path, "w") as file:
        file.attrs["creator"] = "a beamline"
        entry = file.create_group("entry")
        entry.attrs["NX_class"] = np.bytes_("NXentry")
        one = entry.create_dataset("data", data=values, **options)
        one.attrs["units"], one.attrs["gain"] = "counts", np.float32(2.5)
        entry["angle"] = np.linspace(0, 1, values.shape[0])
        entry["angle"].make_scale("angle")
        one.dims[0].attach_scale(entry["angle"])
        entry["title"] = "leaves"
        entry["link"] = h5py.SoftLink("/entry/data")
        file["other"] = random_pixels((3,), "float64")
    return path


@pytest.mark.parametrize(
    ("shape", "dtype", "colour", "stack"),
    [((7, 9), "uint16", False, False), ((5, 7, 9), "float32", False, True),
     ((7, 9, 3), "uint8", True, False), ((2, 5, 7, 9), ">i4", False, True)],
)  # fmt: skip
def test_a_dataset_comes_back_with_all_around_it(tmp_path, shape, dtype, colour, stack):
    values = random_pixels(shape, np.dtype(dtype).newbyteorder("=")).astype(dtype)
    options = {"chunks": True, "compression": "gzip", "shuffle": True}
    nexus(tmp_path / "a.h5", values, **options)
    picture = files.read(tmp_path / "a.h5")
    flat = values.reshape(-1, 7, 9) if stack else values
    assert_same(
        picture, Picture(flat.astype(values.dtype.newbyteorder("=")), None, colour, stack, {})
    )
    files.write(tmp_path / "b.h5", picture._replace(pixels=picture.pixels[..., ::-1]))
    with h5py.File(tmp_path / "a.h5") as before, h5py.File(tmp_path / "b.h5") as after:
        assert dict(after.attrs) == dict(before.attrs)
        assert dict(after["entry"].attrs) == dict(before["entry"].attrs)
        assert after["entry/title"].asstr()[()] == "leaves"
        np.testing.assert_array_equal(after["other"], before["other"])
        one, own = after["entry/data"], before["entry/data"]
        np.testing.assert_array_equal(one, values[..., ::-1])
        assert one.attrs["units"] == "counts"
        assert one.attrs.get_id("gain").dtype == np.float32
        assert (one.chunks, one.compression, one.shuffle) == (own.chunks, "gzip", True)
        np.testing.assert_array_equal(one.dims[0]["angle"], before["entry/angle"])
        assert after["entry/link"] == one


def test_the_dataset_is_named_behind_the_file(tmp_path):
    values = random_pixels((2, 7, 9), "float32")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["raw/first"], file["raw/second"] = values[0], values[1]
    refused(tmp_path / "a.h5", r"as in a\.h5:/path; it has :/raw/first, :/raw/second\.")
    refused(f"{tmp_path / 'a.h5'}:/raw", r"must have the dataset that is asked for; got 'raw'\.")
    picture = files.read(f"{tmp_path / 'a.h5'}:/raw/second")
    np.testing.assert_array_equal(picture.pixels, values[1])
    files.write(f"{tmp_path / 'b.h5'}:/clean/it", picture)
    with h5py.File(tmp_path / "b.h5") as file:
        np.testing.assert_array_equal(file["clean/it"], values[1])
        np.testing.assert_array_equal(file["raw/first"], values[0])
        assert "second" not in file["raw"]


def test_labels_of_dimensions_are_axes(tmp_path):
    values = random_pixels((9, 2, 7), "float32")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["a"] = values
        for dim, label in zip(file["a"].dims, ("x", "channel", "y"), strict=True):
            dim.label = label
    picture = files.read(tmp_path / "a.h5")
    np.testing.assert_array_equal(picture.pixels, np.einsum("xcy->yxc", values))
    files.write(tmp_path / "b.h5", picture)
    with h5py.File(tmp_path / "b.h5") as file:
        np.testing.assert_array_equal(file["a"], values)
        assert [dim.label for dim in file["a"].dims] == ["x", "channel", "y"]


def test_a_fill_value_is_missing_and_not_told_of_what_is_filled(tmp_path):
    values = random_pixels((7, 9), "int16")
    values[2, 3] = -999
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["a"] = values
        file["a"].attrs["_FillValue"] = np.array([-999], "int16")
    picture = files.read(tmp_path / "a.h5")
    np.testing.assert_array_equal(picture.missing, values == -999)
    files.write(tmp_path / "b.h5", picture)
    assert files.read(tmp_path / "b.h5").missing is None


def test_large_files_are_read_in_part_and_the_rest_is_told_of(tmp_path, monkeypatch):
    monkeypatch.setattr("evoem.images.files.hdf5.MOST_BESIDE", 1000)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["a"], file["b"] = np.zeros((7, 9)), np.zeros(1000)
        file.create_dataset("huge", (10**6, 10**6), "f4", chunks=(10, 10))
    picture = files.read(f"{tmp_path / 'a.h5'}:/a")
    assert picture.notes == ("Large datasets beside a are not kept: /b, /huge.",)
    refused(f"{tmp_path / 'a.h5'}:/huge", "must have at most 268435456 pixels")


def test_values_in_other_files_are_not_read(tmp_path):
    (tmp_path / "secret").write_bytes(bytes(1000))
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("a", (7, 9), "u1", external=[(str(tmp_path / "secret"), 0, 63)])
    refused(tmp_path / "a.h5", r"must hold its values itself; got some in other files\.")


def test_a_file_that_is_cut_off_is_refused(tmp_path):
    nexus(tmp_path / "a.h5", random_pixels((70, 90), "float64"))
    content = (tmp_path / "a.h5").read_bytes()
    (tmp_path / "a.h5").write_bytes(content[: len(content) // 2])
    refused(tmp_path / "a.h5", "must be a whole and readable picture")


def test_without_h5py_the_format_is_named(tmp_path, monkeypatch):
    nexus(tmp_path / "a.h5", random_pixels((7, 9), "float64"))
    monkeypatch.setattr("evoem.images.files.find_spec", lambda name: None)
    with pytest.raises(FileError, match=r"for HDF5 run pip install 'evoem\[zarr\]'"):
        files.read(tmp_path / "a.h5")


def test_only_rows_that_are_looked_at_are_read(tmp_path):
    values = 1 + random_pixels((3, 40, 50), "uint8") % 200
    storage = {"chunks": (1, 8, 25), "compression": "gzip"}
    nexus(tmp_path / "a.h5", values, **storage)
    read = files.read(tmp_path / "a.h5", axes="CYX", rows=lambda n_rows: slice(12, n_rows - 10))
    np.testing.assert_array_equal(read.pixels[12:30], np.moveaxis(values, 0, -1)[12:30])
    assert not read.pixels[:12].any()
    assert not read.pixels[30:].any()
    stack = files.read(tmp_path / "a.h5", rows=lambda n_rows: slice(12, 13))
    np.testing.assert_array_equal(stack.pixels, values)


def test_missing_values_are_counted_in_all_rows(tmp_path):
    values = random_pixels((40, 50), "float32")
    values[0, :5] = values[30, 2] = -9999
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["data"] = values
        file["data"].attrs["_FillValue"] = np.float32(-9999)
    read = files.read(tmp_path / "a.h5", rows=lambda n_rows: slice(12, 20))
    assert np.count_nonzero(read.missing) == 6
    assert read.notes == ("6 values equal the fill value and count as missing.",)


def test_a_chunk_is_not_unpacked_beyond_its_room(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        options = {"shape": (14, 9), "dtype": "u1", "chunks": (7, 9), "compression": "gzip"}
        one = file.create_dataset("data", fletcher32=True, shuffle=True, **options)
        one[...] = 3
        assert (files.read(tmp_path / "a.h5").pixels == 3).all()
        one = file.create_dataset("other", **options)
        one.id.write_direct_chunk((0, 0), zlib.compress(bytes(1 << 25)))
    refused(f"{tmp_path / 'a.h5'}:/other", "a chunk of 63 bytes unpacks to far more")


def test_chunks_are_compressed_once(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        stored = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        stored.set_chunk((7, 9))
        stored.set_deflate(9)
        stored.set_deflate(9)
        space = h5py.h5s.create_simple((7, 9))
        h5py.h5d.create(file.id, b"data", h5py.h5t.NATIVE_UINT8, space, stored)
    refused(tmp_path / "a.h5", "must be compressed once")
