"""OME-Zarr folders by zarr: one picture with its levels of resolution, axes, sizes and channels.

What is told of a picture is that of OME-NGFF, in version 0.5 (Zarr 3) or 0.4 (Zarr 2). Arrays that
OME-NGFF tells nothing of are read too.
"""

import copy
import math
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from evoem.images.files import layout, ome
from evoem.images.files.layout import Layout
from evoem.images.files.picture import (
    Format,
    Header,
    Needs,
    OwnMetadata,
    Picture,
    Pixels,
    Wanted,
    is_number,
)
from evoem.runtime.atomic_files import FileError

# What there is in each folder of Zarr: of version 3, and of version 2.
SIGNS = ("zarr.json", ".zgroup", ".zarray")
# By OME-NGFF's names, and back.
UNITS = {
    "nanometer": "nm", "micrometer": "µm", "millimeter": "mm", "centimeter": "cm", "meter": "m",
    "angstrom": "Å", "second": "s", "millisecond": "ms", "microsecond": "µs", "minute": "min",
    "hour": "h",
}  # fmt: skip
LONG_UNITS = {short: name for name, short in UNITS.items()}
TYPES = {"T": "time", "C": "channel", "Z": "space", "Y": "space", "X": "space"}
NGFF_AXES = "TCZYX"  # in this order
# A picture that had no levels gets those of half the size each, until this is the longest side.
SIDE_OF_LAST_LEVEL = 256
MOST_LISTED = 8
VERSION = "0.5"  # of OME-NGFF, for Zarr 3
# How channels are shown whose colour nobody told: one alone, or several in turn.
GREY, COLOURS = "FFFFFF", ("00FF00", "FF00FF", "00FFFF", "FFFF00", "FF0000", "0000FF")
LABELS_OF_XARRAY = "_ARRAY_DIMENSIONS"


class Zarr(OwnMetadata):
    """What a folder tells of its picture, and how its arrays were stored."""

    def __init__(
        self, version: int, about: dict[str, Any], levels: list[tuple[int, ...]], stored: Any
    ) -> None:
        self.version = version  # of Zarr
        self.about = about  # attributes of the group, with multiscales of one picture
        self.levels = levels  # shapes, the finest one first
        self.stored = stored  # of the finest one

    def of_deviations(self) -> "Zarr":
        """The same, but for how values are shown."""
        about = copy.deepcopy(self.about)
        for channel in about.get("omero", {}).get("channels", []):
            channel.pop("window", None)
        return Zarr(self.version, about, self.levels, self.stored)


def is_zarr(path: Path) -> bool:
    """Whether a folder is one of Zarr."""
    return any((path / sign).is_file() for sign in SIGNS)


def fits(picture: Picture) -> bool:
    """Whether a folder can hold the picture."""
    return is_number(picture.pixels.dtype)


def header(path: Path, wanted: Wanted) -> Header:
    """What a folder says of the size of its picture."""
    one = _wanted(path, wanted.part)[1]
    chunk = one.shards or one.chunks
    return Header(one.shape if math.prod(one.shape) >= math.prod(chunk) else chunk)


def read(path: Path, wanted: Wanted) -> Picture:
    """The picture that is wanted of a folder."""
    group, one, level = _wanted(path, wanted.part)
    told = None if group is None else _told(group)
    axes = [] if told is None else told["multiscales"][0]["axes"]
    if wanted.axes is not None:
        lies = layout.checked(str(path), wanted.axes, one.shape)
    else:
        lies = _by_axes(axes, one.shape) or _labelled(one) or layout.guessed(one.shape)
    pixels, colour, stack = layout.arranged(layout.wanted_rows(one, lies, wanted.rows), lies)
    metadata: dict[str, Any] = {"layout": lies}
    if told is not None and group is not None:
        of_levels = told["multiscales"][0]["datasets"][level:]
        told["multiscales"][0]["datasets"] = of_levels
        shapes = [group[dataset["path"]].shape for dataset in of_levels]
        version = group.metadata.zarr_format
        metadata |= {"zarr": Zarr(version, told, shapes, _storage(one))} | _meaning(told, lies)
    notes = []
    n_absent = math.prod(one.cdata_shape) - one.nchunks_initialized if one.shards is None else 0
    if n_absent:
        notes.append(
            f"{n_absent} of {math.prod(one.cdata_shape)} chunks are not there, and stand for "
            f"{one.fill_value}."
        )
    if others := _beside(group, told):
        notes.append(f"Other content of the file is not kept: {', '.join(others)}.")
    return Picture(pixels, None, colour, stack, metadata, notes=tuple(notes))


