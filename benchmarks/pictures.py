"""Rows of noisy picture patches: the data of the benchmarks."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

NOISE_SIGMA = 50.0  # on the scale 0..255
SYNTHETIC_SIZE = 512
SYNTHETIC_SHAPES = 60

Picture = NDArray[np.float32]


def read_picture(path: Path | None) -> tuple[str, Picture]:
    """Name and grey values of a picture: the file, else scikit-image's camera man, else shapes."""
    if path is not None:
        from PIL import Image

        with Image.open(path) as image:
            return path.name, np.asarray(image.convert("L"), np.float32)
    try:
        from skimage import data
    except ImportError:
        return "synthetic shapes", synthetic_picture(np.random.default_rng(0))
    return "scikit-image camera", data.camera().astype(np.float32)


def synthetic_picture(rng: np.random.Generator) -> Picture:
    """Ellipses of random place, size, slope and grey, with soft edges, on a ramp."""
    y, x = np.mgrid[0:SYNTHETIC_SIZE, 0:SYNTHETIC_SIZE] / SYNTHETIC_SIZE
    picture = 80.0 + 90.0 * x
    for _ in range(SYNTHETIC_SHAPES):
        centre_y, centre_x = rng.random(2)
        radius_y, radius_x = rng.uniform(0.03, 0.25, 2)
        angle, grey = rng.uniform(0.0, np.pi), rng.uniform(0.0, 255.0)
        u = (x - centre_x) * np.cos(angle) + (y - centre_y) * np.sin(angle)
        v = (y - centre_y) * np.cos(angle) - (x - centre_x) * np.sin(angle)
        distance = np.hypot(u / radius_x, v / radius_y)
        cover = 1.0 / (1.0 + np.exp(30.0 * np.minimum(distance - 1.0, 10.0)))
        picture += cover * (grey - picture)
    return picture.astype(np.float32)


def add_noise(picture: Picture, seed: int = 0) -> Picture:
    """The picture with Gaussian noise."""
    noise = np.random.default_rng(seed).standard_normal(picture.shape, np.float32)
    return picture + np.float32(NOISE_SIGMA) * noise


def random_patches(picture: Picture, width: int, n_rows: int, seed: int = 1) -> Picture:
    """At most `n_rows` of all overlapping square patches, each a row, without repetition."""
    windows = np.lib.stride_tricks.sliding_window_view(picture, (width, width))
    n_windows = windows.shape[0] * windows.shape[1]
    chosen = np.random.default_rng(seed).permutation(n_windows)[:n_rows]
    return windows[np.unravel_index(chosen, windows.shape[:2])].reshape(len(chosen), -1)


def binary(patches: Picture) -> Picture:
    """One where a pixel is above the mean of all, else zero."""
    return (patches > patches.mean()).astype(np.float32)
