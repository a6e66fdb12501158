"""HDF5 files by h5py: one dataset, with all attributes and the small datasets beside it."""

import io
import math
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from evoem.images.files import inflation, layout
from evoem.images.files.layout import Layout
from evoem.images.files.picture import (
    Format,
    Header,
    Needs,
    OwnMetadata,
    Picture,
    Wanted,
    damaged,
    equal,
    is_number,
)
from evoem.runtime.atomic_files import FileError

USUAL_PART = "data"
# Names of axes by which scientists label dimensions.
LETTERS = {"x": "X", "y": "Y", "z": "Z", "t": "T", "c": "C", "time": "T", "channel": "C"}
# What stands for no value, by the conventions of climate and forecast data.
NOTHING = ("_FillValue", "missing_value")
# Of references to other places of a file, which is written anew.
REFERENCES = ("DIMENSION_LIST", "REFERENCE_LIST")
# Other datasets are kept up to so many bytes, each and together.
MOST_BESIDE = 1 << 28
MOST_LISTED = 10_000
# How much more a chunk may be unpacked to than it has room for: filters before may have added some.
SLACK = 2


class Hdf5(OwnMetadata):
    """A file without the picture, the attributes of that, and how it was stored."""

    def __init__(self, rest: bytes, attributes: dict[str, Any], storage: dict[str, Any]) -> None:
        self.rest = rest
        self.attributes = attributes
        self.storage = storage

    def of_deviations(self) -> "Hdf5":
        """The same."""
        return self


def fits(picture: Picture) -> bool:
    """Whether a file can hold the picture."""
    return is_number(picture.pixels.dtype)


def header(path: Path, wanted: Wanted) -> Header:
    """What an HDF5 file says of the size of a dataset."""
    with _opened(path) as file:
        one = _wanted(path, file, wanted.part)
        chunk = one.chunks or (1,)
        return Header(one.shape if math.prod(one.shape) >= math.prod(chunk) else chunk)


def read(path: Path, wanted: Wanted) -> Picture:
    """The dataset that is wanted of an HDF5 file."""
    with _opened(path) as file:
        one = _wanted(path, file, wanted.part)
        _check_chunks(path, one)
        if wanted.axes is not None:
            lies = layout.checked(str(path), wanted.axes, one.shape)
        else:
            lies = _labelled(one) or layout.guessed(one.shape)
        declares = any(name in one.attrs for name in NOTHING)  # how many there are is told
        values = layout.wanted_rows(one, lies, None if declares else wanted.rows)
        missing = _without_value(one, values)
        rest, left_out = _rest(file, one)
        attributes = {
            name: (one.attrs[name], one.attrs.get_id(name).dtype)
            for name in one.attrs
            if name not in REFERENCES
        }
        storage = {
            "chunks": one.chunks,
            "compression": one.compression if one.compression in ("gzip", "lzf") else None,
            "compression_opts": one.compression_opts if one.compression == "gzip" else None,
            "shuffle": one.shuffle,
            "fletcher32": one.fletcher32,
            "labels": [dim.label for dim in one.dims],
            "scales": [[scale.name for scale in dim.values()] for dim in one.dims],
        }
        part = one.name.strip("/")
    pixels, colour, stack = layout.arranged(values, lies)
    notes = []
    if missing.any():
        notes.append(
            f"{np.count_nonzero(missing)} values equal the fill value and count as missing."
        )
    if left_out:
        notes.append(f"Large datasets beside {part} are not kept: {', '.join(left_out[:5])}.")
    about = {"layout": lies, "part": part, "hdf5": Hdf5(rest, attributes, storage)}
    holes = layout.arranged(missing, lies)[0] if missing.any() else None
    return Picture(pixels, None, colour, stack, about, holes, tuple(notes))


def write(file: IO[bytes], picture: Picture) -> None:
    """Write a dataset, where it was or where it is to be."""
    import h5py

    known = picture.metadata.get("hdf5") or Hdf5(b"", {}, {})
    lies = layout.layout_of(picture)
    values = layout.in_file(picture, lies)
    part = picture.metadata.get("part", USUAL_PART).strip("/") or USUAL_PART
    file.write(known.rest)
    file.seek(0)
    with h5py.File(file, "r+" if known.rest else "w") as written:
        storage = dict(known.storage)
        labels, scales = storage.pop("labels", list(lies.axes)), storage.pop("scales", [])
        one = written.create_dataset(part, data=values, **storage)
        for name, (value, kind) in known.attributes.items():
            if name not in NOTHING:
                one.attrs.create(name, value, dtype=kind)
        for dim, label in zip(one.dims, labels, strict=True):
            dim.label = label
        for dim, names in zip(one.dims, scales, strict=False):
            for name in names:
                if name in written:
                    if not written[name].is_scale:
                        written[name].make_scale()
                    dim.attach_scale(written[name])