def write(file: IO[bytes], picture: Picture) -> None:
    """Refuse: it is no file."""
    raise FileError("OME-Zarr must be written as a folder, not as one file.")


def fill(folder: Path, picture: Picture) -> None:
    """Write a picture into a new folder, with its levels."""
    import zarr

    known = picture.metadata.get("zarr")
    lies = layout.layout_of(picture)
    if known is not None and known.levels[0] == lies.shape:
        values, about, shapes = layout.in_file(picture, lies), known.about, known.levels
    else:
        known = None
        values, axes = _in_order(picture, lies)
        shapes = list(_halved(values.shape, axes))
        about = _new(picture.metadata, axes, shapes)
    version = 3 if known is None else known.version
    about = _shown(about, values)
    told = {"ome": about} if version == 3 else about
    zarr.create_group(store=folder, zarr_format=version, attributes=told)
    storage = {} if known is None else _for_type(known.stored, values.dtype)
    if version == 3:
        storage["dimension_names"] = [axis["name"] for axis in about["multiscales"][0]["axes"]]
    for dataset, shape in zip(about["multiscales"][0]["datasets"], shapes, strict=True):
        level = zarr.create_array(
            folder,
            name=dataset["path"],
            shape=shape,
            dtype=values.dtype,
            zarr_format=version,
            **_for_shape(storage, shape),
        )
        level[...] = smaller(values, shape)


# -------------------------------------------------------------------------------------- reading


def _wanted(path: Path, part: str | None) -> tuple[Any, Any, int]:
    """The group of the picture that is asked for, its array, and which of the levels that is.

    There is no group if OME-NGFF tells nothing of the array.
    """
    import zarr

    root = zarr.open(path, mode="r")
    name = "" if part is None else part.strip("/")
    if isinstance(root, zarr.Group) and not name and _told(root) is None:
        found = list(_pictures(root, ""))
        if len(found) != 1:
            names = ", ".join(f":/{one}" for one in found[:MOST_LISTED]) or "none"
            raise FileError(
                f"{path} must be given with the picture that is wanted, as in {path.name}:/path; "
                f"it has {names}."
            )
        name = found[0]
    try:
        one = root[name] if name else root
    except (KeyError, ValueError) as error:
        raise FileError(f"{path} must have the picture that is asked for; got {part!r}.") from error
    group, level = None, 0
    if isinstance(one, zarr.Group):
        group, told = one, _told(one)
        if told is None:
            raise FileError(f"{path} must have the picture that is asked for; got {part!r}.")
        one = group[told["multiscales"][0]["datasets"][0]["path"]]
    elif name:
        group, level = _level_of(root, name)
    if not is_number(one.dtype):
        raise FileError(f"{path} must hold integers or real numbers; got {one.dtype}.")
    if len(one.shape) < 2 or 0 in one.shape:
        raise FileError(f"{path} must have two axes or more, none empty; got {one.shape}.")
    return group, one, level


def _level_of(root: Any, name: str) -> tuple[Any, int]:
    """The picture that has an array as one of its levels, and which one."""
    parts = name.split("/")
    for n_parts in range(len(parts) - 1, -1, -1):
        group = root["/".join(parts[:n_parts])] if n_parts else root
        told = _told(group)
        paths = [] if told is None else [d["path"] for d in told["multiscales"][0]["datasets"]]
        if "/".join(parts[n_parts:]) in paths:
            return group, paths.index("/".join(parts[n_parts:]))
    return None, 0


def _told(group: Any) -> dict[str, Any] | None:
    """What OME-NGFF tells of the picture of a group, if there is one."""
    attributes = group.attrs.asdict()
    about = attributes.get("ome", attributes)
    if not (isinstance(about, dict) and about.get("multiscales")):
        return None
    about = copy.deepcopy(about)
    about["multiscales"] = about["multiscales"][:1]
    scales = about["multiscales"][0]
    shape = group[scales["datasets"][0]["path"]].shape
    # Before version 0.4 axes had no types and no scales, and before 0.3 no names.
    axes = scales.get("axes") or list(NGFF_AXES[-len(shape) :].lower())
    scales["axes"] = [axis if isinstance(axis, dict) else {"name": axis} for axis in axes]
    return about


