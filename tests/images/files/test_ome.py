"""OME-TIFF and ImageJ's hyperstacks come back with all that they tell."""

from xml.etree import ElementTree

import numpy as np
import pytest
import tifffile
from file_pictures import random_pixels

from evoem.images import files
from evoem.images.files import Picture, ome
from evoem.images.files.layout import Layout
from evoem.images.files.picture import of_deviations

NAMES = ["DAPI", "GFP"]
SIZES = {
    "PhysicalSizeX": 0.25,
    "PhysicalSizeXUnit": "µm",
    "PhysicalSizeY": 0.5,
    "PhysicalSizeYUnit": "µm",
    "PhysicalSizeZ": 300.0,
    "PhysicalSizeZUnit": "nm",
    "TimeIncrement": 2.5,
    "TimeIncrementUnit": "s",
}


def written(path, axes, shape, dtype="uint16", **more):
    array = random_pixels(shape, dtype)
    about = {"axes": axes, "Channel": {"Name": NAMES}, "Description": "Blätter"} | SIZES | more
    if "C" not in axes:
        del about["Channel"]
    options = {"photometric": "rgb" if axes.endswith("S") else "minisblack"}
    tifffile.imwrite(path, array, ome=True, metadata=about, **options)
    return array


def attributes(xml):
    """All that is told, but where pixels lie and who wrote it."""
    told = []
    for element in ElementTree.fromstring(xml.encode()).iter():
        name = element.tag.rpartition("}")[2]
        if name != "TiffData":
            about = {key: value for key, value in element.attrib.items() if key != "UUID"}
            told.append((name, about, (element.text or "").strip()))
    return told


@pytest.mark.parametrize(
    ("axes", "shape"),
    [
        ("CYX", (2, 7, 9)),
        ("CZYX", (2, 3, 7, 9)),
        ("ZCYX", (3, 2, 7, 9)),
        ("TZCYX", (4, 3, 2, 7, 9)),
        ("TCZYX", (4, 2, 3, 7, 9)),
        ("ZYX", (3, 7, 9)),
        ("TYXS", (4, 7, 9, 3)),
    ],
)
def test_ome_tiff_comes_back_whole(tmp_path, axes, shape):
    array = written(tmp_path / "a.ome.tif", axes, shape, Plane={"PositionX": [1.5] * 24})
    picture = files.read(tmp_path / "a.ome.tif")
    changed = picture._replace(pixels=picture.pixels[..., ::-1, :] if picture.colour
                               else picture.pixels[..., ::-1])  # fmt: skip
    files.write(tmp_path / "b.ome.tif", changed)
    with (
        tifffile.TiffFile(tmp_path / "a.ome.tif") as before,
        tifffile.TiffFile(tmp_path / "b.ome.tif") as after,
    ):
        series = after.series[0]
        assert (series.kind, series.axes) == ("ome", axes)
        np.testing.assert_array_equal(series.asarray(), np.flip(array, axes.index("X")))
        assert attributes(after.ome_metadata) == attributes(before.ome_metadata)
    again = files.read(tmp_path / "b.ome.tif")
    sizes = {"X": (0.25, "µm"), "Y": (0.5, "µm"), "Z": (300.0, "nm"), "T": (2.5, "s")}
    assert again.metadata["pixel_size"] == sizes
    assert again.metadata.get("channel_names") == (("DAPI", "GFP") if "C" in axes else None)


def test_standard_deviations_of_ome_tiff_lie_where_it_does(tmp_path):
    written(tmp_path / "a.ome.tif", "ZCYX", (3, 2, 7, 9))
    picture = files.read(tmp_path / "a.ome.tif")
    std = random_pixels(picture.pixels.shape, "float32")
    deviations = picture._replace(pixels=std, metadata=of_deviations(picture.metadata))
    files.write(tmp_path / "std.tif", deviations)
    with tifffile.TiffFile(tmp_path / "std.tif") as file:
        assert file.series[0].axes == "ZCYX"
        np.testing.assert_array_equal(file.asarray(), np.moveaxis(std, -1, 1))
        told = dict((name, about) for name, about, _ in attributes(file.ome_metadata))
        assert told["Pixels"]["Type"] == "float"
        assert told["Pixels"]["PhysicalSizeZ"] == "300.0"


