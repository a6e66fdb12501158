"""Count the bytes that compressed data expand to, without storing them."""

import lzma
import zlib

AT_ONCE = 1 << 20
# What LZMA may take for its dictionary; its usual settings take 9 MiB, the largest ones 65.
LZMA_MEMORY = 1 << 28


def start(packed: bytes, most: int) -> bytes:
    """The first bytes of a file, unpacked if they are of gzip."""
    if not packed.startswith(b"\x1f\x8b"):
        return packed[:most]
    try:
        return zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(packed, most)
    except zlib.error:
        return packed[:most]


def deflated(packed: bytes, most: int) -> int:
    """Bytes in data of zlib, counted up to somewhat more than `most`."""
    unpacker, number = zlib.decompressobj(), 0
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
