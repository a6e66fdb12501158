"""Where learning starts: a sketch of the image, made by a small model in seconds.

A dictionary is made of patches, and of what is left of patches after the nearest of those is taken
off (details). The small model starts from the damaged image, where a patch must stand for many to
be rid of noise (centroids), the larger one from patches of the sketch that are unlike each other.
Subspaces start from clusters of the sketch's patches, and from how damaged patches differ in each.
From there a few iterations lead further than hundreds do from the mean of the data.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage
from sklearn.cluster import kmeans_plusplus
from sklearn.metrics import pairwise_distances_argmin
from threadpoolctl import threadpool_limits

from evoem.images import canonical_arrays as arrays
from evoem.images import patches
from evoem.images.canonical_arrays import Canonical
from evoem.images.patch_model import Learner
from evoem.images.settings import PATCHES_PER_LATENT, Settings, fit_to_image, stride_for
from evoem.models.subspace.model import SubspaceModel
from evoem.models.subspace.start import cluster, nearest

SKETCH = Settings(8, 256, 0, 30, 15, 2, 1, 8, 8, "best", "guided", "sketch")
# Patches learnt from, for each pixel.
COVER = 16
# Of a limited time.
TIME_SHARE = 0.2
# Width of what is sketched of a large image, and windows to choose from along each side.
LARGEST = 640
WINDOWS = 4
# Patches that a dictionary is made from, and that clusters are found among.
EXAMPLES = 20_000
# Share of the latents that stand for details.
DETAILS = 0.25
# Noise variance to start from is at least this share of the image's.
LEAST_NOISE = 1e-2
# Missing values are filled in by the mean of others around them, weighed by the narrowest of these
# Gaussians that sees enough of them.
WIDTHS = (0.7, 1.0, 1.5, 2.5, 5.0, 10.0)
ENOUGH = 0.15


def liveliest(canonical: Canonical) -> Canonical:
    """The image, or of a large one the window whose observed values differ most."""
    height, width = (min(length, LARGEST) for length in canonical.values.shape[:2])
    if canonical.values.shape[:2] == (height, width):
        return canonical
    found, most = canonical, -1.0
    for top in np.linspace(0, canonical.values.shape[0] - height, WINDOWS, dtype=int):
        for left in np.linspace(0, canonical.values.shape[1] - width, WINDOWS, dtype=int):
            window = np.s_[top : top + height, left : left + width]
            part = arrays.window(canonical, window)
            seen = part.values if part.observed is None else part.values[part.observed]
            if seen.size and seen.var() > most:
                found, most = part, seen.var()
    return found


def small_learner(canonical: Canonical, model: str, seed: int, n_jobs: int, memory: int) -> Learner:
    """What the sketch is learnt by."""
    canonical = liveliest(canonical)
    shape = canonical.values.shape
    settings = fit_to_image(SKETCH, {}, shape, canonical.observed_as_given)
    places = patches.grid(shape, settings.patch_size)
    cover = math.ceil(COVER * shape[0] * shape[1] / settings.patch_size**2)
    enough = max(cover, PATCHES_PER_LATENT * settings.n_latents)
    return Learner(
        canonical, places, settings, model, seed, n_jobs, memory, most=enough, stage="sketch"
    )


def over_all(small: Learner, learner: Learner) -> Learner:
    """What the sketch was learnt by, for all of the image that `learner` is to restore."""
    if small.canonical.values.shape == learner.canonical.values.shape:
        return small
    settings = small.settings
    shape = learner.canonical.values.shape
    places = patches.grid(shape, settings.patch_size, stride_for(shape, settings.patch_size))
    whole = Learner(
        learner.canonical, places, settings, small.kind, small.seed, small.n_jobs, small.memory,
        most=settings.n_latents, stage="sketch",
    )  # fmt: skip
    whole.adopt(small.learnt, small.interrupted)
    return whole


def filled(canonical: Canonical) -> NDArray[np.float64]:
    """The damaged image with values where there are none."""
    values = canonical.values.astype(np.float64)
    if canonical.observed is None:
        return values
    left = ~canonical.observed
    for width in WIDTHS:
        around = ndimage.gaussian_filter(values * canonical.observed, (width, width, 0))
        weights = ndimage.gaussian_filter(canonical.observed.astype(float), (width, width, 0))
        near = left & (weights > ENOUGH)
        values[near] = around[near] / weights[near]
        left &= ~near
    values[left] = values[canonical.observed].mean()
    return values


def parameters_from_damaged(small: Learner) -> Any:
    """Parameters to start from, with a dictionary of the damaged image."""
    return _first_parameters(small, small.canonical, filled(small.canonical), centroids)


def parameters_from_sketch(learner: Learner, small: Learner, keep_observed: bool) -> Any:
    """Parameters to start from, with a dictionary of a sketch of the image."""
    if isinstance(learner.model, SubspaceModel):
        return _first_subspaces(learner, learner.model, small, keep_observed)
    return _first_parameters(learner, small.canonical, small.sketch(keep_observed), unlike)


def _first_parameters(
    learner: Learner,
    given: Canonical,
    image: NDArray[np.float64],
    choose: Callable[..., tuple[NDArray[np.float64], NDArray[np.float32]]],
) -> Any:
    places = patches.grid(image.shape, learner.settings.patch_size)
    numbers = np.random.default_rng(learner.seed).permutation(places.n_patches)[:EXAMPLES]
    examples = patches.cut(image.astype(np.float32), places, numbers)
    n_latents = learner.settings.n_latents
    n_details = int(DETAILS * n_latents)
    coarse, rest = choose(examples, n_latents - n_details, learner.seed)
    fine, rest = centroids(rest, n_details, learner.seed)
    seen = True if given.observed is None else given.observed
    taken_off = np.square(given.values - image).mean(where=seen)
    unexplained = np.square(rest, dtype=np.float64).mean()
    variance = max(float(taken_off), float(unexplained), LEAST_NOISE * float(image.var()))
    return learner.model.with_dictionary(coarse, fine, variance)


def _first_subspaces(
    learner: Learner, model: SubspaceModel, small: Learner, keep_observed: bool
) -> Any:
    """Clusters of patches of the sketch, and how patches of the damaged image differ in them."""
    image, given = small.sketch(keep_observed), small.canonical
    places = patches.grid(image.shape, learner.settings.patch_size)
    numbers = np.random.default_rng(learner.seed).permutation(places.n_patches)
    numbers = numbers[: len(learner.X)]  # as many as are learnt from
    sketched = patches.cut(image.astype(np.float32), places, numbers)
    found = cluster(sketched[:EXAMPLES], learner.settings.n_latents, learner.seed)
    seen = True if given.observed is None else given.observed
    damaged = np.where(seen, given.values, image)
    taken_off = float(np.square(given.values - image).mean(where=seen))
    return model.from_clusters(
        patches.cut(damaged.astype(np.float32), places, numbers),
        nearest(sketched, found.centres),
        noise_variance=max(taken_off, LEAST_NOISE * float(image.var())),
    )


def centroids(
    rows: NDArray[np.float32], number: int, seed: int
) -> tuple[NDArray[np.float64], NDArray[np.float32]]:
    """Means of so many clusters of rows, and what is left of each row without its own."""
    if number == 0:
        return np.empty((0, rows.shape[1])), rows
    centres, labels = cluster(rows, number, seed)
    return centres, rows - centres[labels].astype(rows.dtype)


def unlike(
    rows: NDArray[np.float32], number: int, seed: int
) -> tuple[NDArray[np.float64], NDArray[np.float32]]:
    """So many rows far from each other, and what is left of each row without the nearest."""
    if number >= len(rows):
        return centroids(rows, number, seed)
    with threadpool_limits(1):
        chosen, _ = kmeans_plusplus(rows, number, random_state=seed, n_local_trials=1)
        nearest = pairwise_distances_argmin(rows, chosen)
    return chosen.astype(np.float64), rows - chosen[nearest]
