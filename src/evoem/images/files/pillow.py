"""PNG and JPEG files, and the colours of TIFF that only Pillow converts."""

import struct
import warnings
from pathlib import Path
from typing import IO, Any

import numpy as np
from PIL import ExifTags, Image

from evoem.images.files.picture import Format, Picture, damaged, n_channels, upright, with_alpha
from evoem.runtime.atomic_files import FileError

ORIENTATION = ExifTags.Base.Orientation
# In these the profile describes values that are no longer there after conversion to RGB.
FOREIGN_MODES = ("CMYK", "YCbCr", "LAB")
PER_INCH = {"inch": 1.0, "centimeter": 2.54}
LARGEST_JPEG_DENSITY = 2**16 - 1
LONGEST_JPEG_SIDE = 65500


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


def read_png(path: Path) -> Picture:
    """The picture in a PNG file."""
    with path.open("rb") as file:
        header = file.read(26)
    depth, colour_type = header[24:25], header[25:26]
    if depth == b"\x10" and colour_type != b"\x00":
        raise FileError(
            f"{path} must be converted to TIFF, as PNG is read with 16 bits only if it is grey "
            "and without alpha; got colour or alpha."
        )
    # Pillow stretches grey of 2 and 4 bits to 8, but not the value that means transparent.
    return read(path, key_scale={b"\x02": 85, b"\x04": 17}.get(depth, 1))


def read(path: Path, key_scale: int = 1) -> Picture:
    """The picture in a file; the grey value for transparent is to be taken times `key_scale`."""
    try:
        # By its path Pillow would map uncompressed TIFF, and scramble what is to be turned.
        with path.open("rb") as file, warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            with Image.open(file, formats=("PNG", "JPEG", "TIFF")) as image:
                if image.format == "PNG" and getattr(image, "is_animated", False):
                    raise FileError(f"{path} must be a single picture; got an animation.")
                image.load()
                return _decoded(image, key_scale)
    except FileError:
        raise
    except Image.DecompressionBombError as error:
        most = 2 * (Image.MAX_IMAGE_PIXELS or 0)
        raise FileError(f"{path} must have at most {most} pixels; got more.") from error
    except (OSError, ValueError, SyntaxError, EOFError, struct.error) as error:
        raise damaged(path, error) from error


def write_png(file: IO[bytes], picture: Picture) -> None:
    """Write a picture that PNG can hold."""
    _image(picture).save(file, "PNG", **_options(picture.metadata))


def write_jpeg(file: IO[bytes], picture: Picture) -> None:
    """Write a picture that JPEG can hold, with little loss."""
    options = _options(picture.metadata)
    if max(options.get("dpi", (0,))) > LARGEST_JPEG_DENSITY:
        del options["dpi"]
    _image(picture).save(file, "JPEG", quality=95, subsampling="4:4:4", **options)


def _decoded(image: Image.Image, key_scale: int) -> Picture:
    metadata, orientation = _metadata(image)
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
    read_png,
    write_png,
)
JPEG = Format(
    (".jpg", ".jpeg"),
    (b"\xff\xd8\xff",),
    "one 8-bit grey or RGB picture without alpha, of at most 65500 x 65500",
    fits_jpeg,
    read,
    write_jpeg,
)
