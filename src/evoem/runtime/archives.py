"""Named arrays and a JSON header in one file: NPZ without pickle, checked before it is read.

NumPy can read them too: `numpy.load(path)["header"].tobytes()` is the header.
"""

import json
import math
import os
import struct
import tokenize
import warnings
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from evoem.runtime.atomic_files import FileError, replace_whole
from evoem.runtime.input_files import first_bytes

HEADER = "header"
LONGEST_HEADER = 1 << 26  # bytes; settings and numbers, no arrays
LONGEST_ENTRY_HEADER = 10_000  # bytes that describe an array

Arrays = dict[str, NDArray[Any]]


class Archive(NamedTuple):
    """What is in a file."""

    header: dict[str, Any]
    arrays: Arrays


def write(
    path: Path,
    header: Mapping[str, Any],
    arrays: Mapping[str, NDArray[Any]],
    more: Iterable[tuple[str, NDArray[Any]]] = (),
) -> None:
    """Write everything aside, and only then put it in the place of what was there.

    What is in `more` is asked for one by one, so that it need not be there at once.
    """
    text = np.frombuffer(json.dumps(header).encode(), np.uint8)

    def write_entries(file: IO[bytes]) -> None:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            for name, array in chain([(HEADER, text)], arrays.items(), more):
                with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                    npy.write_array(entry, np.asanyarray(array), allow_pickle=False)

    replace_whole(path, write_entries)


def read(path: Path, wanted: Callable[[str, Arrays], bool] = lambda name, arrays: True) -> Archive:
    """A file, refused in one sentence if it is damaged or was not written by `write`.

    `wanted` tells, by its name and the arrays before it, whether an array is read.
    """
    with _entries(path) as (archive, entries, size):
        if HEADER not in entries or entries[HEADER].file_size > LONGEST_HEADER:
            raise ValueError("it has no header")
        header = json.loads(_array(archive, entries.pop(HEADER), size).tobytes())
        if not isinstance(header, dict):
            raise ValueError("its header is no table")
        arrays: Arrays = {}
        for name, entry in entries.items():
            if wanted(name, arrays):
                arrays[name] = _array(archive, entry, size)
        return Archive(header, arrays)


def read_arrays(path: Path) -> Arrays:
    """All arrays of a file that `numpy.savez` wrote, refused in the same way."""
    with _entries(path) as (archive, entries, size):
        return {name: _array(archive, entry, size) for name, entry in entries.items()}


@contextmanager
def _entries(path: Path) -> Iterator[tuple[zipfile.ZipFile, dict[str, zipfile.ZipInfo], int]]:
    """An archive that is open, what is in it by name, and the size of the file."""
    first_bytes(path, 1)  # of a file: a pipe would block
    try:
        with path.open("rb") as file, zipfile.ZipFile(file) as archive:
            entries = {entry.filename.removesuffix(".npy"): entry for entry in archive.infolist()}
            yield archive, entries, os.fstat(file.fileno()).st_size
    except (
        OSError, ValueError, TypeError, KeyError, EOFError, RecursionError, NotImplementedError,
        struct.error, zipfile.BadZipFile, MemoryError, RuntimeError,
    ) as error:  # fmt: skip
        what = error.strerror if isinstance(error, OSError) and error.strerror else error
        said = str(what).rstrip(".") or type(error).__name__
        raise FileError(f"{path} must be a whole file that evoem wrote; {said}.") from error


def _array(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, size: int) -> NDArray[Any]:
    """An array, for which nothing is allocated that the file does not hold."""
    if entry.compress_type != zipfile.ZIP_STORED or entry.file_size > size or entry.flag_bits & 1:
        raise ValueError(f"{entry.filename} is not stored as it is")
    with archive.open(entry) as opened:
        version = npy.read_magic(opened)
        if version != (1, 0):
            raise ValueError(f"{entry.filename} is no array")
        try:
            # NumPy warns of what looks as if Python 2 had written it.
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                shape, fortran, dtype = npy.read_array_header_1_0(
                    opened, max_header_size=LONGEST_ENTRY_HEADER
                )
        except (SyntaxError, tokenize.TokenError) as error:
            raise ValueError(f"{entry.filename} does not say what it holds") from error
        if dtype.hasobject or dtype.kind not in "biuf":
            raise ValueError(f"{entry.filename} must hold numbers; got {dtype}")
        if not all(type(length) is int and length >= 0 for length in shape):
            raise ValueError(f"{entry.filename} has the shape {shape}")
        if math.prod(shape) * dtype.itemsize > entry.file_size:
            raise ValueError(f"{entry.filename} is shorter than its shape {shape}")
        content = opened.read()  # to the end, where the checksum is compared
    if math.prod(shape) * dtype.itemsize != len(content):
        raise ValueError(f"{entry.filename} does not have the size of its shape {shape}")
    return np.frombuffer(bytearray(content), dtype).reshape(shape, order="F" if fortran else "C")
