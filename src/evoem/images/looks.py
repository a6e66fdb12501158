"""From patches with their states to an image.

A patch's states are chosen by its own damaged values. Once patches are merged, the image says more
about each than these do: patches of it that are like each other are seen together, see
`evoem.images.nonlocal_bayes`, several times, and at last at half of the image's size too.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter, zoom

from evoem.images import nonlocal_bayes as likeness
from evoem.images.merging import Estimate, Merged, merge_patches
from evoem.images.nonlocal_bayes import Seen
from evoem.images.patch_model import Learner

# Share of the given image in that by which patches are like each other in the first look. It keeps
# what merging lost. Later on it would but add noise.
GIVEN_SHARE = 0.2
# Pixels, of an image of half its size, by which what is seen from afar is smoothed.
AFAR = 2.0


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
    if given.observed is None and known.all():
        mean += look_from_afar(given.values, mean, merge, noise_variance, learner.n_jobs)
    return merged._replace(mean=np.where(known, mean, merged.mean))


def halved(image: NDArray[np.floating]) -> NDArray[np.float32]:
    """Means of two by two pixels; the last ones stand twice where their number is odd."""
    rows, columns, channels = image.shape
    even = np.pad(image, [(0, rows % 2), (0, columns % 2), (0, 0)], mode="edge")
    blocks = even.reshape(even.shape[0] // 2, 2, even.shape[1] // 2, 2, channels)
    return np.asarray(blocks.mean((1, 3)), np.float32)


def look_from_afar(
    image: NDArray[np.float32],
    restored: NDArray[np.float64],
    merge: str,
    noise_variance: float,
    n_jobs: int,
) -> NDArray[np.float64]:
    """What is to be added to a restored image by what like patches say at half of its size.

    Patches say little about what is wider than they are, and much of the noise is left there.
    """
    given, small = halved(image), halved(restored)
    everything = np.ones(given.shape, np.bool_)
    places = likeness.looks(given.shape, 1)[0]
    seen = Seen(given, everything, small, small, everything)
    change = likeness.look(seen, places, merge, noise_variance / 4, n_jobs) - small
    smooth = gaussian_filter(change, AFAR, mode="nearest", axes=(0, 1))
    doubled = zoom(smooth, (2, 2, 1), order=1, mode="nearest", grid_mode=True)
    return doubled[: restored.shape[0], : restored.shape[1]]


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
