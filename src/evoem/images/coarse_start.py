"""Where learning starts: a coarse image, made by a small model in seconds.

A dictionary is made of patches, and of what is left of patches after the nearest of those is taken
off (details). The small model starts from the damaged image, where a patch must stand for many to
be rid of noise (centroids), the larger one from patches of the coarse image that are unlike each
other. Subspaces start from clusters of the coarse image's patches, and from how damaged patches
differ in each. From there a few iterations lead further than hundreds do from the mean of the data.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage
from sklearn.cluster import kmeans_plusplus
from sklearn.metrics import pairwise_distances_argmin
from threadpoolctl import threadpool_limits

from evoem.images import canonical_arrays, patches
from evoem.images.canonical_arrays import Canonical
from evoem.images.patch_model import PatchModel
from evoem.images.settings import PATCHES_PER_LATENT, Settings, fit_to_image
from evoem.models.subspace.start import cluster, nearest

# Of the small model.
SETTINGS: Settings = {
    "patch_size": 8,
    "n_latents": 256,
    "n_states": 30,
    "n_parents": 15,
    "n_children": 2,
    "n_generations": 1,
    "n_parts": 8,
    "parents": "best",
    "mutation": "guided",
    "max_iter": 8,
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
    """An image that is good enough to start from, and the damaged one that it was made of."""

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
    """The image, or of a large one the window whose observed values differ most."""
    height, width = (min(length, LARGEST) for length in canonical.values.shape[:2])
    if canonical.values.shape[:2] == (height, width):
        return canonical
    found, most = canonical, -1.0
    for top in np.linspace(0, canonical.values.shape[0] - height, WINDOWS, dtype=int):
        for left in np.linspace(0, canonical.values.shape[1] - width, WINDOWS, dtype=int):
            where = np.s_[top : top + height, left : left + width]
            part = canonical_arrays.window(canonical, where)
            seen = part.values if part.observed is None else part.values[part.observed]
            if seen.size and seen.var() > most:
                found, most = part, seen.var()
    return found


def settings_of(canonical: Canonical) -> Settings:
    """Settings of the small model for an image."""
    shape = canonical.values.shape
    settings = fit_to_image(SETTINGS, {}, shape, canonical.observed_as_given)
    cover = math.ceil(COVER * shape[0] * shape[1] / settings["patch_size"] ** 2)
    return settings | {"n_learnt": max(cover, PATCHES_PER_LATENT * settings["n_latents"])}


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


def coarse_image(small: PatchModel, keep_observed: bool) -> Coarse:
    """The image from patches that were learnt from; as it was given where there are none."""
    grid, given = small.source.grid, small.source.canonical
    canvas = patches.Canvas(grid)
    window = patches.window(grid.patch, "mean", grid.shape[2])
    for block, kept in small.learnt_blocks():
        canvas.add(block.numbers, small.reconstruct(block, kept)[0], window)
    image = canvas.mean()
    as_given = np.isnan(image)
    if keep_observed and given.observed is not None:
        as_given |= given.observed
    return Coarse(np.where(as_given, given.values, image), given)


def from_damaged(small: PatchModel) -> Any:
    """Parameters that the small model starts from, with a dictionary of the damaged image."""
    given = small.source.canonical
    return dictionary(small, Coarse(filled(given), given), centroids)


def centroids(rows: Rows, number: int, seed: int) -> tuple[NDArray[np.float64], Rows]:
    """Means of so many clusters of rows, and what is left of each row without its own."""
    if number == 0:
        return np.empty((0, rows.shape[1])), rows
    centres, labels = cluster(rows, number, seed)
    return centres, rows - centres[labels].astype(rows.dtype)


def unlike(rows: Rows, number: int, seed: int) -> tuple[NDArray[np.float64], Rows]:
    """So many rows far from each other, and what is left of each row without the nearest."""
    if number >= len(rows):
        return centroids(rows, number, seed)
    with threadpool_limits(1):
        chosen, _ = kmeans_plusplus(rows, number, random_state=seed, n_local_trials=1)
        nearest = pairwise_distances_argmin(rows, chosen)
    return chosen.astype(np.float64), rows - chosen[nearest]


def dictionary(
    learner: PatchModel,
    coarse: Coarse,
    choose: Callable[[Rows, int, int], tuple[NDArray[np.float64], Rows]] = unlike,
) -> Any:
    """Parameters of a sparse coding model to start from: patches, and details that they leave."""
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


def subspaces(learner: PatchModel, coarse: Coarse) -> Any:
    """Clusters of patches of the coarse image, and how damaged patches differ in them."""
    model: Any = learner.model
    image, given = coarse
    grid = patches.regular_grid(image.shape, max(learner.source.grid.patch))
    numbers = np.random.default_rng(learner.search.seed).permutation(grid.n_patches)
    numbers = numbers[: len(learner.patches.data)]  # as many as are learnt from
    smooth = patches.cut(image.astype(np.float32), grid, numbers)
    found = cluster(smooth[:EXAMPLES], learner.search.n_latents, learner.search.seed)
    seen = True if given.observed is None else given.observed
    damaged = np.where(seen, given.values, image)
    return model.from_clusters(
        patches.cut(damaged.astype(np.float32), grid, numbers),
        nearest(smooth, found.centres),
        noise_variance=max(coarse.noise_variance, coarse.least_noise_variance),
    )
