"""A restoration as one self-contained HTML page, with its pictures and curves."""

import base64
import html
import math
import platform
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from importlib.resources import files
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evoem.images import svg, viewing
from evoem.images.quality import peak_of
from evoem.images.residual import LAGS, autocorrelation, whiteness

if TYPE_CHECKING:
    from evoem.images.restore import Restoration

Array = NDArray[np.float64]

# A residual is shown from so many standard deviations below zero to as many above.
RESIDUAL_DEVIATIONS = 3.0
# Root mean squares of standard deviations and of errors differ by so much, at most, in nine of ten
# pictures of benchmarks/calibration.py.
PSNR_WITHIN = 2
MOST_COMPONENTS = 144
MOST_SLICES = 8  # of a stack, so that the page can be opened
LARGEST_SIDE = 1024  # pixels of a picture on the page
SHOWN_WIDTH = 640  # of small pictures, which are enlarged
DETAIL = 320  # pixels of a side: of large pictures that much is shown pixel by pixel
CURVE_POINTS = 100

SLIDE = "this.parentElement.style.setProperty('--at',this.value+'%')"
# The page may not load anything, whatever is in it.
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
ENDINGS = {
    "converged": "converged",
    "max_iter": "all iterations done",
    "time_limit": "time limit reached",
    "interrupted": "interrupted",
    "callback": "stopped",
}
TIMES = {
    "noise": "telling the noise",
    "learning": "learning",
    "finishing": "merging patches, nonlocal passes",
}
PAPER = (
    "Jakob Drefs, Enrico Guiraud, Jörg Lücke. Evolutionary Variational Optimization of Generative "
    "Models. Journal of Machine Learning Research 23(21), 2022."
)
BIBTEX = """@article{drefs2022evolutionary,
  author  = {Drefs, Jakob and Guiraud, Enrico and L{\\"u}cke, J{\\"o}rg},
  title   = {Evolutionary Variational Optimization of Generative Models},
  journal = {Journal of Machine Learning Research},
  volume  = {23},
  number  = {21},
  year    = {2022}
}"""


class About(NamedTuple):
    """What is known beside the results: of files, and of a reference."""

    name: str = ""
    notes: Sequence[str] = ()
    scores: Mapping[str, tuple[float, float]] = MappingProxyType({})  # before and after


NOTHING_MORE = About()


class Shown(NamedTuple):
    """A result and its arrays, which are (rows, columns, channels) here.

    Values of `given` that are not `observed` were missing.
    """

    result: "Restoration"
    given: NDArray[Any]
    restored: NDArray[Any]
    std: Array
    observed: NDArray[np.bool_] | None

    @property
    def seen(self) -> NDArray[np.bool_]:
        """Where there was a value."""
        finite: NDArray[np.bool_] = np.isfinite(self.given)
        return finite if self.observed is None else finite & self.observed


def page_of(results: Sequence["Restoration"], about: About = NOTHING_MORE) -> str:
    """The page of a result, or of the slices of a stack: of a large one of some of them."""
    chosen = np.unique(
        np.linspace(0, len(results) - 1, min(len(results), MOST_SLICES)).round().astype(int)
    )
    title = html.escape(about.name) or "Restored picture"
    parts = [f'<h1>{title}</h1><p class="quiet">Restored by evoem {version("evoem")}</p>']
    if len(results) > 1:
        told = "all" if len(chosen) == len(results) else f"{len(chosen)}, evenly spaced,"
        parts.append(f'<p class="quiet">A stack of {len(results)} slices; {told} are here.</p>')
    parts += [*_scores(about.scores), *_notes(about.notes, "The file")]
    for number in chosen:
        parts.append("<section>")
        if len(results) > 1:
            parts.append(f'<h2 class="slice">Slice {number + 1}</h2>')
        parts += [*_result(results[number].shown()), "</section>"]
    parts += _cite()
    style = files("evoem.images").joinpath("report.css").read_text("utf-8")
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}, restored by evoem</title>\n<style>\n{style}</style></head>\n<body>\n"
        + "\n".join(parts)
        + "\n</body></html>\n"
    )


def _result(shown: Shown) -> Iterable[str]:
    """All there is to say about one picture."""
    result = shown.result
    yield from _facts(shown)
    yield from _before_and_after(shown)
    yield from _notes(result.notes, "Notes")
    yield from _noise(result)
    residual = _residual(shown)
    yield '<div class="pair"><div>'
    yield from _uncertainty(shown.std)
    yield "</div><div>"
    if residual is not None:
        yield from _taken_off(residual)
    yield "</div></div>"
    if residual is not None:
        yield _whiteness(residual, result)
    yield from _learning(shown)
    yield from _dictionary(result, shown.std.shape[2])
    yield from _times(result)
    yield from _settings(result)


