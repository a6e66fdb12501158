"""The experiment "natural-patches": dictionaries of patches of a natural image."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evoem import em
from evoem.images import natural_patches
from evoem.models import BinarySparseCodingModel, Model, NoisyOrModel, SpikeSlabModel
from evoem.reproduction import figures, gabor
from evoem.reproduction.comparison import Entry
from evoem.reproduction.experiment import Contents, Context, Done, Experiment
from evoem.reproduction.recipes import Part, Recipe, Settings
from evoem.reproduction.search import evolution_of
from evoem.reproduction.workbook import Outcome
from evoem.runtime.threads import crew

MODELS: dict[str, type[Model]] = {
    "noisy-or": NoisyOrModel,
    "bsc": BinarySparseCodingModel,
    "sssc": SpikeSlabModel,
}
# A Gabor function fits a field if it explains this share of its variance.
FITS = 0.7


def prepared(image: NDArray[Any], settings: Settings, seed: int) -> NDArray[np.floating]:
    """Data for a model: binary for noisy-OR, else whitened."""
    told = settings["patches"]
    window = told.get("window")
    if window is not None:
        top, left = ((length - window) // 2 for length in image.shape[:2])
        image = image[max(top, 0) :, max(left, 0) :][:window, :window]
    size, number = told["size"], told["number"]
    if settings["model"] == "noisy-or":
        return natural_patches.binary_patches(image, size, number, clamp=told["clamp"], seed=seed)
    X, _ = natural_patches.whitened_patches(
        image,
        size,
        number,
        clamp=told["clamp"],
        least_structure=told["least_structure"],
        retained=told["retained"],
        seed=seed,
    )
    return X.astype(np.float32)


def run(part: Part, context: Context) -> Outcome:
    """Learn a dictionary, and fit a Gabor function to each of its fields."""
    settings, seed = part.row.settings, part.seed + part.repeat
    get = context.pictures.get if settings["real"] else context.pictures.get_or_substitute
    shown = get("van-hateren")
    data = em.Data(prepared(shown.pixels, settings, seed))
    searched, options = settings["search"], dict(settings["options"])
    if settings["model"] == "noisy-or":  # π ≥ 1/H
        options["min_activation_prob"] = 1 / searched["n_latents"]
    model = MODELS[settings["model"]](**options)
    state = em.init(
        model,
        data,
        n_latents=searched["n_latents"],
        n_states=searched["n_states"],
        seed=seed,
        n_jobs=context.n_jobs,
    )

    def note(info: em.StepInfo) -> None:
        if info.iteration.bit_count() == 1 or info.iteration % 100 == 0:
            context.tell(f"    iteration {info.iteration}, bound {info.free_energy:.3f}")

    with crew(context.n_jobs):
        state, infos = em.run(
            model,
            data,
            state,
            evolution_of(searched),
            max_iter=searched["max_iter"],
            callback=note,
            n_jobs=context.n_jobs,
            checkpoint=context.workbook.checkpoint(part),
            every=context.every,
            resume=True,
        )
    side = settings["patches"]["size"]
    order = np.argsort(-state.params.activation_probs, kind="stable")
    fields = state.params.components[order].reshape(-1, side, side)
    explained = np.array([gabor.fit(field).explained for field in fields])
    values = {
        "fits": float((explained >= FITS).mean()),
        "median": float(np.median(explained)),
        "bound": infos[-1].free_energy,
        "active": float(state.params.activation_probs.sum()),
        "picture": shown.says,
    }
    arrays = {
        "fields": fields,
        "activation_probs": state.params.activation_probs[order],
        "explained": explained,
        "bounds": np.array([info.free_energy for info in infos]),
    }
    return Outcome(values, arrays)


def report(recipe: Recipe, done: Sequence[Done]) -> Contents:
    """Dictionaries in the order of activation, and shares of Gabor functions."""
    entries, drawn, notes = list[Entry](), dict[str, Any](), list[str]()
    full = recipe.size == "full"
    for row in recipe.rows:
        runs = [one for one in done if one.part.row == row]
        for what, unit, name in (
            ("fields that a Gabor function fits", "share", "fits"),
            ("median R² of Gabor functions", "", "median"),
            ("active latents", "expected", "active"),
            ("final bound", "nats per patch", "bound"),
        ):
            values = tuple(float(one.outcome.values[name]) for one in runs)
            entries.append(Entry(f"{row.name}: {what}", unit, None, values, 2, full))
        for one in runs:
            drawn |= figures_of(one)
            if one.outcome.values["picture"]:
                notes.append(one.outcome.values["picture"])
    notes += [
        f"A Gabor function fits a field if R² ≥ {FITS}, of the field about its mean.",
        "Fields are ordered by the activation of their latents, the most active first; each is "
        "shown in its own scale for BSC and SSSC, and from 0 to 1 for noisy-OR.",
        "The paper states no share: it says that most fields of BSC are Gabor functions, that "
        "those of SSSC are a variety of these with a few globular ones, and that many of noisy-OR "
        "are curved edges.",
    ]
    return Contents(entries, (), drawn, list(dict.fromkeys(notes)))


def figures_of(one: Done) -> figures.Figures:
    """The dictionary of a run, and its bound and fits."""
    name, arrays = one.part.name, one.outcome.arrays
    signed = one.part.row.settings["model"] != "noisy-or"
    title = f"{one.part.row.name}: {len(arrays['fields'])} fields in the order of activation"
    curves = figures.new(9.0, 2.8)
    left, right = curves.subplots(1, 2)
    left.plot(np.arange(1, len(arrays["bounds"]) + 1), arrays["bounds"], lw=1)
    left.set(xlabel="iteration", ylabel="bound per patch")
    right.hist(np.clip(arrays["explained"], 0, 1), bins=np.linspace(0, 1, 21))
    right.axvline(FITS, color="k", lw=0.8, ls="--")
    right.set(xlabel="R² of a Gabor function", ylabel="fields")
    return {
        f"dictionary-{name}": figures.dictionary(arrays["fields"], title, signed=signed),
        f"bound-and-gabor-{name}": curves,
    }


def needs(settings: Settings) -> list[str]:
    """The picture, unless another may stand for it."""
    return ["van-hateren"] if settings["real"] else []


EXPERIMENT = Experiment(run, report, needs)
