"""A model of an image's patches: it learns from some, and reconstructs these and others."""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evoem import em, inference
from evoem.evolution import Evolution
from evoem.images import patches
from evoem.images.canonical_arrays import Canonical
from evoem.images.patches import Grid
from evoem.models.linear import LinearModel
from evoem.models.subspace import spatial_prior
from evoem.validation import Positions

# Points of the spatial prior are so many widths of a patch apart, or more, so that as many patches
# that are learnt from lie around each.
POINT_SPACING = 2.5
PATCHES_PER_POINT = 256
# Patches reconstructed at once: their means and variances are dense.
PATCHES_AT_ONCE = 8192
# How much the bound of a patch must rise by for another E-step with the parameters held fixed.
SEARCH_TOLERANCE = 1e-2

States = NDArray[np.uint64]


class Patches(NamedTuple):
    """Some patches of an image."""

    numbers: NDArray[np.int64]  # in their grid
    data: em.Data  # a patch is a row; positions are among the points of the spatial prior

    def part(self, which: slice) -> "Patches":
        """Some of them."""
        return Patches(self.numbers[which], self.data.take(which))


class PatchSource(NamedTuple):
    """Where patches come from: an image, and the grid on which they lie."""

    canonical: Canonical
    grid: Grid
    points: tuple[int, int] | None  # rows and columns of points of the spatial prior, if any

    def cut(self, numbers: NDArray[np.int64]) -> Patches:
        """The patches of these numbers."""
        X = patches.cut(self.canonical.values, self.grid, numbers)
        observed = self.canonical.observed
        if observed is None and self.grid.margin:
            observed = np.ones(self.canonical.values.shape, np.bool_)
        if observed is not None:
            observed = patches.cut(observed, self.grid, numbers)
        return Patches(numbers, em.Data(X, observed, self.positions(self.grid, numbers)))

    def positions(self, grid: Grid, numbers: NDArray[np.int64]) -> Positions:
        """Where patches of this or another grid lie among the points of the spatial prior."""
        if self.points is None:
            return None
        corners = np.stack(grid.corners(numbers), axis=1) - grid.margin + self.grid.margin
        extents = np.array([self.grid.tops[-1], self.grid.lefts[-1]])
        scale = (np.array(self.points) - 1) / np.maximum(extents, 1)
        found: NDArray[np.float64] = corners * scale
        return found


def points_for(grid: Grid, patch_size: int, n_learnt: int) -> tuple[int, int]:
    """Rows and columns of points of a spatial prior that is learnt from so many patches."""
    extents = [np.ptp(starts) for starts in (grid.tops, grid.lefts)]
    area = (extents[0] + 1) * (extents[1] + 1)
    spacing = max(POINT_SPACING * patch_size, math.sqrt(PATCHES_PER_POINT * area / n_learnt))
    return math.ceil(extents[0] / spacing) + 1, math.ceil(extents[1] / spacing) + 1


class Search(NamedTuple):
    """How states are searched for."""

    n_latents: int
    n_states: int
    evolution: Evolution
    n_parts: int  # mini-batches per iteration
    seed: int
    n_jobs: int


class Learnt(NamedTuple):
    """What a model has learnt, without the patches and their states, which take much memory."""

    params: Any
    infos: list[em.StepInfo]
    n_patches: int  # that it was learnt from


