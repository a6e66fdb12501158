"""Check the options of `restore`, and fit a preset to an image."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from evoem import validation
from evoem.images import bands, noise_stage, patches
from evoem.images.bands import Band
from evoem.images.canonical_arrays import Canonical
from evoem.images.noise import share_of_noise
from evoem.images.options import OPTIONS, known
from evoem.validation import Mask

# Options by name, with the values that are used for an image: those that presets decide about, and
# `n_learnt`, the largest number of patches to learn from, and `known_children`, see `Evolution`.
Settings = dict[str, Any]

# Standard deviation of noise, relative to that of the image, from which large patches are better.
MUCH_NOISE = 0.75
# A dictionary needs this many patches for each latent, and as many patches as they have pixels.
PATCHES_PER_LATENT = 8
PATCHES_PER_SUBSPACE = 64
# A preset's number of subspaces is for this many patches. It grows with the patches, up to
# as many as are learnt from: more hardly make a better dictionary.
PATCHES_OF_PRESET = 64_000
# To see around a hole, patches must be wider than it, up to a size.
HOLE_WIDTHS = 2
WIDEST_FOR_HOLES = 16
# With more pixels than this, not every overlapping patch is needed; but each pixel should lie in
# several.
MANY_PATCHES = 1_000_000
LARGEST_STRIDE_SHARE = 1 / 3


def checked(function: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """All options of a function, given or default, checked against their declarations.

    Options that may have several values are tuples.
    """
    options = known(function, dict(given))
    for name, option in OPTIONS.items():
        value, setting = options[name], option.setting
        if value is None and option.may_be_none:
            continue
        if setting.choices:
            validation.choice(name, value, setting.choices)
        elif option.selectable:
            options[name] = validation.candidates(name, value, options["select"])
        elif bool in option.kinds:
            validation.boolean(name, value)
        elif float in option.kinds:
            several = option.several and isinstance(value, list | tuple)
            for one in value if several else [value]:
                validation.real(name, one, -np.inf if setting.least is None else setting.least)
        elif setting.least is not None:
            options[name] = validation.integer(name, value, setting.least, setting.most)
    if options["noise"] is not None:
        noise_stage.check(options["noise"])
    validation.restarts(options["restarts"], options["select"])
    validation.resumable(options["checkpoint"], options["resume"])
    validation.jobs(options["n_jobs"])
    validation.callback(options["callback"])
    if options["comm"] is not None:
        validation.communicator(options["comm"])
    return options


def stride_for(shape: tuple[int, int, int], patch_size: int) -> int:
    """1, or more for an image of millions of pixels."""
    wanted = math.ceil(math.sqrt(shape[0] * shape[1] / MANY_PATCHES))
    return max(1, min(wanted, int(patch_size * LARGEST_STRIDE_SHARE)))


def hole_width(missing: NDArray[np.bool_]) -> int:
    """Width of the largest square that lies within missing pixels (rows, columns)."""
    bordered = np.pad(missing, 1)
    return max(2 * int(ndimage.distance_transform_cdt(bordered, "chessboard").max()) - 1, 0)


def for_little_noise(preset: Settings) -> Settings:
    """A preset for weak noise: details matter more, and fit smaller patches."""
    return preset | {"patch_size": round(preset["patch_size"] * 2 / 3)}


def for_missing(preset: Settings) -> Settings:
    """A preset for missing values.

    States take longer to evaluate then, details matter more, and patches of two thirds the width
    restore more in the same time. Learning takes longer too.
    """
    changed = {"n_states": preset["n_states"] * 2 // 3, "max_iter": preset["max_iter"] + 2}
    if "rank" not in preset:
        changed = {
            "n_states": preset["n_states"] // 3,
            "max_iter": 2 * preset["max_iter"],
            "n_latents": preset["n_latents"] // 2,
            "n_parents": preset["n_parents"] // 2,
        }
    return for_little_noise(preset) | changed | {"merge": "centre"}


def fit_to_image(
    preset: Settings,
    given: Settings,
    shape: tuple[int, int, int],
    observed: Mask | None,
    band: Band | None = None,
) -> Settings:
    """Settings for an image: given ones, and those of a preset, adapted to them.

    Colour patches are smaller, with about as many values as grey ones. Patches are larger if there
    are large holes, and smaller, with fewer latents, if the image is small. Large images get more
    subspaces.
    """
    patch_size = given.get("patch_size") or _patch_size(
        preset["patch_size"], shape, observed, bands.whole(shape[0]) if band is None else band
    )
    grid = patches.regular_grid(shape, patch_size)
    n_latents = given.get("n_latents", n_latents_for(preset, grid.n_patches))
    return consistent(preset, given | {"patch_size": patch_size, "n_latents": n_latents})


def consistent(preset: Settings, given: Settings) -> Settings:
    """Given settings, and those of a preset with no more states and children than these allow."""
    n_latents: int = {**preset, **given}["n_latents"]
    n_states = given.get("n_states", min(preset["n_states"], 2**n_latents))
    fitted = {
        "n_states": n_states,
        "n_parents": min(preset["n_parents"], n_states),
        "n_children": min(preset["n_children"], n_latents),
    }
    return preset | fitted | given


def settings_for(preset: Settings, given: Settings, canonical: Canonical) -> Settings:
    """Settings of one of our presets for an image; given ones are not changed."""
    values, observed = canonical.values, canonical.observed
    if observed is not None:
        preset = for_missing(preset)
    elif share_of_noise(values, canonical.band) < MUCH_NOISE:
        preset = for_little_noise(preset)
    return fit_to_image(preset, given, canonical.shape, observed, canonical.band)


def n_latents_for(preset: Settings, n_patches: int) -> int:
    """Size of the dictionary that suits this number of patches to learn from."""
    needed, wanted = PATCHES_PER_LATENT, preset["n_latents"]
    if "rank" in preset:
        needed = PATCHES_PER_SUBSPACE
        n_learnt = min(n_patches, preset["n_learnt"])
        wanted = round(wanted * max(1.0, n_learnt / PATCHES_OF_PRESET))
    return int(max(min(wanted, n_patches // needed), 2))


def _patch_size(preset: int, shape: tuple[int, int, int], observed: Mask | None, band: Band) -> int:
    patch_size = max(round(preset / math.sqrt(shape[2])), 1)
    if observed is not None:
        # Wider holes make no larger patches, so that it is enough to see so far.
        reach = WIDEST_FOR_HOLES + 1
        near = [
            slice(max(own.start - reach, 0), min(own.stop + reach, shape[0])) for own in band.own
        ]
        missing = band.fetch(np.logical_and.reduce(~observed, axis=2), near)
        wanted = HOLE_WIDTHS * int(band.largest(hole_width(missing)))
        patch_size = max(patch_size, min(wanted, WIDEST_FOR_HOLES))
    while patch_size > 1:
        grid = patches.regular_grid(shape, patch_size)
        if grid.n_patches >= grid.patch[0] * grid.patch[1]:
            break
        patch_size -= 1
    return patch_size
