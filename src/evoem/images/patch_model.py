"""Learn a model of an image's patches, and what it says about every pixel."""

import math
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evoem import em, states, validation
from evoem.estimators.paper_models import BinarySparseCoding, SpikeSlabCoding
from evoem.estimators.subspace import SubspaceCoding
from evoem.evolution import Evolution
from evoem.images import budget as closing
from evoem.images import nonlocal_bayes as likeness
from evoem.images import patches
from evoem.images.budget import Closing, Costs
from evoem.images.canonical_arrays import Canonical
from evoem.images.settings import Settings
from evoem.models import BinarySparseCodingModel, SpikeSlabModel, SubspaceModel
from evoem.models.base import Mask
from evoem.models.linear import LinearModel
from evoem.models.subspace import spatial_prior
from evoem.models.subspace.by_feature import SubspacesByFeature
from evoem.runtime import interrupts
from evoem.validation import Positions

# What an image takes beside its patches: copies in several types, sums of patches and of weights.
BYTES_PER_VALUE = 100
# What memory is kept for; there are up to nine.
PATTERNS_PER_SUBSPACE = 4
# Share of the patches by which is measured how long reconstruction takes, up to a block of them.
MEASURED_SHARE = 1 / 16
# Share of a limited time that is kept for looking again, if it takes that long.
MOST_RESERVED = 0.8
# Share of an image that is missing from which the dictionary is learnt feature by feature.
MUCH_MISSING = 0.25
# Strength of the prior by which subspaces resemble each other, in patches.
PRIOR_ROWS = 10.0
# Points at which latents have probabilities of their own are so many widths of a patch apart, or
# more, so that as many patches that are learnt from lie around each.
FIELD_SPACING = 2.5
PATCHES_PER_POINT = 256
# Patches reconstructed at once: their means and variances are dense.
PATCHES_AT_ONCE = 8192


class Block(NamedTuple):
    """Some patches."""

    numbers: NDArray[np.int64]
    X: NDArray[np.float32]
    observed: Mask
    positions: Positions
    states: Any  # (n_patches, n_states, n_words), or None if they are not known


class Progress(NamedTuple):
    """What is known after an iteration."""

    iteration: int
    max_iter: int
    free_energy: float  # the bound per patch
    noise_level: float  # standard deviation of the noise, in the image's units
    active: float  # latents per patch
    states_replaced: int
    patches_per_second: float
    seconds: float  # since the start
    seconds_left: float  # at most
    params: Any
    stage: str  # "selecting", "sketch" or "learning"
    restored: Callable[[], NDArray[Any]]  # the image as it would be returned now; takes a while


class Learnt(NamedTuple):
    """What was learnt, without the patches and their states, which take much memory."""

    params: Any
    infos: list[em.StepInfo]
    n_patches: int  # that it was learnt from


class Clock(NamedTuple):
    """When a run started and how long it may take."""

    started: float
    limit: float | None

    @property
    def seconds(self) -> float:
        """Since the start."""
        return time.perf_counter() - self.started

    def left(self) -> float:
        """Until the limit."""
        return np.inf if self.limit is None else self.limit - self.seconds

    def part(self, share: float) -> "Clock":
        """A clock for what is done next, which may take this share of what is left."""
        if self.limit is None:
            return self
        seconds = self.seconds
        return self._replace(limit=seconds + share * (self.limit - seconds))


def much_is_missing(canonical: Canonical) -> bool:
    """Whether the dictionary of subspaces is best learnt feature by feature."""
    given = canonical.observed_as_given
    return given is not None and float(given.mean()) < 1 - MUCH_MISSING


def make_model(name: str, rank: int, canonical: Canonical) -> LinearModel:
    """The model behind a name, for an image."""
    if name == "subspaces":
        if much_is_missing(canonical):
            return SubspacesByFeature(rank, PRIOR_ROWS)
        return SubspaceModel(rank)
    if name == "ebsc":
        return BinarySparseCodingModel()
    if canonical.observed_as_given is None:
        return SpikeSlabModel()
    # The slab is fixed where something is missing (subsec:inpainting).
    return SpikeSlabModel(slab="fixed", learn_slab_means=False)


