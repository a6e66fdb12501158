"""OME-Zarr: a folder with one picture in several sizes, its axes, scales and channels."""

import json

import numpy as np
import pytest
from file_pictures import assert_same, picture_of, random_pixels, refused

from evoem.images import files
from evoem.images.files import FileError
from evoem.images.files.zarr import smaller, starts_of

zarr = pytest.importorskip("zarr", reason="zarr is not installed: OME-Zarr")

AXES = [
    {"name": "t", "type": "time", "unit": "second"},
    {"name": "c", "type": "channel"},
    {"name": "z", "type": "space", "unit": "micrometer"},
    {"name": "y", "type": "space", "unit": "micrometer"},
    {"name": "x", "type": "space", "unit": "micrometer"},
]
SHAPES = (2, 2, 3, 33, 40), (2, 2, 3, 17, 20)
SCALES = [2.0, 1.0, 0.5, 0.25, 0.125], [2.0, 1.0, 0.5, 0.5, 0.25]


def ngff(version):
    """What OME-NGFF tells of a picture, with more than it asks for."""
    datasets = [
        {"path": path, "coordinateTransformations": [{"type": "scale", "scale": scale}]}
        for path, scale in zip(("full", "half"), SCALES, strict=True)
    ]
    window = {"start": 0.0, "end": 900.0, "min": 0.0, "max": 65535.0}
    channels = [
        {"label": label, "color": colour, "window": window, "active": True}
        for label, colour in (("DAPI", "0000FF"), ("GFP", "00FF00"))
    ]
    one = {"name": "cells", "axes": AXES, "datasets": datasets, "metadata": {"by": "a microscope"}}
    about = {"multiscales": [one], "omero": {"channels": channels, "id": 7}, "_creator": "me"}
    if version == 2:
        about["multiscales"][0]["version"] = "0.4"
        return about
    return {"ome": about | {"version": "0.5"}}


STORED = {
    2: {"order": "F"},
    3: {"compressors": [zarr.codecs.GzipCodec(level=5)], "shards": (1, 1, 1, 32, 32)},
}


def written(path, version, about=None):
    """A folder with a picture of two sizes, by the format's own library."""
    values = random_pixels(SHAPES[0], "uint16")
    group = zarr.create_group(path, zarr_format=version, attributes=about or ngff(version))
    names = {"dimension_names": list("tczyx")} if version == 3 else {}
    for name, shape in zip(("full", "half"), SHAPES, strict=True):
        array = group.create_array(
            name, shape=shape, dtype="uint16", chunks=(1, 1, 1, 16, 16), **names, **STORED[version]
        )
        array.attrs["exposure"] = 20
        array[...] = values[..., :: SHAPES[0][3] // shape[3], :: SHAPES[0][4] // shape[4]][
            ..., : shape[3], : shape[4]
        ]
    return values


def metadata_files(folder):
    """All that is no chunk, by its place."""
    names = ("zarr.json", ".zgroup", ".zattrs", ".zarray")
    return {
        path.relative_to(folder): json.loads(path.read_text())
        for path in folder.rglob("*")
        if path.name in names
    }


@pytest.mark.parametrize("version", [2, 3])
def test_a_picture_comes_back_with_its_levels_and_all_that_is_told_of_it(tmp_path, version):
    values = written(tmp_path / "a.ome.zarr", version)
    picture = files.read(tmp_path / "a.ome.zarr")
    expected = np.moveaxis(values, 1, -1).reshape(6, 33, 40, 2)
    np.testing.assert_array_equal(picture.pixels, expected)
    assert (picture.colour, picture.stack, picture.notes) == (True, True, ())
    assert picture.metadata["channel_names"] == ("DAPI", "GFP")
    assert picture.metadata["pixel_size"] == {
        "T": (2.0, "s"), "Z": (0.5, "µm"), "Y": (0.25, "µm"), "X": (0.125, "µm")
    }  # fmt: skip
    files.write(tmp_path / "b.ome.zarr", picture._replace(pixels=picture.pixels[..., ::-1, :]))
    assert metadata_files(tmp_path / "b.ome.zarr") == metadata_files(tmp_path / "a.ome.zarr")
    group = zarr.open_group(tmp_path / "b.ome.zarr", mode="r")
    turned = values[..., ::-1]
    np.testing.assert_array_equal(group["full"], turned)
    np.testing.assert_array_equal(group["half"], smaller(turned, SHAPES[1]))


@pytest.mark.parametrize("version", [2, 3])
def test_deviations_are_floats_of_the_same_geometry(tmp_path, version):
    written(tmp_path / "a.zarr", version)
    picture = files.read(tmp_path / "a.zarr")
    from evoem.images.files.picture import of_deviations

    std = picture._replace(
        pixels=np.float32(0.5) * np.ones(picture.pixels.shape, np.float32),
        metadata=of_deviations(picture.metadata),
    )
    files.write(tmp_path / "b.zarr", std)
    again = files.read(tmp_path / "b.zarr")
    assert_same(again, std._replace(metadata={}))
    for name in ("pixel_size", "channel_names", "layout"):
        assert again.metadata[name] == picture.metadata[name]
    windows = [one["window"] for one in again.metadata["zarr"].about["omero"]["channels"]]
    assert windows == 2 * [{"min": 0.5, "max": 0.5, "start": 0.5, "end": 0.5}]


