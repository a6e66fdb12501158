"""Count the bytes that compressed data expand to, without storing them."""

import gzip
import lzma
import zlib
from pathlib import Path
from typing import IO, cast

AT_ONCE = 1 << 20
GZIP = b"\x1f\x8b"
OF_GZIP = zlib.MAX_WBITS | 16
RAW = -zlib.MAX_WBITS
# Headers that are read of a compressed file before anything is known of its size.
MOST_OF_HEADERS = 1 << 24
# What LZMA may take for its dictionary; its usual settings take 9 MiB, the largest ones 65.
LZMA_MEMORY = 1 << 28


def start(packed: bytes, most: int) -> bytes:
    """The first bytes of a file, unpacked if they are of gzip."""
    if not packed.startswith(GZIP):
        return packed[:most]
    try:
        return zlib.decompressobj(OF_GZIP).decompress(packed, most)
    except zlib.error:
        return packed[:most]


class Limited(gzip.GzipFile):
    """A file of gzip of which at most so many bytes are read; those that are skipped are free."""

    def __init__(self, path: Path, most: int) -> None:
        super().__init__(path, "rb")
        self._most = self._left = most

    def read(self, size: int | None = -1) -> bytes:
        """Read, and refuse to read too much."""
        wanted = self._left + 1 if size is None or size < 0 else min(size, self._left + 1)
        content = super().read(wanted)
        self._left -= len(content)
        if self._left < 0:
            raise ValueError(f"it has headers of more than {self._most} bytes")
        return content


def is_packed(path: Path) -> bool:
    """Whether a file is of gzip."""
    with path.open("rb") as file:
        return file.read(len(GZIP)) == GZIP


def opened(path: Path, most: int | None = None) -> IO[bytes]:
    """A file, unpacked if it is of gzip; of such a one at most so many bytes are read."""
    if not is_packed(path):
        return path.open("rb")
    return cast(IO[bytes], gzip.open(path) if most is None else Limited(path, most))


def size_of(path: Path, most: int) -> int:
    """Bytes of a file, unpacked if it is of gzip, counted up to somewhat more than `most`."""
    if not is_packed(path):
        return path.stat().st_size
    number = 0
    with opened(path) as plain:
        while number <= most and (part := plain.read(AT_ONCE)):
            number += len(part)
    return number


def gunzipped(packed: bytes, most: int) -> int:
    """Bytes in data of gzip, which may have several members, counted as far."""
    number = 0
    while packed.startswith(GZIP) and number <= most:
        unpacker = zlib.decompressobj(OF_GZIP)
        while number <= most and not unpacker.eof:
            part = unpacker.decompress(packed, AT_ONCE)
            number, packed = number + len(part), unpacker.unconsumed_tail
            if not part:
                break
        packed = unpacker.unused_data.lstrip(b"\0")
    return number


def deflated(packed: bytes, most: int, kind: int = zlib.MAX_WBITS) -> int:
    """Bytes in data of zlib, or `RAW` ones, counted up to somewhat more than `most`."""
    unpacker, number = zlib.decompressobj(kind), 0
    while number <= most and not unpacker.eof:
        part = unpacker.decompress(packed, AT_ONCE)
        number, packed = number + len(part), unpacker.unconsumed_tail
        if not part:
            break
    return number


def lzma_packed(packed: bytes, most: int) -> int:
    """Bytes in data of LZMA, counted up to somewhat more than `most`."""
    unpacker, number = lzma.LZMADecompressor(memlimit=LZMA_MEMORY), 0
    while number <= most and not unpacker.eof:
        part = unpacker.decompress(packed, AT_ONCE)
        number, packed = number + len(part), b""
        if not part:
            break
    return number


def run_lengths(packed: bytes, most: int) -> int:
    """Bytes in data of PackBits, counted up to somewhat more than `most`."""
    position = number = 0
    while position < len(packed) and number <= most:
        control = packed[position]
        if control < 128:
            number += control + 1
            position += control + 2
        else:
            number += 257 - control if control > 128 else 0
            position += 2 if control > 128 else 1
    return number
