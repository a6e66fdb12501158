"""PNG and JPEG files, and colour spaces of TIFF that only Pillow can convert."""

from io import BytesIO
from pathlib import Path
from typing import IO, Any

import numpy as np
from PIL import ExifTags, Image

# Opened by their own classes, for `Image.open` has a limit on pixels of its own.
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile
from PIL.TiffImagePlugin import TiffImageFile

from evoem.images.files import truncation
from evoem.images.files.picture import (
    Format,
    Header,
    Missing,
    Picture,
    Wanted,
    damaged,
    n_channels,
    upright,
    with_alpha,
)
from evoem.images.files.truncation import There
from evoem.runtime.atomic_files import FileError

ORIENTATION = ExifTags.Base.Orientation
# In these the profile describes values that are no longer there after conversion to RGB.
FOREIGN_MODES = ("CMYK", "YCbCr", "LAB")
PER_INCH = {"inch": 1.0, "centimeter": 2.54}
LARGEST_JPEG_DENSITY = 2**16 - 1
LONGEST_JPEG_SIDE = 65500
PALETTE = 3  # colour type of PNG


def fits_png(picture: Picture) -> bool:
    """Whether a PNG file can hold the picture."""
    dtype, channels = picture.pixels.dtype, n_channels(picture)
    if picture.stack or channels not in (1, 3):
        return False
    if dtype == np.uint16:
        return channels == 1 and picture.alpha is None
    return dtype == np.uint8 and not picture.metadata.get("premultiplied")


def fits_jpeg(picture: Picture) -> bool:
    """Whether a JPEG file can hold the picture."""
    pixels = picture.pixels
    plain = not picture.stack and picture.alpha is None and n_channels(picture) in (1, 3)
    return plain and pixels.dtype == np.uint8 and max(pixels.shape) <= LONGEST_JPEG_SIDE


def png_header(path: Path, wanted: Wanted) -> Header:
    """What a PNG file says of its size."""
    with path.open("rb") as file:
        header = truncation.png_header(file.read(29))
    if header.depth == 16 and header.colour_type:
        raise FileError(
            f"{path} must be converted to TIFF, as PNG is read with 16 bits only if it is grey "
            "and without alpha; got colour or alpha."
        )
    most = 4 if header.colour_type == PALETTE else header.n_samples  # colours looked up, and alpha
    return Header((header.height, header.width, most))


def jpeg_header(path: Path, wanted: Wanted) -> Header:
    """What a JPEG file says of its size."""
    with path.open("rb") as file, JpegImageFile(file) as image:
        return Header((image.height, image.width, len(image.getbands())))


def read_png(path: Path, wanted: Wanted) -> Picture:
    """The picture in a PNG file."""
    content = path.read_bytes()
    there = truncation.png_there(content)
    _check_whole(path, there, wanted.accept_truncated)
    # Pillow stretches grey of 2 and 4 bits to 8, but not the value that means transparent.
    key_scale = {2: 85, 4: 17}.get(truncation.png_header(content).depth, 1)
    with PngImageFile(BytesIO(there.content)) as image:
        if getattr(image, "is_animated", False):
            raise FileError(f"{path} must be a single picture; got an animation.")
        return _decoded(image, key_scale, there.missing)


def read_jpeg(path: Path, wanted: Wanted) -> Picture:
    """The picture in a JPEG file."""
    content = path.read_bytes()
    with JpegImageFile(BytesIO(content)) as image:
        there = truncation.jpeg_there(content, image)
    _check_whole(path, there, wanted.accept_truncated)
    with JpegImageFile(BytesIO(there.content)) as image:
        return _decoded(image, 1, there.missing)


def read_tiff(path: Path) -> Picture:
    """The first page of a TIFF file."""
    # By its path Pillow would map uncompressed TIFF, and scramble what is to be turned.
    with path.open("rb") as file, TiffImageFile(file) as image:
        return _decoded(image, 1, None)


def write_png(file: IO[bytes], picture: Picture) -> None:
    """Write a picture that PNG can hold."""
    _image(picture).save(file, "PNG", **_options(picture.metadata))


