"""A model of an image's patches, which learns from some and reconstructs these and others."""

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evoem import em, inference
from evoem.evolution import Evolution
from evoem.images import bands, patches
from evoem.images.bands import patch_rows
from evoem.images.canonical_arrays import Canonical
from evoem.images.patches import Grid
from evoem.models.linear import LinearModel
from evoem.models.subspace import spatial_prior
from evoem.runtime.communicator import ALONE, Communicator
from evoem.runtime.row_ranges import Ranges, even_share, moved, share_of, whole_blocks
from evoem.shares import SharedRows
from evoem.validation import Positions

# Points of the spatial prior are at least this many widths of a patch apart, and far enough for
# this many of the patches that are learnt from to lie around each.
POINT_SPACING = 2.5
PATCHES_PER_POINT = 256
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


class PatchSource:
    """The source of patches: an image, and the grid on which they lie.

    Parameters
    ----------
    canonical : Canonical
        The image, of which each process may have some rows.
    grid : Grid
        Of the whole image.
    points : (int, int), optional
        Rows and columns of points of the spatial prior, if there is one.
    """

    def __init__(self, canonical: Canonical, grid: Grid, points: tuple[int, int] | None) -> None:
        self.canonical, self.grid, self.points = canonical, grid, points
        self.rows = patch_rows(grid, canonical.band)
        around = self.rows.pixels()
        self._first = around[canonical.band.comm.rank].start if canonical.shared else None
        self._values = canonical.band.fetch(canonical.values, around)
        self._observed = canonical.observed
        if self._observed is not None:
            self._observed = canonical.band.fetch(self._observed, around)
        elif grid.margin:
            self._observed = np.ones(self._values.shape, np.bool_)

    def cut(self, numbers: NDArray[np.int64]) -> Patches:
        """The patches with these numbers, which belong to this process."""
        X, observed = self._cut(numbers)
        return Patches(numbers, em.Data(X, observed, self.positions(self.grid, numbers)))

    def cut_share(self, numbers: NDArray[np.int64], comm: Communicator) -> Patches:
        """An even share, for each process, of the patches with these numbers, wherever they lie."""
        mine = even_share(len(numbers), comm)
        if self.canonical.shared is None:
            return self.cut(numbers[mine])
        pieces = []
        for rank in range(comm.size):
            wanted = numbers[share_of(len(numbers), rank, comm.size)]
            pieces.append(self._cut(wanted[self.rows.owners_of(wanted) == comm.rank]))
        own = numbers[mine]
        X = np.empty((len(own), self.grid.n_pixels), np.float32)
        observed = None if self._observed is None else np.empty(X.shape, np.bool_)
        owners = self.rows.owners_of(own)
        for rank, (values, seen) in enumerate(comm.exchange(pieces)):
            X[owners == rank] = values
            if observed is not None:
                observed[owners == rank] = seen
        return Patches(own, em.Data(X, observed, self.positions(self.grid, own)))

    def _cut(
        self, numbers: NDArray[np.int64]
    ) -> tuple[NDArray[np.float32], NDArray[np.bool_] | None]:
        X = patches.cut(self._values, self.grid, numbers, self._first)
        if self._observed is None:
            return X, None
        return X, patches.cut(self._observed, self.grid, numbers, self._first)

    def positions(self, grid: Grid, numbers: NDArray[np.int64]) -> Positions:
        """Positions of patches, of this or another grid, among the points of the spatial prior."""
        if self.points is None:
            return None
        corners = np.stack(grid.places(numbers), axis=1) - grid.margin + self.grid.margin
        extents = np.array(self.grid.extents)
        scale = (np.array(self.points) - 1) / np.maximum(extents, 1)
        found: NDArray[np.float64] = corners * scale
        return found


def points_for(grid: Grid, patch_size: int, n_learnt: int) -> tuple[int, int]:
    """Rows and columns of points of a spatial prior that is learnt from `n_learnt` patches."""
    extents = grid.extents
    area = (extents[0] + 1) * (extents[1] + 1)
    spacing = max(POINT_SPACING * patch_size, math.sqrt(PATCHES_PER_POINT * area / n_learnt))
    return math.ceil(extents[0] / spacing) + 1, math.ceil(extents[1] / spacing) + 1


class Search(NamedTuple):
    """Settings of the search for states."""

    n_latents: int
    n_states: int
    evolution: Evolution
    n_parts: int  # mini-batches per iteration
    seed: int
    n_jobs: int
    comm: Communicator = ALONE


class Learnt(NamedTuple):
    """What a model has learnt, without its patches and their states, which take much memory."""

    params: Any
    infos: list[em.StepInfo]
    n_patches: int  # that it was learnt from