def _pictures(group: Any, name: str) -> Iterator[str]:
    """Pictures and arrays in a group, by their paths."""
    import zarr

    if name and _told(group) is not None:
        yield name
        return
    for own, member in sorted(group.members()):
        path = f"{name}/{own}".strip("/")
        if isinstance(member, zarr.Group):
            yield from _pictures(member, path)
        elif member.ndim > 1 and is_number(member.dtype):
            yield path


def _by_axes(axes: list[dict[str, Any]], shape: tuple[int, ...]) -> Layout | None:
    """The layout that OME-NGFF tells."""
    letters = ["C" if axis.get("type") == "channel" else axis["name"].upper() for axis in axes]
    return _layout(letters, shape)


def _layout(letters: list[str], shape: tuple[int, ...]) -> Layout | None:
    """A layout of letters; those that stand for nothing here are slices."""
    free = [letter for letter in layout.SLICES if letter not in letters]
    known = [letter if letter in NGFF_AXES else free.pop() for letter in letters]
    whole = len(known) == len(shape) and len(set(known)) == len(known) and {"Y", "X"} <= set(known)
    return Layout("".join(known), shape) if whole else None


def _labelled(one: Any) -> Layout | None:
    """The layout by names of dimensions."""
    names = getattr(one.metadata, "dimension_names", None) or one.attrs.get(LABELS_OF_XARRAY) or []
    return _layout([str(name).upper() for name in names], one.shape)


def _meaning(told: dict[str, Any], lies: Layout) -> dict[str, Any]:
    """Sizes of pixels and names of channels."""
    scales = told["multiscales"][0]
    steps = np.ones(len(lies.shape))
    given = [scales["datasets"][0], scales]  # of the level, and of all of them
    for part in given:
        for one in part.get("coordinateTransformations", []):
            if one.get("type") == "scale" and len(one.get("scale", [])) == len(steps):
                steps = steps * np.asarray(one["scale"], np.float64)
    sizes = {
        letter: (float(step), UNITS.get(axis["unit"], axis["unit"]))
        for letter, step, axis in zip(lies.axes, steps, scales["axes"], strict=True)
        if axis.get("unit")
    }
    about: dict[str, Any] = {"pixel_size": sizes} if sizes else {}
    channels = told.get("omero", {}).get("channels", [])
    names = tuple(str(channel.get("label", "")) for channel in channels)
    return about | ({"channel_names": names} if any(names) else {})


def _storage(one: Any) -> dict[str, Any]:
    """How an array is stored."""
    stored = {
        "chunks": one.chunks,
        "shards": one.shards,
        "filters": one.filters,
        "compressors": one.compressors,
        "fill_value": one.fill_value,
        "attributes": one.attrs.asdict(),
        "dtype": one.dtype,
    }
    if one.metadata.zarr_format == 2:
        stored |= {"order": one.order, "separator": one.metadata.dimension_separator}
    else:
        stored |= {"serializer": one.serializer, "separator": "/"}
        stored["separator"] = getattr(one.metadata.chunk_key_encoding, "separator", "/")
    return stored


def _beside(group: Any, told: dict[str, Any] | None) -> list[str]:
    """What else there is in the group of a picture, such as labels."""
    if group is None or told is None:
        return []
    own = {dataset["path"].split("/")[0] for dataset in told["multiscales"][0]["datasets"]}
    return sorted(set(group.keys()) - own)[:MOST_LISTED]


# -------------------------------------------------------------------------------------- writing


def _for_type(stored: dict[str, Any], dtype: np.dtype[Any]) -> dict[str, Any]:
    """How to store an array like another, perhaps of another type."""
    storage = dict(stored)
    separator = storage.pop("separator")
    version = {"name": "v2" if "order" in storage else "default", "separator": separator}
    storage["chunk_key_encoding"] = version
    if storage.pop("dtype") != dtype:  # what packs one type need not pack another
        for name in ("filters", "serializer", "fill_value"):
            storage.pop(name, None)
    return storage


