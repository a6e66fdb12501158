"""Restore an image from nothing but that image: arrays in, arrays out."""

import itertools
import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict, Unpack

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import ArrayLike, NDArray

from evoem import validation
from evoem.images import canonical_arrays as arrays
from evoem.images import patches
from evoem.images.canonical_arrays import Canonical
from evoem.images.heldout_selection import SELECTS, Score, Selection, select_plan
from evoem.images.learning import Plan, Run
from evoem.images.patch_model import Clock, Progress, n_fitting
from evoem.images.settings import (
    PRESETS,
    STARTS,
    SUBSPACE_PRESETS,
    model_for,
    n_latents_for,
    n_learnt_in,
    settings_for,
    stride_for,
)
from evoem.runtime import interrupts

MODELS = ("subspaces", "es3c", "ebsc")
MERGES = ("mean", "centre", "variance")
N_SEEDS = 2**32
# Share of a patch that may lie beyond an edge of the image, what is there being missing: pixels at
# edges are then seen by about as many patches as others.
BEYOND_EDGES = 0.5


class Options(TypedDict, total=False):
    """What `restore`, `denoise` and `inpaint` have in common, see `restore`."""

    channel_axis: int | None
    alpha: bool
    model: str | None
    preset: str
    patch_size: int | Sequence[int] | None
    n_latents: int | Sequence[int] | None
    rank: int | None
    n_states: int | None
    n_parents: int | None
    n_children: int | None
    n_generations: int | None
    n_parts: int | None
    parents: str | None
    mutation: str | None
    start: str | None
    max_iter: int | None
    tol: float
    time_limit: float | None
    stride: int | None
    merge: str | None
    memory: int | None
    select: str | None
    restarts: int
    seed: int
    n_jobs: int | None
    callback: Callable[[Progress], Any] | None


@dataclass(frozen=True)
class Restoration:
    """A restored image and all that was learnt on the way."""

    image: NDArray[Any]  # of the layout and type of the one given
    std: NDArray[np.float64]  # posterior standard deviation of each value, in the image's units
    noise_level: float  # learnt standard deviation of the noise
    free_energies: NDArray[np.float64]  # the bound per patch, one per iteration
    estimator: Any  # fitted on patches of (image - offset) / scale; None for a constant image
    offset: float
    scale: float
    settings: dict[str, Any]  # what was used
    seconds: float
    ended: str  # "converged", "max_iter", "time_limit", "callback" or "interrupted"
    notes: tuple[str, ...]  # what the reader of the result should know
    selection: tuple[Score, ...] = ()  # what was chosen from, with `select`


