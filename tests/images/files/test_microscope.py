"""Files of microscopes' makers."""

import numpy as np
import pytest
from file_pictures import grey, random_pixels

from evoem.images import files
from evoem.images.files import FileError


@pytest.mark.parametrize(
    ("name", "start"),
    [("a.czi", b"ZISRAWFILE"), ("a.nd2", b"\xda\xce\xbe\x0a"), ("a.lif", b"\x70\x00\x00\x00*")],
)
def test_without_bioio_the_format_is_named(tmp_path, monkeypatch, name, start):
    (tmp_path / name).write_bytes(start + bytes(400))
    monkeypatch.setattr("evoem.images.files.find_spec", lambda package: None)
    kind = name[2:].upper()
    with pytest.raises(FileError, match=rf"for {kind} run pip install 'evoem\[bio\]', which inst"):
        files.read(tmp_path / name)


@pytest.mark.parametrize("name", ["a.czi", "a.nd2", "a.lif"])
def test_they_are_not_written_and_another_name_is_offered(tmp_path, name):
    with pytest.raises(
        FileError, match=r"only its maker's instruments write; name the output \.ome"
    ):
        files.check_format(tmp_path / name, grey(np.zeros((4, 4))))


def test_czi_becomes_ome_tiff(tmp_path):
    czi = pytest.importorskip("pylibCZIrw.czi", reason="pylibCZIrw is not installed: CZI")
    pytest.importorskip("bioio_czi", reason="bioio-czi is not installed: CZI")
    planes = random_pixels((2, 3, 32, 40), "uint16")
    with czi.create_czi(str(tmp_path / "a.czi")) as file:
        for (c, z), _ in np.ndenumerate(planes[..., 0, 0]):
            file.write(planes[c, z][..., None], plane={"C": c, "Z": z, "T": 0})
        file.write_metadata("a", scale_x=2e-7, scale_y=3e-7, scale_z=1e-6)
    picture = files.read(tmp_path / "a.czi")
    np.testing.assert_array_equal(picture.pixels, np.moveaxis(planes, 0, -1))
    files.write(tmp_path / "b.ome.tif", picture)
    again = files.read(tmp_path / "b.ome.tif")
    np.testing.assert_array_equal(again.pixels, picture.pixels)
    assert again.metadata["pixel_size"]["X"] == (pytest.approx(0.2), "µm")
    assert again.metadata["pixel_size"]["Z"] == (pytest.approx(1.0), "µm")