class PatchModel:
    """A model of the patches of an image, learnt from all or many of them.

    `patches` are those it learns from, and `state` holds their states.
    """

    state: em.EMState

    def __init__(
        self, model: LinearModel, source: PatchSource, numbers: NDArray[np.int64], search: Search
    ) -> None:
        self.model = model
        self.source = source
        self.search = search
        self.patches = source.cut(numbers)
        self.infos: list[em.StepInfo] = []
        self.n_learnt = len(numbers)
        self._derived: tuple[Any, Any] | None = None

    # ------------------------------------------------------------------------------- learning

    def start(self, params: Any = None) -> None:
        """Get ready to learn, from these parameters if any are given."""
        data, search = self.patches.data, self.search
        if params is None:
            rng = np.random.default_rng(search.seed)
            params = self.model.initialize(data.X, data.observed, search.n_latents, rng)
        least = max(float(params.noise_variance), self.model.least_noise_variance)
        params = params._replace(noise_variance=np.array(least))
        if self.source.points is not None:
            field = spatial_prior.uniform(self.source.points, params.activation_probs)
            params = params._replace(field=field)
        self.state = self._first_state(params)

    def iterate(self) -> em.StepInfo:
        """One more iteration."""
        self.state, info = em.step(
            self.model,
            self.patches.data,
            self.state,
            self.search.evolution,
            n_parts=self.search.n_parts,
            n_jobs=self.search.n_jobs,
        )
        self.infos.append(info)
        return info

    @property
    def learnt(self) -> Learnt:
        """What another one may adopt."""
        return Learnt(self.params, self.infos.copy(), self.n_learnt)

    def adopt(self, learnt: Learnt, search_steps: int) -> None:
        """Take what another one learnt, from other patches of the image."""
        self.infos, self.n_learnt = learnt.infos, learnt.n_patches
        self.state = self._first_state(learnt.params)
        found = self.infer(self.patches, search_steps, self.state.states)
        self.state = self.state._replace(states=found)

    def _first_state(self, params: Any) -> em.EMState:
        return em.init(
            self.model,
            self.patches.data,
            n_states=self.search.n_states,
            params=params,
            seed=self.search.seed,
            n_jobs=self.search.n_jobs,
        )

    # --------------------------------------------------------------------------- what was learnt

    @property
    def params(self) -> Any:
        """The learnt parameters."""
        return self.state.params

    @property
    def noise_variance(self) -> float:
        """That of the noise, as it was learnt."""
        return self.noise_level**2

    @property
    def noise_level(self) -> float:
        """Its standard deviation."""
        return float(np.sqrt(self.params.noise_variance))

    @property
    def batch_size(self) -> int | None:
        """Patches of a mini-batch."""
        n_parts = self.search.n_parts
        return -(-len(self.patches.data) // n_parts) if n_parts > 1 else None

    @property
    def derived(self) -> Any:
        """What the model makes of the learnt parameters, once for all blocks of patches."""
        if self._derived is None or self._derived[0] is not self.params:
            derived = self.model.prepare(self.params, self.patches.data.X.dtype)
            self._derived = self.params, derived
        return self._derived[1]

    # --------------------------------------------------------------------------- reconstruction

    def learnt_blocks(self) -> Iterator[tuple[Patches, States]]:
        """Patches that were learnt from, with their states, block by block."""
        for start in range(0, len(self.patches.data), PATCHES_AT_ONCE):
            which = slice(start, start + PATCHES_AT_ONCE)
            yield self.patches.part(which), self.state.states[which]

    def other_blocks(
        self, numbers: NDArray[np.int64], search_steps: int
    ) -> Iterator[tuple[Patches, States]]:
        """Others of the grid, whose states are searched for by so many E-steps."""
        for start in range(0, len(numbers), PATCHES_AT_ONCE):
            block = self.source.cut(numbers[start : start + PATCHES_AT_ONCE])
            yield block, self.infer(block, search_steps)

    def infer(self, block: Patches, max_iter: int, first: States | None = None) -> States:
        """States of patches by so many E-steps at most, from the first ones if there are any."""
        return inference.infer(
            self.model,
            block.data,
            self.params,
            self.search.evolution,
            n_states=self.search.n_states,
            first=first,
            seed=self.search.seed,
            tol=SEARCH_TOLERANCE,
            max_iter=max_iter,
            n_jobs=self.search.n_jobs,
            derived=self.derived,
        ).states

    def reconstruct(
        self, block: Patches, kept: States
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Mean and variance of noise-free patches with these states."""
        parts = inference.estimate(
            self.model.reconstruct,
            self.model,
            block.data,
            self.params,
            kept,
            n_jobs=self.search.n_jobs,
            derived=self.derived,
        )
        mean, variance = (np.concatenate(part) for part in zip(*parts, strict=True))
        return mean, variance