def test_one_of_several_pictures_is_read_and_written_alone(tmp_path):
    arrays = [random_pixels((2, 7, 9), "uint8"), random_pixels((3, 8, 8), "uint16")]
    with tifffile.TiffWriter(tmp_path / "a.ome.tif", ome=True) as file:
        for array, name in zip(arrays, ("first", "second"), strict=True):
            file.write(array, photometric="minisblack", metadata={"axes": "ZYX", "Name": name})
    with pytest.raises(files.FileError, match=r"number of one, as in a\.ome\.tif:/0; got 2 diff"):
        files.read(tmp_path / "a.ome.tif")
    with pytest.raises(files.FileError, match=r":/0 to :/1; got '2'"):
        files.read(tmp_path / "a.ome.tif:/2")
    picture = files.read(tmp_path / "a.ome.tif:/1")
    np.testing.assert_array_equal(picture.pixels, arrays[1])
    files.write(tmp_path / "b.ome.tif", picture)
    with tifffile.TiffFile(tmp_path / "b.ome.tif") as file:
        (only,) = ome.images(file.ome_metadata)
        assert only.attrib["Name"] == "second"
        np.testing.assert_array_equal(file.asarray(), arrays[1])


def test_any_picture_can_become_ome_tiff(tmp_path):
    pixels = random_pixels((6, 7, 9, 2), "float32")
    about = {
        "layout": Layout("XYAC", (9, 7, 6, 2)),
        "pixel_size": {"X": (2.0, "mm"), "Y": (3.0, "mm")},
        "channel_names": ("magnitude", "phase"),
    }
    picture = Picture(pixels, None, True, True, about)
    files.write(tmp_path / "a.ome.tif", picture)
    again = files.read(tmp_path / "a.ome.tif")
    np.testing.assert_array_equal(again.pixels, pixels)
    assert again.metadata["pixel_size"] == about["pixel_size"]
    assert again.metadata["channel_names"] == about["channel_names"]


def test_significant_bits_are_told_of_the_same_type_alone():
    xml = ome_xml('Type="uint16" SignificantBits="12"')
    assert 'SignificantBits="12"' in ome.of_restored(xml, 0, np.dtype("uint16"), 1)
    assert "SignificantBits" not in ome.of_restored(xml, 0, np.dtype("float32"), 1)


def ome_xml(pixels):
    sizes = " ".join(f'Size{letter}="1"' for letter in "XYZCT")
    namespace = "http://www.openmicroscopy.org/Schemas/OME/2016-06"
    return (
        f'<OME xmlns="{namespace}"><Image ID="Image:0"><Pixels ID="Pixels:0" '
        f'DimensionOrder="XYZCT" {sizes} {pixels}/></Image></OME>'
    )


def test_a_hyperstack_of_imagej_comes_back_with_its_looks(tmp_path):
    array = random_pixels((2, 3, 2, 7, 9), "uint16")
    ramp = np.arange(256, dtype=np.uint8)
    about = {
        "axes": "TZCYX", "unit": "um", "spacing": 0.5, "finterval": 2.0, "fps": 0.5, "min": 3.0,
        "max": 99.0, "mode": "composite", "Ranges": (0.0, 9.0, 1.0, 8.0), "Info": "a leaf",
        "Labels": [f"plane {number}" for number in range(12)],
        "LUTs": [np.stack([ramp, 0 * ramp, 0 * ramp]), np.stack([0 * ramp, ramp, ramp])],
    }  # fmt: skip
    options = {"imagej": True, "resolution": (4.0, 2.0), "metadata": about}
    tifffile.imwrite(tmp_path / "a.tif", array, **options)
    picture = files.read(tmp_path / "a.tif")
    files.write(tmp_path / "b.tif", picture)
    with (
        tifffile.TiffFile(tmp_path / "a.tif") as before,
        tifffile.TiffFile(tmp_path / "b.tif") as b,
    ):
        assert b.series[0].axes == "TZCYX"
        np.testing.assert_array_equal(b.asarray(), array)
        told, expected = b.imagej_metadata, before.imagej_metadata
        np.testing.assert_array_equal(told.pop("LUTs"), expected.pop("LUTs"))
        assert told == expected
    sizes = {"X": (0.25, "um"), "Y": (0.5, "um"), "Z": (0.5, "um"), "T": (2.0, "s")}
    assert picture.metadata["pixel_size"] == sizes
    shown = of_deviations(picture.metadata)["imagej"]
    assert shown["spacing"] == 0.5
    assert not {"min", "max", "Ranges", "LUTs"} & shown.keys()
