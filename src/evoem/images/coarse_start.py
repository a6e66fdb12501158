"""Start learning from a coarse image, which a small model makes in seconds.

A dictionary consists of patches, and of residuals of patches after the nearest of those is
subtracted (details). A small model starts from the damaged image, where only means of many patches
are free of noise (centroids); the larger one from patches of the coarse image that are far from
each other. Subspaces start from clusters of patches of either image, and from the directions in
which damaged patches differ within each. A few iterations from there lead further than hundreds
from the mean of the data.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from evoem.images import canonical_arrays, patches
from evoem.images.canonical_arrays import Canonical
from evoem.images.merging import Estimate, own_estimates
from evoem.images.patch_model import PatchModel
from evoem.images.settings import (
    PATCHES_OF_PRESET,
    PATCHES_PER_LATENT,
    Settings,
    fit_to_image,
)
from evoem.models.all_rows import AllRows, share_of_blocks
from evoem.models.subspace.start import cluster, nearest
from evoem.runtime.threads import one_library_thread

# Of the small models: a dictionary, and subspaces.
SMALL_DICTIONARY: Settings = {
    "patch_size": 8,
    "n_latents": 256,
    "n_states": 30,
    "n_parents": 15,
    "n_children": 2,
    "n_generations": 1,
    "n_parts": 8,
    "parents": "best",
    "mutation": "guided",
    "crossover": False,
    "known_children": False,
    "updates": "monotone",
    "max_iter": 8,
}
SMALL_SUBSPACES = SMALL_DICTIONARY | {
    "n_latents": 64,
    "rank": 4,
    "n_states": 10,
    "n_parents": 3,
    "n_children": 6,
    "max_iter": 3,
    "n_learnt": PATCHES_OF_PRESET,  # so that there are not more subspaces in larger images
}
# Patches learnt from, for each pixel.
COVER = 16
# Of a limited time.
TIME_SHARE = 0.2
# Width of the part of a large image that is learnt from, and windows to choose from along a side.
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

Rows = NDArray[np.float32]


class Coarse(NamedTuple):
    """An image that is good enough to start from, and the damaged one that it was made from."""

    image: NDArray[np.float64]
    given: Canonical

    @property
    def noise_variance(self) -> float:
        """What was taken off the damaged image."""
        seen = True if self.given.observed is None else self.given.observed
        return float(np.square(self.given.values - self.image).mean(where=seen))

    @property
    def least_noise_variance(self) -> float:
        """To start from."""
        return LEAST_NOISE * float(self.image.var())


def most_varied_window(canonical: Canonical) -> Canonical:
    """The image, or the window of a large image whose observed values vary most."""
    shape, band = canonical.shape, canonical.band
    height, width = (min(length, LARGEST) for length in shape[:2])
    if shape[:2] == (height, width):
        return canonical
    found, most = canonical, -1.0
    for top in np.linspace(0, shape[0] - height, WINDOWS, dtype=int).tolist():
        for left in np.linspace(0, shape[1] - width, WINDOWS, dtype=int).tolist():
            where = np.s_[top : top + height, left : left + width]
            part = canonical_arrays.window(canonical, where)
            seen = np.ones(part.values.shape, np.bool_) if part.observed is None else part.observed
            _, deviation = band.mean_and_deviation(part.values, seen)
            if deviation > most and band.count(seen):
                found, most = part, deviation
    return found


def settings_of(small: Settings, canonical: Canonical) -> Settings:
    """Settings of a small model for an image."""
    shape = canonical.shape
    settings = fit_to_image(small, {}, shape, canonical.observed_as_given, canonical.band)
    cover = math.ceil(COVER * shape[0] * shape[1] / settings["patch_size"] ** 2)
    return settings | {
        "n_learnt": max(cover, PATCHES_PER_LATENT * settings["n_latents"]),
        "slab": "diagonal" if canonical.observed_as_given is None else "fixed",
    }


def filled(canonical: Canonical) -> NDArray[np.float64]:
    """The damaged image with its missing values filled in."""
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


def coarse_image(small: PatchModel, keep_observed: bool) -> Coarse:
    """The image from patches that were learnt from; as given where there are none."""
    grid, rows = small.source.grid, small.source.rows
    given = canonical_arrays.everywhere(small.source.canonical)
    canvas = patches.Canvas(grid, rows.strip)
    window = patches.window(grid.patch, "mean", grid.shape[2])
    estimates = (
        Estimate(block.numbers, None, *small.reconstruct(block, kept))
        for block, kept in small.learnt_blocks()
    )
    for one in own_estimates(estimates, rows):
        canvas.add(one.numbers, one.mean, window)
    rows.add([canvas.totals, canvas.weights])
    image = rows.band.everywhere(canvas.mean())
    as_given = np.isnan(image)
    if keep_observed and given.observed is not None:
        as_given |= given.observed
    return Coarse(np.where(as_given, given.values, image), given)


def damaged(small: PatchModel) -> Coarse:
    """What the small model starts from: the damaged image."""
    given = canonical_arrays.everywhere(small.source.canonical)
    return Coarse(filled(given), given)


def centroids(rows: Rows, number: int, seed: int) -> tuple[NDArray[np.float64], Rows]:
    """Means of clusters of rows, and each row less its own mean."""
    if number == 0:
        return np.empty((0, rows.shape[1])), rows
    centres, labels = cluster(rows, number, seed)
    return centres, rows - centres[labels].astype(rows.dtype)


def kmeans_seeds(rows: Rows, number: int, seed: int) -> tuple[NDArray[np.float64], Rows]:
    """Rows far from each other, chosen by k-means++, and each row less the nearest of them."""
    if number >= len(rows):
        return centroids(rows, number, seed)
    from sklearn.cluster import kmeans_plusplus  # late: it takes a second
    from sklearn.metrics import pairwise_distances_argmin

    with one_library_thread():
        chosen, _ = kmeans_plusplus(rows, number, random_state=seed, n_local_trials=1)
        nearest = pairwise_distances_argmin(rows, chosen)
    return chosen.astype(np.float64), rows - chosen[nearest]


def dictionary(
    learner: PatchModel,
    coarse: Coarse,
    choose: Callable[[Rows, int, int], tuple[NDArray[np.float64], Rows]] = kmeans_seeds,
) -> Any:
    """Initial parameters of a sparse coding model: patches, and details that these leave."""
    n_latents, seed = learner.search.n_latents, learner.search.seed
    grid = patches.regular_grid(coarse.image.shape, max(learner.source.grid.patch))
    numbers = np.random.default_rng(seed).permutation(grid.n_patches)[:EXAMPLES]
    examples = patches.cut(coarse.image.astype(np.float32), grid, numbers)
    n_details = int(DETAILS * n_latents)
    whole, rest = choose(examples, n_latents - n_details, seed)
    details, rest = centroids(rest, n_details, seed)
    unexplained = float(np.square(rest, dtype=np.float64).mean())
    variance = max(coarse.noise_variance, unexplained, coarse.least_noise_variance)
    return learner.model.with_dictionary(whole, details, variance)


def dictionary_of_centroids(learner: PatchModel, coarse: Coarse) -> Any:
    """The same for an image with noise."""
    return dictionary(learner, coarse, centroids)


def subspaces(learner: PatchModel, coarse: Coarse) -> Any:
    """Initial subspaces: clusters of patches of the coarse image, and how damaged patches differ
    within them.
    """
    model: Any = learner.model
    comm, (image, given) = learner.search.comm, coarse
    grid = patches.regular_grid(image.shape, max(learner.source.grid.patch))
    numbers = np.random.default_rng(learner.search.seed).permutation(grid.n_patches)
    numbers = numbers[: len(learner.numbers)]  # as many as are learnt from
    image = image.astype(np.float32)
    examples = patches.cut(image, grid, numbers[:EXAMPLES])
    found = cluster(examples, learner.search.n_latents, learner.search.seed)
    numbers = numbers[share_of_blocks(len(numbers), comm)]
    smooth = AllRows(patches.cut(image, grid, numbers), None, comm)
    seen = True if given.observed is None else given.observed
    damaged = np.where(seen, given.values, image)
    return model.from_clusters(
        patches.cut(damaged.astype(np.float32), grid, numbers),
        nearest(smooth, found.centres),
        noise_variance=max(coarse.noise_variance, coarse.least_noise_variance),
        comm=comm,
    )