def _facts(shown: Shown) -> Iterable[str]:
    result = shown.result
    rows, columns, channels = shown.given.shape
    size = f"{rows} × {columns}" + (f", {channels} channels" if channels > 1 else "")
    facts = {
        "Pixels": size,
        "Values": str(result.image.dtype),
        "Preset": str(result.settings["preset"]),
        "Noise level": f"{result.noise_level:.4g}",
        "Iterations": str(len(result.free_energies)),
        "Ended": ENDINGS[result.ended],
        "Time": f"{result.seconds:.1f} s",
    }
    estimate = psnr_of_deviations(shown)
    if estimate is not None:
        facts["PSNR, estimated"] = f"{estimate:.1f} dB"
    entries = (f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in facts.items())
    yield f'<dl class="facts">{"".join(entries)}</dl>'


def _scores(scores: Mapping[str, tuple[float, float]]) -> Iterable[str]:
    """How close it comes to a reference."""
    if not scores:
        return
    rows = "".join(
        f"<tr><th>{html.escape(name)}</th><td>{before:.4g}</td><td>{after:.4g}</td></tr>"
        for name, (before, after) in scores.items()
    )
    yield "<h2>Beside the reference</h2>"
    yield (
        '<div class="wide"><table><tr><th></th><th>as given</th><th>restored</th></tr>'
        f"{rows}</table></div>"
    )


# ----------------------------------------------------------------------------------- pictures


def _before_and_after(shown: Shown) -> Iterable[str]:
    before, after = shown.given.astype(np.float64), shown.restored.astype(np.float64)
    seen = shown.seen
    low, high = viewing.shown_range(before[seen], after, shown.restored.dtype)
    pictures = (
        viewing.colours(before, seen, low, high),
        viewing.colours(after, np.isfinite(after), low, high),
    )
    yield "<h2>Before and after</h2>"
    yield _compared(*pictures)
    yield (
        '<p class="quiet">Drag the line, or use the arrow keys. '
        f"Black is {low:.4g}, white {high:.4g}."
    )
    if not seen.all():
        number = np.count_nonzero(~seen)
        yield f" {number:,} missing value{' is' if number == 1 else 's are'} red."
    step = viewing.step_of(before.shape, LARGEST_SIDE)
    if step == 1:
        yield "</p>"
        return
    yield f" One in {step} rows and columns is shown.</p>"
    row, column = viewing.detail(after, DETAIL)
    here = np.s_[row : row + DETAIL, column : column + DETAIL]
    yield "<h3>A detail, pixel by pixel</h3>"
    yield _compared(*(colours[here] for colours in pictures))
    yield f'<p class="quiet">Its upper left corner is row {row}, column {column}.</p>'


def _compared(before: Array, after: Array) -> str:
    """Two pictures, and a line between them that can be moved."""
    return (
        f'<div class="compare">{_image(before, "before")}{_image(after, "after")}'
        '<span class="tag left">as given</span><span class="tag right">restored</span>'
        '<input type="range" min="0" max="100" step="0.5" value="50" '
        f'aria-label="where the restored picture begins" oninput="{SLIDE}"></div>'
    )


def _uncertainty(std: Array) -> Iterable[str]:
    std = std.mean(axis=2)
    brightest = viewing.largest_shown(std)
    yield "<h2>Uncertainty</h2>"
    picture = _image(viewing.heat(std, brightest), "standard deviation")
    colours = ", ".join(
        "#" + "".join(f"{round(255 * value):02x}" for value in colour) for colour in viewing.HEAT
    )
    largest = float(std.max())
    more = f" The largest is {largest:.4g}." if largest > brightest else ""
    yield (
        f'<figure class="map">{picture}'
        f'<div class="scale" style="background:linear-gradient(to right, {colours})"></div>'
        f'<div class="ends"><span>0</span><span>{brightest:.4g}</span></div>'
        "<figcaption>Standard deviation of each pixel, in the picture's units."
        f"{more}</figcaption></figure>"
    )


