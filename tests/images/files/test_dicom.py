"""DICOM: elements come back as far as they stay true."""

import zlib

import numpy as np
import pytest
from file_pictures import assert_same, random_pixels, refused

from evoem.images import files
from evoem.images.files import FileError, Picture

pydicom = pytest.importorskip("pydicom", reason="pydicom is not installed: DICOM")


def saved(path, values, interpretation="MONOCHROME2", **elements):
    """A file of a computed tomograph, of any values."""
    from pydicom.dataset import FileDataset, FileMetaDataset
    from pydicom.uid import CTImageStorage, ExplicitVRLittleEndian, generate_uid

    meta = FileMetaDataset()
    meta.MediaStorageSOPClassUID = CTImageStorage
    meta.MediaStorageSOPInstanceUID = generate_uid()
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    told = FileDataset(path, {}, file_meta=meta, preamble=bytes(128))
    told.SOPClassUID, told.SOPInstanceUID = CTImageStorage, meta.MediaStorageSOPInstanceUID
    told.PatientName, told.Modality = "Who^Some", "CT"
    told.ImageType = ["ORIGINAL", "PRIMARY", "AXIAL"]
    told.RescaleSlope, told.RescaleIntercept, told.RescaleType = 2, -1024, "HU"
    told.PixelSpacing, told.SliceThickness = [0.5, 0.25], 3
    colour = interpretation == "RGB"
    told.SamplesPerPixel, told.PhotometricInterpretation = 1 + 2 * colour, interpretation
    if colour:
        told.PlanarConfiguration = 0
    if values.ndim - colour == 3:
        told.NumberOfFrames = len(values)
    told.Rows, told.Columns = values.shape[values.ndim - colour - 2 : values.ndim - colour]
    bits = 8 * values.dtype.itemsize
    told.BitsAllocated, told.BitsStored, told.HighBit = bits, bits, bits - 1
    told.PixelRepresentation = int(values.dtype.kind == "i")
    for name, value in elements.items():
        setattr(told, name, value)
    content = values.tobytes()
    told.PixelData = content + bytes(len(content) % 2)
    told["PixelData"].VR = "OB" if bits == 8 else "OW"
    told.save_as(path, enforce_file_format=True)
    return told


@pytest.mark.parametrize(
    ("shape", "dtype", "interpretation"),
    [
        ((7, 9), "int16", "MONOCHROME2"),
        ((7, 9), "uint16", "MONOCHROME1"),
        ((7, 9), "uint8", "MONOCHROME2"),
        ((4, 7, 9), "uint16", "MONOCHROME2"),
        ((7, 9, 3), "uint8", "RGB"),
        ((4, 7, 9, 3), "uint8", "RGB"),
    ],
)
def test_elements_and_values_come_back(tmp_path, shape, dtype, interpretation):
    values = random_pixels(shape, dtype)
    before = saved(tmp_path / "a.dcm", values, interpretation)
    picture = files.read(tmp_path / "a.dcm")
    colour = interpretation == "RGB"
    assert_same(picture, Picture(values, None, colour, values.ndim - colour == 3, {}))
    turned = values[::-1].copy()
    files.write(tmp_path / "b.dcm", picture._replace(pixels=turned))
    after = pydicom.dcmread(tmp_path / "b.dcm")
    np.testing.assert_array_equal(after.pixel_array, turned)
    changed = {"SOPInstanceUID", "ImageType", "PixelData"}
    for element in before:
        if element.keyword not in changed:
            assert after[element.keyword].value == element.value, element.keyword
    assert after.SOPInstanceUID != before.SOPInstanceUID
    assert after.ImageType == ["DERIVED", "PRIMARY", "AXIAL"]
    assert after.SourceImageSequence[0].ReferencedSOPInstanceUID == before.SOPInstanceUID


def test_what_becomes_untrue_is_not_told(tmp_path):
    values = np.minimum(random_pixels((7, 9), "uint16"), 4095)
    more = {"BitsStored": 12, "HighBit": 11, "SmallestImagePixelValue": 0,
            "LargestImagePixelValue": 4095, "LossyImageCompression": "01"}  # fmt: skip
    saved(tmp_path / "a.dcm", values, **more)
    picture = files.read(tmp_path / "a.dcm")
    files.write(tmp_path / "b.dcm", picture)
    after = pydicom.dcmread(tmp_path / "b.dcm")
    assert (after.BitsStored, after.HighBit) == (12, 11)
    assert "LargestImagePixelValue" not in after
    assert after.LossyImageCompression == "01"  # which cannot be undone
    files.write(tmp_path / "c.dcm", picture._replace(pixels=picture.pixels + np.uint16(61440)))
    after = pydicom.dcmread(tmp_path / "c.dcm")
    assert (after.BitsStored, after.HighBit) == (16, 15)
    np.testing.assert_array_equal(after.pixel_array, values + 61440)


def test_only_what_was_dicom_becomes_dicom(tmp_path):
    with pytest.raises(
        FileError, match=r"is DICOM, which holds integers of 8 or 16 bits, with the"
    ):
        files.write(tmp_path / "a.dcm", Picture(np.zeros((4, 4), "u1"), None, False, False, {}))


def test_other_dicom_is_refused(tmp_path):
    saved(tmp_path / "a.dcm", random_pixels((7, 9), "uint8"), PhotometricInterpretation="XYB")
    refused(tmp_path / "a.dcm", "must be grey or RGB; got XYB")
    told = saved(tmp_path / "b.dcm", random_pixels((7, 9), "uint8"))
    del told.Rows
    told.save_as(tmp_path / "b.dcm", enforce_file_format=True)
    refused(tmp_path / "b.dcm", "must hold a picture; got DICOM without Rows")
    saved(tmp_path / "c.dcm", random_pixels((7, 9), "uint8"), Rows=60000, Columns=60000)
    refused(tmp_path / "c.dcm", "must have at most 268435456 pixels")
    saved(tmp_path / "d.dcm", random_pixels((7, 9), "uint8"), Rows=60)
    refused(tmp_path / "d.dcm", "must be a whole and readable picture")


def test_without_pydicom_the_format_is_named(tmp_path, monkeypatch):
    saved(tmp_path / "a.dcm", random_pixels((7, 9), "uint8"))
    monkeypatch.setattr("evoem.images.files.find_spec", lambda name: None)
    with pytest.raises(FileError, match=r"for DICOM run pip install 'evoem\[medical\]'"):
        files.read(tmp_path / "a.dcm")


def test_a_file_packed_as_a_whole_is_not_unpacked_without_limit(tmp_path):
    values = random_pixels((7, 9), "int16")
    told = saved(tmp_path / "a.dcm", values)
    told.file_meta.TransferSyntaxUID = pydicom.uid.DeflatedExplicitVRLittleEndian
    told.save_as(tmp_path / "b.dcm", enforce_file_format=True)
    np.testing.assert_array_equal(files.read(tmp_path / "b.dcm").pixels, values)
    content = (tmp_path / "b.dcm").read_bytes()
    last = pydicom.filereader.read_file_meta_info(tmp_path / "b.dcm")[(2, 0x13)].value.encode()
    begin = content.index(last) + len(last) + len(last) % 2
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    packed = packer.compress(zlib.decompress(content[begin:], -zlib.MAX_WBITS))
    packed += packer.compress(bytes(65 << 20)) + packer.flush()
    (tmp_path / "c.dcm").write_bytes(content[:begin] + packed)
    refused(tmp_path / "c.dcm", "it is unpacked to more than 67108864 bytes")
