"""Only regular files are read, and only as far as was asked for."""

import os

import pytest

from evoem.runtime.atomic_files import FileError
from evoem.runtime.input_files import first_bytes, text


def test_the_first_bytes_are_read_and_no_more(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"abcdef")
    assert [first_bytes(path, n) for n in (0, 3, 6, 9)] == [b"", b"abc", b"abcdef", b"abcdef"]


@pytest.mark.skipif(os.name == "nt", reason="it would not be sparse there")
def test_a_sparse_file_of_any_size_takes_no_memory(tmp_path):
    path = tmp_path / "a"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    assert first_bytes(path, 4) == bytes(4)
    with pytest.raises(FileError, match="must have at most 10 bytes; got more"):
        text(path, 10)


def test_a_text_may_be_as_long_as_is_allowed(tmp_path):
    path = tmp_path / "a"
    path.write_text("äöü")  # six bytes
    assert text(path, 6) == "äöü"
    with pytest.raises(FileError, match="must have at most 5 bytes; got more"):
        text(path, 5)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FileError, match=r"must be a text file; got b'\\xff\\xfe\\x00'"):
        text(path, 6)


def test_what_is_no_file_is_named_and_nothing_waits_for_it(tmp_path):
    cases = [
        (tmp_path, "must be a file; got a folder"),
        (tmp_path / "none", "must be an existing file; found none"),
        (tmp_path / "none\0", "must be the path of a file; got an embedded null"),
    ]
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
        cases.append((tmp_path / "pipe", "must be a file; got a pipe, a device or the like"))
    for path, message in cases:
        with pytest.raises(FileError, match=message):
            first_bytes(path, 8)
