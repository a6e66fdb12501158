"""One run over an image: from a plan, by way of a sketch, to what was learnt and restored."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evoem.images import canonical_arrays as arrays
from evoem.images import coarse_start as sketch
from evoem.images import large_holes as holes
from evoem.images import looks, patches
from evoem.images.canonical_arrays import Canonical
from evoem.images.patch_model import Clock, Learner, Learnt, Progress, evolution_of, room_for
from evoem.images.settings import Settings

Callback = Callable[[Progress], Any] | None


class Plan(NamedTuple):
    """How an image is learnt and restored, see `restore`."""

    preset: str
    model: str
    settings: Settings
    stride: int
    places: patches.Grid
    merge: str
    tol: float
    seed: int
    keep_observed: bool
    n_jobs: int
    memory: int


def check(canonical: Canonical, plan: Plan) -> None:
    """Refuse a plan that cannot be carried out."""
    evolution_of(plan.settings)
    room_for(canonical, plan.places, plan.settings, plan.memory)


class Run:
    """A plan that is carried out, whose learner is there once it learns."""

    def __init__(self, canonical: Canonical, plan: Plan) -> None:
        self.plan = plan
        self.from_sketch = plan.settings.start == "sketch"
        self.canonical = arrays.centred(canonical) if self.from_sketch else canonical

    def learn(self, clock: Clock, callback: Callback) -> str:
        """Make a sketch, if that is the start, and learn; why it ended."""
        plan, params = self.plan, None
        self.learner = self._new_learner()
        if self.from_sketch:
            model = "es3c" if plan.model == "subspaces" else plan.model
            small = sketch.small_learner(self.canonical, model, plan.seed, plan.n_jobs, plan.memory)
            first = sketch.parameters_from_damaged(small)
            time = clock.part(sketch.TIME_SHARE)
            ended = small.learn(time, 0.0, callback, self.preview, first)
            if ended in ("callback", "interrupted"):
                self.learner = sketch.over_all(small, self.learner)
                return ended
            keep = plan.keep_observed and self.canonical.observed_as_given is not None
            params = sketch.parameters_from_sketch(self.learner, small, keep)
        ended = self.learner.learn(clock, plan.tol, callback, self.preview, params)
        if self.from_sketch and ended == "interrupted" and not self.learner.infos:
            self.learner = sketch.over_all(small, self.learner)
        return ended

    def adopt(self, learnt: Learnt, interrupted: bool) -> None:
        """Take what another run of this plan learnt instead of learning."""
        self.learner = self._new_learner(most=self.plan.settings.n_latents)
        self.learner.adopt(learnt, interrupted)

    def _new_learner(self, most: int | None = None) -> Learner:
        plan = self.plan
        return Learner(
            self.canonical, plan.places, plan.settings, plan.model, plan.seed, plan.n_jobs,
            plan.memory, most=most,
        )  # fmt: skip

    def complete(
        self, learner: Learner
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]:
        """Mean and standard deviation of each value, and whether any patch saw something near."""
        mean, std, near = looks.restored(learner, self.plan.merge, self.plan.keep_observed)
        return mean if near.all() else holes.fill(learner, mean, near), std, near

    def preview(self, current: Learner) -> NDArray[Any]:
        """The image as the learner in use would restore it now."""
        mean, _, _ = self.complete(sketch.over_all(current, self.learner))
        return self.image(mean)

    def image(self, mean: NDArray[np.float64]) -> NDArray[Any]:
        """What is returned of a restored image."""
        return arrays.write(self.canonical, mean, self.plan.keep_observed)

    def std(self, std: NDArray[np.float64]) -> NDArray[np.float64]:
        """What is returned of its standard deviations."""
        if self.plan.keep_observed:
            observed = self.canonical.observed_as_given
            std = np.where(True if observed is None else observed, 0.0, std)
        return arrays.layout(self.canonical, self.canonical.scale * std)

    def notes(self, near: NDArray[np.bool_]) -> Iterator[str]:
        """What the reader of the result should know."""
        learner = self.learner
        if learner.stage == "sketch":
            yield "The run ended before more than a sketch had been learnt."
        if not near.all():
            yield (
                f"{np.count_nonzero(~near)} values lie in holes larger than a patch, "
                f"{learner.settings.patch_size} pixels wide: they are a guess from their "
                "surroundings."
            )
        if learner.n_learnt < learner.places.n_patches:
            yield (
                f"The model learnt from {learner.n_learnt} of {learner.places.n_patches} patches, "
                "chosen at random."
            )