class PatchModel:
    """A model of the patches of an image, learnt from all or many of them.

    `numbers` are those of the patches that it learns from, in all processes; `patches` is the share
    of this process, and `state` has their states.
    """

    state: em.EMState
    _shares: Ranges  # of the patches of each process among `numbers`

    def __init__(
        self, model: LinearModel, source: PatchSource, numbers: NDArray[np.int64], search: Search
    ) -> None:
        self.model = model
        self.source = source
        self.search = search
        self.numbers = numbers
        own = source.cut_share(numbers, search.comm)
        share = even_share(len(numbers), search.comm)
        places = np.arange(share.start, share.stop, dtype=np.uint64)
        self.patches = own._replace(data=own.data.numbered(places))
        self.infos: list[em.StepInfo] = []
        self.n_learnt = len(numbers)
        self.n_there = source.grid.n_patches  # that it might have learnt from
        self._derived: tuple[Any, Any] | None = None

    # ------------------------------------------------------------------------------- learning

    def start(self, params: Any = None) -> None:
        """Set the first state, from these parameters or from the model's own."""
        data, search = self.patches.data, self.search
        if params is None:
            rng = np.random.default_rng(search.seed)
            params = self.model.initialize(
                data.X, data.observed, search.n_latents, rng, search.comm
            )
        least = max(float(params.noise_variance), self.model.least_noise_variance)
        params = params._replace(noise_variance=np.array(least))
        if self.source.points is not None:
            field = spatial_prior.uniform(self.source.points, params.activation_probs)
            params = params._replace(field=field)
        self.set_state(self._first_state(params))

    def set_state(self, state: em.EMState) -> None:
        """Go on from a state of this process's patches, which are moved into whole blocks."""
        search = self.search
        shared = SharedRows(
            self.model, self.patches.data, state.params, search.n_parts, search.comm
        )
        self.patches = Patches(self.numbers[shared.rows], shared.data)
        self.state = shared.forth(state)
        self._shares = shared.of_all

    def iterate(self, max_iter: int, after: Callable[[], bool] = lambda: False) -> None:
        """Run at most `max_iter` iterations, until `after`, called after each, returns True."""

        def take(info: em.StepInfo, state: em.EMState) -> bool:
            self.state = state
            self.infos.append(info)
            return after()

        em.run(
            self.model,
            self.patches.data,
            self.state,
            self.search.evolution,
            max_iter=max_iter,
            callback=take,
            n_parts=self.search.n_parts,
            n_jobs=self.search.n_jobs,
            comm=self.search.comm,
        )

    @property
    def learnt(self) -> Learnt:
        """What another model of the same image can adopt."""
        return Learnt(self.params, self.infos.copy(), self.n_learnt)

    def adopt(self, learnt: Learnt, search_steps: int) -> None:
        """Take over what a model has learnt from other patches of the image."""
        self.infos, self.n_learnt = learnt.infos, learnt.n_patches
        self.set_state(self._first_state(learnt.params))
        found = self.infer(self.patches, search_steps, self.state.states)
        self.state = self.state._replace(states=found)

    def adopt_states(self, learnt: Learnt, states: States) -> None:
        """The same with the states of these patches, which the other model has learnt from."""
        self.infos, self.n_learnt = learnt.infos, learnt.n_patches
        own = states[even_share(len(states), self.search.comm)]
        unknown = np.full(own.shape[:2], -np.inf)
        self.set_state(em.EMState(learnt.params, own, unknown, (), False, 0, self.search.seed))

    def _first_state(self, params: Any) -> em.EMState:
        return em.init(
            self.model,
            self.patches.data,
            n_states=self.search.n_states,
            params=params,
            seed=self.search.seed,
            n_jobs=self.search.n_jobs,
            comm=self.search.comm,
        )

    # --------------------------------------------------------------------------- what was learnt

    @property
    def params(self) -> Any:
        """The learnt parameters."""
        return self.state.params

    @property
    def noise_variance(self) -> float:
        """The learnt variance of the noise."""
        return self.noise_level**2

    @property
    def noise_level(self) -> float:
        """The learnt standard deviation of the noise."""
        return float(np.sqrt(self.params.noise_variance))

    @property
    def batch_size(self) -> int | None:
        """Patches of a mini-batch."""
        n_parts = self.search.n_parts
        return -(-len(self.numbers) // n_parts) if n_parts > 1 else None

    @property
    def derived(self) -> Any:
        """The result of `model.prepare`, computed once for all blocks of patches."""
        if self._derived is None or self._derived[0] is not self.params:
            derived = self.model.prepare(self.params, self.patches.data.X.dtype)
            self._derived = self.params, derived
        return self._derived[1]

    # --------------------------------------------------------------------------- reconstruction

    def learnt_blocks(self) -> Iterator[tuple[Patches, States]]:
        """Patches that were learnt from, with their states, block by block.

        All processes must call this. The rounding of matrix products depends on their sizes, so
        blocks have the same rows with any number of processes, which borrow the rest of their last
        block from each other.
        """
        comm, size, places = self.search.comm, bands.PATCHES_AT_ONCE, self._shares
        starts = np.arange(0, len(self.numbers), size)
        taken = whole_blocks(places, np.append(starts, len(self.numbers)))
        lasts = [
            slice((there.stop - 1) // size * size, there.stop)
            if own.stop < there.stop and there.start < there.stop
            else slice(0, 0)
            for own, there in zip(places, taken, strict=True)
        ]
        own, mine, last = (each[comm.rank] for each in (places, taken, lasts))

        def move(values: NDArray[Any]) -> NDArray[Any]:
            return moved(values, places, lasts, comm)

        borrowed = Patches(self.numbers[last], self.patches.data.map_rows(move))
        states = move(self.state.states)
        for start in range(mine.start, mine.stop, size):
            if last.start <= start < last.stop:
                yield borrowed, states
            else:
                which = slice(start - own.start, min(start + size, mine.stop) - own.start)
                yield self.patches.part(which), self.state.states[which]

    def unlearnt_blocks(
        self, numbers: Iterable[NDArray[np.int64]], search_steps: int
    ) -> Iterator[tuple[Patches, States]]:
        """Other patches of the grid that belong to this process, some at a time, with states that
        `search_steps` E-steps find."""
        for some in numbers:
            block = self.source.cut(some)
            yield block, self.infer(block, search_steps)

    def infer(self, block: Patches, max_iter: int, first: States | None = None) -> States:
        """States of patches after at most `max_iter` E-steps, from the first ones if given."""
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
