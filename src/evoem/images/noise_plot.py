"""Plot the noise that was found: variance against signal, and autocorrelation."""

from io import BytesIO
from textwrap import fill
from typing import TYPE_CHECKING

import numpy as np

from evoem.images.noise_model import Noise

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# What matplotlib writes by itself. A name without any of them is a PNG file's.
SUFFIXES = (".png", ".svg", ".pdf", ".eps", ".jpg", ".jpeg", ".tif", ".tiff", ".webp")
# Width of the title in letters; points of the law.
WIDTH, POINTS = 100, 200


def check_suffix(suffix: str) -> None:
    """Refuse what no plot can be written as."""
    if suffix and suffix.lower() not in SUFFIXES:
        raise ValueError(f"plot must end in one of {', '.join(SUFFIXES)}; got {suffix!r}.")


def drawn(noise: Noise, suffix: str) -> bytes:
    """The plot as a file with this suffix, such as .png. Needs matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ValueError("plot needs matplotlib: pip install 'evoem[plot]'.") from None
    figure = Figure(figsize=(9, 4), layout="constrained")
    figure.suptitle(fill(noise.describe(), WIDTH), fontsize="medium")
    variance, correlation = figure.subplots(1, 2)
    draw_variance(variance, noise)
    draw_correlation(correlation, noise)
    file = BytesIO()
    figure.savefig(file, format=suffix.lower().lstrip(".") or "png")
    return file.getvalue()


def draw_variance(axes: "Axes", noise: Noise) -> None:
    """Variance as measured at signals, and as the law has it, of each channel."""
    axes.set(xlabel="signal", ylabel="variance of the noise")
    if noise.curve_signal is None or noise.curve_variance is None:
        return
    means = np.linspace(noise.curve_signal.min(), noise.curve_signal.max(), POINTS)
    law = noise.variance(np.repeat(means[:, None], len(noise.curve_signal), 1)).T
    for channel, (signal, variance) in enumerate(
        zip(noise.curve_signal, noise.curve_variance, strict=True)
    ):
        colour = f"C{channel}"
        axes.plot(signal, variance, ".", color=colour)
        axes.plot(means, law[channel], color=colour, label=f"channel {channel}")
    axes.set_ylim(bottom=0)
    if len(law) > 1:
        axes.legend()


def draw_correlation(axes: "Axes", noise: Noise) -> None:
    """Autocorrelation at lags along rows, along columns and along diagonals."""
    axes.set(xlabel="lag in pixels", ylabel="autocorrelation")
    axes.axhline(0, color="grey", linewidth=0.5)
    measured = noise.measured_correlation
    if measured is None:
        return
    middle = len(measured) // 2
    lags = np.arange(middle + 1)
    along = {
        "rows": measured[middle, middle:],
        "columns": measured[middle:, middle],
        "diagonals": measured.diagonal()[middle:],
    }
    for name, values in along.items():
        axes.plot(lags, values, ".-", label=name)
    axes.legend()
