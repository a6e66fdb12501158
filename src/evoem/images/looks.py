"""From patches with their states to an image.

A patch's states are chosen by its own damaged values. Once patches are merged, the image says more
about each than these do: patches of it that are like each other are seen together, see
`evoem.images.nonlocal_bayes`, several times.
"""

import numpy as np

from evoem.images import nonlocal_bayes as likeness
from evoem.images.merging import Estimate, Merged, merge_patches
from evoem.images.nonlocal_bayes import Seen
from evoem.images.patch_model import Learner

# Share of the given image in that by which patches are like each other in the first look. It keeps
# what merging lost. Later on it would but add noise.
GIVEN_SHARE = 0.2


def look_around(learner: Learner, merge: str, merged: Merged, keep_observed: bool) -> Merged:
    """The merged image as like patches say it is.

    With `keep_observed`, what was observed is taken to be without noise. Standard deviations stay
    as they are: like patches are so by their errors too, and would be far too sure.
    """
    given, noise_variance = learner.canonical, learner.noise_level**2
    observed = given.observed
    if observed is None:
        observed = np.ones(given.values.shape, np.bool_)
    known = merged.near & np.isfinite(merged.mean)  # all that was observed is
    mean, share = np.where(known, merged.mean, 0.0), GIVEN_SHARE
    for places in likeness.looks(given.values.shape, learner.looks):
        restored = np.where(observed & keep_observed, given.values, mean)
        compared = restored + np.where(observed, share * (given.values - restored), 0.0)
        seen = Seen(
            given.values, observed, restored.astype(np.float32), compared.astype(np.float32), known
        )
        looked = likeness.look(seen, places, merge, noise_variance, learner.n_jobs)
        mean, share = np.where(np.isnan(looked), mean, looked), 0.0
    return merged._replace(mean=np.where(known, mean, merged.mean))


def restored(
    learner: Learner, merge: str, keep_observed: bool, learnt_only: bool = False
) -> Merged:
    """What is known about each value of the image.

    With `learnt_only`, patches that were not learnt from say nothing, and values that lie in no
    others are NaN: that spares searching for their states.
    """
    blocks = learner.learnt_blocks() if learnt_only else learner.blocks()
    estimates = (
        Estimate(block.numbers, block.observed, *learner.estimate(block))
        for block in map(learner.search, blocks)
    )
    merged = merge_patches(learner.places, merge, learner.noise_level**2, estimates)
    if learner.looks == 0:
        return merged
    return look_around(learner, merge, merged, keep_observed)
