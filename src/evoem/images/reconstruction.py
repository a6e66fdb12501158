"""From a model that has learnt to an image: patches, merged, nonlocal passes, large holes."""

import itertools
from collections.abc import Iterator
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from evoem.images import bands, budget, canonical_arrays, large_holes, nonlocal_bayes
from evoem.images.budget import UNLIMITED, Clock, Finish
from evoem.images.canonical_arrays import Canonical
from evoem.images.journal import UNKEPT, Journal
from evoem.images.merging import Estimate, Merged, at_home, merge_patches
from evoem.images.patch_model import Patches, PatchModel, States
from evoem.runtime import interrupts, stages
from evoem.runtime.threads import split

T = TypeVar("T")


def merged_image(
    model: PatchModel,
    finish: Finish,
    merge: str,
    keep_observed: bool,
    learnt_only: bool = False,
    journal: Journal | None = None,
    clock: Clock = UNLIMITED,
) -> Merged:
    """What is known about each value of the image.

    With `learnt_only`, patches that were not learnt from say nothing, and values that lie in no
    others are NaN: that spares searching for their states. With a `journal` it is the image that
    is returned: what the journal knows is not computed again, and a second interrupt leaves out the
    nonlocal passes. A limited time is kept to even if the forecast was wrong: patches that overlap
    others are then left out, and so are passes that would not end.
    """
    own, band = journal or UNKEPT, model.source.canonical.band
    passes = _seconds_of_passes(model, finish, clock)
    noted = own.recall("patches")
    if noted is None:
        merged = _plain(model, finish, merge, learnt_only, clock, sum(passes))
        if own.is_kept:
            own.note("patches", tuple(map(band.at_first, merged[:3])))
            own.keep()
    else:
        merged = Merged(*(whole[band.rows] for whole in noted))
    n_passes = finish.nonlocal_passes
    if passes:
        fitting = [n for n in range(1, n_passes + 1) if sum(passes[-n:]) <= clock.left()]
        n_passes = max(fitting, default=0)
    if n_passes == 0:
        return merged

    def refined() -> Merged:
        return nonlocal_bayes.refine(
            model.source.canonical,
            merged,
            merge,
            model.noise_variance,
            keep_observed=keep_observed,
            n_passes=n_passes,
            begin=stages.begin,
            n_jobs=model.search.n_jobs,
            journal=own,
        )

    if journal is None:
        return refined()
    try:
        with interrupts.raised(2):
            return refined()
    except KeyboardInterrupt:
        if interrupts.number() > 2:  # the third one asks for no result
            raise
        journal.stop()
        return merged._replace(cut_short=True)


def _seconds_of_passes(model: PatchModel, finish: Finish, clock: Clock) -> tuple[float, ...]:
    """How long each nonlocal pass will take, if that matters."""
    if not finish.nonlocal_passes or not _may_cut(model, clock):
        return ()
    canonical, n_jobs = model.source.canonical, model.search.n_jobs
    return nonlocal_bayes.seconds(canonical, finish.nonlocal_passes, n_jobs)


def _may_cut(model: PatchModel, clock: Clock) -> bool:
    """Whether work is left out when time runs out; several processes would disagree."""
    return clock.limit is not None and model.search.comm.size == 1


def _plain(
    model: PatchModel,
    finish: Finish,
    merge: str,
    learnt_only: bool,
    clock: Clock,
    reserved: float,
) -> Merged:
    """Patches, merged."""
    rows, numbers, steps = model.source.rows, model.numbers, finish.search_steps
    n_patches, size = model.n_learnt, model.search.comm.size
    others: Iterator[tuple[Patches, States]] = iter(())
    if not learnt_only:
        n_patches += budget.n_others(rows.grid, numbers, finish.thinning)
        wanted = budget.others(rows, numbers, finish.thinning)
        if _may_cut(model, clock):
            every = np.concatenate([*wanted, numbers[:0]])
            thinning = max(finish.thinning, rows.grid.touching)
            wanted = budget.others(rows, numbers, thinning)
            needed = np.concatenate([*budget.others(rows, numbers, thinning), numbers[:0]])
            more = np.random.default_rng(0).permutation(np.setdiff1d(every, needed))
            parts = (more[part] for part in split(len(more), bands.PATCHES_AT_ONCE))
            others = _in_time(model.other_blocks(parts, steps), clock, reserved)
        others = itertools.chain(model.other_blocks(wanted, steps), others)
    advance = stages.begin("restoring", -(-n_patches // size))

    def estimates(blocks: Iterator[tuple[Patches, States]]) -> Iterator[Estimate]:
        for block, kept in blocks:
            yield Estimate(block.numbers, block.data.observed, *model.reconstruct(block, kept))
            advance(len(block.numbers))

    learnt = at_home(estimates(model.learnt_blocks()), rows)
    found = itertools.chain(learnt, estimates(others))
    return merge_patches(rows, merge, model.noise_variance, found)


def _in_time(blocks: Iterator[T], clock: Clock, reserved: float) -> Iterator[T]:
    """As many as there is time for, beside what is reserved for what comes after."""
    longest = 0.0
    before = clock.left()
    while before - longest > reserved:
        block = next(blocks, None)
        if block is None:
            return
        yield block
        longest = max(longest, before - clock.left())
        before = clock.left()


def whole_image(
    model: PatchModel,
    finish: Finish,
    merge: str,
    keep_observed: bool,
    journal: Journal | None = None,
    clock: Clock = UNLIMITED,
) -> Merged:
    """The same with values everywhere, those in large holes being guessed."""
    merged = merged_image(model, finish, merge, keep_observed, journal=journal, clock=clock)
    if not model.source.canonical.band.any(not merged.near.all())[0]:
        return merged
    mean = large_holes.fill(model, merged.mean, merged.near, finish.search_steps)
    return merged._replace(mean=mean)


def standard_deviations(canonical: Canonical, merged: Merged, keep_observed: bool) -> NDArray[Any]:
    """Those of an image in its own units and layout; none of what is kept."""
    std = canonical.scale * merged.std
    if canonical.transform is not None:
        std = canonical.transform.deviations(std, canonical.pixels(merged.mean))
    if keep_observed:
        observed = canonical.observed_as_given
        std = np.where(True if observed is None else observed, 0.0, std)
    return canonical_arrays.layout(canonical, std)
