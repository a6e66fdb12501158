"""Measure how close a restored image is to the original: PSNR and SSIM."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from evoem import validation

# Wang, Bovik, Sheikh and Simoncelli, "Image quality assessment: from error visibility to structural
# similarity", IEEE Transactions on Image Processing 13 (2004), section III.
SSIM_SIGMA = 1.5
SSIM_RADIUS = 5
SSIM_K1 = 0.01
SSIM_K2 = 0.03


# The largest value of integers of 8 and 16 bits.
PEAKS = {"uint8": 255.0, "uint16": 65535.0}


def peak_of(image: NDArray[Any]) -> float:
    """The largest value of 8 or 16 bits, otherwise the range of the image.

    >>> peak_of(np.zeros((2, 2), np.uint8)), peak_of(np.array([[-1.0, 3.0]]))
    (255.0, 4.0)
    """
    return PEAKS.get(image.dtype.name) or float(image.max()) - float(image.min())


def psnr(reference: NDArray[Any], image: NDArray[Any], peak: float = 255.0) -> float:
    """Peak signal-to-noise ratio in decibels, over all pixels and channels; inf for equal images.

    `peak` is the largest value that a pixel can have: 255 for 8-bit images, 1 for floats in [0, 1].

    >>> psnr(np.zeros((2, 2)), np.full((2, 2), 25.5))
    20.0
    """
    x, y = _comparable(reference, image, peak)
    error = float(np.mean((x - y) ** 2))
    return float(10 * np.log10(peak**2 / error)) if error else float("inf")


def ssim(
    reference: NDArray[Any],
    image: NDArray[Any],
    peak: float = 255.0,
    channel_axis: int | None = None,
) -> float:
    """Mean structural similarity of two images, one for equal images.

    This is the index of Wang et al. (2004): a Gaussian window of 11×11 pixels with σ = 1.5,
    averaged over the places where the window lies within the image. Images with fewer than 11 rows
    or columns are refused, because another window's values do not compare with published ones.

    Images are (rows, columns), or have channels along `channel_axis`, whose indices are averaged.
    """
    x, y = _comparable(reference, image, peak)
    if channel_axis is None:
        x, y = x[None], y[None]
    else:
        validation.integer("channel_axis", channel_axis, -x.ndim, x.ndim - 1)
        x, y = np.moveaxis(x, channel_axis, 0), np.moveaxis(y, channel_axis, 0)
    if x.ndim != 3:
        raise ValueError(
            "reference must be (rows, columns), with one more axis if channel_axis is set; "
            f"got the shape {reference.shape} and channel_axis {channel_axis}."
        )
    least = 2 * SSIM_RADIUS + 1
    if min(x.shape[1:]) < least:
        raise ValueError(
            f"reference must have at least {least} rows and columns; got the shape "
            f"{reference.shape}."
        )
    return float(np.mean([_ssim_of_channel(*pair, peak) for pair in zip(x, y, strict=True)]))


def _ssim_of_channel(x: NDArray[np.float64], y: NDArray[np.float64], peak: float) -> float:
    c1, c2 = (SSIM_K1 * peak) ** 2, (SSIM_K2 * peak) ** 2
    mean_x, mean_y = _local_mean(x), _local_mean(y)  # eq. 14
    variance_x = _local_mean(x * x) - mean_x**2  # eq. 15
    variance_y = _local_mean(y * y) - mean_y**2
    covariance = _local_mean(x * y) - mean_x * mean_y  # eq. 16
    luminance = (2 * mean_x * mean_y + c1) / (mean_x**2 + mean_y**2 + c1)
    structure = (2 * covariance + c2) / (variance_x + variance_y + c2)
    return float(np.mean(luminance * structure))  # eq. 13, 17


def _local_mean(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Means under the window, wherever it lies within the image."""
    inside = slice(SSIM_RADIUS, -SSIM_RADIUS)
    smooth: NDArray[np.float64] = ndimage.gaussian_filter(x, SSIM_SIGMA, radius=SSIM_RADIUS)
    return smooth[inside, inside]


def _comparable(
    reference: NDArray[Any], image: NDArray[Any], peak: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Both in double precision: differences of unsigned integers would wrap around."""
    if reference.shape != image.shape:
        raise ValueError(
            f"image must have the shape of reference, {reference.shape}; got {image.shape}."
        )
    if not peak > 0:
        raise ValueError(f"peak must be positive; got {peak!r}.")
    return reference.astype(np.float64), image.astype(np.float64)
