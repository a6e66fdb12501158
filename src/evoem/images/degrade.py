"""Damage images for experiments: noise, and masks of lost pixels.

A mask has the shape of the image, (rows, columns) or (rows, columns, channels), and is True where a
value is missing. The same arguments give the same mask.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from evoem import validation

if TYPE_CHECKING:
    from PIL import Image

TEXT = "the quick brown fox jumps over the lazy dog while five boxing wizards watch"
SCRATCH_JOINTS = 24
SCRATCH_BEND = 0.15  # standard deviation, in radians, of the turn at a joint
SCRATCH_LENGTHS = (0.25, 0.75)  # of the image's longer side
SCRATCH_WIDTHS = (1, 3)  # pixels


def add_noise(image: NDArray[Any], sigma: float, seed: int) -> NDArray[np.float64]:
    """The image with Gaussian noise of standard deviation `sigma`, not clipped to any range."""
    sigma = validation.real("sigma", sigma, 0)
    return image + sigma * np.random.default_rng(seed).standard_normal(image.shape)


def missing_pixels(
    shape: tuple[int, ...], share: float, seed: int, per_channel: bool = False
) -> NDArray[np.bool_]:
    """A mask of round(share * n) of the n pixels, chosen uniformly.

    All channels of a pixel are missing together; with `per_channel` n is the number of single
    values, which are chosen independently.
    """
    share = validation.real("share", share, 0, 1)
    drawn = _image_shape(shape) if per_channel else _image_shape(shape)[:2]
    mask = np.zeros(drawn, np.bool_)
    chosen = np.random.default_rng(seed).choice(mask.size, round(share * mask.size), replace=False)
    mask.flat[chosen] = True
    return mask if per_channel else _all_channels(mask, shape)


def text_mask(shape: tuple[int, ...], text: str = TEXT, size: int = 16) -> NDArray[np.bool_]:
    """A mask of lines of text from edge to edge, in Pillow's own font.

    `size` is the font's, in pixels. The text is repeated, and each line starts a word later than
    the one above, so that letters do not stand in columns. Needs Pillow.
    """
    from PIL import ImageDraw, ImageFont

    validation.integer("size", size, 1)
    words = text.split()
    if not words:
        raise ValueError(f"text must have a word in it; got {text!r}.")
    canvas = _blank(shape)
    font = ImageFont.load_default(size)
    draw = ImageDraw.Draw(canvas)
    for line, top in enumerate(range(0, canvas.height, size + size // 4)):
        first = line % len(words)
        once = " ".join([*words[first:], *words[:first], ""])
        repeats = canvas.width // max(1, int(font.getlength(once))) + 1
        draw.text((0, top), once * repeats, fill=1, font=font)
    return _all_channels(np.array(canvas), shape)


def scratches(shape: tuple[int, ...], n: int, seed: int) -> NDArray[np.bool_]:
    """A mask of `n` thin, slightly bent lines, one to three pixels wide, that start anywhere.

    With the same seed a larger number includes the scratches of a smaller one. Needs Pillow.
    """
    from PIL import ImageDraw

    validation.integer("n", n, 0)
    rng = np.random.default_rng(seed)
    canvas = _blank(shape)
    draw = ImageDraw.Draw(canvas)
    for _ in range(n):
        start = rng.uniform((0, 0), (canvas.width - 1, canvas.height - 1))
        turns = rng.normal(0, SCRATCH_BEND, SCRATCH_JOINTS)
        angles = rng.uniform(0, 2 * np.pi) + np.cumsum(turns)
        step = rng.uniform(*SCRATCH_LENGTHS) * max(canvas.size) / SCRATCH_JOINTS
        steps = step * np.stack([np.cos(angles), np.sin(angles)], axis=1)
        joints = np.concatenate([start[None], start + np.cumsum(steps, axis=0)])
        width = int(rng.integers(*SCRATCH_WIDTHS, endpoint=True))
        draw.line(joints.ravel().tolist(), fill=1, width=width, joint="curve")
    return _all_channels(np.array(canvas), shape)


def _image_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    if len(shape) not in (2, 3):
        raise ValueError(
            f"shape must be (rows, columns) or (rows, columns, channels); got {shape}."
        )
    for length in shape:
        validation.integer("shape's entries", length, 1)
    return shape


def _blank(shape: tuple[int, ...]) -> Image.Image:
    """A black Pillow image of single bits, whose drawings have no soft edges."""
    from PIL import Image

    rows, columns = _image_shape(shape)[:2]
    return Image.new("1", (columns, rows))


def _all_channels(mask: NDArray[np.bool_], shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """The mask (rows, columns) for an image of `shape`, every channel alike."""
    return np.repeat(mask[..., None], shape[2], axis=2) if len(shape) == 3 else mask
