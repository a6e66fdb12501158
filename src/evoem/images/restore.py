"""Restore an image from that image alone: arrays in, arrays out."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evoem import validation
from evoem.checkpoints import number
from evoem.images import budget, canonical_arrays, noise_stage, stacks, verbose
from evoem.images.bands import Band
from evoem.images.budget import Clock
from evoem.images.canonical_arrays import Canonical
from evoem.images.heldout_selection import Score, Selection, hold_out, select_plan
from evoem.images.image_models import IMAGE_MODELS, estimator_maker
from evoem.images.journal import UNKEPT, Journal, journal_of
from evoem.images.learning import Callback, Fit, Progress, learn
from evoem.images.merging import Merged
from evoem.images.noise_model import Noise
from evoem.images.noise_stage import Prepared
from evoem.images.options import Options, with_options
from evoem.images.plan import Plan, check, noise_of, plans_for
from evoem.images.reconstruction import standard_deviations, whole_image
from evoem.images.settings import checked
from evoem.images.stack_model import learn_stack
from evoem.images.stacks import Stack
from evoem.runtime import interrupts, stages
from evoem.runtime.atomic_files import write_together, write_whole
from evoem.runtime.communicator import ALONE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from evoem.images.html_report import Shown


class Given(NamedTuple):
    """The input of a restoration."""

    image: NDArray[Any]
    channel_axis: int | None
    observed: NDArray[np.bool_] | None  # (rows, columns, channels)
    shared: Band | None = None  # which rows of the image each process has, if there are several

    def own_rows(self, values: NDArray[Any]) -> NDArray[Any]:
        """The rows of a whole image that this process has."""
        if self.shared is None:
            return values
        return np.moveaxis(np.moveaxis(values, self._axis, 0)[self.shared.rows], 0, self._axis)

    def at_first(self, values: NDArray[Any]) -> NDArray[Any]:
        """The whole image in the first process, and no rows of it in the others."""
        if self.shared is None:
            return values
        found = self.shared.at_first(np.moveaxis(values, self._axis, 0))
        return np.moveaxis(found, 0, self._axis)

    @property
    def _axis(self) -> int:
        """The axis of rows."""
        return int(self.channel_axis is not None and self.channel_axis % 3 == 0)


@dataclass(frozen=True, kw_only=True, repr=False)
class Restoration:
    """A restored image, and everything that was learnt about it.

    Attributes
    ----------
    image : ndarray
        The restored image, with the shape and type of the input. With several processes each has
        its own rows of `image` and `std`; `gathered` collects them.
    std : ndarray of float64
        Posterior standard deviation of each value, in units of the image; with the shape of the
        image, but without alpha.
    noise_level : float
        Learnt standard deviation of the noise, in units of the image.
    free_energies : ndarray of shape (n_iterations,)
        The bound per patch after each iteration.
    estimator : SubspaceCoding, SpikeSlabCoding or BinarySparseCoding
        The learnt model, fitted on patches of (image - offset) / scale; made on first access. None
        for a constant image.
    offset, scale : float
        Offset and scale of the values that were learnt from.
    settings : dict
        The options that were used, including those of the preset.
    seconds : float
        Time taken.
    times : dict
        Seconds of its parts: "noise", "learning" and "finishing".
    ended : {"converged", "max_iter", "time_limit", "callback", "interrupted"}
        Why learning ended.
    notes : tuple of str
        What a reader of the result should know.
    selection : tuple of Score
        The candidates, with `select`.
    noise : Noise or None
        The noise that was found or given; None if it was taken to be white. Other noise is
        transformed to be white and of unit variance before patches are cut, and the estimator has
        learnt from these patches.
    n_slices : int
        Number of slices of a stack that the model learnt from together.

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
    times: dict[str, float] = field(default_factory=dict)
    n_slices: int = 1
    _make_estimator: Callable[[], Any] = NoneType
    _given: Given | None = None

    @cached_property
    def estimator(self) -> Any:
        """The learnt model, as a fitted estimator; None for a constant image."""
        return self._make_estimator()

    def to_html(self) -> str:
        """The result as one HTML page, which needs no other files and no network.

        Returns
        -------
        page : str
            Before and after, uncertainty, residual, noise, dictionary, bound, times and settings.

        Examples
        --------
        >>> import numpy as np
        >>> import evoem
        >>> noisy = 100 + np.random.default_rng(0).normal(0, 10, (16, 16))
        >>> evoem.restore(noisy, preset="fast", max_iter=1).to_html().startswith("<!DOCTYPE html>")
        True
        """
        from evoem.images import html_report

        return html_report.page_of([self])

    def gathered(self) -> "Restoration":
        """The result with all rows in the first process, and none in the others.

        All processes must call this.

        Returns
        -------
        result : Restoration
            This result, if there is only one process.

        Examples
        --------
        >>> import numpy as np
        >>> import evoem
        >>> noisy = 100 + np.random.default_rng(0).normal(0, 10, (16, 16))
        >>> result = evoem.restore(noisy, preset="fast", max_iter=1)
        >>> result.gathered() is result
        True
        """
        given = self._given
        if given is None or given.shared is None:
            return self
        observed = given.observed
        whole = Given(
            given.at_first(given.image),
            given.channel_axis,
            observed if observed is None else given.shared.at_first(observed),
        )
        return replace(
            self, image=given.at_first(self.image), std=given.at_first(self.std), _given=whole
        )

    def shown(self) -> "Shown":
        """The arrays of the result, as pages show them.

        Returns
        -------
        shown : Shown
            Arrays of shape (rows, columns, channels), without alpha.

        Examples
        --------
        >>> import numpy as np
        >>> import evoem
        >>> noisy = 100 + np.random.default_rng(0).normal(0, 10, (16, 16))
        >>> evoem.restore(noisy, preset="fast", max_iter=1).shown().given.shape
        (16, 16, 1)
        """
        from evoem.images.html_report import Shown

        if self._given is None:
            raise ValueError("a page must be of what restore returned; got a result made by hand.")
        image, axis, observed, _ = self._given
        std, before, after = (
            values[..., None] if axis is None else np.moveaxis(values, axis, -1)
            for values in (self.std, image, self.image)
        )
        n_channels = std.shape[2]  # without alpha
        return Shown(self, before[..., :n_channels], after[..., :n_channels], std, observed)

    def report(self, path: str | Path, *, force: bool = False) -> None:
        """Write the page of `to_html` to a file.

        Parameters
        ----------
        path : str or Path
            The file to write.
        force : bool, default=False
            Replace an existing file.

        Examples
        --------
        >>> import tempfile
        >>> from pathlib import Path
        >>> import numpy as np
        >>> import evoem
        >>> noisy = 100 + np.random.default_rng(0).normal(0, 10, (16, 16))
        >>> restoration = evoem.restore(noisy, preset="fast", max_iter=1)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     restoration.report(Path(folder) / "page.html")
        ...     [path.name for path in Path(folder).iterdir()]
        ['page.html']
        """
        text = self.to_html()
        write_whole(Path(path), lambda file: file.write(text.encode()), force=force)

    def save(
        self, path: str | Path, *, uncertainty: str | Path | None = None, force: bool = False
    ) -> None:
        """Write the image to a file, and its standard deviations to another if one is given.

        Parameters
        ----------
        path : str or Path
            PNG, JPEG, TIFF, NPY or another format of the command line, by its extension.
        uncertainty : str or Path, optional
            File of floats, such as TIFF or NPY.
        force : bool, default=False
            Replace existing files.

        Examples
        --------
        >>> import tempfile
        >>> from pathlib import Path
        >>> import numpy as np
        >>> import evoem
        >>> noisy = 100 + np.random.default_rng(0).normal(0, 10, (16, 16))
        >>> restoration = evoem.restore(noisy, preset="fast", max_iter=1)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     restoration.save(Path(folder) / "restored.tif")
        ...     [path.name for path in Path(folder).iterdir()]
        ['restored.tif']
        """
        from evoem.images import files

        axis = None if self._given is None else self._given.channel_axis
        if axis is None and self.image.ndim > 2:
            raise ValueError("save must be of what restore returned; got a result made by hand.")
        pixels, std, alpha = self.image, self.std, None
        if axis is not None:
            pixels, std = np.moveaxis(pixels, axis, -1), np.moveaxis(std, axis, -1)
            if pixels.shape[-1] > std.shape[-1]:
                pixels, alpha = pixels[..., :-1], pixels[..., -1]
        picture = files.Picture(pixels, alpha, axis is not None, False, {})
        outputs = {Path(path): files.writer(path, picture)}
        if uncertainty is not None:
            map_of_std = picture._replace(pixels=std.astype(np.float32), alpha=None)
            outputs[Path(uncertainty)] = files.writer(uncertainty, map_of_std)
        write_together(outputs, force=force)

    def plot(self) -> "Figure":
        """Plot input, result and uncertainty side by side; needs matplotlib.

        Returns
        -------
        figure : matplotlib.figure.Figure

        Examples
        --------
        >>> import numpy as np
        >>> import evoem
        >>> noisy = 100 + np.random.default_rng(0).normal(0, 10, (16, 16))
        >>> restoration = evoem.restore(noisy, preset="fast", max_iter=1)
        >>> figure = restoration.plot()  # doctest: +SKIP
        """
        from evoem.images import thumbnails

        return thumbnails.figure(self.shown())

    def _repr_html_(self) -> str | None:
        """The view in notebooks."""
        from evoem.images import thumbnails

        return None if self._given is None else thumbnails.notebook_html(self.shown())

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
    """Denoise an image, fill in its missing values, or both, by a model of its patches.

    Only the image is used: no clean data and no noise level.

    Parameters
    ----------
    image : array-like of shape (rows, columns), or 3-D with a `channel_axis`
        Integers of any size, booleans or floats. NaN is missing.
    mask : array-like of bool or int, optional
        True or non-zero where a pixel is missing, with the shape (rows, columns), or where single
        values are, with the shape of the image.
    keep_observed : bool, default=False
        Return observed values unchanged.
    {options}

    Returns
    -------
    result : Restoration
        The restored image, and everything that was learnt about it.

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
    names = ("channel_axis", "alpha", "noise_variance", "missing_value")
    how = {name: chosen[name] for name in names} | {"comm": chosen["comm"] or ALONE}
    canonical = canonical_arrays.read(image, mask, **how)
    with verbose.shown(chosen) as watched:
        return restore_alone(canonical, keep_observed, watched, started)


def restore_alone(
    canonical: Canonical, keep_observed: bool, options: dict[str, Any], started: float
) -> Restoration:
    """Restore an image that has been read, with a journal of its own."""
    journal = journal_of([canonical], keep_observed, options)
    result = restore_slice(0, canonical, keep_observed, options, started, journal)
    journal.keep(at_once=True)
    return result


def restore_all(
    slices: Sequence[Canonical],
    keep_observed: bool,
    options: dict[str, Any],
    started: float,
    journal: Journal,
) -> Iterator[Restoration]:
    """Restore one image, or the slices of a stack together."""
    if len(slices) > 1:
        yield from restore_stack(slices, keep_observed, options, started, journal)
    else:
        yield restore_slice(0, slices[0], keep_observed, options, started, journal)


def several(options: dict[str, Any]) -> bool:
    """Whether several processes restore the image."""
    return options["comm"] is not None and options["comm"].size > 1


def restore_slice(
    number: int,
    canonical: Canonical,
    keep_observed: bool,
    options: dict[str, Any],
    started: float,
    journal: Journal,
) -> Restoration:
    """Restore an image by a model of its own, or resume from where the journal says it is."""
    with journal.within(f"slice {number}"):
        result = restore_canonical(canonical, keep_observed, options, started, journal)
    return with_given(result, canonical)


def with_given(result: Restoration, canonical: Canonical, n_slices: int = 1) -> Restoration:
    """The result, with its input."""
    return replace(result, n_slices=n_slices, _given=given_of(canonical))


def given_of(canonical: Canonical) -> Given:
    """What pages show of the input, and which process has which rows."""
    return Given(canonical.image, canonical.channel_axis, canonical.observed, canonical.shared)


def with_limits(
    options: dict[str, Any], started: float, journal: Journal
) -> tuple[dict[str, Any], Clock]:
    """The options with limits of time and memory as they were when the run began, and its clock."""
    started, limit = journal.begun(started, options["time_limit"])
    comm = options["comm"] or ALONE
    # What a machine has may change until the run is resumed.
    memory = journal.once("memory", lambda: budget.memory_of_all(options["memory"], comm))
    return options | {"time_limit": limit, "memory": memory}, Clock(started, limit)


def restore_canonical(
    canonical: Canonical,
    keep_observed: bool,
    options: dict[str, Any],
    started: float,
    journal: Journal,
) -> Restoration:
    """Restore an image that has been read, by options that have been checked."""
    validation.boolean("keep_observed", keep_observed)
    options, clock = with_limits(options, started, journal)
    plans = plans_for(canonical, options, keep_observed)
    if canonical_arrays.is_constant(canonical):
        return constant(canonical, plans[0], clock)
    before_noise = clock.seconds
    stages.begin("noise")
    prepared = noise_stage.prepare(canonical, noise_of(options), keep_observed)
    of_noise = clock.seconds - before_noise
    canonical = prepared.canonical
    plans = plans_for(canonical, options, keep_observed)
    for plan in plans:
        check(canonical, plan)
    with interrupts.noted(several=several(options)):
        chosen = Selection(plans[0], ())
        if options["select"] is not None:
            held_out = hold_out(canonical, plans[0].seed)
            chosen = select_plan(held_out, plans, clock, options["callback"], journal)
        fit = chosen.fit or learn(canonical, chosen.plan, clock, options["callback"], journal)
        if fit.ended == "interrupted" and not fit.model.infos:
            interrupts.give_up()
        return finished(fit, chosen, clock, prepared, of_noise, journal)


def finished(
    fit: Fit,
    chosen: Selection,
    clock: Clock,
    prepared: Prepared,
    of_noise: float = 0.0,
    journal: Journal = UNKEPT,
) -> Restoration:
    """The image that a learnt model gives, and everything else of the result."""
    plan, canonical = chosen.plan, fit.model.source.canonical
    learnt = clock.seconds
    with interrupts.patient():
        merged = whole_image(fit.model, fit.finish, plan.merge, plan.keep_observed, journal, clock)
    image = canonical_arrays.write(canonical, merged.mean, plan.keep_observed)
    std = standard_deviations(canonical, merged, plan.keep_observed)
    seconds = clock.seconds
    return Restoration(
        image=image,
        std=std,
        noise_level=canonical.noise_unit * fit.model.noise_level,
        noise=prepared.noise,
        free_energies=np.array([info.free_energy for info in fit.model.infos]),
        offset=canonical.offset,
        scale=canonical.scale,
        settings=plan.used,
        seconds=seconds,
        times={
            "noise": of_noise,
            "learning": learnt - of_noise,
            "finishing": seconds - learnt,
        },
        ended="interrupted" if merged.cut_short else fit.ended,
        notes=(*canonical.notes, *prepared.notes, *chosen.notes(), *notes(fit, merged)),
        selection=chosen.scores,
        _make_estimator=estimator_maker(
            IMAGE_MODELS[fit.kind], fit.model, plan.settings["max_iter"]
        ),
    )


def constant(canonical: Canonical, plan: Plan, clock: Clock) -> Restoration:
    """The result for a constant image."""
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
        notes=(*canonical.notes, "The image is constant: there was nothing to learn."),
    )


def notes(fit: Fit, merged: Merged) -> Iterator[str]:
    """What a reader of the result should know."""
    grid, band = fit.model.source.grid, fit.model.source.canonical.band
    n_far = band.count(~merged.near)
    if fit.coarse:
        yield "The run ended during the coarse start."
    if merged.cut_short:
        yield "The nonlocal step was skipped after a second interrupt."
    if n_far:
        yield (
            f"{n_far} values lie in holes larger than a patch, "
            f"{max(grid.patch)} pixels wide: they are guessed from their surroundings."
        )
    if fit.model.n_learnt < fit.model.n_there:
        yield (
            f"The model learnt from {fit.model.n_learnt} of {fit.model.n_there} patches, "
            "chosen at random."
        )


def restore_stack(
    slices: Sequence[Canonical],
    keep_observed: bool,
    options: dict[str, Any],
    started: float,
    journal: Journal,
) -> Iterator[Restoration]:
    """Restore slices of the same shape by one model that learns from all of them.

    After an interrupt the remaining slices are finished in the quickest way.
    """
    validation.boolean("keep_observed", keep_observed)
    varied = [number for number, one in enumerate(slices) if not canonical_arrays.is_constant(one)]
    options, clock = with_limits(options, started, journal)
    comm = options["comm"] or ALONE
    plan = plans_for(slices[0], options, keep_observed)[0]
    with interrupts.noted(several=several(options)) as noted:
        learnt = None
        if any(journal.recall(f"slice {number}") is None for number in varied):
            with journal.within("stack"):
                seen = options | {"callback": seeing_all(options["callback"], slices, varied)}
                learnt = learn_stack(
                    [slices[number] for number in varied], keep_observed, seen, clock, journal
                )
        while_learning = noted.number
        for number, whole in enumerate(slices):
            name, one = f"slice {number}", canonical_arrays.rows_for(whole, comm)
            known = journal.recall(name)
            if known is not None:
                result = own_rows(recalled(known), one)
            elif learnt is None or number not in varied:
                result = constant(one, plan, clock)
            else:
                place = varied.index(number)
                quickly = noted.number > while_learning
                if quickly:
                    journal.stop()
                fit = learnt.fit_of(place, quickly=quickly)
                with journal.within(name):
                    prepared = learnt.slices[place]
                    result = finished(fit, learnt.chosen, clock, prepared, journal=journal)
            result = with_given(result, one, len(slices))
            if known is None and journal.is_kept:
                journal.note(name, to_be_kept(result.gathered()))
                journal.keep()
            clock = Clock(time.perf_counter(), None)  # of this slice alone
            yield result


def seeing_all(
    callback: Callback | None, slices: Sequence[Canonical], varied: Sequence[int]
) -> Callback | None:
    """A callback whose `progress.restored()` has all slices, also those of one value."""
    if callback is None:
        return None

    def told(progress: Progress) -> Any:
        def restored() -> NDArray[Any]:
            images = np.stack([one.image for one in slices])
            images[list(varied)] = progress.restored()
            return images

        return callback(progress._replace(restored=restored))

    return told


def restore_each(
    stack: Stack, *, keep_observed: bool = False, **options: Unpack[Options]
) -> Iterator[Restoration]:
    """Restore an image, or the slices of a stack by one model, each when it is asked for."""
    started = time.perf_counter()
    chosen = checked("restore", options)
    slices = list(stack.slices())
    journal = journal_of(slices, keep_observed, chosen)
    yield from restore_all(slices, keep_observed, chosen, started, journal)
    journal.keep(at_once=True)


@with_options
def denoise(image: ArrayLike, **options: Unpack[Options]) -> NDArray[Any]:
    """The image without its noise.

    Parameters
    ----------
    image : array-like
        As for `restore`, or a stack of such images along the first axis, which one model learns
        from.
    {options}

    Returns
    -------
    restored : ndarray
        The image without its noise, with the shape and type of the input.

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
        True or non-zero where a pixel, or a single value, is missing. For a stack one mask for all
        slices, or one for each.
    keep_observed : bool, default=True
        Return observed values unchanged; False denoises them as well.
    {options}

    Returns
    -------
    restored : ndarray
        The image with its missing values filled in, with the shape and type of the input.

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
    axis, alpha, variance, missing_value = (
        options[name] for name in ("channel_axis", "alpha", "noise_variance", "missing_value")
    )
    started = time.perf_counter()
    if not stacks.is_stack(pixels, axis):
        canonical = canonical_arrays.read(
            pixels, mask, axis, alpha, variance, missing_value, options["comm"] or ALONE
        )
        with verbose.shown(options) as watched:
            return restore_alone(canonical, keep_observed, watched, started).image
    stack = stacks.stack_of(pixels, mask, axis, alpha, variance, missing_value)
    stack = stack._replace(comm=options["comm"] or ALONE)
    slices = list(stack.slices())
    journal = journal_of(slices, keep_observed, options)
    with verbose.shown(options) as options:  # one model learns
        results = restore_all(slices, keep_observed, options, started, journal)
        restored = np.stack([result.image for result in results])
    journal.keep(at_once=True)
    return restored


def own_rows(result: Restoration, canonical: Canonical) -> Restoration:
    """The rows of a result that this process has, given a kept one with all rows."""
    given = given_of(canonical)
    return replace(result, image=given.own_rows(result.image), std=given.own_rows(result.std))


def to_be_kept(result: Restoration) -> dict[str, Any]:
    """A result as plain data, without its estimator."""
    names = [each.name for each in fields(result) if not each.name.startswith("_")]
    return {name: number(getattr(result, name)) for name in names} | {
        "settings": {name: number(value) for name, value in result.settings.items()},
        "noise": None if result.noise is None else result.noise.to_json(),
        "selection": [tuple(map(number, score)) for score in result.selection],
    }


def recalled(kept: dict[str, Any]) -> Restoration:
    """The result that was kept as plain data."""
    noise = None if kept["noise"] is None else Noise.from_json(kept["noise"])
    selection = tuple(Score(*score) for score in kept["selection"])
    return Restoration(**(kept | {"noise": noise, "selection": selection}))