def write_jpeg(file: IO[bytes], picture: Picture) -> None:
    """Write a picture that JPEG can hold, with little loss."""
    options = _options(picture.metadata)
    if max(options.get("dpi", (0,))) > LARGEST_JPEG_DENSITY:
        del options["dpi"]
    _image(picture).save(file, "JPEG", quality=95, subsampling="4:4:4", **options)


def _check_whole(path: Path, there: There, accept_truncated: bool) -> None:
    """Refuse a file that ends early, unless what is there is wanted."""
    if there.missing is not None and not accept_truncated:
        share = 100 * (1 - there.missing.mean())
        raise damaged(
            path,
            f"its data end early, after {share:.3g} % of the pixels, which accept_truncated takes",
        )


def _decoded(image: Image.Image, key_scale: int, missing: Missing) -> Picture:
    """The picture, and what is missing of it, of a file that was opened.

    The grey value for transparent is to be taken times `key_scale`.
    """
    image.load()
    metadata, orientation = _metadata(image)
    picture = _converted(image, key_scale, metadata, orientation)
    if missing is None:
        return picture
    note = f"The file ends early: {np.count_nonzero(missing)} pixels of it are missing."
    return picture._replace(missing=upright(missing, orientation, stack=False), notes=(note,))


def _converted(
    image: Image.Image, key_scale: int, metadata: dict[str, Any], orientation: int
) -> Picture:
    if image.mode == "1":
        image = image.convert("L")
    elif image.mode not in ("L", "LA", "RGB", "RGBA", "I", "I;16", "I;16B"):
        image = image.convert("RGBA" if image.has_transparency_data else "RGB")
    pixels = upright(np.array(image), orientation, stack=False)
    if image.mode.startswith("I"):  # 16 bits, in one of three guises
        pixels = pixels.astype(np.uint16)
    if image.mode == "RGBA":
        return Picture(pixels[..., :3], pixels[..., 3], True, False, metadata)
    if image.mode == "LA":
        return Picture(pixels[..., 0], pixels[..., 1], False, False, metadata)
    colour = image.mode == "RGB"
    alpha = None
    if "transparency" in image.info:
        transparent = pixels == np.multiply(image.info["transparency"], key_scale)
        opaque = ~transparent.all(-1) if colour else ~transparent
        alpha = opaque * pixels.dtype.type(np.iinfo(pixels.dtype).max)
    return Picture(pixels, alpha, colour, False, metadata)


def _metadata(image: Image.Image) -> tuple[dict[str, Any], int]:
    """What is to be kept, without the orientation, and the orientation."""
    metadata: dict[str, Any] = {}
    exif = image.getexif()
    orientation = exif.pop(ORIENTATION, 1)
    if orientation != 1:
        metadata["exif"] = exif.tobytes()
    elif "exif" in image.info:
        metadata["exif"] = image.info["exif"]
    if image.info.get("icc_profile") and image.mode not in FOREIGN_MODES:
        metadata["icc_profile"] = image.info["icc_profile"]
    if "dpi" in image.info:
        x, y = image.info["dpi"]
        metadata |= {"resolution": (float(x), float(y)), "resolution_unit": "inch"}
    return metadata, orientation


def _options(metadata: dict[str, Any]) -> dict[str, Any]:
    options: dict[str, Any] = {
        key: metadata[key] for key in ("icc_profile", "exif") if key in metadata
    }
    scale = PER_INCH.get(metadata.get("resolution_unit", "none"))
    if scale is not None:
        options["dpi"] = tuple(scale * value for value in metadata["resolution"])
    return options


def _image(picture: Picture) -> Image.Image:
    pixels = with_alpha(picture)
    return Image.fromarray(pixels[..., 0] if pixels.shape[2:] == (1,) else pixels)


PNG = Format(
    (".png",),
    (b"\x89PNG\r\n\x1a\n",),
    "one 8-bit grey or RGB picture, with or without straight alpha, or a 16-bit grey one",
    fits_png,
    png_header,
    read_png,
    write_png,
    names_axes=False,
)
JPEG = Format(
    (".jpg", ".jpeg"),
    (b"\xff\xd8\xff",),
    "one 8-bit grey or RGB picture without alpha, of at most 65500 x 65500",
    fits_jpeg,
    jpeg_header,
    read_jpeg,
    write_jpeg,
    names_axes=False,
)
