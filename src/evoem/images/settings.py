"""Named settings, and how they are fitted to an image."""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from evoem.images import patches
from evoem.images.noise import share_of_noise
from evoem.models.base import Mask


class Settings(NamedTuple):
    """What a restoration needs to know; see `restore`."""

    patch_size: int
    n_latents: int
    rank: int  # of subspaces; else 0
    n_states: int
    n_parents: int
    n_children: int
    n_generations: int
    max_iter: int
    n_parts: int  # mini-batches per iteration
    parents: str
    mutation: str
    start: str  # one of STARTS
    n_learnt: int = 300_000  # patches to learn from, at most


STARTS = ("sketch", "mean")
# Those of the models of the paper.
PRESETS = {
    "fast": Settings(12, 512, 0, 100, 30, 2, 1, 6, 8, "best", "guided", "sketch"),
    "balanced": Settings(12, 512, 0, 300, 60, 2, 1, 20, 8, "best", "guided", "sketch"),
    "best": Settings(12, 512, 0, 500, 100, 2, 1, 60, 8, "best", "guided", "sketch"),
    # subsec:denoising and tab:hyperparams, House at a patch size of 12.
    "paper": Settings(12, 512, 0, 60, 60, 1, 1, 4000, 1, "fit", "uniform", "mean"),
}
# Those of subspaces, each of which does the work of several latents. It takes longer to find what
# to add to a parent than to evaluate a dozen children.
SUBSPACE_PRESETS = {
    "fast": Settings(12, 256, 8, 20, 4, 6, 1, 2, 8, "best", "guided", "sketch", 100_000),
    "balanced": Settings(12, 256, 8, 30, 5, 12, 1, 6, 8, "best", "guided", "sketch"),
    "best": Settings(12, 256, 8, 30, 5, 12, 1, 16, 8, "best", "guided", "sketch"),
}
# Standard deviation of noise, relative to that of the image, from which large patches are better.
MUCH_NOISE = 0.75
# A dictionary needs this many patches for each latent, and as many patches as they have pixels.
PATCHES_PER_LATENT = 8
PATCHES_PER_SUBSPACE = 64
# A preset's number of subspaces is for so many patches. Of a larger image it grows with them, up to
# as many as are learnt from: more hardly make a better dictionary.
PATCHES_OF_PRESET = 64_000
# Patches that are learnt from, of a large image in a limited time, for each second of a thread.
PATCHES_PER_SECOND = 1000
INCOMPLETE_PATCHES_PER_SECOND = 500
FEWEST_LATENTS_IN_TIME = 256
# To see around a hole, patches must be wider than it, up to a size.
HOLE_WIDTHS = 2
WIDEST_FOR_HOLES = 16
# With more pixels than this, not every overlapping patch is needed; but each pixel should lie in
# several.
MANY_PATCHES = 1_000_000
LARGEST_STRIDE_SHARE = 1 / 3


def stride_for(shape: tuple[int, int, int], patch_size: int) -> int:
    """1, or more for an image of millions of pixels."""
    wanted = math.ceil(math.sqrt(shape[0] * shape[1] / MANY_PATCHES))
    return max(1, min(wanted, int(patch_size * LARGEST_STRIDE_SHARE)))


def hole_width(missing: NDArray[np.bool_]) -> int:
    """Width of the largest square that lies within missing pixels (rows, columns)."""
    bordered = np.pad(missing, 1)
    return max(2 * int(ndimage.distance_transform_cdt(bordered, "chessboard").max()) - 1, 0)


def for_little_noise(preset: Settings) -> Settings:
    """What a preset becomes where noise is weak: details matter more, and fit smaller patches."""
    return preset._replace(patch_size=round(preset.patch_size * 2 / 3))


def for_missing(preset: Settings) -> Settings:
    """What a preset becomes where something is missing.

    There states take longer to evaluate, details matter more, and patches of two thirds the width
    restore more in the same time. Learning takes longer too.
    """
    n_states, max_iter = preset.n_states * 2 // 3, preset.max_iter + 2
    if not preset.rank:
        n_states, max_iter = preset.n_states // 3, 2 * preset.max_iter
        preset = preset._replace(n_latents=preset.n_latents // 2, n_parents=preset.n_parents // 2)
    return for_little_noise(preset)._replace(n_states=n_states, max_iter=max_iter)


def fit_to_image(
    preset: Settings,
    given: dict[str, Any],
    shape: tuple[int, int, int],
    observed: Mask,
) -> Settings:
    """Settings for an image: those given, and those of a preset, changed to go with them.

    Patches of colour are smaller, for about as many values as those of a grey image; larger if
    there are large holes; and smaller again, with fewer latents, where the image is small. Of
    subspaces there are more where the image is large.
    """
    patch_size = given.get("patch_size") or _patch_size(preset.patch_size, shape, observed)
    places = patches.grid(shape, patch_size)
    n_latents = given.get("n_latents", n_latents_for(preset, places.n_patches))
    n_states = given.get("n_states", min(preset.n_states, 2**n_latents))
    return preset._replace(
        patch_size=patch_size,
        n_latents=n_latents,
        n_states=n_states,
        n_parents=min(preset.n_parents, n_states),
        n_children=min(preset.n_children, n_latents),
    )._replace(**given)


def model_for(name: str, model: str | None) -> str:
    """The model of a named preset, unless one is given."""
    if model is not None:
        return model
    return "es3c" if name == "paper" else "subspaces"


def settings_for(
    name: str, model: str, given: dict[str, Any], values: NDArray[np.floating], observed: Mask
) -> Settings:
    """Settings of a named preset for an image (rows, columns, channels), those given as they are.

    Those of the paper are as printed.
    """
    presets = SUBSPACE_PRESETS if model == "subspaces" else PRESETS
    preset = presets[name]
    if name != "paper":
        if observed is not None:
            preset = for_missing(preset)
        elif share_of_noise(values) < MUCH_NOISE:
            preset = for_little_noise(preset)
    return fit_to_image(preset, given, values.shape, observed)


def n_latents_for(preset: Settings, n_patches: int) -> int:
    """Size of the dictionary that goes with so many patches to learn from."""
    needed, wanted = PATCHES_PER_LATENT, preset.n_latents
    if preset.rank:
        needed = PATCHES_PER_SUBSPACE
        wanted = round(wanted * max(1.0, min(n_patches, preset.n_learnt) / PATCHES_OF_PRESET))
    return max(min(wanted, n_patches // needed), 2)


def n_learnt_in(seconds: float, settings: Settings, given: dict[str, Any], observed: Mask) -> int:
    """Patches to learn from in so many seconds of a thread, as far as can be guessed.

    No fewer than a dictionary needs that has the size of the preset, or that was given.
    """
    rate = PATCHES_PER_SECOND if observed is None else INCOMPLETE_PATCHES_PER_SECOND
    fewest = PATCHES_PER_SUBSPACE * max(given.get("n_latents", 0), FEWEST_LATENTS_IN_TIME)
    return int(min(settings.n_learnt, max(seconds * rate, fewest)))


def _patch_size(preset: int, shape: tuple[int, int, int], observed: Mask) -> int:
    patch_size = max(round(preset / math.sqrt(shape[2])), 1)
    if observed is not None:
        wanted = HOLE_WIDTHS * hole_width(np.logical_and.reduce(~observed, axis=2))
        patch_size = max(patch_size, min(wanted, WIDEST_FOR_HOLES))
    while patch_size > 1:
        places = patches.grid(shape, patch_size)
        if places.n_patches >= places.patch[0] * places.patch[1]:
            break
        patch_size -= 1
    return patch_size