def _residual(shown: Shown) -> Array | None:
    """As given minus restored, the mean of channels, NaN where that is not known."""
    residual = np.where(shown.seen, shown.given, np.nan) - shown.restored.astype(np.float64)
    with np.errstate(invalid="ignore"):
        number = np.isfinite(residual).sum(axis=2)
        residual = np.where(number > 0, np.nansum(residual, axis=2) / np.maximum(number, 1), np.nan)
    known = np.isfinite(residual)
    return residual if known.sum() > 1 and residual[known].std() > 0 else None


def _taken_off(residual: Array) -> Iterable[str]:
    known = np.isfinite(residual)
    reach = RESIDUAL_DEVIATIONS * float(residual[known].std())
    picture = _image(viewing.colours(np.nan_to_num(residual), known, -reach, reach), "residual")
    yield "<h2>Removed part</h2>"
    yield (
        f'<figure class="map">{picture}<figcaption>As given minus restored: black is '
        f"{svg.number(-reach, 4)}, white {reach:.4g}.</figcaption></figure>"
    )


def _whiteness(residual: Array, result: "Restoration") -> str:
    correlation, n_values = autocorrelation(residual, LAGS)
    noise = result.noise
    told = whiteness(correlation, n_values, None if noise is None else noise.correlation)
    return (
        f'<figure class="beside">{svg.correlations(correlation)}<figcaption>The autocorrelation '
        f"of the removed part, at up to {LAGS} rows and columns. {told}</figcaption></figure>"
    )


