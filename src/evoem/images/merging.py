"""From patches with their states to an image: merged once, and once more after a second look.

A patch's states are first chosen by its own damaged values. Once patches are merged, the image says
more about each than these do. So states are chosen again, by patches of an image that is mostly the
merged one, at what noise that has left. What they say about the image is still inferred from the
patches as given: the merged image has lost what states missed, and would confirm itself.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evoem.images import patches
from evoem.images.learning import Block, Evidence, Learner
from evoem.models.linear import least_noise

# Weight of a patch of which nothing was observed, which is the prior mean, against others.
UNSEEN = 1e-6
# Of the noise's variance: added to a patch's own where patches are weighed by it.
VARIANCE_FLOOR = 0.02
# Share of the given image in that of the second look, and of the noise's variance that is left;
# and of the variance that merged patches seem to have where nothing was observed.
GIVEN_SHARE = 0.2
NOISE_LEFT = 0.1
GUESS_LEFT = 0.25


class Merged(NamedTuple):
    """What patches say about an image."""

    mean: NDArray[np.float64]  # NaN where no patch lies
    std: NDArray[np.float64]  # of the mixture of what all patches say about a value
    near: NDArray[np.bool_]  # whether any patch saw something near a value


Estimates = Iterable[tuple[Block, NDArray[np.float64], NDArray[np.float64]]]


def merge_patches(learner: Learner, merge: str, estimates: Estimates) -> Merged:
    """Blocks of patches, with their means and variances, put together."""
    canvas, squares, seen = (patches.Canvas(learner.places) for _ in range(3))
    kind = "mean" if merge == "variance" else merge
    window = patches.window(learner.places.patch, kind, learner.places.shape[2])
    floor = VARIANCE_FLOOR * learner.noise_level**2 + np.finfo(float).tiny
    for block, mean, variance in estimates:
        weights = np.broadcast_to(window, mean.shape)
        if merge == "variance":
            weights = weights / (variance + floor)
        if block.observed is not None:
            some = block.observed.any(1, keepdims=True)
            weights = np.where(some, weights, UNSEEN * weights)
            seen.add(block.numbers, np.broadcast_to(some, mean.shape), window)
        canvas.add(block.numbers, mean, weights)
        squares.add(block.numbers, variance + mean**2, weights)
    mean = canvas.mean()
    std = np.sqrt(np.maximum(squares.mean() - mean**2, 0.0))
    near = np.ones(mean.shape, np.bool_) if learner.observed is None else seen.mean() > 0
    return Merged(mean, std, near)


def evidence(learner: Learner, merged: Merged, keep_observed: bool) -> Evidence:
    """What is known of an image once its patches are merged.

    Where nothing was observed, the merged image is all there is, with the variance it has there.
    """
    given, variance = learner.canonical, NOISE_LEFT * learner.noise_level**2
    share = 1.0 if keep_observed else GIVEN_SHARE
    values = share * given.values + (1 - share) * merged.mean
    known = merged.near & np.isfinite(merged.mean)
    if given.observed is not None:
        values = np.where(given.observed, values, merged.mean)
        guessed = known & ~given.observed
        variance += GUESS_LEFT * float(np.square(merged.std[guessed]).sum() / known.sum())
    image = np.where(known, values, 0.0).astype(np.float32)
    return learner.evidence(image, known, max(variance, least_noise(image)))


def restored(
    learner: Learner, merge: str, keep_observed: bool, learnt_only: bool = False
) -> Merged:
    """What is known about each value of the image.

    With `keep_observed`, what was observed is taken to be without noise in the second look. With
    `learnt_only`, patches that were not learnt from say nothing, and values that lie in no others
    are NaN: that spares searching for their states.
    """
    blocks = learner.learnt_blocks if learnt_only else learner.blocks
    searched = map(learner.search, blocks())
    first = ((block, *learner.estimate(block)) for block in searched)
    merged = merge_patches(learner, merge, first)
    if not learner.looks_twice:
        return merged
    seen = evidence(learner, merged, keep_observed)
    second = ((block, *learner.look_again(block, seen)) for block in blocks())
    return merge_patches(learner, merge, second)
