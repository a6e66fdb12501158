"""Learn one model from all slices of a stack.

Slices of one shape are put together into one image, whole or in bands of rows if there are many,
one below the other: patches are cut within slices alone, and lie there for the spatial prior.
What is learnt then restores each slice. Several processes have all slices, tell their noise alike,
and then share the rows of each, and of the image that is put together.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evoem.images import budget, canonical_arrays, noise_stage, patches
from evoem.images.budget import Clock
from evoem.images.canonical_arrays import Canonical
from evoem.images.heldout_selection import Selection, hold_out, select_plan
from evoem.images.image_models import IMAGE_MODELS
from evoem.images.journal import Journal
from evoem.images.learning import Fit, learn
from evoem.images.noise_stage import Prepared
from evoem.images.patch_model import PatchModel, PatchSource, States
from evoem.images.patches import Grid
from evoem.images.plan import Plan, check, noise_of, plans_for
from evoem.images.settings import stride_for
from evoem.runtime import interrupts, stages
from evoem.runtime.communicator import ALONE

# Values of the image that is put together: many more than there are patches to learn from.
MOST_VALUES = 1 << 21
# Rows of a band, at least; there are several patches above each other in it.
LEAST_ROWS = 48


class Band(NamedTuple):
    """Some rows of a slice."""

    number: int  # of the slice
    top: int
    rows: int


class Kept(NamedTuple):
    """Patches of bands that were learnt from, of all processes, with their states."""

    numbers: NDArray[np.int64]
    states: States

    def of_band(self, place: int, bands: Grid, own: Grid, n_bands: int) -> "Kept":
        """Those of one band, by their numbers in the grid of its slice."""
        n_each = len(bands.tops) // n_bands * len(bands.lefts)
        here = np.flatnonzero(self.numbers // n_each == place)
        tops, lefts = bands.places(self.numbers[here])
        framed = tops + own.margin, lefts + own.margin
        rows, columns = (
            np.minimum(np.searchsorted(starts, found), len(starts) - 1)
            for starts, found in zip((own.tops, own.lefts), framed, strict=True)
        )
        # The last patches of a side may be nearer to those before than a stride.
        known = (own.tops[rows] == framed[0]) & (own.lefts[columns] == framed[1])
        numbers = rows[known] * len(own.lefts) + columns[known]
        return Kept(numbers, self.states[here[known]])


class Together(NamedTuple):
    """A model of all slices, and what it is to restore."""

    fit: Fit
    chosen: Selection
    grid: Grid  # of a slice
    slices: list[Prepared]
    bands: list[Band]
    kept: Kept

    def fit_of(self, number: int, *, hurried: bool) -> Fit:
        """What was learnt, for one slice; without nonlocal passes if it is to be over soon."""
        finish = self.fit.finish
        if hurried:
            finish = finish.hurried._replace(nonlocal_passes=0)
        of_all = self.fit.model
        source = PatchSource(self.slices[number].canonical, self.grid, of_all.source.points)
        kept = self._kept_of(number)
        if len(kept.numbers):
            one = PatchModel(of_all.model, source, kept.numbers, of_all.search)
            one.adopt_states(of_all.learnt, kept.states)
        else:
            rng = np.random.default_rng(of_all.search.seed)
            few = rng.permutation(self.grid.n_patches)[: of_all.search.n_latents]
            one = PatchModel(of_all.model, source, few, of_all.search)
            one.adopt(of_all.learnt, finish.search_steps)
        one.n_there = len(self.slices) * self.grid.n_patches
        return self.fit._replace(model=one, finish=finish)

    def _kept_of(self, number: int) -> Kept:
        grid = self.fit.model.source.grid
        place = next((k for k, band in enumerate(self.bands) if band.number == number), None)
        if place is None or grid.own_tops is None:
            return Kept(self.kept.numbers[:0], self.kept.states[:0])
        return self.kept.of_band(place, grid, self.grid, len(self.bands))


def bands(n_slices: int, shape: tuple[int, ...]) -> list[Band]:
    """Which rows of which slices are put together: all, or bands that lie all over them."""
    rows, per_row = shape[0], shape[1] * shape[2]
    room = MOST_VALUES // per_row  # rows in all
    height = min(rows, max(room // n_slices, LEAST_ROWS))
    number = min(n_slices, max(room // height, 1))
    which = np.linspace(0, n_slices - 1, number).round().astype(int)
    # Neighbouring slices show other rows, the first and the last ones among them.
    tops = np.linspace(0, rows - height, number).round().astype(int)
    order = np.argsort(np.arange(number) * 0.6180339887 % 1.0)
    return [Band(int(k), int(tops[place]), height) for k, place in zip(which, order, strict=True)]


def band_grid(chosen: Sequence[Band], shape: tuple[int, ...], plan: Plan) -> Grid:
    """Patches of bands, none of them of two."""
    width, channels = shape[1:]
    own = patches.regular_grid(
        (chosen[0].rows, width, channels), plan.settings["patch_size"], plan.stride
    )
    tops = [place * band.rows + own.tops for place, band in enumerate(chosen)]
    own_tops = [band.top + own.tops for band in chosen]
    whole = (len(chosen) * chosen[0].rows, width, channels)
    return own._replace(shape=whole, tops=np.concatenate(tops), own_tops=np.concatenate(own_tops))


def of_bands(slices: Sequence[Canonical], chosen: Sequence[Band]) -> Canonical:
    """The image that is put together."""
    parts = []
    for band in chosen:
        where = np.s_[band.top : band.top + band.rows, :]
        parts.append(canonical_arrays.window(slices[band.number], where))
    return canonical_arrays.put_together(parts)


def prepared(
    slices: Sequence[Canonical], chosen: Sequence[Band], options: dict[str, Any], keep: bool
) -> list[Prepared]:
    """Slices whose noise suits the model: it is told from all of them together."""
    wanted, common = noise_of(options), None
    variances_given = any(one.noise_variance is not None for one in slices)
    if not variances_given and not noise_stage.is_left_alone(slices[0], wanted, keep):
        common = noise_stage.find(of_bands(slices, chosen), wanted)
    return [noise_stage.prepare(one, wanted, keep, common) for one in slices]


def learn_together(
    slices: Sequence[Canonical],
    keep_observed: bool,
    options: dict[str, Any],
    clock: Clock,
    journal: Journal,
) -> Together:
    """Learn from slices of one shape, of which none is constant."""
    stages.begin("noise")
    shape = slices[0].values.shape
    chosen_bands = bands(len(slices), shape)
    parts = prepared(canonical_arrays.alike(slices), chosen_bands, options, keep_observed)
    whole = of_bands([one.canonical for one in parts], chosen_bands)
    plans = [
        plan._replace(stride=options["stride"] or stride_of(plan, shape))
        for plan in plans_for(whole, options, keep_observed)
    ]
    plans = [plan._replace(grid=band_grid(chosen_bands, shape, plan)) for plan in plans]
    if plans[0].settings["start"] == "coarse":
        mean = canonical_arrays.mean_of(whole)
        whole = canonical_arrays.moved(whole, mean)
        parts = [
            one._replace(canonical=canonical_arrays.moved(one.canonical, mean)) for one in parts
        ]
    for plan in plans:
        check(whole, plan)
    comm = options["comm"] or ALONE
    whole = canonical_arrays.rows_for(whole, comm)
    parts = [
        one._replace(canonical=canonical_arrays.rows_for(one.canonical, comm)) for one in parts
    ]
    chosen = Selection(plans[0], ())
    if options["select"] is not None:
        held_out = hold_out(whole, plans[0].seed)
        chosen = select_plan(held_out, plans, clock, options["callback"], journal)
    grid = grid_of(chosen.plan, shape)
    measure = partial(budget.forecast_of_slices, parts[0].canonical, grid, len(slices))
    fit = chosen.fit or learn(
        whole, chosen.plan, clock, options["callback"], journal, measure=measure
    )
    if fit.ended == "interrupted" and not fit.model.infos:
        interrupts.give_up()
    if fit.coarse:  # its patches are others
        patch_size = max(fit.model.source.grid.patch)
        stride = stride_for((shape[0], shape[1], shape[2]), patch_size)
        grid = patches.regular_grid((shape[0], shape[1], shape[2]), patch_size, stride)
    return Together(fit, chosen, grid, parts, chosen_bands, kept_by(fit.model))


def kept_by(model: PatchModel) -> Kept:
    """What all processes have."""
    collected = model.search.comm.collect((model.patches.numbers, model.state.states))
    numbers, states = zip(*collected, strict=True)
    return Kept(np.concatenate(numbers), np.concatenate(states))


def stride_of(plan: Plan, shape: tuple[int, ...]) -> int:
    """That of a slice restored on its own."""
    if plan.preset == "paper":
        return 1
    return stride_for((shape[0], shape[1], shape[2]), plan.settings["patch_size"])


def grid_of(plan: Plan, shape: tuple[int, ...]) -> Grid:
    """Patches of a slice, in a frame around it if the model has one."""
    margin = IMAGE_MODELS[plan.model].margin
    rows, columns, channels = shape
    return patches.regular_grid(
        (rows, columns, channels), plan.settings["patch_size"], plan.stride, margin
    )
