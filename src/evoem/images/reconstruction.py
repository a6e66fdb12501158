"""From a learnt model to an image: merge patches, nonlocal passes, large holes."""

import itertools
from collections.abc import Iterator
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from evoem.images import bands, budget, canonical_arrays, large_holes, nonlocal_bayes
from evoem.images.budget import UNLIMITED, Clock, Finish
from evoem.images.canonical_arrays import Canonical
from evoem.images.journal import UNKEPT, Journal
from evoem.images.merging import Estimate, Merged, merge_patches, own_estimates
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
    """Mean and standard deviation of each value of the image, after the nonlocal passes.

    With `learnt_only`, only patches that were learnt from are used, which saves searching for the
    states of others; values outside them are NaN. A `journal` is passed for the final image: what
    it has noted is not computed again, and a second interrupt leaves out the nonlocal passes. A
    time limit is kept to even if the forecast was wrong, by leaving out patches that overlap
    others, and passes that would not end in time.
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
    """Predicted seconds of each nonlocal pass, if there is a time limit."""
    if not finish.nonlocal_passes or not _may_cut(model, clock):
        return ()
    canonical, n_jobs = model.source.canonical, model.search.n_jobs
    return nonlocal_bayes.seconds(canonical, finish.nonlocal_passes, n_jobs)


def _may_cut(model: PatchModel, clock: Clock) -> bool:
    """Whether work may be left out when time runs out; several processes could disagree."""
    return clock.limit is not None and model.search.comm.size == 1


def _plain(
    model: PatchModel,
    finish: Finish,
    merge: str,
    learnt_only: bool,
    clock: Clock,
    reserved: float,
) -> Merged:
    """The merged patches, before any nonlocal pass."""
    rows, numbers, steps = model.source.rows, model.numbers, finish.search_steps
    n_patches, size = model.n_learnt, model.search.comm.size
    others: Iterator[tuple[Patches, States]] = iter(())
    if not learnt_only:
        n_patches += budget.n_unlearnt(rows.grid, numbers, finish.thinning)
        wanted = budget.unlearnt(rows, numbers, finish.thinning)
        if _may_cut(model, clock):
            every = np.concatenate([*wanted, numbers[:0]])
            thinning = max(finish.thinning, rows.grid.touching)
            wanted = budget.unlearnt(rows, numbers, thinning)
            needed = np.concatenate([*budget.unlearnt(rows, numbers, thinning), numbers[:0]])
            more = np.random.default_rng(0).permutation(np.setdiff1d(every, needed))
            parts = (more[part] for part in split(len(more), bands.PATCHES_AT_ONCE))
            others = _in_time(model.unlearnt_blocks(parts, steps), clock, reserved)
        others = itertools.chain(model.unlearnt_blocks(wanted, steps), others)
    advance = stages.begin("restoring", -(-n_patches // size))

    def estimates(blocks: Iterator[tuple[Patches, States]]) -> Iterator[Estimate]:
        for block, kept in blocks:
            yield Estimate(block.numbers, block.data.observed, *model.reconstruct(block, kept))
            advance(len(block.numbers))

    learnt = own_estimates(estimates(model.learnt_blocks()), rows)
    found = itertools.chain(learnt, estimates(others))
    return merge_patches(rows, merge, model.noise_variance, found)


def _in_time(blocks: Iterator[T], clock: Clock, reserved: float) -> Iterator[T]:
    """As many items as there is time for, besides the time reserved for what follows."""
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
    """The merged image with values everywhere, guessed ones in large holes."""
    merged = merged_image(model, finish, merge, keep_observed, journal=journal, clock=clock)
    if not model.source.canonical.band.any(not merged.near.all())[0]:
        return merged
    mean = large_holes.fill(model, merged.mean, merged.near, finish.search_steps)
    return merged._replace(mean=mean)


def standard_deviations(canonical: Canonical, merged: Merged, keep_observed: bool) -> NDArray[Any]:
    """Standard deviations in the units and layout of the image; zero where values are kept."""
    std = canonical.scale * merged.std
    if canonical.transform is not None:
        std = canonical.transform.deviations(std, canonical.pixels(merged.mean))
    if keep_observed:
        observed = canonical.observed_as_given
        std = np.where(True if observed is None else observed, 0.0, std)
    return canonical_arrays.layout(canonical, std)
