"""From patches with their states to an image, looked at more than once.

A patch's states are first chosen by its own damaged values. Once patches are merged, the image says
more about each than these do. So in a second look states are chosen again, by patches of an image
that is mostly the merged one, at what noise that has left. What they say about the image is still
inferred from the patches as given: the merged image has lost what states missed, and would confirm
itself.

After either look, patches of the image that are like each other are seen together, see
`evoem.images.likeness`, and once more at half of the size.
"""

from collections.abc import Iterable
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter, zoom

from evoem.images import likeness, patches
from evoem.images.learning import Block, Evidence, Learner
from evoem.images.likeness import Seen
from evoem.images.merging import Estimate, Merged, merge_patches
from evoem.models.linear import least_noise

# Share of the given image in that of the second look, and of the noise's variance that is left;
# and of the variance that merged patches seem to have where nothing was observed.
GIVEN_SHARE = 0.2
NOISE_LEFT = 0.1
GUESS_LEFT = 0.25
# Pixels, of an image of half its size, by which what is seen from afar is smoothed.
AFAR = 2.0


def informed(
    learner: Learner, merged: Merged, keep_observed: bool
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """An image of what is known once patches are merged, and where that is anything.

    Where nothing was observed, the merged image is all there is.
    """
    given = learner.canonical
    share = 1.0 if keep_observed else GIVEN_SHARE
    values = share * given.values + (1 - share) * merged.mean
    if given.observed is not None:
        values = np.where(given.observed, values, merged.mean)
    known = merged.near & np.isfinite(merged.mean)
    return np.where(known, values, 0.0), known


def evidence(learner: Learner, merged: Merged, keep_observed: bool) -> Evidence:
    """What states are chosen by in the second look.

    Where nothing was observed, the merged image has the variance that patches have there.
    """
    image, known = informed(learner, merged, keep_observed)
    variance = NOISE_LEFT * learner.noise_level**2
    if learner.canonical.observed is not None:
        guessed = known & ~learner.canonical.observed
        variance += GUESS_LEFT * float(np.square(merged.std[guessed]).sum() / known.sum())
    values = image.astype(np.float32)
    return learner.evidence(values, known, max(variance, least_noise(values)))


def _around(
    seen: Seen, stride: int, merge: str, noise_variance: float, n_jobs: int
) -> NDArray[np.float64]:
    """What like patches say, merged; NaN where nothing is known."""
    places = patches.grid(seen.given.shape, likeness.WIDTH, stride)
    estimates = (
        Estimate(numbers, patches.cut(seen.observed, places, numbers), mean, variance)
        for numbers, mean, variance in likeness.estimates(seen, places, noise_variance, n_jobs)
    )
    return merge_patches(places, merge, noise_variance, estimates).mean


def look_around(learner: Learner, merge: str, merged: Merged, keep_observed: bool) -> Merged:
    """The merged image as like patches say it is.

    Standard deviations stay as they are: like patches are so by their errors too, and would be far
    too sure.
    """
    given, noise_variance = learner.canonical, learner.noise_level**2
    compared, known = informed(learner, merged, keep_observed)
    observed = np.ones(known.shape, np.bool_) if given.observed is None else given.observed
    restored = np.where(observed & keep_observed, given.values, merged.mean)
    restored = np.where(known, restored, 0.0).astype(np.float32)
    seen = Seen(given.values, observed, restored, compared.astype(np.float32), known)
    stride = learner.stride_around(learner.closing.thinning)
    rest = stride, merge, noise_variance, learner.n_jobs
    mean = _around(seen, *rest)
    if given.observed is None and known.all():
        mean += look_from_afar(given.values, mean, *rest)
    return merged._replace(mean=np.where(np.isnan(mean), merged.mean, mean))


def halved(image: NDArray[np.floating]) -> NDArray[np.float32]:
    """Means of two by two pixels; the last ones stand twice where their number is odd."""
    rows, columns, channels = image.shape
    even = np.pad(image, [(0, rows % 2), (0, columns % 2), (0, 0)], mode="edge")
    blocks = even.reshape(even.shape[0] // 2, 2, even.shape[1] // 2, 2, channels)
    return np.asarray(blocks.mean((1, 3)), np.float32)


def look_from_afar(
    image: NDArray[np.float32],
    restored: NDArray[np.float64],
    stride: int,
    merge: str,
    noise_variance: float,
    n_jobs: int,
) -> NDArray[np.float64]:
    """What is to be added to a restored image by what like patches say at half of its size.

    Patches say little about what is wider than they are, and much of the noise is left there.
    """
    given, small = halved(image), halved(restored)
    everything = np.ones(given.shape, np.bool_)
    compared = (GIVEN_SHARE * given + (1 - GIVEN_SHARE) * small).astype(np.float32)
    seen = Seen(given, everything, small, compared, everything)
    change = _around(seen, stride, merge, noise_variance / 4, n_jobs) - small
    smooth = gaussian_filter(change, AFAR, mode="nearest", axes=(0, 1))
    doubled = zoom(smooth, (2, 2, 1), order=1, mode="nearest", grid_mode=True)
    return doubled[: restored.shape[0], : restored.shape[1]]


def restored(
    learner: Learner, merge: str, keep_observed: bool, learnt_only: bool = False
) -> Merged:
    """What is known about each value of the image.

    With `keep_observed`, what was observed is taken to be without noise in the later looks. With
    `learnt_only`, patches that were not learnt from say nothing, and values that lie in no others
    are NaN: that spares searching for their states.
    """
    blocks = learner.learnt_blocks if learnt_only else learner.blocks
    put_together = partial(merge_patches, learner.places, merge, learner.noise_level**2)
    searched: Iterable[Block] = map(learner.search, blocks())
    if learner.keeps_states:
        searched = list(searched)
    merged = put_together(
        Estimate(block.numbers, block.observed, *learner.estimate(block)) for block in searched
    )
    if not learner.looks_again:
        return merged
    merged = look_around(learner, merge, merged, keep_observed)
    seen = evidence(learner, merged, keep_observed)
    merged = put_together(
        Estimate(block.numbers, block.observed, *learner.look_again(block, seen))
        for block in (searched if learner.keeps_states else blocks())
    )
    return look_around(learner, merge, merged, keep_observed)
