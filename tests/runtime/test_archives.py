"""Named arrays and a JSON header in one file, checked before it is read."""

import io
import zipfile

import numpy as np
import pytest

from evoem.runtime import archives
from evoem.runtime.atomic_files import FileError

HEADER = {"name": "a picture", "numbers": [1, 2.5, None], "nested": {"flag": True}}
ARRAYS = {
    "empty": np.empty((0, 3)),
    "number": np.array(3.5),
    "words": np.arange(6, dtype=np.uint64).reshape(2, 3),
    "flags": np.array([True, False]),
    "singles.0": np.linspace(0, 1, 5, dtype=np.float32),
}


def stored(array, **options):
    file = io.BytesIO()
    np.lib.format.write_array(file, array, **options)
    return file.getvalue()


def lying_about_its_size():
    file = io.BytesIO()
    shape = {"descr": "<f8", "fortran_order": False, "shape": (10**12,)}
    np.lib.format.write_array_header_1_0(file, shape)
    return file.getvalue() + bytes(8)


def write_entries(path, entries, compression=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)


def header(text):
    return stored(np.frombuffer(text, np.uint8))


def test_what_is_read_is_what_was_written(tmp_path):
    archives.write(tmp_path / "file", HEADER, ARRAYS)
    found = archives.read(tmp_path / "file")
    assert found.header == HEADER
    assert found.arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert (found.arrays[name].dtype, found.arrays[name].shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(found.arrays[name], array)
        assert found.arrays[name].flags.writeable


def test_numpy_reads_it_too(tmp_path):
    archives.write(tmp_path / "file", HEADER, ARRAYS)
    with np.load(tmp_path / "file") as file:
        np.testing.assert_array_equal(file["words"], ARRAYS["words"])
        assert file["header"].tobytes().startswith(b'{"name": "a picture"')


@pytest.mark.parametrize(
    ("entries", "what"),
    [
        ({"words.npy": stored(ARRAYS["words"])}, "it has no header"),
        ({"header.npy": header(b"[1]")}, "its header is no table"),
        ({"header.npy": header(b"{")}, "Expecting property name"),
        ({"header.npy": b"no array"}, "magic string"),
        (
            {"header.npy": header(b"{}"), "a.npy": stored(np.array([{}]), allow_pickle=True)},
            "a.npy must hold numbers; got object",
        ),
        (
            {"header.npy": header(b"{}"), "a.npy": stored(np.eye(3))[:-8]},
            "a.npy does not have the size of its shape",
        ),
        (
            {"header.npy": header(b"{}"), "a.npy": lying_about_its_size()},
            "a.npy is shorter than its shape",
        ),
    ],
)
def test_what_is_no_archive_of_ours_is_refused_in_one_sentence(tmp_path, entries, what):
    write_entries(tmp_path / "file", entries)
    with pytest.raises(FileError, match=what) as caught:
        archives.read(tmp_path / "file")
    assert str(caught.value).startswith(
        f"{tmp_path / 'file'} must be a whole file that evoem wrote"
    )
    assert "\n" not in str(caught.value)


def test_arrays_in_either_order_are_read(tmp_path):
    array = np.arange(6.0).reshape(2, 3)
    entries = {"header.npy": header(b"{}"), "a.npy": stored(np.asfortranarray(array))}
    write_entries(tmp_path / "file", entries)
    np.testing.assert_array_equal(archives.read(tmp_path / "file").arrays["a"], array)


def test_compressed_entries_are_refused_unread(tmp_path):
    entries = {"header.npy": header(b"{}"), "bomb.npy": stored(np.zeros(10**6))}
    write_entries(tmp_path / "file", entries, zipfile.ZIP_DEFLATED)
    with pytest.raises(FileError, match="is not stored as it is"):
        archives.read(tmp_path / "file")


@pytest.mark.parametrize(
    ("before", "after"), [(b" False,", b"0False,"), (b"(5,)", b"(5L)"), (b"(5,)", b"((5,")]
)
def test_a_damaged_description_of_an_array_is_refused(tmp_path, before, after, recwarn):
    content = stored(np.arange(5))
    assert before in content
    entries = {"header.npy": header(b"{}"), "numbers.npy": content.replace(before, after, 1)}
    write_entries(tmp_path / "file", entries)
    with pytest.raises(FileError, match="must be a whole file that evoem wrote; "):
        archives.read(tmp_path / "file")
    assert not recwarn