def bytes_per_patch(settings: Settings, n_pixels: int, masked: bool) -> int:
    """Memory of a patch, its mask and its states with their log-joints."""
    state = 8 * states.n_words(settings.n_latents) + 8
    return n_pixels * (4 + masked) + settings.n_states * state + 8


def bytes_of_statistics(settings: Settings, n_pixels: int, by_feature: bool) -> int:
    """A guess at what subspaces need beside patches: second moments of pairs of patterns, of all
    for all pixels or of those of a latent for each.

    Of each mini-batch, of two blocks that are worked on, and their sum.
    """
    if not settings.rank:
        return 0
    if by_feature:  # subspaces then mostly have as many patterns as they may
        n_patterns = (settings.rank + 1) * settings.n_latents
        second = n_pixels * (settings.rank + 2) // 2
    else:
        n_patterns = PATTERNS_PER_SUBSPACE * settings.n_latents
        second = n_patterns // 2
    return 8 * n_patterns * (second + n_pixels) * (settings.n_parts + 3)


def evolution_of(settings: Settings) -> Evolution:
    """The search for states, checked."""
    return validation.evolution(
        n_latents=settings.n_latents,
        n_states=validation.n_states(settings.n_states, settings.n_latents),
        n_parents=settings.n_parents,
        n_children=settings.n_children,
        n_generations=settings.n_generations,
        parents=settings.parents,
        mutation=settings.mutation,
        crossover=False,
    )