def _dictionary(result: "Restoration", n_channels: int) -> Iterable[str]:
    estimator = result.estimator
    if estimator is None:
        return
    components = np.asarray(estimator.components_, np.float64)
    side = math.isqrt(components.shape[1] // n_channels)
    if side * side * n_channels != components.shape[1]:
        return  # patches of an image that is narrower than they are wide
    active = np.asarray(estimator.activation_probs_)
    if hasattr(estimator, "groups_"):  # a latent has several patterns
        active = np.repeat(active, np.diff(estimator.groups_))
    components = components[np.argsort(-active, kind="stable")]
    tiles = [
        viewing.to_unit(tile.reshape(side, side, n_channels), tile.min(), tile.max())
        for tile in components[:MOST_COMPONENTS]
    ]
    across = math.ceil(math.sqrt(len(tiles)))
    board = np.ones((math.ceil(len(tiles) / across) * (side + 1), across * (side + 1), 3))
    for number, tile in enumerate(tiles):
        top, left = (side + 1) * np.array(divmod(number, across))
        board[top : top + side, left : left + side] = viewing.three_channels(tile)
    told = f"{len(tiles)} of {len(components)} entries"
    if len(tiles) == len(components):
        told = f"All {len(tiles)} entries"
    yield "<h2>What was learnt</h2>"
    yield (
        f"<figure>{_image(board, 'dictionary')}<figcaption>{told} of the dictionary, the most "
        "active first, each from its lowest value to its highest.</figcaption></figure>"
    )


def _image(colours: Array, alt: str) -> str:
    """An element with the picture in it; small pictures are enlarged."""
    pixels = viewing.thinned(colours, LARGEST_SIDE)
    width = pixels.shape[1] * max(1, SHOWN_WIDTH // max(pixels.shape[:2]))
    coded = base64.b64encode(viewing.png(pixels)).decode()
    return (
        f'<img class="whole" alt="{html.escape(alt)}" width="{width}" '
        f'src="data:image/png;base64,{coded}">'
    )


# ---------------------------------------------------------------------------- words and curves


def _noise(result: "Restoration") -> Iterable[str]:
    yield "<h2>Noise</h2>"
    noise = result.noise
    if noise is None:
        yield (
            "<p>White, the same everywhere, with a standard deviation of "
            f"{result.noise_level:.4g}.</p>"
        )
        return
    told = noise.describe()
    yield f"<p>{html.escape(told[:1].upper() + told[1:])}.</p>"
    if noise.curve_signal is None or noise.curve_variance is None:
        return
    means = np.linspace(noise.curve_signal.min(), noise.curve_signal.max(), CURVE_POINTS)
    law = noise.variance(np.repeat(means[:, None], len(noise.curve_signal), 1)).T
    curves = []
    for channel, (signal, variance) in enumerate(
        zip(noise.curve_signal, noise.curve_variance, strict=True)
    ):
        curves.append(svg.Curve(means, law[channel], hue=channel % 3))
        curves.append(svg.Curve(signal, variance, joined=False, hue=channel % 3))
    yield (
        f"<figure>{svg.chart(curves, 'signal', 'variance of the noise', from_zero=True)}"
        "<figcaption>Variance of the noise at signals: points as measured, the line as the law "
        "has it.</figcaption></figure>"
    )


def _learning(shown: Shown) -> Iterable[str]:
    """The bound over iterations, and what is known of the PSNR."""
    result = shown.result
    bounds = result.free_energies
    finite = np.flatnonzero(np.isfinite(bounds))
    yield "<h2>Learning</h2>"
    if len(finite) > 1:
        curve = svg.Curve((finite + 1).astype(np.float64), bounds[finite])
        yield (
            f"<figure>{svg.chart([curve], 'iteration', 'bound')}<figcaption>The bound on the "
            "log-likelihood per patch, in nats.</figcaption></figure>"
        )
    if psnr_of_deviations(shown) is not None:
        yield (
            '<p class="quiet">The PSNR above is estimated from the standard deviations of the '
            "pixels, and is as good as these: on pictures whose truth is known it is mostly "
            f"within {PSNR_WITHIN} dB.</p>"
        )
    estimates = psnr_of_held_out(result)
    if not estimates:
        yield (
            '<p class="quiet">How it changes with the iterations is told with '
            '<code>select="heldout"</code>, which holds some values out.</p>'
        )
        return
    curves = [
        svg.Curve(np.array(iterations, np.float64), np.array(values), hue=number % 3)
        for number, (iterations, values) in enumerate(estimates)
    ]
    yield (
        f"<figure>{svg.chart(curves, 'iteration', 'PSNR estimate')}<figcaption>Estimated PSNR, in "
        "decibels, of values that were held out, of each candidate: their squared error without "
        "the variance of the noise. Values that are not held out come closer.</figcaption></figure>"
    )


def psnr_of_deviations(shown: Shown) -> float | None:
    """The PSNR that the standard deviations amount to; None where values were kept as they were."""
    peak = peak_of(shown.restored)
    if not (shown.std > 0).all() or not peak > 0:
        return None
    return 20 * math.log10(peak) - 10 * math.log10(float(np.square(shown.std).mean()))


def psnr_of_held_out(result: "Restoration") -> list[tuple[list[int], list[float]]]:
    """Iterations of each candidate of a selection, and the PSNR of held-out values at these.

    Empty if there was no selection, or if errors are not in the picture's own units.
    """
    if result.noise is not None and result.noise.kind != "gaussian":
        return []
    peak = peak_of(result.image)
    found: dict[tuple[int, int, int], tuple[list[int], list[float]]] = {}
    for score in result.selection:
        error = score.heldout_error**2 - result.noise_level**2
        if error > 0 and peak > 0:
            iterations, values = found.setdefault(score[:3], ([], []))
            iterations.append(score.iteration)
            values.append(20 * math.log10(peak) - 10 * math.log10(error))
    return list(found.values())


def _times(result: "Restoration") -> Iterable[str]:
    rows = [(TIMES[name], seconds) for name, seconds in result.times.items()]
    yield "<h2>Times</h2>"
    yield _table((name, f"{seconds:.1f} s") for name, seconds in [*rows, ("all", result.seconds)])


def _notes(notes: Sequence[str], heading: str) -> Iterable[str]:
    if notes:
        lines = "".join(f"<li>{html.escape(note)}</li>" for note in notes)
        yield f"<h2>{heading}</h2><ul>{lines}</ul>"


def _settings(result: "Restoration") -> Iterable[str]:
    """Beside each other where there is room: there are many."""
    entries = "".join(
        f"<div><dt>{html.escape(name)}</dt>"
        f"<dd>{html.escape('–' if value is None else str(value))}</dd></div>"
        for name, value in result.settings.items()
    )
    yield f'<h2>Settings</h2><dl class="settings">{entries}</dl>'


def _cite() -> Iterable[str]:
    known = {name: version(name) for name in ("evoem", "numpy", "numba")}
    known["Python"] = platform.python_version()
    versions = ", ".join(f"{name} {number}" for name, number in known.items())
    yield "<section><h2>Cite</h2>"
    yield f"<p>{html.escape(PAPER)}</p><pre>{html.escape(BIBTEX)}</pre>"
    yield f'<p class="quiet">Made with {versions}.</p></section>'


def _table(rows: Iterable[tuple[str, str]]) -> str:
    cells = "".join(
        f"<tr><th>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>"
        for name, value in rows
    )
    return f'<div class="wide"><table>{cells}</table></div>'
