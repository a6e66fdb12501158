"""From a model that has learnt to an image: patches, merged, nonlocal passes, large holes."""

import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evoem.images import budget, canonical_arrays, large_holes, nonlocal_bayes
from evoem.images.budget import Finish
from evoem.images.canonical_arrays import Canonical
from evoem.images.merging import Estimate, Merged, merge_patches
from evoem.images.patch_model import PatchModel
from evoem.runtime import interrupts


def merged_image(
    model: PatchModel,
    finish: Finish,
    merge: str,
    keep_observed: bool,
    learnt_only: bool = False,
    may_cut: bool = False,
) -> Merged:
    """What is known about each value of the image.

    With `learnt_only`, patches that were not learnt from say nothing, and values that lie in no
    others are NaN: that spares searching for their states. With `may_cut`, a second interrupt
    leaves out the nonlocal passes.
    """
    grid = model.source.grid
    blocks = model.learnt_blocks()
    if not learnt_only:
        others = budget.others(grid, model.patches.numbers, finish.thinning)
        blocks = itertools.chain(blocks, model.other_blocks(others, finish.search_steps))
    estimates = (
        Estimate(block.numbers, block.data.observed, *model.reconstruct(block, kept))
        for block, kept in blocks
    )
    merged = merge_patches(grid, merge, model.noise_variance, estimates)
    if finish.nonlocal_passes == 0:
        return merged

    def refined() -> Merged:
        return nonlocal_bayes.refine(
            model.source.canonical,
            merged,
            merge,
            model.noise_variance,
            keep_observed=keep_observed,
            n_passes=finish.nonlocal_passes,
            n_jobs=model.search.n_jobs,
        )

    if not may_cut:
        return refined()
    try:
        with interrupts.raised(2):
            return refined()
    except KeyboardInterrupt:
        if interrupts.number() > 2:  # that one wants nothing
            raise
        return merged._replace(cut_short=True)


def whole_image(
    model: PatchModel, finish: Finish, merge: str, keep_observed: bool, may_cut: bool = False
) -> Merged:
    """The same with values everywhere, those in large holes being guessed."""
    merged = merged_image(model, finish, merge, keep_observed, may_cut=may_cut)
    if merged.near.all():
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
