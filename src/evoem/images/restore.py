"""Restore an image from nothing but that image: arrays in, arrays out."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from types import NoneType
from typing import Any, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evoem import validation
from evoem.images import canonical_arrays, noise_stage, stacks
from evoem.images.budget import Clock
from evoem.images.canonical_arrays import Canonical
from evoem.images.heldout_selection import Score, Selection, select_plan
from evoem.images.image_models import IMAGE_MODELS, estimator_maker
from evoem.images.learning import Fit, learn
from evoem.images.merging import Merged
from evoem.images.noise_model import Noise
from evoem.images.noise_stage import Prepared
from evoem.images.options import Options, with_options
from evoem.images.plan import Plan, plans_for
from evoem.images.reconstruction import standard_deviations, whole_image
from evoem.images.settings import checked
from evoem.runtime import interrupts


@dataclass(frozen=True, kw_only=True, repr=False)
class Restoration:
    """A restored image and all that was learnt on the way.

    Attributes
    ----------
    image : ndarray
        The restored image, of the shape and type of the one given.
    std : ndarray of float64
        Posterior standard deviation of each value, in the image's units; of the image's shape, but
        without alpha.
    noise_level : float
        Learnt standard deviation of the noise, in the image's units.
    free_energies : ndarray of shape (n_iterations,)
        The bound per patch after each iteration.
    estimator : SubspaceCoding, SpikeSlabCoding or BinarySparseCoding
        What was learnt, fitted on patches of (image - offset) / scale; made when it is asked for.
        None for a constant image.
    offset, scale : float
        Of the values that were learnt from.
    settings : dict
        The options that were used, those of the preset included.
    seconds : float
        How long it took.
    ended : {"converged", "max_iter", "time_limit", "callback", "interrupted"}
        Why learning ended.
    notes : tuple of str
        What the reader of the result should know.
    selection : tuple of Score
        What was chosen from, with `select`.
    noise : Noise or None
        What was found, or given, about the noise; None if it was taken to be white. Other noise is
        made white and of unit variance before patches are cut: the estimator then knows these.

    Examples
    --------
    >>> import numpy as np
    >>> import evoem
    >>> clean = 100.0 + 50 * (np.add.outer(np.arange(32), np.arange(32)) > 30)
    >>> noisy = clean + np.random.default_rng(0).normal(0, 10, clean.shape)
    >>> result = evoem.restore(noisy, preset="fast")
    >>> result.ended, len(result.free_energies), result.std.shape
    ('max_iter', 2, (32, 32))
    >>> bool(8 < result.noise_level < 12)
    True
    >>> result
    Restoration(32 x 32 float64, noise level ..., 2 iterations, max_iter, ... s)
    """

    image: NDArray[Any]
    std: NDArray[np.float64]
    noise_level: float
    free_energies: NDArray[np.float64]
    offset: float
    scale: float
    settings: dict[str, Any]
    seconds: float
    ended: str
    notes: tuple[str, ...]
    selection: tuple[Score, ...] = ()
    noise: Noise | None = None
    _make_estimator: Callable[[], Any] = NoneType

    @cached_property
    def estimator(self) -> Any:
        """What was learnt, as a fitted estimator; None for a constant image."""
        return self._make_estimator()

    def __repr__(self) -> str:
        size = " x ".join(map(str, self.image.shape))
        n_iterations = len(self.free_energies)
        return (
            f"Restoration({size} {self.image.dtype}, noise level {self.noise_level:.4g}, "
            f"{n_iterations} iteration{'' if n_iterations == 1 else 's'}, {self.ended}, "
            f"{self.seconds:.1f} s)"
        )


@with_options
def restore(
    image: ArrayLike,
    *,
    mask: ArrayLike | None = None,
    keep_observed: bool = False,
    **options: Unpack[Options],
) -> Restoration:
    """Denoise an image, fill in what is missing of it, or both, by a model of its patches.

    Nothing but the image is used: no clean data, no noise level.

    Parameters
    ----------
    image : array-like of shape (rows, columns), or 3-D with a `channel_axis`
        Integers of any size, booleans or floats. NaN is missing.
    mask : array-like of bool or int, optional
        True or non-zero where a pixel is missing, of shape (rows, columns), or a value of a
        channel, of the image's shape.
    keep_observed : bool, default=False
        Return observed values as they are.
    {options}

    Returns
    -------
    result : Restoration
        The image and all that was learnt on the way.

    Examples
    --------
    >>> import numpy as np
    >>> import evoem
    >>> clean = 100.0 + 50 * (np.add.outer(np.arange(32), np.arange(32)) > 30)
    >>> noisy = clean + np.random.default_rng(0).normal(0, 10, clean.shape)
    >>> noisy[3:5, 6:9] = np.nan
    >>> result = evoem.restore(noisy, preset="fast")
    >>> bool(np.abs(result.image - clean).mean() < 4)
    True
    """
    started = time.perf_counter()
    chosen = checked("restore", options)
    canonical = canonical_arrays.read(
        image, mask, chosen["channel_axis"], chosen["alpha"], chosen["noise_variance"]
    )
    return restore_canonical(canonical, keep_observed, chosen, started)


def restore_canonical(
    canonical: Canonical, keep_observed: bool, options: dict[str, Any], started: float
) -> Restoration:
    """Restore an image that has been read, by options that have been checked."""
    validation.boolean("keep_observed", keep_observed)
    plans = plans_for(canonical, options, keep_observed)
    clock = Clock(started, options["time_limit"])
    if canonical_arrays.is_constant(canonical):
        return constant(canonical, plans[0], clock)
    prepared = noise_stage.prepare(canonical, options["noise"], keep_observed)
    canonical = prepared.canonical
    plans = plans_for(canonical, options, keep_observed)
    with interrupts.noted():
        chosen = Selection(plans[0], ())
        if options["select"] is not None:
            chosen = select_plan(canonical, plans, clock, options["callback"])
        fit = chosen.fit or learn(canonical, chosen.plan, clock, options["callback"])
        return finished(fit, chosen, clock, prepared)


def finished(fit: Fit, chosen: Selection, clock: Clock, prepared: Prepared) -> Restoration:
    """The image of a model that has learnt, and what is to be said of it."""
    plan, canonical = chosen.plan, fit.model.source.canonical
    with interrupts.patient():
        merged = whole_image(fit.model, fit.finish, plan.merge, plan.keep_observed, may_cut=True)
    return Restoration(
        image=canonical_arrays.write(canonical, merged.mean, plan.keep_observed),
        std=standard_deviations(canonical, merged, plan.keep_observed),
        noise_level=canonical.noise_unit * fit.model.noise_level,
        noise=prepared.noise,
        free_energies=np.array([info.free_energy for info in fit.model.infos]),
        offset=canonical.offset,
        scale=canonical.scale,
        settings=plan.used,
        seconds=clock.seconds,
        ended="interrupted" if merged.cut_short else fit.ended,
        notes=(*prepared.notes, *chosen.notes(), *notes(fit, merged)),
        selection=chosen.scores,
        _make_estimator=estimator_maker(
            IMAGE_MODELS[fit.kind], fit.model, plan.settings["max_iter"]
        ),
    )


def constant(canonical: Canonical, plan: Plan, clock: Clock) -> Restoration:
    """What comes of an image of one value."""
    zeros = np.zeros(canonical.values.shape)
    return Restoration(
        image=canonical_arrays.write(canonical, zeros, plan.keep_observed),
        std=canonical_arrays.layout(canonical, zeros),
        noise_level=0.0,
        free_energies=np.empty(0),
        offset=canonical.offset,
        scale=canonical.scale,
        settings=plan.used,
        seconds=clock.seconds,
        ended="converged",
        notes=("The image is constant: there was nothing to learn.",),
    )


def notes(fit: Fit, merged: Merged) -> Iterator[str]:
    """What the reader of the result should know."""
    grid = fit.model.source.grid
    if fit.coarse:
        yield "The run ended before more than a coarse start had been learnt."
    if merged.cut_short:
        yield "The nonlocal step was left out, because a second interrupt came."
    if not merged.near.all():
        yield (
            f"{np.count_nonzero(~merged.near)} values lie in holes larger than a patch, "
            f"{max(grid.patch)} pixels wide: they are a guess from their surroundings."
        )
    if fit.model.n_learnt < grid.n_patches:
        yield (
            f"The model learnt from {fit.model.n_learnt} of {grid.n_patches} patches, "
            "chosen at random."
        )


@with_options
def denoise(image: ArrayLike, **options: Unpack[Options]) -> NDArray[Any]:
    """The image without its noise.

    Parameters
    ----------
    image : array-like
        As for `restore`, or a stack of such images along the first axis, each restored on its own.
    {options}

    Returns
    -------
    restored : ndarray
        Of the shape and type of the image.

    Examples
    --------
    >>> import numpy as np
    >>> import evoem
    >>> clean = 100.0 + 50 * (np.add.outer(np.arange(32), np.arange(32)) > 30)
    >>> noisy = clean + np.random.default_rng(0).normal(0, 10, clean.shape)
    >>> restored = evoem.denoise(noisy, preset="fast")
    >>> bool(np.abs(restored - clean).mean() < 0.5 * np.abs(noisy - clean).mean())
    True
    """
    for name in ("mask", "keep_observed"):
        if name in options:
            raise TypeError(f"denoise has no {name}: use inpaint or restore.")
    return _each_slice(image, None, False, checked("denoise", options))


@with_options
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
    image : array-like
        As for `denoise`. NaN is missing.
    mask : array-like of bool or int, optional
        True or non-zero where a pixel is missing, or a value of a channel; of a stack, in every
        slice or in each.
    keep_observed : bool, default=True
        Observed values come back unchanged; False denoises them as well.
    {options}

    Returns
    -------
    restored : ndarray
        Of the shape and type of the image.

    Examples
    --------
    >>> import numpy as np
    >>> import evoem
    >>> clean = 100.0 + 50 * (np.add.outer(np.arange(32), np.arange(32)) > 30)
    >>> missing = np.random.default_rng(0).random(clean.shape) < 0.3
    >>> filled = evoem.inpaint(np.where(missing, 0, clean), missing, preset="fast")
    >>> bool((filled == clean)[~missing].all() and np.abs(filled - clean).mean() < 3)
    True
    """
    return _each_slice(image, mask, keep_observed, checked("inpaint", options))


def _each_slice(
    image: ArrayLike, mask: ArrayLike | None, keep_observed: bool, options: dict[str, Any]
) -> NDArray[Any]:
    pixels = image if isinstance(image, np.ma.MaskedArray) else np.asarray(image)
    axis, alpha, variance = (options[name] for name in ("channel_axis", "alpha", "noise_variance"))
    started = time.perf_counter()
    if not stacks.is_stack(pixels, axis):
        canonical = canonical_arrays.read(pixels, mask, axis, alpha, variance)
        return restore_canonical(canonical, keep_observed, options, started).image
    stack = stacks.stack_of(pixels, mask, axis, alpha, variance)
    shares, restored = stacks.TimeShares(options["time_limit"], len(pixels)), []
    with interrupts.noted() as noted:
        for canonical in stack.slices():
            options = options | {"time_limit": shares.next()}
            result = restore_canonical(canonical, keep_observed, options, time.perf_counter())
            restored.append(result.image)
            if result.ended == "interrupted" or noted.number:  # the others at once, then
                shares = stacks.TimeShares(0.0, len(pixels))
                options = options | {"max_iter": 1}
    return np.stack(restored)