def n_fitting(canonical: Canonical, places: patches.Grid, settings: Settings, memory: int) -> int:
    """Number of patches that fit into so many bytes, beside the image and statistics."""
    masked = canonical.observed is not None or places.margin > 0
    others = BYTES_PER_VALUE * canonical.values.size + bytes_of_statistics(
        settings, places.n_pixels, much_is_missing(canonical)
    )
    reserved = min(memory // 2, others)
    return (memory - reserved) // bytes_per_patch(settings, places.n_pixels, masked)


def room_for(canonical: Canonical, places: patches.Grid, settings: Settings, memory: int) -> int:
    """The same, refused if there are fewer than latents."""
    room = n_fitting(canonical, places, settings, memory)
    if room < settings.n_latents:
        raise ValueError(
            f"memory must hold {settings.n_latents} patches of these settings; got {memory} "
            f"bytes, enough for {room}."
        )
    return room


class Learner:
    """A model of the patches of an image, learnt from all or many of them."""

    def __init__(
        self,
        canonical: Canonical,
        places: patches.Grid,
        settings: Settings,
        model: str,
        seed: int,
        n_jobs: int,
        memory: int,
        *,
        most: int | None = None,
        stage: str = "learning",
    ) -> None:
        self.canonical = canonical
        self.places = places
        self.kind = model
        self.memory = memory
        self.settings = settings
        self.seed = seed
        self.n_jobs = n_jobs
        self.model = make_model(model, settings.rank, canonical)
        self.evolution = evolution_of(settings)
        room = room_for(canonical, places, settings, memory)
        learnt = min(room, settings.n_learnt if most is None else most, places.n_patches)
        # In random order, so that mini-batches are alike.
        self.numbers = np.random.default_rng(seed).permutation(places.n_patches)[:learnt]
        self.X, self.observed = self.cut(self.numbers)
        self.n_learnt = learnt
        self.positions = self.locate(places, self.numbers)
        self.infos: list[em.StepInfo] = []
        self._derived: tuple[Any, Any] | None = None
        self.closing = Closing(self.most_search_steps)
        self.interrupted = False
        self.costs: Costs | None = None  # measured if anybody wants to know how long is left
        self.stage = stage

    def cut(self, numbers: NDArray[np.int64]) -> tuple[NDArray[np.float32], Mask]:
        """Patches and what was observed of them."""
        X = patches.cut(self.canonical.values, self.places, numbers)
        observed = self.canonical.observed
        if observed is None and self.places.margin:
            observed = np.ones(self.canonical.values.shape, np.bool_)
        return X, None if observed is None else patches.cut(observed, self.places, numbers)

    @property
    def field_shape(self) -> tuple[int, int]:
        """Rows and columns of points at which latents have probabilities of their own."""
        extents = [np.ptp(places) for places in (self.places.tops, self.places.lefts)]
        area = (extents[0] + 1) * (extents[1] + 1)
        spacing = max(
            FIELD_SPACING * self.settings.patch_size,
            math.sqrt(PATCHES_PER_POINT * area / len(self.X)),
        )
        return math.ceil(extents[0] / spacing) + 1, math.ceil(extents[1] / spacing) + 1

    def locate(self, places: patches.Grid, numbers: NDArray[np.int64]) -> Positions:
        """Where patches lie among those points, if the model has any."""
        if not isinstance(self.model, SubspaceModel):
            return None
        corners = np.stack(places.corners(numbers), axis=1) - places.margin + self.places.margin
        extents = np.array([self.places.tops[-1], self.places.lefts[-1]])
        scale = (np.array(self.field_shape) - 1) / np.maximum(extents, 1)
        positions: NDArray[np.float64] = corners * scale
        return positions

    def learn(
        self,
        clock: Clock,
        tol: float,
        callback: Callable[[Progress], Any] | None,
        preview: Callable[["Learner"], NDArray[Any]],
        params: Any = None,
    ) -> str:
        """Iterate, from these parameters if any are given; why it ended.

        `preview` makes the image that is to be restored from what was learnt so far.
        """
        self._preview = preview
        if isinstance(self.model, SubspaceModel):
            if params is None:
                rng = np.random.default_rng(self.seed)
                n_latents = self.settings.n_latents
                params = self.model.initialize(self.X, self.observed, n_latents, rng)
            params = params._replace(
                field=spatial_prior.uniform(self.field_shape, params.activation_probs)
            )
        self.state = em.init(
            self.model,
            self.X,
            n_latents=self.settings.n_latents,
            n_states=self.settings.n_states,
            params=params,
            observed=self.observed,
            positions=self.positions,
            seed=self.seed,
            n_jobs=self.n_jobs,
        )
        try:
            with interrupts.raised():
                ended = self._iterate(clock, em.Convergence(tol), callback)
        except KeyboardInterrupt:
            ended = "interrupted"
        if ended == "interrupted":
            self.hurry()
        elif clock.limit is not None:
            self.closing = self.closing_within(clock.left())
        return ended

    def hurry(self) -> None:
        """Search less long for states of patches that were not learnt from."""
        self.interrupted = True
        self.closing = Closing(closing.FEWEST_SEARCH_STEPS)

    def adopt(self, learnt: Learnt, interrupted: bool) -> None:
        """Take what another one learnt, from other patches of the image."""
        if interrupted:
            self.hurry()
        self.state = em.init(
            self.model,
            self.X,
            n_states=self.settings.n_states,
            params=learnt.params,
            observed=self.observed,
            positions=self.positions,
            seed=self.seed,
            n_jobs=self.n_jobs,
        )
        self.infos = learnt.infos
        self.n_learnt = learnt.n_patches
        found = self.infer(self.learnt_block(slice(None)), self.closing.steps)
        self.state = self.state._replace(states=found)

    def _iterate(
        self,
        clock: Clock,
        convergence: em.Convergence,
        callback: Callable[[Progress], Any] | None,
    ) -> str:
        allowed = clock.left()
        for _ in range(self.settings.max_iter):
            self.state, info = em.step(
                self.model,
                self.X,
                self.state,
                self.evolution,
                observed=self.observed,
                positions=self.positions,
                batch_size=self.batch_size,
                n_jobs=self.n_jobs,
            )
            self.infos.append(info)
            asked = callback is not None or clock.limit is not None
            if asked and len(self.infos).bit_count() == 1:  # a power of two: it takes a while
                self.costs = self.measure()
            if callback is not None and em.says_stop(callback(self.progress(clock))):
                return "callback"
            interrupts.check()
            if convergence([info.free_energy for info in self.infos]):
                return "converged"
            limited = clock.limit is not None
            if limited and clock.left() < info.seconds + self.reserved(allowed):
                return "time_limit"
        return "max_iter"

    @property
    def batch_size(self) -> int | None:
        """Rows of a mini-batch."""
        n_parts = self.settings.n_parts
        return -(-len(self.X) // n_parts) if n_parts > 1 else None

    @property
    def learnt(self) -> Learnt:
        """What another one may adopt."""
        return Learnt(self.params, self.infos.copy(), self.n_learnt)

    @property
    def params(self) -> Any:
        """The learnt parameters."""
        return self.state.params

    @property
    def derived(self) -> Any:
        """What the model makes of the learnt parameters, once for all blocks of patches."""
        if self._derived is None or self._derived[0] is not self.params:
            self._derived = self.params, self.model.prepare(self.params, self.X.dtype)
        return self._derived[1]

    @property
    def noise_level(self) -> float:
        """Learnt standard deviation of the noise."""
        return float(np.sqrt(self.params.noise_variance))

    def estimator(self) -> Any:
        """The same as a fitted estimator."""
        settings = self.settings
        options: dict[str, Any] = {
            "n_latents": settings.n_latents,
            "n_states": settings.n_states,
            "n_parents": settings.n_parents,
            "n_children": settings.n_children,
            "n_generations": settings.n_generations,
            "parents": settings.parents,
            "mutation": settings.mutation,
            "max_iter": settings.max_iter,
            "batch_size": self.batch_size,
            "n_jobs": self.n_jobs,
            "random_state": self.seed,
        }
        if isinstance(self.model, SubspaceModel):
            estimator: Any = SubspaceCoding(rank=self.model.rank, **options)
        elif isinstance(self.model, SpikeSlabModel):
            options |= {"slab": self.model.slab, "learn_slab_means": self.model.learn_slab_means}
            estimator = SpikeSlabCoding(**options)
        else:
            estimator = BinarySparseCoding(**options)
        state = self.state
        if isinstance(self.model, SubspaceModel):  # rows of an estimator lie nowhere
            params = state.params._replace(field=None)
            state = state._replace(params=params, statistics=())
        return estimator.adopt(self.X, self.observed, state, self.infos)

    @property
    def most_search_steps(self) -> int:
        """E-steps for states of patches that were not learnt from."""
        return closing.SEARCH_STEPS if self.model.starts_single else closing.RANDOM_SEARCH_STEPS

    def measure(self) -> Costs:
        """How long it will take to search for states, to reconstruct patches and to look around."""
        spent = []
        n_measured = min(PATCHES_AT_ONCE, math.ceil(MEASURED_SHARE * len(self.X)))
        for size in (1, 1, n_measured):  # something is compiled or derived at first
            block = self.learnt_block(slice(0, size))
            started = time.perf_counter()
            self.estimate(block)
            between = time.perf_counter()
            self.infer(block, 1)
            spent.append((between - started, time.perf_counter() - between))
        (block_alone, step_alone), (estimated, searched) = spent[-2:]
        around: tuple[float, ...] = ()
        if self.looks:
            image, observed = self.canonical.values, self.canonical.observed
            if observed is None:
                observed = np.ones(image.shape, np.bool_)
            for _ in range(2):
                around = likeness.seconds(image, observed, self.n_jobs)
        return Costs(
            max(searched - step_alone, 0.0) / n_measured,
            max(estimated - block_alone, 0.0) / n_measured,
            block_alone,
            around,
        )

    def closing_seconds(self, way: Closing) -> float:
        """How long it will take from the last iteration to the end."""
        if self.costs is None:
            raise RuntimeError("Costs were not measured.")
        n_others = len(closing.others(self.places, self.numbers, way.thinning))
        way = way._replace(looks=min(way.looks, self.looks))
        return closing.seconds(way, self.costs, len(self.X), n_others, PATCHES_AT_ONCE)

    def reserved(self, allowed: float) -> float:
        """Seconds of those allowed that are left for the end.

        Looking around gains more than further iterations do.
        """
        quickest = Closing(closing.FEWEST_SEARCH_STEPS, self.widest_thinning)
        quick, best = (self.closing_seconds(way) for way in (quickest, self.closing))
        return max(min(best, allowed / 2), min(quick, MOST_RESERVED * allowed))

    @property
    def widest_thinning(self) -> int:
        """For patches that overlap by half."""
        return max(1, min(self.places.patch) // (2 * self.widest_step))

    def closing_within(self, seconds: float) -> Closing:
        """The best way to end in that time, or the quickest there is."""
        ways = closing.ways(self.most_search_steps, self.widest_thinning, self.looks)
        chosen = Closing(self.most_search_steps)
        for chosen in ways:
            if self.closing_seconds(chosen) <= seconds:
                break
        return chosen

    def progress(self, clock: Clock) -> Progress:
        """Where the run stands."""
        info = self.infos[-1]
        last = [entry.seconds for entry in self.infos[-5:]]
        per_iteration = sum(last) / len(last)
        left = (self.settings.max_iter - len(self.infos)) * per_iteration
        left += self.closing_seconds(self.closing)
        return Progress(
            info.iteration,
            self.settings.max_iter,
            info.free_energy,
            self.canonical.scale * self.noise_level,
            float(self.params.activation_probs.sum()),
            info.states_replaced,
            len(self.X) / info.seconds,
            clock.seconds,
            min(left, max(clock.left(), 0.0)),
            self.params,
            self.stage,
            lambda: self._preview(self),
        )

    def learnt_block(self, part: slice) -> Block:
        """Some of the patches that were learnt from."""
        observed = None if self.observed is None else self.observed[part]
        positions = None if self.positions is None else self.positions[part]
        return Block(self.numbers[part], self.X[part], observed, positions, self.state.states[part])

    def learnt_blocks(self) -> Iterator[Block]:
        """Patches that were learnt from, block by block."""
        for start in range(0, len(self.X), PATCHES_AT_ONCE):
            yield self.learnt_block(slice(start, start + PATCHES_AT_ONCE))

    def blocks(self) -> Iterator[Block]:
        """Patches, block by block, with the states of those that were learnt from."""
        yield from self.learnt_blocks()
        others = closing.others(self.places, self.numbers, self.closing.thinning)
        for start in range(0, len(others), PATCHES_AT_ONCE):
            numbers = others[start : start + PATCHES_AT_ONCE]
            yield Block(numbers, *self.cut(numbers), self.locate(self.places, numbers), None)

    def search(self, block: Block) -> Block:
        """Patches with their states."""
        if block.states is not None:
            return block
        return block._replace(states=self.infer(block, self.closing.steps))

    @property
    def widest_step(self) -> int:
        """From one patch to the next, in pixels."""
        steps = (np.diff(starts).max(initial=1) for starts in (self.places.tops, self.places.lefts))
        return int(max(steps))

    @property
    def looks(self) -> int:
        """How often patches are seen together with those like them, see `evoem.images.looks`.

        Patches must overlap by half at least: one that lies alone would but confirm itself.
        """
        overlapping = 2 * self.widest_step <= min(self.places.patch)
        able = overlapping and isinstance(self.model, SubspaceModel)
        return self.closing.looks if able else 0

    def infer(self, block: Block, max_iter: int) -> NDArray[np.uint64]:
        """States of a block by so many E-steps at most, from those it has."""
        return em.infer(
            self.model,
            block.X,
            self.params,
            self.evolution,
            n_states=self.settings.n_states,
            observed=block.observed,
            positions=block.positions,
            first=block.states,
            seed=self.seed,
            tol=closing.SEARCH_TOLERANCE,
            max_iter=max_iter,
            n_jobs=self.n_jobs,
            derived=self.derived,
        ).states

    def estimate(self, block: Block) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Mean and variance of noise-free patches."""
        parts = em.estimate(
            self.model.reconstruct,
            self.model,
            block.X,
            self.params,
            block.states,
            observed=block.observed,
            positions=block.positions,
            n_jobs=self.n_jobs,
            derived=self.derived,
        )
        mean, variance = (np.concatenate(part) for part in zip(*parts, strict=True))
        return mean, variance

    def sketch(self, keep_observed: bool) -> NDArray[np.float64]:
        """The image from patches that were learnt from; as it was given where there are none."""
        canvas = patches.Canvas(self.places)
        window = patches.window(self.places.patch, "mean", self.places.shape[2])
        for block in self.learnt_blocks():
            canvas.add(block.numbers, self.estimate(block)[0], window)
        drawn, given = canvas.mean(), self.canonical
        as_given = np.isnan(drawn)
        if keep_observed and given.observed is not None:
            as_given |= given.observed
        return np.where(as_given, given.values, drawn)