def _opened(path: Path) -> Any:
    import h5py

    return h5py.File(path, "r")


def _wanted(path: Path, file: Any, part: str | None) -> Any:
    """The dataset that is asked for, or the only one that is a picture."""
    import h5py

    if part is None:
        found: list[str] = []

        def look(name: str, one: Any) -> Any:
            if isinstance(one, h5py.Dataset) and one.ndim > 1 and is_number(one.dtype):
                found.append(name)
            return True if len(found) >= MOST_LISTED else None

        file.visititems(look)
        if len(found) != 1:
            names = ", ".join(f":/{name}" for name in found[:8]) or "none"
            raise FileError(
                f"{path} must be given with the dataset that is wanted, as in {path.name}:/path; "
                f"it has {names}."
            )
        part = found[0]
    one = file.get(part)
    if not isinstance(one, h5py.Dataset):
        raise FileError(f"{path} must have the dataset that is asked for; got {part!r}.")
    if not is_number(one.dtype):
        raise FileError(f"{path}:/{part} must hold integers or real numbers; got {one.dtype}.")
    if one.external or one.is_virtual:
        raise FileError(f"{path}:/{part} must hold its values itself; got some in other files.")
    if len(one.shape or ()) < 2 or 0 in one.shape:
        raise FileError(f"{path}:/{part} must have two axes or more, none empty; got {one.shape}.")
    return one


def _check_chunks(path: Path, one: Any) -> None:
    """Refuse chunks of zlib that are unpacked to more than they have room for."""
    import h5py

    stored = one.id.get_create_plist()
    filters = [stored.get_filter(number)[0] for number in range(stored.get_nfilters())]
    if h5py.h5z.FILTER_DEFLATE not in filters:
        return
    left = [kind for kind in filters if kind != h5py.h5z.FILTER_FLETCHER32]
    if left.index(h5py.h5z.FILTER_DEFLATE) < len(left) - 1:
        raise FileError(f"{path} must be compressed once; got filters after zlib.")
    deflate = 1 << filters.index(h5py.h5z.FILTER_DEFLATE)
    room = math.prod(one.chunks) * one.dtype.itemsize
    for number in range(one.id.get_num_chunks()):
        left_out, packed = one.id.read_direct_chunk(one.id.get_chunk_info(number).chunk_offset)
        if not left_out & deflate and inflation.deflated(packed, SLACK * room) > SLACK * room:
            raise damaged(path, f"a chunk of {room} bytes unpacks to far more")


def _labelled(one: Any) -> Layout | None:
    """The layout by labels of dimensions, if they say it."""
    letters = [LETTERS.get(dim.label.lower(), "") for dim in one.dims]
    whole = all(letters) and len(set(letters)) == len(letters) and {"X", "Y"} <= set(letters)
    return Layout("".join(letters), one.shape) if whole else None


def _without_value(one: Any, values: NDArray[Any]) -> NDArray[np.bool_]:
    missing = np.zeros(values.shape, np.bool_)
    for name in NOTHING:
        declared = np.ravel(one.attrs.get(name, []))
        if declared.dtype.kind in "uif" and len(declared) == 1:
            missing |= equal(values, float(declared[0]))
    return missing


def _rest(file: Any, one: Any) -> tuple[bytes, list[str]]:
    """The file without a dataset, and names of others that are too large to be kept."""
    import h5py

    content = io.BytesIO()
    left_out: list[str] = []
    room = MOST_BESIDE
    with h5py.File(content, "w") as kept:

        def copy(source: Any, target: Any) -> None:
            nonlocal room
            for name in source.attrs:
                if name not in REFERENCES:
                    kind = source.attrs.get_id(name).dtype
                    target.attrs.create(name, source.attrs[name], dtype=kind)
            for name in source:
                link = source.get(name, getlink=True)
                if not isinstance(link, h5py.HardLink):
                    target[name] = link
                    continue
                other = source[name]
                if isinstance(other, h5py.Group):
                    copy(other, target.create_group(name))
                elif isinstance(other, h5py.Dataset) and other != one:
                    if other.external or other.is_virtual or other.nbytes > room:
                        left_out.append(other.name)
                        continue
                    room -= other.nbytes
                    source.copy(name, target)

        copy(file, kept)
    return content.getvalue(), left_out


HDF5 = Format(
    (".h5", ".hdf5", ".hdf", ".he5", ".nxs"),
    (b"\x89HDF\r\n\x1a\n",),
    "integers and floats of up to 64 bits",
    fits,
    header,
    read,
    write,
    needs=Needs("h5py", "zarr"),
    several="datasets",
    lazy=True,
)
