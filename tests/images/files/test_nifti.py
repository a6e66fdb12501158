"""NIfTI: volumes with their affine and header."""

import gzip
import struct
import subprocess
import sys

import numpy as np
import pytest
from file_pictures import assert_same, random_pixels, refused

from evoem.images import files
from evoem.images.files import FileError, Picture
from evoem.images.files.picture import of_deviations

nibabel = pytest.importorskip("nibabel", reason="nibabel is not installed: NIfTI")

AFFINE = np.array([[-2.0, 0.1, 0, 90], [0.1, 2, 0, -126], [0, 0, 2.5, -72], [0, 0, 0, 1]])


def volume(shape, dtype, kind=None):
    image = (kind or nibabel.Nifti1Image)(random_pixels(shape, dtype), AFFINE, dtype=dtype)
    image.header.set_xyzt_units("mm", "sec")
    if len(shape) > 3:
        image.header.set_zooms((2.0, 2.0, 2.5, 1.5))
    image.header["descrip"] = b"a head"
    image.header["cal_max"] = 99
    image.header.extensions.append(nibabel.nifti1.Nifti1Extension("comment", b"words of a scanner"))
    image.set_qform(AFFINE, 1)
    image.set_sform(AFFINE, 2)
    return image


@pytest.mark.parametrize("dtype", ["uint8", "int16", "uint16", "int32", "float32", "float64"])
@pytest.mark.parametrize("shape", [(9, 7), (9, 7, 5), (9, 7, 5, 2)])
@pytest.mark.parametrize("name", ["a.nii", "a.nii.gz", "second.nii"])
def test_a_volume_comes_back_with_all_that_is_told_of_it(tmp_path, shape, dtype, name):
    kind = nibabel.Nifti2Image if name == "second.nii" else nibabel.Nifti1Image
    before = volume(shape, dtype, kind)
    before.to_filename(tmp_path / name)
    picture = files.read(tmp_path / name)
    values = np.asarray(before.dataobj)
    letters = "xyzt"[: len(shape)]
    turned = np.einsum(f"{letters}->{letters[2:][::-1][::-1]}yx", values)
    expected = Picture(turned.reshape(-1, 7, 9), None, False, True, {})
    if len(shape) == 2:
        expected = Picture(values.T, None, False, False, {})
    assert_same(picture, expected)
    assert picture.metadata["pixel_size"]["X"] == (
        pytest.approx(before.header.get_zooms()[0]),
        "mm",
    )
    files.write(tmp_path / f"b-{name}", picture)
    after = nibabel.load(tmp_path / f"b-{name}")
    assert type(after) is kind
    assert after.header == before.header
    assert after.header.extensions == before.header.extensions
    np.testing.assert_array_equal(after.affine, before.affine)
    np.testing.assert_array_equal(np.asarray(after.dataobj), values)


def test_scaled_values_are_written_as_what_they_stand_for(tmp_path):
    stored = random_pixels((9, 7, 5), "int16")
    image = nibabel.Nifti1Image(stored, AFFINE)
    image.header.set_slope_inter(0.25, 100)
    image.to_filename(tmp_path / "a.nii")
    content = bytearray((tmp_path / "a.nii").read_bytes())
    content[352:] = stored.tobytes(order="F")
    content[112:120] = np.array([0.25, 100], "<f4").tobytes()
    (tmp_path / "a.nii").write_bytes(content)
    picture = files.read(tmp_path / "a.nii")
    np.testing.assert_array_equal(picture.pixels, (0.25 * stored + 100).T.astype("f4"))
    files.write(tmp_path / "b.nii", picture)
    after = nibabel.load(tmp_path / "b.nii")
    assert after.dataobj.slope == 1
    np.testing.assert_array_equal(after.get_fdata(), 0.25 * stored + 100)


