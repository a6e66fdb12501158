"""Noise that neighbours share, and pictures that JPEG has compressed."""

from io import BytesIO

import numpy as np
from PIL import Image
from scipy import signal


def autoregressive(shape, rho, rng):
    """Noise of unit variance whose correlation is ρ^lag along rows and along columns."""
    noise = rng.standard_normal((shape[0] + 50, shape[1] + 50, *shape[2:]))
    for axis in (0, 1):
        noise = signal.lfilter([np.sqrt(1 - rho**2)], [1, -rho], noise, axis=axis)
    return noise[50:, 50:]


def compressed(picture, quality):
    """A grey picture (rows, columns, 1) that was kept as JPEG."""
    file = BytesIO()
    Image.fromarray(np.clip(np.round(picture[..., 0]), 0, 255).astype(np.uint8)).save(
        file, "JPEG", quality=quality
    )
    return np.asarray(Image.open(file)).astype(float)[..., None]
