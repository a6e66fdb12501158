"""Plans for learning and restoring an image: options and presets, fitted to it."""

import itertools
import math
from typing import Any, NamedTuple

from evoem import validation
from evoem.evolution import Evolution, evolution_for
from evoem.images import budget, nonlocal_bayes, patches
from evoem.images.budget import Finish
from evoem.images.canonical_arrays import Canonical
from evoem.images.image_models import IMAGE_MODELS, ImageModel, default_model, settings_of
from evoem.images.noise_model import Noise
from evoem.images.options import LARGEST_SEED, OPTIONS
from evoem.images.patches import Grid
from evoem.images.settings import Settings, n_latents_for, stride_for
from evoem.runtime.communicator import ALONE, Communicator
from evoem.runtime.cores import threads_of
from evoem.runtime.memory import available_memory


class Plan(NamedTuple):
    """How an image is learnt and restored, see `restore`."""

    preset: str
    model: str
    settings: Settings
    stride: int
    grid: Grid
    tol: float
    seed: int
    keep_observed: bool
    n_jobs: int
    comm: Communicator
    memory: int  # of all processes together
    select: str | None
    time_limit: float | None

    @property
    def merge(self) -> str:
        """How overlapping patches are averaged."""
        return str(self.settings["merge"])

    @property
    def best_finish(self) -> Finish:
        """How the image is finished if there is time."""
        return best_finish(self.model, self.grid, self.settings["nonlocal_passes"])

    @property
    def used(self) -> dict[str, Any]:
        """Options by their names in `restore`, with the values that were used."""
        values = self._asdict() | self.settings
        machine = ("memory", "n_jobs", "comm")  # changes nothing in the result, or is said in notes
        return {name: values[name] for name in OPTIONS if name in values.keys() - machine}


def best_finish(model: str, grid: Grid, nonlocal_passes: int) -> Finish:
    """The best way to finish an image, if there is time."""
    passes = nonlocal_passes if nonlocal_bayes.possible(grid) else 0
    return Finish(IMAGE_MODELS[model].search_steps, passes)


def evolution_of(settings: Settings) -> Evolution:
    """The evolutionary search of some settings, checked."""
    return evolution_for(
        n_latents=settings["n_latents"],
        n_states=validation.n_states(settings["n_states"], settings["n_latents"]),
        n_parents=settings["n_parents"],
        n_children=settings["n_children"],
        n_generations=settings["n_generations"],
        parents=settings["parents"],
        mutation=settings["mutation"],
        crossover=settings["crossover"],
        known_children=settings["known_children"],
    )


def check(canonical: Canonical, plan: Plan) -> None:
    """Refuse a plan that cannot be carried out."""
    evolution_of(plan.settings)
    budget.enough_in_memory(canonical, plan.grid, plan.settings, plan.memory)
    budget.check_available(canonical, plan.grid, plan.settings, plan.memory, available_memory())


def noise_of(options: dict[str, Any]) -> str | Noise:
    """The noise to expect: by default white with the paper's preset."""
    given: str | Noise | None = options["noise"]
    if given is not None:
        return given
    white = options["preset"] == "paper" and options["noise_variance"] is None
    return "gaussian" if white else "auto"


def plans_for(canonical: Canonical, options: dict[str, Any], keep_observed: bool) -> list[Plan]:
    """A plan for every combination of patch sizes, dictionary sizes and seeds to choose from."""
    preset = options["preset"]
    model = options["model"] or default_model(preset)
    kind = IMAGE_MODELS[model]
    given = {
        name: options[name]
        for name, option in OPTIONS.items()
        if option.setting.preset and options[name] is not None
    }
    if preset not in kind.presets:
        raise ValueError(f'preset must not be "{preset}" with model="{model}"; got "{preset}".')
    for name in given.keys() - kind.presets[preset].keys():
        raise ValueError(f'{name} must not be given with model="{model}"; got {given[name]!r}.')
    several = {name: given.pop(name) for name in given.copy() if OPTIONS[name].selectable}
    memory = options["memory"] or available_memory() // 2
    comm = options["comm"] or ALONE
    n_jobs = threads_of(options["n_jobs"], comm)
    n_runs = 1  # that share the time
    if options["select"] is not None:
        n_runs += options["restarts"] * math.prod(len(values) for values in several.values())
    limit = options["time_limit"]
    thread_seconds = None if limit is None else limit * n_jobs * comm.size / n_runs
    plans = []
    for values in itertools.product(*several.values()):
        chosen = given | dict(zip(several, values, strict=True))
        stride, grid, settings = _fitted(
            canonical, kind, preset, chosen, options["stride"], memory, thread_seconds
        )
        plans += [
            Plan(
                preset=preset,
                model=model,
                settings=settings,
                stride=stride,
                grid=grid,
                tol=options["tol"],
                seed=(options["seed"] + number) % (LARGEST_SEED + 1),
                keep_observed=keep_observed,
                n_jobs=n_jobs,
                comm=comm,
                memory=memory,
                select=options["select"],
                time_limit=limit,
            )
            for number in range(options["restarts"])
        ]
    return plans


def _fitted(
    canonical: Canonical,
    kind: ImageModel,
    preset: str,
    given: Settings,
    stride: int | None,
    memory: int,
    thread_seconds: float | None,
) -> tuple[int, Grid, Settings]:
    """Stride, grid and settings for an image: few latents if there is little memory or time."""
    settings = settings_of(kind, preset, given, canonical)
    shape, patch_size = canonical.shape, settings["patch_size"]
    if stride is None:
        stride = 1 if preset == "paper" else stride_for(shape, patch_size)
    grid = patches.regular_grid(shape, patch_size, stride, kind.margin)
    n_learnt = settings["n_learnt"]
    if thread_seconds is not None and preset != "paper":
        n_learnt = budget.patches_in_time(thread_seconds, settings, given, canonical)
    if "rank" in settings and "n_latents" not in given:
        room = budget.patches_in_memory(canonical, grid, settings, memory)
        fewer = n_latents_for(kind.presets[preset], min(room, n_learnt))
        if fewer < settings["n_latents"]:
            settings = settings_of(kind, preset, given | {"n_latents": fewer}, canonical)
    return stride, grid, settings | {"n_learnt": n_learnt}
