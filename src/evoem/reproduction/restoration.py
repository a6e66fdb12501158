"""Experiments with damaged pictures: "bound-and-psnr", "controlled", "denoising", "inpainting".

A part is one picture, damaged once and restored by the settings of its row.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evoem.images import degrade
from evoem.images.learning import Progress
from evoem.images.quality import psnr
from evoem.images.restore import restore
from evoem.reproduction import figures, recipes
from evoem.reproduction.comparison import Entry, Table, published
from evoem.reproduction.experiment import Contents, Context, Done, Experiment
from evoem.reproduction.pictures import Shown
from evoem.reproduction.recipes import Part, Recipe, Settings
from evoem.reproduction.workbook import Arrays, Outcome

# The inset of the figure of bound and PSNR shows measurements from this iteration on.
INSET_FROM = 100


class Damaged(NamedTuple):
    """A picture and what is left of it."""

    clean: NDArray[np.float64]
    values: NDArray[np.float64]
    missing: NDArray[np.bool_] | None


def window(shown: NDArray[Any], settings: Settings) -> NDArray[np.float64]:
    """The picture, or the middle of it."""
    crop = settings.get("crop")
    if crop is None:
        return shown.astype(np.float64)
    top, left = (max((length - crop) // 2, 0) for length in shown.shape[:2])
    return shown[top : top + crop, left : left + crop].astype(np.float64)


def damage(clean: NDArray[np.float64], settings: Settings, seed: int, mask: Any) -> Damaged:
    """White noise that is neither clipped nor rounded, or missing values.

    Values of colours are lost each for itself, as the authors' programs delete them.
    """
    told = settings["damage"]
    if "noise" in told:
        return Damaged(clean, degrade.add_noise(clean, told["noise"], seed), None)
    if "mask" in told:
        lost = np.broadcast_to(mask.reshape(*mask.shape[:2], *[1] * (clean.ndim - 2)), clean.shape)
        missing = lost > 0
    else:
        missing = degrade.missing_pixels(clean.shape, told["missing"], seed, per_channel=True)
    return Damaged(clean, np.where(missing, np.nan, clean), missing)


def damaged(part: Part, context: Context) -> tuple[Damaged, str]:
    """The picture of a part, and what is to be said of it."""
    settings = part.row.settings
    get = context.pictures.get if settings["real"] else context.pictures.get_or_substitute
    shown = get(settings["image"])
    clean = window(shown.pixels, settings)
    mask = None
    if "mask" in settings["damage"]:
        mask = mask_for(settings, context, shown)
    repeat = 0 if settings["same_damage"] else part.repeat
    return damage(clean, settings, part.seed + repeat, mask), shown.says


def mask_for(settings: Settings, context: Context, shown: Shown) -> NDArray[Any]:
    """The mask of a picture; lines of text for one that stands for it."""
    if shown.real:
        return window(context.pictures.get(settings["damage"]["mask"]).pixels, settings)
    return window(degrade.text_mask(shown.pixels.shape[:2]).astype(np.uint8), settings)


def run(part: Part, context: Context) -> Outcome:
    """Restore, and measure on the way at the iterations that the recipe names."""
    settings = part.row.settings
    given, says = damaged(part, context)
    options = settings["options"] | {"seed": part.seed + part.repeat, "n_jobs": context.n_jobs}
    measured = context.workbook.records(part)

    def measure(progress: Progress) -> None:
        if progress.stage != "learning" or progress.iteration not in settings["measured"]:
            return
        value = psnr(given.clean, progress.restored())
        measured[:] = [one for one in measured if one["iteration"] < progress.iteration]
        measured.append(
            {
                "iteration": progress.iteration,
                "bound": progress.free_energy,
                "psnr": value,
                "noise_level": progress.noise_level,
            }
        )
        context.workbook.note(part, measured)
        context.tell(
            f"    iteration {progress.iteration}, bound {progress.free_energy:.3f}, "
            f"PSNR {value:.2f} dB"
        )

    result = restore(
        given.values,
        keep_observed=given.missing is not None,
        channel_axis=-1 if given.clean.ndim == 3 else None,
        callback=measure,
        checkpoint=context.workbook.checkpoint(part),
        every=context.every,
        resume=True,
        **options,
    )
    if result.ended == "interrupted":
        raise KeyboardInterrupt  # the part is not finished
    values = {
        "psnr": psnr(given.clean, result.image),
        "psnr_before": psnr(given.clean, np.where(np.isnan(given.values), 0.0, given.values)),
        "noise_level": result.noise_level,
        "bound": float(result.free_energies[-1]),
        "measured": measured,
        "picture": says,
        "used": result.settings,
    }
    arrays: Arrays = {
        "clean": given.clean.astype(np.float32),
        "damaged": given.values.astype(np.float32),
        "restored": result.image.astype(np.float32),
        "bounds": result.free_energies,
    }
    if "model" in options:  # one of the paper's, with a field for each latent
        probabilities = result.estimator.activation_probs_
        order = np.argsort(-probabilities, kind="stable")
        arrays["activation_probs"] = probabilities[order]
        arrays["components"] = result.estimator.components_[order].astype(np.float32)
    return Outcome(values, arrays)


def report(recipe: Recipe, done: Sequence[Done]) -> Contents:
    """PSNR of every row beside the published one, curves and dictionaries."""
    entries, drawn, notes = list[Entry](), dict[str, Any](), list[str]()
    for row in recipe.rows:
        runs = [one for one in done if one.part.row == row]
        path = row.settings.get("published")
        told = None if path is None else published(f"{recipe.name}.{path}")
        ours = tuple(float(one.outcome.values["psnr"]) for one in runs)
        entries.append(Entry(row.name, "PSNR, dB", told, ours, 2, recipe.size == "full"))
        notes += [one.outcome.values["picture"] for one in runs if one.outcome.values["picture"]]
    if done:
        drawn["psnr-over-iterations"] = over_iterations(done)
    if done and all(row.settings["same_damage"] for row in recipe.rows):
        drawn["psnr-and-bound"] = against_bound(done)
    for one in done:
        if one.part.repeat == 0:
            drawn |= figures_of(one)
    tables = [measurements(done)]
    if recipe.name in recipes.data("methods"):
        tables.insert(0, compared(recipe, entries))
    return Contents(entries, tables, drawn, list(dict.fromkeys(notes)))


def measurements(done: Sequence[Done]) -> Table:
    """What was measured on the way."""
    rows = [
        (
            one.part.name,
            str(each["iteration"]),
            f"{each['bound']:.4f}",
            f"{each['psnr']:.3f}",
            f"{each['noise_level']:.2f}",
        )
        for one in done
        for each in one.outcome.values["measured"]
    ]
    columns = ("run", "iteration", "bound per patch", "PSNR, dB", "σ")
    return Table("Measured on the way", columns, tuple(rows))


def compared(recipe: Recipe, entries: Sequence[Entry]) -> Table:
    """All methods, grouped by what each must be told, with our rows among them."""
    told = recipes.data("methods")[recipe.name]
    known = recipes.data("published")[recipe.name]
    settings = {row.name: row.settings for row in recipe.rows}
    columns = list(known)
    rows = []
    for group, what in told["groups"].items():
        for method in what["methods"]:
            values = [known[column].get(method, {}).get("value") for column in columns]
            cells = ["" if value is None else f"{value:.2f}" for value in values]
            rows.append((group, what["told"], method, *cells))
        if group != told["ours"]:
            continue
        for label in dict.fromkeys(one["label"] for one in settings.values()):
            ours = {
                settings[entry.what]["column"]: f"{entry.mean:.2f}"
                for entry in entries
                if entry.ours and settings[entry.what]["label"] == label
            }
            rows.append((group, what["told"], label, *(ours.get(column, "") for column in columns)))
    named = ("group", "must be told", "method", *columns)
    return Table("Methods by what they must be told, PSNR in dB", named, tuple(rows))


def measured_by(one: Done) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Iterations, bounds and PSNR of a run."""
    names = ("iteration", "bound", "psnr")
    found = [[each[name] for each in one.outcome.values["measured"]] for name in names]
    iterations, bounds, values = (np.array(column) for column in found)
    return iterations, bounds, values


