"""Common parts of figures. matplotlib is imported only when needed, since that takes a while."""

import io
import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evoem.runtime.atomic_files import write_whole

FORMATS = ("png", "pdf")
DPI = 120
GAP = 1  # pixels between pictures of a mosaic

# By their file's name; matplotlib has types of its own.
Figures = dict[str, Any]


def need_matplotlib() -> None:
    """Refuse to begin what could not be drawn."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise ValueError("reproduce needs matplotlib: pip install 'evoem[plot]'.") from None


def new(width: float, height: float) -> Any:
    """An empty figure, of so many inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def as_bytes(figure: Any, kind: str) -> bytes:
    """A figure as a file of this format, without the time at which it was made."""
    out = io.BytesIO()
    dated = {"pdf": {"CreationDate": None}}.get(kind)
    figure.savefig(out, format=kind, dpi=DPI, metadata=dated)
    return out.getvalue()


def save(figures: Figures, folder: Path) -> None:
    """Every figure in every format."""
    folder.mkdir(exist_ok=True)
    for name, figure in figures.items():
        for kind in FORMATS:
            content = as_bytes(figure, kind)
            write_whole(
                folder / f"{name}.{kind}",
                lambda file, content=content: file.write(content),  # type: ignore[misc]
                force=True,
            )


def mosaic(fields: NDArray[np.floating], columns: int, *, alike: bool) -> NDArray[np.float64]:
    """Pictures (n, rows, columns[, channels]) in a grid with NaN between them.

    `alike` keeps their values; else each is scaled to its own largest size. Of several channels
    the mean is shown.
    """
    shown = np.asarray(fields, np.float64)
    if shown.ndim == 4:
        shown = shown.mean(3)
    if not alike:
        largest = np.abs(shown).max((1, 2), keepdims=True)
        shown = shown / np.where(largest > 0, largest, 1.0)
    n, height, width = shown.shape
    rows = math.ceil(n / columns)
    out = np.full((rows * (height + GAP) + GAP, columns * (width + GAP) + GAP), np.nan)
    for i, field in enumerate(shown):
        top = GAP + (i // columns) * (height + GAP)
        left = GAP + (i % columns) * (width + GAP)
        out[top : top + height, left : left + width] = field
    return out


def show_mosaic(axes: Any, picture: NDArray[np.float64], largest: float, signed: bool) -> None:
    """A mosaic on axes without ticks."""
    import matplotlib as mpl

    colours = mpl.colormaps["RdBu_r" if signed else "Greys"].with_extremes(bad="0.82")
    lowest = -largest if signed else 0.0
    axes.imshow(picture, cmap=colours, vmin=lowest, vmax=largest, interpolation="nearest")
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(False)


def dictionary(fields: NDArray[np.floating], title: str, *, signed: bool = True) -> Any:
    """A figure of all fields of a dictionary."""
    columns = max(1, math.ceil(math.sqrt(1.6 * len(fields))))
    picture = mosaic(fields, columns, alike=not signed)
    width = 8.0
    figure = new(width, width * picture.shape[0] / picture.shape[1] + 0.4)
    axes = figure.subplots()
    show_mosaic(axes, picture, 1.0, signed)
    axes.set_title(title, fontsize=9)
    return figure
