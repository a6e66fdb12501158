"""Choose among plans by how well they predict values that were held out: no clean image is needed.

A share of the observed values is held out as if missing, the same for all plans. Each is learnt
from the rest, and now and then the restored image is compared with the held-out values. These have
noise of their own, which no plan can predict: it makes all errors larger alike.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evoem import em
from evoem.images import canonical_arrays as arrays
from evoem.images import looks
from evoem.images.canonical_arrays import Canonical
from evoem.images.learning import Callback, Plan, Run, check
from evoem.images.patch_model import Clock, Learner, Learnt, Progress

SELECTS = ("heldout",)
# Of the observed values, and the fewest of them that say anything.
HELD_OUT = 0.02
FEWEST_HELD_OUT = 50
# Ratio of the iterations after which a plan is scored.
SPACING = 1.3
# Scores in a row that are no better than one before, after which a plan is given up.
PATIENCE = 3


class Score(NamedTuple):
    """How far what was predicted of held-out values is from them."""

    patch_size: int
    n_latents: int
    seed: int
    iteration: int
    heldout_error: float  # root mean square, in the image's units


class Best(NamedTuple):
    """The best of what was scored."""

    plan: Plan
    score: Score
    learnt: Learnt


class Selection(NamedTuple):
    """What was chosen, and from what."""

    plan: Plan
    scores: tuple[Score, ...]
    # The best run up to then, if there is no time for another one, and why.
    run: Run | None = None
    ended: str = ""

    def notes(self) -> Iterator[str]:
        """What the reader of the result should know."""
        if self.run is not None:
            yield (
                "The run ended while selecting: the image is that of the best candidate up to "
                "then, which learnt without the held-out values."
            )


class Target(NamedTuple):
    """Held-out values, and where they are in an image."""

    canonical: Canonical  # with them
    places: NDArray[np.bool_]
    rest: Canonical  # without them

    def error(self, learner: Learner, plan: Plan) -> float:
        """Root mean square of what was predicted without them."""
        mean, _, _ = looks.restored(learner, plan.merge, plan.keep_observed, learnt_only=True)
        moved = (learner.canonical.offset - self.canonical.offset) / self.canonical.scale
        differences = mean[self.places] + moved - self.canonical.values[self.places]
        return self.canonical.scale * math.sqrt(np.nanmean(np.square(differences)))


def hold_out(canonical: Canonical, seed: int) -> Target:
    """A random choice of the observed values."""
    seen = True if canonical.observed is None else canonical.observed
    observed = np.flatnonzero(np.broadcast_to(seen, canonical.values.shape))
    fewest = math.ceil(FEWEST_HELD_OUT / HELD_OUT)
    if len(observed) < fewest:
        raise ValueError(
            f"image must have at least {fewest} observed values for select='heldout'; "
            f"got {len(observed)}."
        )
    # Apart from the order of patches, which is drawn by the seed alone.
    rng = np.random.default_rng((seed, len(observed)))
    chosen = rng.choice(observed, int(HELD_OUT * len(observed)), replace=False)
    places = np.zeros(canonical.values.shape, np.bool_)
    places.flat[chosen] = True
    return Target(canonical, places, arrays.without(canonical, places))


class Candidate:
    """A plan that is learnt without the held-out values, and scored by them."""

    def __init__(self, plan: Plan, target: Target) -> None:
        self.run = Run(target.rest, plan)
        self.target = target
        self.scores: list[Score] = []
        self.best: Best | None = None
        self._next = 1

    def learn(self, clock: Clock, callback: Callback) -> str:
        """Why it ended; "patience" if because its scores got no better."""
        unwanted = False

        def watch(progress: Progress) -> bool:
            nonlocal unwanted
            last = progress.iteration == progress.max_iter
            if progress.stage == "learning" and (last or progress.iteration >= self._next):
                self.score(progress.iteration)
            if callback is not None:
                unwanted = em.says_stop(callback(progress._replace(stage="selecting")))
            return unwanted or self.n_worse() >= PATIENCE

        ended = self.run.learn(clock, watch)
        return "patience" if ended == "callback" and not unwanted else ended

    def score(self, iteration: int) -> None:
        """Note how good it is now."""
        plan, learner = self.run.plan, self.run.learner
        error = self.target.error(learner, plan)
        settings = plan.settings
        score = Score(settings.patch_size, settings.n_latents, plan.seed, iteration, error)
        self.scores.append(score)
        self._next = math.ceil(SPACING * iteration)
        self.best = better(self.best, Best(plan, score, learner.learnt))

    def n_worse(self) -> int:
        """Scores since the best."""
        return 0 if self.best is None else len(self.scores) - 1 - self.scores.index(self.best.score)


def better(one: Best | None, other: Best | None) -> Best | None:
    """The one with the smaller error; the first if they are the same, or if it is the only one."""
    if one is None or other is None:
        return one or other
    return min(one, other, key=lambda best: best.score.heldout_error)


def early(canonical: Canonical, best: Best, scores: list[Score], ended: str) -> Selection:
    """What there is when the best plan up to then is no longer the one that is learnt."""
    run = Run(canonical, best.plan)
    run.adopt(best.learnt, interrupted=ended == "interrupted")
    return Selection(best.plan, tuple(scores), run, ended)


def select_plan(
    canonical: Canonical, plans: list[Plan], clock: Clock, callback: Callback
) -> Selection:
    """The best of some plans, with the best number of iterations.

    Each may take the same share of what is left of a limited time, as may the run with what was
    chosen. If learning is interrupted, or the callback wants no more, there is no such run.
    """
    target = hold_out(canonical, plans[0].seed)
    for plan in plans:
        check(target.rest, plan)
    scores: list[Score] = []
    best: Best | None = None
    for number, plan in enumerate(plans):
        if best is not None and clock.left() <= 0:
            break
        try:
            candidate = Candidate(plan, target)
            ended = candidate.learn(clock.part(1 / (len(plans) - number + 1)), callback)
        except KeyboardInterrupt:  # before it learnt
            if best is None:
                raise
            return early(canonical, best, scores, "interrupted")
        scores += candidate.scores
        best = better(best, candidate.best)
        if ended in ("callback", "interrupted"):
            if best is None or best is candidate.best:
                return Selection(plan, tuple(scores), candidate.run, ended)
            return early(canonical, best, scores, ended)
    if best is None:
        raise RuntimeError("No plan was scored, though each is after its first iteration.")
    settings = best.plan.settings._replace(max_iter=best.score.iteration)
    return Selection(best.plan._replace(settings=settings), tuple(scores))