def restore(
    image: ArrayLike,
    *,
    mask: ArrayLike | None = None,
    keep_observed: bool = False,
    channel_axis: int | None = None,
    alpha: bool = True,
    model: str | None = None,
    preset: str = "balanced",
    patch_size: int | Sequence[int] | None = None,
    n_latents: int | Sequence[int] | None = None,
    rank: int | None = None,
    n_states: int | None = None,
    n_parents: int | None = None,
    n_children: int | None = None,
    n_generations: int | None = None,
    n_parts: int | None = None,
    parents: str | None = None,
    mutation: str | None = None,
    start: str | None = None,
    max_iter: int | None = None,
    tol: float = 0.0,
    time_limit: float | None = None,
    stride: int | None = None,
    merge: str | None = None,
    memory: int | None = None,
    select: str | None = None,
    restarts: int = 1,
    seed: int = 0,
    n_jobs: int | None = -1,
    callback: Callable[[Progress], Any] | None = None,
) -> Restoration:
    """Denoise an image, fill in what is missing of it, or both, by a model of its patches.

    Nothing but the image is used: no clean data, no noise level.

    Parameters
    ----------
    image : array of shape (rows, columns), or 3-D with a `channel_axis`
        Integers of any size, booleans or floats. NaN is missing.
    mask : boolean or integer array, optional
        True or non-zero where a pixel, or a value of a channel, is missing.
    keep_observed : bool
        Return observed values as they are.
    channel_axis : int, optional
        Where the channels are. They are restored together.
    alpha : bool
        The last of four channels is kept as it is and not learnt from.
    model : {"subspaces", "es3c", "ebsc"}, optional
        Spike-and-slab sparse coding with several patterns a latent, with one, as in the paper, or
        binary sparse coding. By default "es3c" for the preset "paper", else "subspaces".
    preset : {"fast", "balanced", "best", "paper"}
        Settings for all of what follows up to `max_iter`; each can be given on its own.
    patch_size, n_latents : int
        Width of the square patches, and size of the dictionary. Those of a preset shrink for small
        images.
    rank : int
        The most directions a latent of "subspaces" may have.
    n_states, n_parents, n_children, n_generations, parents, mutation : int, str
        The evolutionary search, see `evoem.SpikeSlabCoding`.
    start : {"sketch", "mean"}
        What learning starts from: patches of a sketch of the image, which a small model makes in
        seconds, or the mean of the data with noise, as in the paper; for "subspaces" clusters of
        the damaged patches.
    n_parts : int
        Mini-batches per iteration.
    max_iter : int
        Largest number of iterations.
    tol : float
        Stop when the bound rises by less than this per iteration, in nats per patch. 0 does not.
    time_limit : float, optional
        Seconds after which the result must be there, as far as can be foreseen.
    stride : int, optional
        Steps between patches; by default 1, or up to a third of a patch for images of millions of
        pixels.
    merge : {"mean", "centre", "variance"}, optional
        How overlapping patches are averaged: all alike, by distance to the patch's centre, or by
        the inverse of their posterior variance; the last by default, or "centre" where something is
        missing.
    memory : int, optional
        Bytes that may be taken, up to some hundred millions of the program's own; by default half
        of what the machine has. If patches and their states do not fit, or are very many, the
        model learns from a random choice of patches, and the image is restored block by block.
    select : {"heldout"}, optional
        Choose the number of iterations, up to `max_iter`, by how well a random fiftieth of the
        observed values is predicted from the others, and learn again from all of them. `patch_size`
        and `n_latents` may then be sequences, of which the best combination is chosen.
    restarts : int
        With `select`, as many seeds to choose from: `seed` and those that follow.
    seed : int
        Everything random follows from it.
    n_jobs : int or None
        Threads; -1 for all processors. The result does not depend on it.
    callback : callable, optional
        Called with a `Progress` after each iteration; returning True ends the run. An interrupt
        (Ctrl-C) does so too: what was learnt up to then is used.
    """
    started = time.perf_counter()
    validation.boolean("keep_observed", keep_observed)
    validation.boolean("alpha", alpha)
    validation.choice("preset", preset, PRESETS)
    for name, value, known in (
        ("model", model, MODELS),
        ("merge", merge, MERGES),
        ("start", start, STARTS),
        ("select", select, SELECTS),
    ):
        if value is not None:
            validation.choice(name, value, known)
    validation.integer("seed", seed, 0, N_SEEDS - 1)
    validation.restarts(restarts, select)
    validation.jobs(n_jobs)
    validation.callback(callback)
    candidates = {
        name: validation.candidates(name, value, select)
        for name, value in (("patch_size", patch_size), ("n_latents", n_latents))
        if value is not None
    }
    counts = {
        "rank": rank,
        "n_states": n_states,
        "n_parents": n_parents,
        "n_children": n_children,
        "n_generations": n_generations,
        "n_parts": n_parts,
        "max_iter": max_iter,
    }
    for name, count in (counts | {"stride": stride, "memory": memory}).items():
        if count is not None:
            validation.integer(name, count, 1)
    validation.real("tol", tol, 0.0)
    if time_limit is not None:
        validation.real("time_limit", time_limit, 0.0)
    canonical = arrays.read(image, mask, channel_axis, alpha)
    model = model_for(preset, model)
    if model == "subspaces" and preset == "paper":
        raise ValueError('preset must not be "paper" with model="subspaces"; got "paper".')
    if model != "subspaces" and rank is not None:
        raise ValueError(f'rank must not be given with model="{model}"; got {rank}.')
    given = counts | {"parents": parents, "mutation": mutation, "start": start}
    explicit = {name: value for name, value in given.items() if value is not None}
    if merge is None:
        merge = "variance" if canonical.observed is None else "centre"
    thread_seconds = None
    if time_limit is not None:
        n_runs = 1  # that share the time
        if select is not None:
            n_runs += restarts * math.prod(len(values) for values in candidates.values())
        thread_seconds = time_limit * effective_n_jobs(n_jobs) / n_runs
    plans = plans_for(
        canonical,
        explicit,
        candidates,
        stride,
        preset=preset,
        model=model,
        merge=merge,
        tol=tol,
        keep_observed=keep_observed,
        n_jobs=effective_n_jobs(n_jobs),
        memory=machine_memory() // 2 if memory is None else memory,
        thread_seconds=thread_seconds,
        seeds=[(seed + number) % N_SEEDS for number in range(restarts)],
    )
    clock = Clock(started, time_limit)
    if arrays.is_constant(canonical):
        return constant(canonical, plans[0], clock, select)
    with interrupts.noted():
        return carried_out(canonical, plans, clock, select, callback)