def test_standard_deviations_lie_where_the_volume_does(tmp_path):
    volume((9, 7, 5), "int16").to_filename(tmp_path / "a.nii")
    picture = files.read(tmp_path / "a.nii")
    std = random_pixels((5, 7, 9), "float32")
    deviations = picture._replace(pixels=std, metadata=of_deviations(picture.metadata))
    files.write(tmp_path / "std.nii.gz", deviations)
    after = nibabel.load(tmp_path / "std.nii.gz")
    np.testing.assert_array_equal(after.affine, AFFINE.astype("f4").astype(float))
    np.testing.assert_array_equal(np.asarray(after.dataobj), std.T)
    assert after.header["cal_max"] == 0


def test_any_stack_can_become_a_volume(tmp_path):
    pixels = random_pixels((5, 7, 9), "uint16")
    sizes = {"X": (500.0, "nm"), "Y": (0.5, "µm"), "Z": (2.0, "mm")}
    files.write(tmp_path / "a.nii", Picture(pixels, None, False, True, {"pixel_size": sizes}))
    after = nibabel.load(tmp_path / "a.nii")
    np.testing.assert_array_equal(np.asarray(after.dataobj), pixels.T)
    np.testing.assert_allclose(np.diag(after.affine), [5e-4, 5e-4, 2, 1], rtol=1e-6)


def test_files_that_promise_too_much_or_are_cut_off_are_refused(tmp_path):
    volume((90, 70), "int16").to_filename(tmp_path / "a.nii")
    content = (tmp_path / "a.nii").read_bytes()
    (tmp_path / "a.nii").write_bytes(content[:-100])
    refused(tmp_path / "a.nii", "must be a whole and readable picture")
    huge = bytearray(content)
    huge[40:56] = np.array([3, 30000, 30000, 30000, 1, 1, 1, 1], "<i2").tobytes()
    for name, data in (("b.nii", bytes(huge)), ("b.nii.gz", gzip.compress(bytes(huge)))):
        (tmp_path / name).write_bytes(data)
        refused(tmp_path / name, "must have at most 268435456 pixels")


def test_values_that_are_no_numbers_are_refused(tmp_path):
    nibabel.Nifti1Image(np.zeros((4, 4), "c8"), AFFINE).to_filename(tmp_path / "a.nii")
    refused(tmp_path / "a.nii", "must hold integers or real numbers; got complex64")


def test_without_nibabel_the_format_is_named(tmp_path, monkeypatch):
    volume((9, 7), "int16").to_filename(tmp_path / "a.nii.gz")
    monkeypatch.setattr("evoem.images.files.find_spec", lambda name: None)
    with pytest.raises(FileError, match=r"for NIfTI run pip install 'evoem\[medical\]'"):
        files.read(tmp_path / "a.nii.gz")


def test_an_extension_is_not_unpacked_without_limit(tmp_path):
    content = bytearray(nibabel.Nifti1Image(random_pixels((7, 9, 5), "uint8"), AFFINE).to_bytes())
    content[108:112] = struct.pack("<f", 1 << 26)  # where values begin
    content[348:360] = struct.pack("<iii", 1, (1 << 26) - 352, 6)
    path = tmp_path / "a.nii.gz"
    path.write_bytes(gzip.compress(bytes(content) + bytes(1 << 26)))
    with pytest.raises(FileError, match="it has headers of more than 16777216 bytes"):
        files.read(path)


def test_a_packed_volume_is_measured_as_it_is_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "BYTES_OF_METADATA", 1 << 20)
    content = nibabel.Nifti1Image(random_pixels((7, 9, 5), "uint8"), AFFINE).to_bytes()
    (tmp_path / "a.nii.gz").write_bytes(gzip.compress(content + bytes(1 << 25)))
    refused(tmp_path / "a.nii.gz", "must not be larger than 7 x 9 x 5 pixels can be; got more than")


def test_damage_that_is_mended_is_no_line_on_the_terminal(tmp_path):
    content = nibabel.Nifti1Image(random_pixels((7, 9), "uint8"), AFFINE).to_bytes()
    (tmp_path / "a.nii").write_bytes(bytes(4) + content[4:])  # a header of no length
    program = "import sys; from evoem.images import files; files.read(sys.argv[1])"
    command = [sys.executable, "-c", program, tmp_path / "a.nii"]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ended.stderr == ""
