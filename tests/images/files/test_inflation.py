"""Bytes of unpacked data are counted without being kept, and not counted on for ever."""

import gzip
import lzma
import tracemalloc
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evoem.images.files.inflation import (
    AT_ONCE,
    RAW,
    Limited,
    deflated,
    gunzipped,
    lzma_packed,
    opened,
    run_lengths,
    size_of,
    start,
)

MANY = 40 * AT_ONCE


def run_lengths_unpacked(packed):
    """PackBits, as TIFF 6.0 has it."""
    out, position = b"", 0
    while position < len(packed):
        control = packed[position] - 256 * (packed[position] > 127)
        if control >= 0:
            out += packed[position + 1 : position + 2 + control].ljust(control + 1, b"\0")
            position += control + 2
        elif control > -128:
            out += packed[position + 1 : position + 2].ljust(1, b"\0") * (1 - control)
            position += 2
        else:
            position += 1
    return out


@given(st.binary(max_size=300))
def test_any_bytes_are_as_many_run_lengths_as_they_unpack_to(packed):
    assert run_lengths(packed, 1 << 40) == len(run_lengths_unpacked(packed))


@pytest.mark.parametrize(
    ("count", "pack"),
    [(deflated, zlib.compress), (lzma_packed, lzma.compress), (gunzipped, gzip.compress)],
)
@pytest.mark.parametrize("number", [0, 1, AT_ONCE, AT_ONCE + 1, 3 * AT_ONCE - 1])
def test_all_bytes_are_counted(count, pack, number):
    for content in (bytes(number), np.random.default_rng(0).bytes(number)):
        packed = pack(content)
        assert count(packed, 1 << 40) == number
        # What is there of data that end early.
        assert count(packed[: len(packed) // 2], 1 << 40) <= number


@pytest.mark.parametrize(
    ("count", "packed"),
    [
        (deflated, zlib.compress(bytes(MANY))),
        (lzma_packed, lzma.compress(bytes(MANY))),
        (run_lengths, b"\x81\0" * (MANY // 128)),
        (gunzipped, gzip.compress(bytes(MANY))),
        (gunzipped, gzip.compress(bytes(MANY // 8)) * 8),
    ],
)
def test_counting_ends_soon_after_the_most_and_keeps_nothing(count, packed):
    tracemalloc.start()
    try:
        assert 1000 < count(packed, 1000) <= 1000 + 2 * AT_ONCE
        assert count(packed, 1 << 40) == MANY
        assert tracemalloc.get_traced_memory()[1] < 16 * AT_ONCE  # LZMA has a dictionary
    finally:
        tracemalloc.stop()


def test_damaged_data_are_an_error_of_their_library():
    with pytest.raises(zlib.error):
        deflated(b"no zlib at all", 1000)
    with pytest.raises(lzma.LZMAError):
        lzma_packed(b"no lzma at all", 1000)


def test_the_start_of_a_file_is_that_of_what_is_packed_in_it():
    assert start(b"SIMPLE  = T", 9) == b"SIMPLE  ="
    assert start(gzip.compress(b"SIMPLE  = T" + bytes(MANY))[:200], 9) == b"SIMPLE  ="
    damaged = b"\x1f\x8bnonsense"
    assert start(damaged, 9) == damaged[:9]


def test_raw_data_have_no_frame():
    packed = zlib.compress(bytes(5000))[2:-4]
    assert deflated(packed, 1 << 40, RAW) == 5000


def test_a_packed_file_is_measured_by_what_is_in_it(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(bytes(5000))
    assert size_of(path, 10) == 5000  # nothing has to be unpacked for that
    path.write_bytes(gzip.compress(bytes(MANY)))
    assert size_of(path, 1 << 40) == MANY
    assert 1000 < size_of(path, 1000) <= 1000 + AT_ONCE
    with opened(path) as file:
        assert file.read() == bytes(MANY)


def test_what_is_skipped_of_a_limited_file_is_free(tmp_path):
    path = tmp_path / "a"
    content = np.random.default_rng(0).bytes(5000)
    path.write_bytes(gzip.compress(content))
    with Limited(path, 1000) as file:
        file.seek(4000)
        assert file.read(600) == content[4000:4600]
        file.seek(0)
        assert file.read(400) == content[:400]
        with pytest.raises(ValueError, match="it has headers of more than 1000 bytes"):
            file.read()
