"""CZI, ND2 and LIF files of microscope makers, read by bioio; they cannot be written."""

from pathlib import Path
from typing import IO, Any

from evoem.images.files import layout
from evoem.images.files.layout import Layout
from evoem.images.files.picture import Format, Header, Needs, Picture, Wanted
from evoem.runtime.atomic_files import FileError


def header(path: Path, wanted: Wanted) -> Header:
    """What a file says of the size of its picture."""
    return Header(tuple(map(int, _scene(path, wanted.part).shape)))


def read(path: Path, wanted: Wanted) -> Picture:
    """The picture, or the scene that is asked for."""
    image = _scene(path, wanted.part)
    lies = Layout(image.dims.order, tuple(map(int, image.shape)))
    if wanted.axes is not None:
        lies = layout.checked(str(path), wanted.axes, lies.shape)
    pixels, colour, stack = layout.arranged(image.data, lies)
    metadata: dict[str, Any] = {"layout": lies}
    sizes = image.physical_pixel_sizes
    found = {letter: (float(getattr(sizes, letter) or 0), "µm") for letter in "XYZ"}
    found = {letter: size for letter, size in found.items() if size[0] > 0}
    if found:
        metadata["pixel_size"] = found
    if image.channel_names:
        metadata["channel_names"] = tuple(map(str, image.channel_names))
    return Picture(pixels, None, colour, stack, metadata)


def fits(picture: Picture) -> bool:
    """Whether a file can hold the picture: none can."""
    return False


def write(file: IO[bytes], picture: Picture) -> None:
    """Refuse."""
    raise FileError("this format can be read but not written.")


def _scene(path: Path, part: str | None) -> Any:
    from bioio import BioImage

    image = BioImage(path)
    scenes = list(image.scenes)
    if part is None and len(scenes) == 1:
        return image
    if part is not None and part.isdecimal() and int(part) < len(scenes):
        part = scenes[int(part)]
    if part not in scenes:
        names = ", ".join(f":/{name}" for name in scenes[:8])
        asked = "none asked for" if part is None else repr(part)
        raise FileError(
            f"{path} must be given with the scene that is wanted, {names}; got {asked}."
        )
    image.set_scene(part)
    return image


def _of(name: str, signature: bytes) -> Format:
    return Format(
        (f".{name}",),
        (signature,),
        "what only its maker's instruments write; name the output .ome.tif, which keeps axes, sizes"
        " and channels",
        fits,
        header,
        read,
        write,
        needs=Needs(f"bioio_{name}", "bio"),
        several="scenes",
        lazy=True,
    )


CZI = _of("czi", b"ZISRAWFILE")
ND2 = _of("nd2", b"\xda\xce\xbe\x0a")
LIF = _of("lif", b"\x70\x00\x00\x00")
