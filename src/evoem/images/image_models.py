"""The models of image patches, with everything in which they differ in one table."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evoem.data import Data
from evoem.em import EMState, StepInfo
from evoem.images import coarse_start
from evoem.images.canonical_arrays import Canonical
from evoem.images.coarse_start import Coarse
from evoem.images.patch_model import PatchModel, PatchSource
from evoem.images.settings import Settings, consistent, settings_for
from evoem.models import BinarySparseCodingModel, SpikeSlabModel, SubspaceModel
from evoem.models.binary_sparse_coding import BinarySparseCodingParams
from evoem.models.linear import LinearModel
from evoem.models.spike_slab.update import SpikeSlabParams
from evoem.models.subspace.by_feature import SubspacesByFeature
from evoem.models.subspace.model import SubspaceParams

# Share of an image that is missing from which subspaces are learnt feature by feature.
MUCH_MISSING = 0.25
# Strength of the prior by which subspaces resemble each other, in patches.
PRIOR_ROWS = 10.0

# More patches than any image has.
EVERY_PATCH = 2**62

GUIDED: Settings = {
    "known_children": False,
    "patch_size": 12,
    "n_generations": 1,
    "n_parts": 8,
    "parents": "best",
    "mutation": "guided",
    "crossover": False,
    "start": "coarse",
    "nonlocal_passes": 3,
    "merge": "variance",
    "n_learnt": 300_000,
}
PAPER_MODEL = GUIDED | {"n_latents": 512, "n_children": 2, "updates": "monotone"}
PAPER_MODEL_PRESETS: dict[str, Settings] = {
    "fast": PAPER_MODEL | {"n_states": 100, "n_parents": 30, "max_iter": 6},
    "balanced": PAPER_MODEL | {"n_states": 300, "n_parents": 60, "max_iter": 20},
    "best": PAPER_MODEL | {"n_states": 500, "n_parents": 100, "max_iter": 60},
}
# subsec:denoising; numbers are those of tab:hyperparams for House.
PAPER: Settings = {
    "known_children": True,
    "n_parts": 1,
    "parents": "fit",
    "mutation": "uniform",
    "crossover": False,
    "updates": "monotone",
    "start": "mean",
    "max_iter": 4000,
    "nonlocal_passes": 0,
    "merge": "mean",
    "n_learnt": EVERY_PATCH,
}
PAPER_BINARY = PAPER | {
    "patch_size": 8,
    "n_latents": 256,
    "n_states": 200,
    "n_parents": 10,
    "n_children": 9,
    "n_generations": 4,
}
PAPER_SPIKE_SLAB = PAPER | {
    "patch_size": 12,
    "n_latents": 512,
    "n_states": 60,
    "n_parents": 60,
    "n_children": 1,
    "n_generations": 1,
    "slab": "full",
}
# subsec:inpainting; numbers are those for House at 50 %.
PAPER_INPAINTING: Settings = {"n_states": 30, "n_parents": 20, "slab": "fixed"}
SPIKE_SLAB_PRESETS = {
    name: preset | {"slab": "diagonal"} for name, preset in PAPER_MODEL_PRESETS.items()
}
# A subspace does the work of several latents. It takes longer to find what to add to a parent than
# to evaluate a dozen children.
SUBSPACES = GUIDED | {"n_latents": 256, "rank": 8, "n_states": 30, "n_parents": 5, "n_children": 12}
SUBSPACE_PRESETS: dict[str, Settings] = {
    "fast": SUBSPACES
    | {"n_states": 20, "n_parents": 4, "n_children": 6, "max_iter": 2, "n_learnt": 100_000},
    "balanced": SUBSPACES | {"max_iter": 6},
    "best": SUBSPACES | {"max_iter": 16},
}


class ImageModel(NamedTuple):
    """How a model is used for the patches of an image."""

    make: Callable[[Settings, Canonical], LinearModel]
    params: type  # what is learnt, a NamedTuple
    start: Callable[[PatchModel, Coarse], Any]  # parameters from a coarse image
    small: Settings  # of the model of this kind that makes the coarse image
    start_small: Callable[[PatchModel, Coarse], Any]  # its parameters from the damaged image
    # Share of a patch that may lie beyond an edge of the image, where all values are missing, so
    # that pixels at edges lie in about as many patches as others.
    margin: float
    spatial_prior: bool  # whether latents have other probabilities in other parts of the image
    presets: dict[str, Settings]
    paper_inpainting: Settings  # what is different in the paper where something is missing
    # E-steps, at most, for states of patches that were not learnt from: fewer where they start from
    # the best states of one latent than where these are random.
    search_steps: int
    estimator: Callable[..., Any]  # of the model, and of options that all have


def much_is_missing(canonical: Canonical) -> bool:
    """Whether the dictionary of subspaces is best learnt feature by feature."""
    given = canonical.observed_as_given
    if given is None:
        return False
    return canonical.band.count(given) < (1 - MUCH_MISSING) * math.prod(canonical.shape)


def make_subspaces(settings: Settings, canonical: Canonical) -> LinearModel:
    """Subspaces of at most this rank."""
    if much_is_missing(canonical):
        return SubspacesByFeature(settings["rank"], PRIOR_ROWS, canonical.noise_floor)
    return SubspaceModel(settings["rank"], canonical.noise_floor)


def make_spike_slab(settings: Settings, canonical: Canonical) -> LinearModel:
    """Spike-and-slab coding."""
    return SpikeSlabModel(
        slab=settings["slab"],
        learn_slab_means=settings["slab"] != "fixed",
        init="authors" if settings["updates"] == "authors" else "mean",
        updates=settings["updates"],
        least_noise_variance=canonical.noise_floor,
    )


def make_binary(settings: Settings, canonical: Canonical) -> LinearModel:
    """Binary sparse coding."""
    return BinarySparseCodingModel(
        updates=settings["updates"], least_noise_variance=canonical.noise_floor
    )


# Estimators are imported late: it takes a second, and few ask for them.
def subspace_estimator(model: SubspaceModel, **options: Any) -> Any:
    """The estimator of a model of subspaces."""
    from evoem.estimators.subspace import SubspaceCoding

    return SubspaceCoding(rank=model.rank, **options)


def spike_slab_estimator(model: SpikeSlabModel, **options: Any) -> Any:
    """The estimator of a spike-and-slab model."""
    from evoem.estimators.paper_models import SpikeSlabCoding

    return SpikeSlabCoding(
        slab=model.slab, learn_slab_means=model.learn_slab_means, updates=model.updates, **options
    )


def binary_estimator(model: BinarySparseCodingModel, **options: Any) -> Any:
    """The estimator of a model of binary sparse coding."""
    from evoem.estimators.paper_models import BinarySparseCoding

    return BinarySparseCoding(updates=model.updates, **options)


IMAGE_MODELS = {
    "subspaces": ImageModel(
        make=make_subspaces,
        params=SubspaceParams,
        start=coarse_start.subspaces,
        small=coarse_start.SMALL_SUBSPACES,
        start_small=coarse_start.subspaces,
        margin=0.5,
        spatial_prior=True,
        presets=SUBSPACE_PRESETS,
        paper_inpainting={},
        search_steps=4,
        estimator=subspace_estimator,
    ),
    "es3c": ImageModel(
        make=make_spike_slab,
        params=SpikeSlabParams,
        start=coarse_start.dictionary,
        small=coarse_start.SMALL_DICTIONARY,
        start_small=coarse_start.dictionary_of_centroids,
        margin=0.0,
        spatial_prior=False,
        presets=SPIKE_SLAB_PRESETS | {"paper": PAPER_SPIKE_SLAB},
        paper_inpainting=PAPER_INPAINTING,
        search_steps=30,
        estimator=spike_slab_estimator,
    ),
    "ebsc": ImageModel(
        make=make_binary,
        params=BinarySparseCodingParams,
        start=coarse_start.dictionary,
        small=coarse_start.SMALL_DICTIONARY,
        start_small=coarse_start.dictionary_of_centroids,
        margin=0.0,
        spatial_prior=False,
        presets=PAPER_MODEL_PRESETS | {"paper": PAPER_BINARY},
        paper_inpainting={},
        search_steps=30,
        estimator=binary_estimator,
    ),
}


def default_model(preset: str) -> str:
    """The first model that has a preset of this name."""
    return next(name for name, kind in IMAGE_MODELS.items() if preset in kind.presets)


def settings_of(kind: ImageModel, name: str, given: Settings, canonical: Canonical) -> Settings:
    """Settings of a preset for an image; given ones are not changed."""
    preset, incomplete = kind.presets[name], canonical.observed_as_given is not None
    if name == "paper":
        return consistent(preset | (kind.paper_inpainting if incomplete else {}), given)
    if "slab" in preset and incomplete:
        preset = preset | {"slab": "fixed"}
    return settings_for(preset, given, canonical)


def estimator_maker(kind: ImageModel, learnt: PatchModel, max_iter: int) -> Callable[[], Any]:
    """A function that makes a fitted estimator of a model, and needs little memory until then."""
    search, evolution, state = learnt.search, learnt.search.evolution, learnt.state
    options = {
        "n_latents": search.n_latents,
        "n_states": search.n_states,
        "n_parents": evolution.n_parents,
        "n_children": evolution.n_children,
        "n_generations": evolution.n_generations,
        "parents": evolution.parents,
        "mutation": evolution.mutation,
        "crossover": evolution.crossover,
        "max_iter": max_iter,
        "batch_size": learnt.batch_size,
        "n_jobs": search.n_jobs,
        "random_state": search.seed,
    }
    make = partial(kind.estimator, learnt.model, **options)
    if kind.spatial_prior:  # rows of an estimator lie nowhere
        state = state._replace(params=state.params._replace(field=None), statistics=())
    source, patches = learnt.source, learnt.patches
    rows: Callable[[], Data] = partial(_cut, source, patches.numbers)
    if source.canonical.shared is not None:  # patches come from all processes
        own = patches.data
        rows = partial(Data, own.X, own.observed, own.positions)
    return partial(_fitted, make, rows, state, learnt.infos)


def _cut(source: PatchSource, numbers: NDArray[np.int64]) -> Data:
    return source.cut(numbers).data


def _fitted(
    make: Callable[[], Any], rows: Callable[[], Data], state: EMState, infos: list[StepInfo]
) -> Any:
    return make().adopt(rows(), state, infos)
