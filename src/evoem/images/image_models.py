"""The models of patches, and all in which they differ, in one table."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evoem.em import EMState, StepInfo
from evoem.estimators.paper_models import BinarySparseCoding, SpikeSlabCoding
from evoem.estimators.subspace import SubspaceCoding
from evoem.images import coarse_start
from evoem.images.canonical_arrays import Canonical
from evoem.images.coarse_start import Coarse
from evoem.images.patch_model import PatchModel, PatchSource
from evoem.images.settings import Settings
from evoem.models import BinarySparseCodingModel, SpikeSlabModel, SubspaceModel
from evoem.models.linear import LinearModel
from evoem.models.subspace.by_feature import SubspacesByFeature

# Share of an image that is missing from which subspaces are learnt feature by feature.
MUCH_MISSING = 0.25
# Strength of the prior by which subspaces resemble each other, in patches.
PRIOR_ROWS = 10.0

GUIDED: Settings = {
    "patch_size": 12,
    "n_generations": 1,
    "n_parts": 8,
    "parents": "best",
    "mutation": "guided",
    "start": "coarse",
    "nonlocal_passes": 3,
    "n_learnt": 300_000,
}
PAPER_MODEL = GUIDED | {"n_latents": 512, "n_children": 2}
PAPER_MODEL_PRESETS: dict[str, Settings] = {
    "fast": PAPER_MODEL | {"n_states": 100, "n_parents": 30, "max_iter": 6},
    "balanced": PAPER_MODEL | {"n_states": 300, "n_parents": 60, "max_iter": 20},
    "best": PAPER_MODEL | {"n_states": 500, "n_parents": 100, "max_iter": 60},
    # subsec:denoising and tab:hyperparams, House at a patch size of 12.
    "paper": {
        "patch_size": 12,
        "n_latents": 512,
        "n_states": 60,
        "n_parents": 60,
        "n_children": 1,
        "n_generations": 1,
        "n_parts": 1,
        "parents": "fit",
        "mutation": "uniform",
        "start": "mean",
        "max_iter": 4000,
        "nonlocal_passes": 0,
        "n_learnt": 300_000,
    },
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
    """What is special about a model when it is one of an image's patches."""

    make: Callable[[Settings, Canonical], LinearModel]
    start: Callable[[PatchModel, Coarse], Any]  # parameters from a coarse image
    coarse: str  # name of the model that makes the coarse image
    # Share of a patch that may lie beyond an edge of the image, what is there being missing: pixels
    # at edges are then seen by about as many patches as others.
    margin: float
    spatial_prior: bool  # whether latents have other probabilities in other parts of the image
    presets: dict[str, Settings]
    # E-steps, at most, for states of patches that were not learnt from: fewer where they start from
    # the best states of one latent than where these are random.
    search_steps: int
    estimator: Callable[..., Any]  # of the model, and of options that all have


def much_is_missing(canonical: Canonical) -> bool:
    """Whether the dictionary of subspaces is best learnt feature by feature."""
    given = canonical.observed_as_given
    return given is not None and float(given.mean()) < 1 - MUCH_MISSING


def make_subspaces(settings: Settings, canonical: Canonical) -> LinearModel:
    """Subspaces of at most this rank."""
    if much_is_missing(canonical):
        return SubspacesByFeature(settings["rank"], PRIOR_ROWS, canonical.noise_floor)
    return SubspaceModel(settings["rank"], canonical.noise_floor)


def make_spike_slab(settings: Settings, canonical: Canonical) -> LinearModel:
    """Spike-and-slab coding; the slab is fixed where something is missing (subsec:inpainting)."""
    if canonical.observed_as_given is None:
        return SpikeSlabModel(least_noise_variance=canonical.noise_floor)
    return SpikeSlabModel(
        slab="fixed", learn_slab_means=False, least_noise_variance=canonical.noise_floor
    )


def make_binary(settings: Settings, canonical: Canonical) -> LinearModel:
    """Binary sparse coding."""
    return BinarySparseCodingModel(least_noise_variance=canonical.noise_floor)


def subspace_estimator(model: SubspaceModel, **options: Any) -> SubspaceCoding:
    """The estimator of a model of subspaces."""
    return SubspaceCoding(rank=model.rank, **options)


def spike_slab_estimator(model: SpikeSlabModel, **options: Any) -> SpikeSlabCoding:
    """The estimator of a spike-and-slab model."""
    return SpikeSlabCoding(slab=model.slab, learn_slab_means=model.learn_slab_means, **options)


def binary_estimator(model: BinarySparseCodingModel, **options: Any) -> BinarySparseCoding:
    """The estimator of a model of binary sparse coding."""
    return BinarySparseCoding(**options)


IMAGE_MODELS = {
    "subspaces": ImageModel(
        make=make_subspaces,
        start=coarse_start.subspaces,
        coarse="es3c",
        margin=0.5,
        spatial_prior=True,
        presets=SUBSPACE_PRESETS,
        search_steps=4,
        estimator=subspace_estimator,
    ),
    "es3c": ImageModel(
        make=make_spike_slab,
        start=coarse_start.dictionary,
        coarse="es3c",
        margin=0.0,
        spatial_prior=False,
        presets=PAPER_MODEL_PRESETS,
        search_steps=30,
        estimator=spike_slab_estimator,
    ),
    "ebsc": ImageModel(
        make=make_binary,
        start=coarse_start.dictionary,
        coarse="ebsc",
        margin=0.0,
        spatial_prior=False,
        presets=PAPER_MODEL_PRESETS,
        search_steps=30,
        estimator=binary_estimator,
    ),
}


def default_model(preset: str) -> str:
    """The first model that has a preset of this name."""
    return next(name for name, kind in IMAGE_MODELS.items() if preset in kind.presets)


def estimator_maker(kind: ImageModel, learnt: PatchModel, max_iter: int) -> Callable[[], Any]:
    """What makes a fitted estimator of a model, and takes little memory until it does."""
    search, evolution, state = learnt.search, learnt.search.evolution, learnt.state
    estimator = kind.estimator(
        learnt.model,
        n_latents=search.n_latents,
        n_states=search.n_states,
        n_parents=evolution.n_parents,
        n_children=evolution.n_children,
        n_generations=evolution.n_generations,
        parents=evolution.parents,
        mutation=evolution.mutation,
        max_iter=max_iter,
        batch_size=learnt.batch_size,
        n_jobs=search.n_jobs,
        random_state=search.seed,
    )
    if kind.spatial_prior:  # rows of an estimator lie nowhere
        state = state._replace(params=state.params._replace(field=None), statistics=())
    return partial(_fitted, estimator, learnt.source, learnt.patches.numbers, state, learnt.infos)


def _fitted(
    estimator: Any,
    source: PatchSource,
    numbers: NDArray[np.int64],
    state: EMState,
    infos: list[StepInfo],
) -> Any:
    return estimator.adopt(source.cut(numbers).data, state, infos)