def carried_out(
    canonical: Canonical,
    plans: list[Plan],
    clock: Clock,
    select: str | None,
    callback: Callable[[Progress], Any] | None,
) -> Restoration:
    """The image restored by the best of the plans."""
    chosen = Selection(plans[0], ())
    if select is not None:
        chosen = select_plan(canonical, plans, clock, callback)
    run, ended = chosen.run, chosen.ended
    if run is None:
        run = Run(canonical, chosen.plan)
        ended = run.learn(clock, callback)
    mean, std, near = run.complete(run.learner)
    return Restoration(
        run.image(mean),
        run.std(std),
        run.canonical.scale * run.learner.noise_level,
        np.array([info.free_energy for info in run.learner.infos]),
        run.learner.estimator(),
        run.canonical.offset,
        run.canonical.scale,
        used(chosen.plan, clock, select),
        clock.seconds,
        ended,
        (*chosen.notes(), *run.notes(near)),
        chosen.scores,
    )


def plans_for(
    canonical: Canonical,
    explicit: dict[str, Any],
    candidates: dict[str, tuple[int, ...]],
    stride: int | None,
    *,
    preset: str,
    model: str,
    seeds: Sequence[int],
    memory: int,
    thread_seconds: float | None,
    **others: Any,
) -> list[Plan]:
    """A plan for every combination of settings and seeds."""
    shape = canonical.values.shape
    plans = []
    for values in itertools.product(*candidates.values()):
        given = explicit | dict(zip(candidates, values, strict=True))
        settings = settings_for(preset, model, given, canonical.values, canonical.observed)
        step = stride_for(shape, settings.patch_size) if stride is None else stride
        beyond = BEYOND_EDGES if model == "subspaces" else 0.0
        places = patches.grid(shape, settings.patch_size, step, beyond)
        n_learnt = settings.n_learnt
        if thread_seconds is not None and preset != "paper":
            n_learnt = n_learnt_in(thread_seconds, settings, given, canonical.observed)
        if settings.rank and "n_latents" not in given:  # few, if there is little memory or time
            room = n_fitting(canonical, places, settings, memory)
            fewer = n_latents_for(SUBSPACE_PRESETS[preset], min(room, n_learnt))
            if fewer < settings.n_latents:
                given = {**given, "n_latents": fewer}
                settings = settings_for(preset, model, given, canonical.values, canonical.observed)
        settings = settings._replace(n_learnt=n_learnt)
        plans += [
            Plan(
                preset=preset,
                model=model,
                settings=settings,
                stride=step,
                places=places,
                seed=seed,
                memory=memory,
                **others,
            )
            for seed in seeds
        ]
    return plans


def constant(canonical: Canonical, plan: Plan, clock: Clock, select: str | None) -> Restoration:
    """What comes of an image of one value."""
    zeros = np.zeros(canonical.values.shape)
    return Restoration(
        arrays.write(canonical, zeros, plan.keep_observed),
        arrays.layout(canonical, zeros),
        0.0,
        np.empty(0),
        None,
        canonical.offset,
        canonical.scale,
        used(plan, clock, select),
        clock.seconds,
        "converged",
        ("The image is constant: there was nothing to learn.",),
    )