def test_a_level_is_a_picture_of_its_own(tmp_path):
    written(tmp_path / "a.zarr", 3)
    picture = files.read(f"{tmp_path / 'a.zarr'}:/half")
    assert picture.pixels.shape == (6, 17, 20, 2)
    assert picture.metadata["pixel_size"]["X"] == (0.25, "µm")
    files.write(tmp_path / "b.zarr", picture)
    again = files.read(tmp_path / "b.zarr")
    assert_same(again, picture._replace(metadata={"pixel_size": picture.metadata["pixel_size"]}))
    assert sorted(zarr.open_group(tmp_path / "b.zarr", mode="r")) == ["half"]


@pytest.mark.parametrize(
    ("picture", "axes"),
    [
        (picture_of((7, 9), "uint8"), "yx"),
        (picture_of((7, 9, 3), "float32"), "cyx"),
        (picture_of((5, 7, 9), "int16", stack=True), "zyx"),
        (picture_of((5, 7, 9, 2), "uint16", stack=True), "czyx"),
    ],
)
def test_a_picture_of_another_format_gets_axes_sizes_and_channels(tmp_path, picture, axes):
    sizes = {"Y": (0.5, "mm"), "X": (0.25, "nm")}
    names = tuple("abc"[: picture.pixels.shape[-1]]) if picture.colour else ("one",)
    given = picture._replace(metadata={"pixel_size": sizes, "channel_names": names})
    files.write(tmp_path / "a.zarr", given)
    assert_same(files.read(tmp_path / "a.zarr"), given)
    about = zarr.open_group(tmp_path / "a.zarr", mode="r").attrs["ome"]
    assert about["version"] == "0.5"
    (one,) = about["multiscales"]
    assert "".join(axis["name"] for axis in one["axes"]) == axes
    units = {axis["name"]: axis.get("unit") for axis in one["axes"]}
    assert (units["y"], units["x"]) == ("millimeter", "nanometer")
    for channel in about["omero"]["channels"]:
        assert len(channel["color"]) == 6
        assert channel["window"]["max"] == float(picture.pixels.max())


def test_ome_tiff_becomes_ome_zarr_and_back(tmp_path):
    import tifffile

    values = random_pixels((3, 2, 33, 40), "uint16")
    about = {"axes": "ZCYX", "PhysicalSizeX": 0.1, "PhysicalSizeXUnit": "µm",
             "Channel": {"Name": ["a", "b"]}}  # fmt: skip
    tifffile.imwrite(tmp_path / "a.ome.tif", values, metadata=about)
    files.write(tmp_path / "b.zarr", files.read(tmp_path / "a.ome.tif"))
    array = zarr.open_group(tmp_path / "b.zarr", mode="r")["0"]
    np.testing.assert_array_equal(array, values.swapaxes(0, 1))  # channels come before depth
    files.write(tmp_path / "c.ome.tif", files.read(tmp_path / "b.zarr"))
    again = files.read(tmp_path / "c.ome.tif")
    assert_same(again, files.read(tmp_path / "a.ome.tif")._replace(metadata={}))
    assert again.metadata["channel_names"] == ("a", "b")
    assert again.metadata["pixel_size"]["X"] == (0.1, "µm")


def test_large_pictures_get_levels_of_half_the_size(tmp_path):
    picture = picture_of((700, 300), "uint8")
    files.write(tmp_path / "a.zarr", picture)
    group = zarr.open_group(tmp_path / "a.zarr", mode="r")
    assert [group[name].shape for name in "012"] == [(700, 300), (350, 150), (175, 75)]
    halves = picture.pixels.reshape(350, 2, 150, 2).mean((1, 3))
    np.testing.assert_array_equal(group["1"], np.rint(halves))
    scales = [
        dataset["coordinateTransformations"][0]["scale"]
        for dataset in group.attrs["ome"]["multiscales"][0]["datasets"]
    ]
    assert scales == [[1.0, 1.0], [2.0, 2.0], [4.0, 4.0]]


@pytest.mark.parametrize(("whole", "part"), [(8, 4), (9, 5), (9, 4), (70, 17), (5, 5), (7, 1)])
def test_levels_are_means_over_neighbours(whole, part):
    starts = starts_of(whole, part)
    assert len(starts) == part
    ends = np.append(starts[1:], whole)
    assert starts[0] == 0
    assert (ends > starts).all()
    values = random_pixels((whole, 3), "float64")
    means = [
        values[start:end].mean(0) for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
    ]
    np.testing.assert_allclose(smaller(values, (part, 3)), means)