def _for_shape(storage: dict[str, Any], shape: tuple[int, ...]) -> dict[str, Any]:
    """The same for an array of this shape: chunks are no larger, shards whole chunks."""
    if "chunks" not in storage:
        return storage
    chunks = tuple(map(min, storage["chunks"], shape))
    shards = storage["shards"] if chunks == storage["chunks"] else None
    return storage | {"chunks": chunks, "shards": shards}


def _in_order(picture: Picture, lies: Layout) -> tuple[NDArray[Any], str]:
    """An array with the axes of OME-NGFF in their order, and their letters."""
    if "S" in lies.axes:  # the samples of a colour are channels, and others then slices
        lies = lies._replace(axes=lies.axes.replace("C", "Q").replace("S", "C"))
    own = ome.nearest(lies)
    values = layout.in_file(picture._replace(metadata={}), own)
    axes = "".join(sorted(own.axes, key=NGFF_AXES.index))
    return np.transpose(values, [own.axes.index(letter) for letter in axes]), axes


def _halved(shape: tuple[int, ...], axes: str) -> Iterator[tuple[int, ...]]:
    """Shapes of levels, the finest one first."""
    yield shape
    while max(shape[-2:]) > SIDE_OF_LAST_LEVEL:
        shape = (*shape[:-2], *(-(-side // 2) for side in shape[-2:]))
        yield shape


def _new(metadata: dict[str, Any], axes: str, shapes: list[tuple[int, ...]]) -> dict[str, Any]:
    """What OME-NGFF tells of a picture."""
    sizes = metadata.get("pixel_size", {})
    described = []
    for letter in axes:
        axis = {"name": letter.lower(), "type": TYPES[letter]}
        if letter in sizes and sizes[letter][1] in LONG_UNITS:
            axis["unit"] = LONG_UNITS[sizes[letter][1]]
        described.append(axis)
    steps = [sizes[axis][0] if axis in sizes else 1.0 for axis in axes]
    datasets = []
    for number, shape in enumerate(shapes):
        pairs = zip(steps, shapes[0], shape, strict=True)
        scale = [step * round(whole / part) for step, whole, part in pairs]
        transformation = {"type": "scale", "scale": scale}
        datasets.append({"path": str(number), "coordinateTransformations": [transformation]})
    about: dict[str, Any] = {
        "version": VERSION,
        "multiscales": [{"axes": described, "datasets": datasets, "type": "mean"}],
    }
    names = metadata.get("channel_names", ())
    if names:
        about["omero"] = {"channels": [{"label": name} for name in names]}
    return about


def _shown(about: dict[str, Any], values: Pixels) -> dict[str, Any]:
    """The same, with how each channel is shown: OME-NGFF asks for its colour and its range."""
    about = copy.deepcopy(about)
    channels = about.get("omero", {}).get("channels", [])
    least, most = float(np.nanmin(values)), float(np.nanmax(values))
    for number, channel in enumerate(channels):
        colour = COLOURS[number % len(COLOURS)] if len(channels) > 1 else GREY
        channel.setdefault("color", colour)
        channel.setdefault("window", {"min": least, "max": most, "start": least, "end": most})
    return about


def smaller(values: Pixels, shape: tuple[int, ...]) -> Pixels:
    """Means over what falls into each pixel of a coarser level, whose shape is given."""
    if shape == values.shape:
        return values
    means = values.astype(np.float64)
    for axis, (whole, part) in enumerate(zip(values.shape, shape, strict=True)):
        if part < whole:
            starts = starts_of(whole, part)
            counts = np.diff([*starts, whole]).reshape([-1] + [1] * (values.ndim - axis - 1))
            means = np.add.reduceat(means, starts, axis=axis) / counts
    return (np.rint(means) if values.dtype.kind in "ui" else means).astype(values.dtype)


def starts_of(whole: int, part: int) -> NDArray[np.intp]:
    """Where each of `part` pixels begins among `whole` finer ones: each so many, if that can be."""
    for step in {whole // part, -(-whole // part)}:
        if (part - 1) * step < whole <= part * step:
            return np.arange(part) * step
    return np.arange(part) * whole // part


ZARR = Format(
    (".zarr", ".ome.zarr"),
    (),
    "integers and floats of up to 64 bits",
    fits,
    header,
    read,
    write,
    needs=Needs("zarr", "zarr"),
    several="pictures",
    lazy=True,
    fill=fill,
    is_folder=is_zarr,
)
