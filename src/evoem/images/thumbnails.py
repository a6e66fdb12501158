"""A restoration at a glance: thumbnails for notebooks, and a figure."""

import base64
import html
from typing import TYPE_CHECKING

import numpy as np

from evoem.images import viewing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from evoem.images.html_report import Shown

SIDE = 220  # pixels of a thumbnail on the page
LARGEST_SIDE = 440  # of its file
PANEL = 3.6  # inches


def panels(shown: "Shown") -> dict[str, viewing.Array]:
    """What is worth a look, as red, green and blue between 0 and 1."""
    before, after = shown.given.astype(np.float64), shown.restored.astype(np.float64)
    seen = shown.seen
    low, high = viewing.shown_range(before[seen], after, shown.restored.dtype)
    std = shown.std.mean(axis=2)
    brightest = viewing.largest_shown(std)
    return {
        "given": viewing.colours(before, seen, low, high),
        "restored": viewing.colours(after, np.isfinite(after), low, high),
        f"standard deviation, 0 to {brightest:.3g}": viewing.heat(std, brightest),
    }


def notebook_html(shown: "Shown") -> str:
    """Thumbnails side by side, below the short description."""
    figures = []
    for name, colours in panels(shown).items():
        coded = base64.b64encode(viewing.png(viewing.thinned(colours, LARGEST_SIDE))).decode()
        figures.append(
            '<figure style="margin:0"><img style="height:auto;max-width:100%;'
            f'image-rendering:pixelated" width="{SIDE}" alt="{html.escape(name)}" '
            f'src="data:image/png;base64,{coded}"><figcaption>{html.escape(name)}</figcaption>'
            "</figure>"
        )
    result = shown.result
    told = html.escape(repr(result))
    notes = "".join(f"<li>{html.escape(note)}</li>" for note in result.notes)
    return (
        f"<div><p><code>{told}</code></p>"
        f'<div style="display:flex;flex-wrap:wrap;gap:12px">{"".join(figures)}</div>'
        f"{f'<ul>{notes}</ul>' if notes else ''}</div>"
    )


def figure(shown: "Shown") -> "Figure":
    """The same as a figure of matplotlib."""
    try:
        from matplotlib import pyplot
    except ImportError:
        raise ValueError("plot needs matplotlib: pip install 'evoem[plot]'.") from None
    found = panels(shown)
    rows, columns, *_ = shown.given.shape
    size = (PANEL * len(found), PANEL * min(max(rows / columns, 0.3), 3.0) + 0.4)
    drawn, axes = pyplot.subplots(1, len(found), figsize=size, layout="constrained", squeeze=False)
    for place, (name, colours) in zip(axes[0], found.items(), strict=True):
        place.imshow(colours, interpolation="nearest")
        place.set_title(name, fontsize="medium")
        place.set_axis_off()
    return drawn