def test_arrays_without_ome_are_read_by_names_of_dimensions(tmp_path):
    values = random_pixels((9, 2, 7), "float32")
    zarr.create_array(
        tmp_path / "a.zarr", name="raw/it", data=values, dimension_names=["x", "c", "y"]
    )
    picture = files.read(tmp_path / "a.zarr")
    np.testing.assert_array_equal(picture.pixels, np.einsum("xcy->yxc", values))
    xarray = zarr.create_array(tmp_path / "b.zarr", data=values, zarr_format=2)
    xarray.attrs["_ARRAY_DIMENSIONS"] = ["y", "lambda", "x"]
    stack = files.read(tmp_path / "b.zarr")
    np.testing.assert_array_equal(stack.pixels, values.swapaxes(0, 1))
    named = files.read(tmp_path / "b.zarr", axes="yzx")
    np.testing.assert_array_equal(named.pixels, values.swapaxes(0, 1))
    refused(tmp_path / "b.zarr", r"must be 3 letters", axes="YX")


def test_one_of_several_pictures_is_named_behind_the_folder(tmp_path):
    zarr.create_group(tmp_path / "a.zarr", attributes={"ome": {"bioformats2raw.layout": 3}})
    values = [written(tmp_path / "a.zarr" / name, 3) for name in "01"]
    refused(tmp_path / "a.zarr", r"as in a\.zarr:/path; it has :/0, :/1\.")
    refused(f"{tmp_path / 'a.zarr'}:/2", r"must have the picture that is asked for; got '2'\.")
    picture = files.read(f"{tmp_path / 'a.zarr'}:/1")
    np.testing.assert_array_equal(
        picture.pixels, np.moveaxis(values[1], 1, -1).reshape(6, 33, 40, 2)
    )
    level = files.read(f"{tmp_path / 'a.zarr'}:/1/half")
    assert level.pixels.shape == (6, 17, 20, 2)
    with pytest.raises(FileError, match=r"must be given without a part to be written; got '1'\."):
        files.write(f"{tmp_path / 'b.zarr'}:/1", picture)


def test_what_is_not_kept_and_what_is_not_there_is_told(tmp_path):
    written(tmp_path / "a.zarr", 2)
    zarr.open_group(tmp_path / "a.zarr").create_group("labels")
    (tmp_path / "a.zarr" / "full" / "0.0.0.1.1").unlink()
    picture = files.read(tmp_path / "a.zarr")
    assert picture.notes == (
        "1 of 108 chunks are not there, and stand for 0.",
        "Other content of the file is not kept: labels.",
    )
    np.testing.assert_array_equal(picture.pixels[0, 16:32, 16:32, 0], 0)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / "zarr.json").write_text("{"), "must be a whole and readable"),
        (lambda folder: (folder / "full/zarr.json").unlink(), "must be a whole and readable"),
        (lambda folder: (folder / "full/c/0/0/0/0/0").write_bytes(b"x"), "must be a whole and"),
    ],
)
def test_damage_is_told_in_one_sentence(tmp_path, damage, message):
    written(tmp_path / "a.zarr", 3)
    damage(tmp_path / "a.zarr")
    with pytest.raises(FileError, match=message) as told:
        files.read(tmp_path / "a.zarr")
    assert "\n" not in str(told.value)


def test_huge_arrays_are_refused_before_anything_is_allocated(tmp_path):
    zarr.create_array(tmp_path / "a.zarr", shape=(10**6, 10**6), dtype="u1", chunks=(10, 10))
    refused(tmp_path / "a.zarr", "must have at most 268435456 pixels")
    zarr.create_array(tmp_path / "b.zarr", shape=(10, 10), dtype="u1", chunks=(10**6, 10**6))
    refused(tmp_path / "b.zarr", "must have at most 268435456 pixels")
    zarr.create_array(tmp_path / "c.zarr", shape=(10, 10), dtype="c8", chunks=(10, 10))
    refused(tmp_path / "c.zarr", r"must hold integers or real numbers; got complex64\.")


def test_only_a_folder_of_zarr_is_replaced_and_only_with_force(tmp_path):
    picture = picture_of((7, 9), "uint8")
    files.write(tmp_path / "a.zarr", picture)
    with pytest.raises(FileError, match=r"must not exist yet unless force is given; found a fold"):
        files.write(tmp_path / "a.zarr", picture)
    other = picture_of((5, 6), "uint8")
    files.write(tmp_path / "a.zarr", other, force=True)
    assert_same(files.read(tmp_path / "a.zarr"), other)
    (tmp_path / "letters.zarr").mkdir()
    (tmp_path / "letters.zarr" / "dear").touch()
    with pytest.raises(FileError, match=r"written over: it is a folder of another kind\."):
        files.write(tmp_path / "letters.zarr", picture, force=True)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["a.zarr", "letters.zarr"]


def test_without_zarr_the_format_is_named(tmp_path, monkeypatch):
    written(tmp_path / "a.zarr", 3)
    monkeypatch.setattr("evoem.images.files.find_spec", lambda name: None)
    sentence = r"for OME-Zarr run pip install 'evoem\[zarr\]', which installs zarr\."
    with pytest.raises(FileError, match=sentence):
        files.read(tmp_path / "a.zarr")
    with pytest.raises(FileError, match=sentence):
        files.write(tmp_path / "b.zarr", picture_of((7, 9), "uint8"))
