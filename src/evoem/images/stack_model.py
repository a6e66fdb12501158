"""Learn one model from all slices of a stack.

Slices of the same shape are stacked into one image, one below the other: whole or, if there are
many, in bands of rows. Patches are cut within slices, whose positions the spatial prior sees. The
learnt model then restores each slice. Several processes have all slices, find the same noise, and
then share the rows of each slice and of the stacked image.
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
from evoem.images.learning import Callback, Fit, Progress, learn
from evoem.images.noise_stage import Prepared
from evoem.images.patch_model import PatchModel, PatchSource, States
from evoem.images.patches import Grid
from evoem.images.plan import Plan, check, noise_of, plans_for
from evoem.images.reconstruction import whole_image
from evoem.images.settings import stride_for
from evoem.runtime import interrupts, stages
from evoem.runtime.communicator import ALONE

# Values of the stacked image: many more than there are patches to learn from.
MOST_VALUES = 1 << 21
# Rows of a band, at least; there are several patches above each other in it.
LEAST_ROWS = 48


class SliceRows(NamedTuple):
    """Some rows of a slice."""

    number: int  # of the slice
    top: int
    rows: int


class KeptPatches(NamedTuple):
    """Patches of bands that were learnt from, of all processes, with their states."""

    numbers: NDArray[np.int64]
    states: States

    def of_band(self, place: int, bands: Grid, own: Grid, n_bands: int) -> "KeptPatches":
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
        return KeptPatches(numbers, self.states[here[known]])


class StackFit(NamedTuple):
    """A model of all slices, and the slices that it restores."""

    fit: Fit
    chosen: Selection
    grid: Grid  # of a slice
    slices: list[Prepared]
    bands: list[SliceRows]
    kept: KeptPatches

    def fit_of(self, number: int, *, quickly: bool) -> Fit:
        """The model for one slice; `quickly` without nonlocal passes and with the least search."""
        finish = self.fit.finish
        if quickly:
            finish = finish.quickest_search._replace(nonlocal_passes=0)
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

    def images(self) -> NDArray[Any]:
        """All slices, as they would be returned now."""
        plan, images = self.chosen.plan, []
        for number, one in enumerate(self.slices):
            fit = self.fit_of(number, quickly=False)
            mean = whole_image(fit.model, fit.finish, plan.merge, plan.keep_observed).mean
            images.append(canonical_arrays.write(one.canonical, mean, plan.keep_observed))
        return np.stack(images)

    def _kept_of(self, number: int) -> KeptPatches:
        grid = self.fit.model.source.grid
        place = next((k for k, band in enumerate(self.bands) if band.number == number), None)
        if place is None or grid.own_tops is None:
            return KeptPatches(self.kept.numbers[:0], self.kept.states[:0])
        return self.kept.of_band(place, grid, self.grid, len(self.bands))


def bands(n_slices: int, shape: tuple[int, ...]) -> list[SliceRows]:
    """Which rows of which slices are stacked: all, or bands spread over the slices."""
    rows, per_row = shape[0], shape[1] * shape[2]
    room = MOST_VALUES // per_row  # rows in all
    height = min(rows, max(room // n_slices, LEAST_ROWS))
    number = min(n_slices, max(room // height, 1))
    which = np.linspace(0, n_slices - 1, number).round().astype(int)
    # Neighbouring slices show other rows, the first and the last ones among them.
    tops = np.linspace(0, rows - height, number).round().astype(int)
    order = np.argsort(np.arange(number) * 0.6180339887 % 1.0)
    return [
        SliceRows(int(k), int(tops[place]), height) for k, place in zip(which, order, strict=True)
    ]


def band_grid(chosen: Sequence[SliceRows], shape: tuple[int, ...], plan: Plan) -> Grid:
    """Patches of bands, none of which reaches into another band."""
    width, channels = shape[1:]
    own = patches.regular_grid(
        (chosen[0].rows, width, channels), plan.settings["patch_size"], plan.stride
    )
    tops = [place * band.rows + own.tops for place, band in enumerate(chosen)]
    own_tops = [band.top + own.tops for band in chosen]
    whole = (len(chosen) * chosen[0].rows, width, channels)
    return own._replace(shape=whole, tops=np.concatenate(tops), own_tops=np.concatenate(own_tops))


def of_bands(slices: Sequence[Canonical], chosen: Sequence[SliceRows]) -> Canonical:
    """The stacked image."""
    parts = []
    for band in chosen:
        where = np.s_[band.top : band.top + band.rows, :]
        parts.append(canonical_arrays.window(slices[band.number], where))
    return canonical_arrays.stacked(parts)


def prepared(
    slices: Sequence[Canonical], chosen: Sequence[SliceRows], options: dict[str, Any], keep: bool
) -> list[Prepared]:
    """Slices whose noise the model can deal with; the noise is estimated from all of them."""
    wanted, common = noise_of(options), None
    variances_given = any(one.noise_variance is not None for one in slices)
    if not variances_given and not noise_stage.is_left_alone(slices[0], wanted, keep):
        common = noise_stage.find(of_bands(slices, chosen), wanted)
    return [noise_stage.prepare(one, wanted, keep, common) for one in slices]


def learn_stack(
    slices: Sequence[Canonical],
    keep_observed: bool,
    options: dict[str, Any],
    clock: Clock,
    journal: Journal,
) -> StackFit:
    """Learn from slices of the same shape, none of which is constant."""
    stages.begin("noise")
    shape = slices[0].values.shape
    chosen_bands = bands(len(slices), shape)
    parts = prepared(canonical_arrays.on_common_scale(slices), chosen_bands, options, keep_observed)
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
        told = as_given(options["callback"], parts)
        chosen = select_plan(held_out, plans, clock, told, journal)
    grid = grid_of(chosen.plan, shape)
    measure = partial(budget.forecast_of_slices, parts[0].canonical, grid, len(slices))

    def of_all(fit: Fit) -> StackFit:
        own = grid
        if fit.coarse:  # its patches are others
            patch_size = max(fit.model.source.grid.patch)
            stride = stride_for((shape[0], shape[1], shape[2]), patch_size)
            own = patches.regular_grid((shape[0], shape[1], shape[2]), patch_size, stride)
        return StackFit(fit, chosen, own, parts, chosen_bands, kept_by(fit.model))

    fit = chosen.fit or learn(
        whole,
        chosen.plan,
        clock,
        options["callback"],
        journal,
        measure=measure,
        images_of=lambda fit: of_all(fit).images(),
    )
    if fit.ended == "interrupted" and not fit.model.infos:
        interrupts.give_up()
    return of_all(fit)


def as_given(callback: Callback | None, parts: Sequence[Prepared]) -> Callback | None:
    """A callback that sees slices as they are while none of them is restored."""
    if callback is None:
        return None

    def told(progress: Progress) -> Any:
        given = [one.canonical.image for one in parts]
        return callback(progress._replace(restored=lambda: np.stack(given)))

    return told


def kept_by(model: PatchModel) -> KeptPatches:
    """The patches of all processes with their states."""
    collected = model.search.comm.collect((model.patches.numbers, model.state.states))
    numbers, states = zip(*collected, strict=True)
    return KeptPatches(np.concatenate(numbers), np.concatenate(states))


def stride_of(plan: Plan, shape: tuple[int, ...]) -> int:
    """The stride for a slice restored on its own."""
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