def used(plan: Plan, clock: Clock, select: str | None) -> dict[str, Any]:
    """Settings by their names in `restore`."""
    settings = plan.settings._asdict()
    del settings["n_learnt"]  # said in notes if it matters
    if plan.model != "subspaces":
        del settings["rank"]
    return {
        "model": plan.model,
        "preset": plan.preset,
        **settings,
        "tol": plan.tol,
        "time_limit": clock.limit,
        "stride": plan.stride,
        "merge": plan.merge,
        "select": select,
        "seed": plan.seed,
    }


def machine_memory() -> int:
    """Bytes of memory this machine has, or a modest guess."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not on this platform
        return 8 << 30


def denoise(image: ArrayLike, **options: Unpack[Options]) -> NDArray[Any]:
    """The image without its noise.

    Parameters
    ----------
    image : array
        As for `restore`, or a stack of such images along the first axis, each restored on its own.
    **options
        Those of `restore`.
    """
    for name in ("mask", "keep_observed"):
        if name in options:
            raise TypeError(f"denoise has no {name}: use inpaint or restore.")
    return _each_slice(image, None, False, options)


def inpaint(
    image: ArrayLike,
    mask: ArrayLike | None = None,
    *,
    keep_observed: bool = True,
    **options: Unpack[Options],
) -> NDArray[Any]:
    """The image with its missing values filled in.

    Parameters
    ----------
    image : array
        As for `denoise`. NaN is missing.
    mask : boolean or integer array, optional
        True or non-zero where a pixel is missing, or a value of a channel; of a stack, in every
        slice or in each.
    keep_observed : bool
        Observed values come back unchanged; False denoises them as well.
    **options
        Those of `restore`.
    """
    return _each_slice(image, mask, keep_observed, options)


def _each_slice(
    image: ArrayLike, mask: ArrayLike | None, keep_observed: bool, options: Options
) -> NDArray[Any]:
    pixels = image if isinstance(image, np.ma.MaskedArray) else np.asarray(image)
    axis = options.get("channel_axis")
    if pixels.ndim != (3 if axis is None else 4):
        return restore(pixels, mask=mask, keep_observed=keep_observed, **options).image
    if axis is None and pixels.shape[-1] in (3, 4):
        raise ValueError(
            f"channel_axis must be given for what looks like colour; got None for an image of the "
            f"shape {pixels.shape}."
        )
    if len(pixels) == 0:
        raise ValueError(f"image must have slices; got the shape {pixels.shape}.")
    if axis is not None:
        validation.integer("channel_axis", axis, -3, 3)
        if axis == 0:
            raise ValueError("channel_axis of a stack must not be its first axis; got 0.")
        options = {**options, "channel_axis": axis - 1 if axis > 0 else axis}
    masks = [None] * len(pixels) if mask is None else slice_masks(np.asarray(mask), pixels, axis)
    shares, restored = Shares(options.get("time_limit"), len(pixels)), []
    with interrupts.noted() as noted:
        for one, missing in zip(pixels, masks, strict=True):
            options = {**options, "time_limit": shares.next()}
            result = restore(one, mask=missing, keep_observed=keep_observed, **options)
            restored.append(result.image)
            if result.ended == "interrupted" or noted.number:  # the others at once, then
                shares = Shares(0.0, len(pixels))
                options = {**options, "max_iter": 1}
    return np.stack(restored)


class Shares:
    """Equal shares of a time limit, if there is one: each of what is left."""

    def __init__(self, limit: float | None, number: int) -> None:
        if limit is not None:
            validation.real("time_limit", limit, 0.0)
        self._started = time.perf_counter()
        self._limit = limit
        self._number = number

    def next(self) -> float | None:
        """Seconds for the next one."""
        if self._limit is None:
            return None
        left = max(self._limit - (time.perf_counter() - self._started), 0.0)
        self._number -= 1
        return left / (self._number + 1)


def slice_masks(
    mask: NDArray[Any], stack: NDArray[Any], channel_axis: int | None
) -> list[NDArray[Any]]:
    """The mask of each slice of a stack: one for all, or each its own."""
    per_pixel = stack.shape if channel_axis is None else tuple(np.delete(stack.shape, channel_axis))
    return list(mask) if mask.shape in (stack.shape, per_pixel) else [mask] * len(stack)