def over_iterations(done: Sequence[Done]) -> Any:
    """PSNR of all runs."""
    out = figures.new(7.0, 4.5)
    axes = out.subplots()
    for one in done:
        iterations, _, values = measured_by(one)
        axes.plot(iterations, values, ".-", lw=0.8, ms=4, label=one.part.name)
    axes.set(xlabel="iteration", ylabel="PSNR, dB", xscale="log")
    axes.legend(fontsize=6)
    return out


def against_bound(done: Sequence[Done]) -> Any:
    """PSNR against the bound, which can be compared where data are the same; the end larger."""
    out = figures.new(7.0, 4.5)
    axes = out.subplots()
    inset = axes.inset_axes((0.15, 0.45, 0.55, 0.45))  # curves run along the bottom and the right
    inset.locator_params(nbins=4)
    for one in done:
        iterations, bounds, values = measured_by(one)
        axes.plot(bounds, values, ".-", lw=0.8, ms=4, label=one.part.name)
        late = iterations >= min(INSET_FROM, iterations.max(initial=0) // 2)
        inset.plot(bounds[late], values[late], ".-", lw=0.8, ms=3)
    inset.tick_params(labelsize=6)
    axes.set(xlabel="bound per patch, F/N", ylabel="PSNR, dB")
    axes.legend(fontsize=6, loc="lower right")
    return out


def figures_of(one: Done) -> figures.Figures:
    """The pictures of a run, and its dictionary."""
    name, arrays = one.part.name, one.outcome.arrays
    out = figures.new(10.0, 3.8)
    before, after = one.outcome.values["psnr_before"], one.outcome.values["psnr"]
    shown = (
        ("clean", arrays["clean"]),
        (f"damaged, {before:.2f} dB", np.nan_to_num(arrays["damaged"])),
        (f"restored, {after:.2f} dB", arrays["restored"]),
    )
    for axes, (title, picture) in zip(out.subplots(1, 3), shown, strict=True):
        axes.imshow(np.clip(picture, 0, 255) / 255, cmap="gray", vmin=0, vmax=1)
        axes.set_title(title, fontsize=9)
        axes.set(xticks=[], yticks=[])
    drawn = {f"pictures-{name}": out}
    if "components" in arrays:
        n_channels = arrays["clean"].shape[2] if arrays["clean"].ndim == 3 else 1
        width = round((arrays["components"].shape[1] / n_channels) ** 0.5)
        fields = arrays["components"].reshape(-1, width, width, n_channels)
        title = f"{name}: {len(fields)} fields in the order of activation"
        drawn[f"dictionary-{name}"] = figures.dictionary(fields, title)
    return drawn


def needs(settings: Settings) -> list[str]:
    """The picture and its mask, unless others may stand for them."""
    if not settings["real"]:
        return []
    mask = settings["damage"].get("mask")
    return [settings["image"], *([] if mask is None else [mask])]


EXPERIMENT = Experiment(run, report, needs)
