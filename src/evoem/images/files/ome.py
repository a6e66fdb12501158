"""OME-XML: the metadata of microscopes, and the part that remains valid for a restored picture."""

import math
import re
from typing import Any
from xml.etree import ElementTree

import numpy as np

from evoem.images.files.layout import Layout

TYPES = {
    "bool": "bit",
    "int8": "int8",
    "int16": "int16",
    "int32": "int32",
    "uint8": "uint8",
    "uint16": "uint16",
    "uint32": "uint32",
    "float32": "float",
    "float64": "double",
}
USUAL_UNITS = {"X": "µm", "Y": "µm", "Z": "µm", "T": "s"}
# Where values lie in the file, which is written anew.
PLACES = ("TiffData", "BinData", "MetadataOnly")


def images(xml: str) -> list[ElementTree.Element]:
    """The pictures that it describes, each with pixels."""
    found = ElementTree.fromstring(xml.encode()).iter()
    return [one for one in found if _name(one) == "Image" and _child(one, "Pixels") is not None]


def told(image: ElementTree.Element) -> dict[str, Any]:
    """Sizes of pixels and names of channels."""
    pixels = _pixels(image)
    sizes = {}
    for letter, usual in USUAL_UNITS.items():
        key = "TimeIncrement" if letter == "T" else f"PhysicalSize{letter}"
        if key in pixels.attrib:
            sizes[letter] = float(pixels.attrib[key]), pixels.attrib.get(f"{key}Unit", usual)
    names = [part.attrib.get("Name", "") for part in pixels if _name(part) == "Channel"]
    about: dict[str, Any] = {"pixel_size": sizes} if sizes else {}
    return about | ({"channel_names": tuple(names)} if any(names) else {})


def full_layout(image: ElementTree.Element, n_samples: int) -> Layout:
    """All axes of its array, the samples of a colour last."""
    pixels = _pixels(image)
    order = pixels.attrib["DimensionOrder"][::-1]  # in a file the last one changes first
    size = {letter: int(pixels.attrib[f"Size{letter}"]) for letter in order}
    size["C"] //= n_samples
    samples = "S" if n_samples > 1 else ""
    return Layout(
        order + samples, (*(size[letter] for letter in order), *[n_samples] * len(samples))
    )


def of_restored(xml: str, number: int, dtype: np.dtype[Any], n_planes: int) -> str:
    """The same for a file that holds nothing but this picture, perhaps of another type."""
    root = ElementTree.fromstring(xml.encode())
    namespace = re.match(r"\{(.*)\}", root.tag)
    ElementTree.register_namespace("", namespace[1] if namespace else "")
    pictures = [one for one in root if _name(one) == "Image" and _child(one, "Pixels") is not None]
    for other in pictures:
        if other is not pictures[number]:
            root.remove(other)
    root.attrib.pop("UUID", None)  # of the file that was read
    pixels = _pixels(pictures[number])
    if pixels.attrib.get("Type") != TYPES[dtype.name]:
        pixels.attrib.pop("SignificantBits", None)
    pixels.attrib["Type"] = TYPES[dtype.name]
    pixels.attrib.pop("BigEndian", None)
    places = [part for part in pixels if _name(part) in PLACES]
    last = max((list(pixels).index(part) for part in places), default=len(pixels) - 1)
    tag = pixels.tag.replace("Pixels", "TiffData")
    pixels.insert(last + 1, ElementTree.Element(tag, {"IFD": "0", "PlaneCount": str(n_planes)}))
    for part in places:
        pixels.remove(part)
    return ElementTree.tostring(root, "unicode", xml_declaration=True)


def nearest(layout: Layout) -> Layout:
    """The layout that OME has for an array: time, depth and channels before rows and columns.

    Other axes of slices become time and depth, as they come; more than two of them become one.
    """
    letters = [layout.axes[axis] for axis in layout.slices]
    lengths = [layout.shape[axis] for axis in layout.slices]
    known = [letter for letter in letters if letter in "TZC"]
    free = [letter for letter in "ZTC" if letter not in (*known, layout.channels)]
    if len(letters) > len(known) + len(free):
        letters, lengths = ["Z"], [math.prod(lengths)]
    else:
        letters = [letter if letter in known else free.pop(0) for letter in letters]
    last = {"": "YX", "C": "CYX", "S": "YXS"}[layout.channels]
    axes = "".join(letters) + last
    return Layout(axes, (*lengths, *(layout.size(letter) for letter in last)))


def new(layout: Layout, metadata: dict[str, Any]) -> dict[str, Any]:
    """What tifffile makes OME-XML of, for a picture that had none."""
    about: dict[str, Any] = {"axes": layout.axes}
    for letter, (size, unit) in metadata.get("pixel_size", {}).items():
        if letter in USUAL_UNITS:
            key = "TimeIncrement" if letter == "T" else f"PhysicalSize{letter}"
            about |= {key: size, f"{key}Unit": unit}
    names = metadata.get("channel_names", ())
    if len(names) == layout.size("C") and "C" in layout.axes:
        about["Channel"] = {"Name": list(names)}
    if metadata.get("description"):
        about["Description"] = metadata["description"]
    return about


def _name(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]


def _child(element: ElementTree.Element, name: str) -> ElementTree.Element | None:
    return next((part for part in element if _name(part) == name), None)


def _pixels(image: ElementTree.Element) -> ElementTree.Element:
    pixels = _child(image, "Pixels")
    if pixels is None:
        raise ValueError("its OME-XML has an image without pixels")
    return pixels
