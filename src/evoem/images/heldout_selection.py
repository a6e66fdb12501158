"""Choose among plans by how well they predict held-out values: no clean image is needed.

A share of the observed values, the same for all plans, is held out as if it were missing. Each plan
learns from the rest, and now and then its restored image is compared with the held-out values.
Their noise, which no plan can predict, adds the same to all errors.
"""

import math
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evoem import checkpoints
from evoem.em_state import StepInfo
from evoem.images import canonical_arrays
from evoem.images.budget import Clock
from evoem.images.canonical_arrays import Canonical
from evoem.images.image_models import IMAGE_MODELS
from evoem.images.journal import UNKEPT, Journal
from evoem.images.learning import Callback, Fit, Progress, adopted, learn
from evoem.images.patch_model import Learnt, PatchModel
from evoem.images.plan import Plan, check
from evoem.images.reconstruction import merged_image
from evoem.runtime.communicator import agreed
from evoem.runtime.row_ranges import ranges_of

# Of the observed values, and the fewest of them that say anything.
HELD_OUT = 0.02
FEWEST_HELD_OUT = 50
# Ratio of the iterations after which a plan is scored.
SPACING = 1.3
# Scores in a row that are no better than one before, after which a plan is given up.
PATIENCE = 3


class Score(NamedTuple):
    """The error of a plan's predictions of held-out values."""

    patch_size: int
    n_latents: int
    seed: int
    iteration: int
    heldout_error: float  # root mean square, in the image's units


class Best(NamedTuple):
    """The best score so far, and its model."""

    plan: Plan
    score: Score
    learnt: Learnt


class Selection(NamedTuple):
    """The chosen plan, and the scores it was chosen by."""

    plan: Plan
    scores: tuple[Score, ...]
    fit: Fit | None = None  # the best up to then, if there is no time for another one

    def notes(self) -> Iterator[str]:
        """What the reader of the result should know."""
        if self.fit is not None:
            yield (
                "The run ended while selecting: the image is that of the best candidate up to "
                "then, which learnt without the held-out values."
            )


class HeldOut(NamedTuple):
    """Held-out values, and their places in an image."""

    canonical: Canonical  # with them
    where: NDArray[np.bool_]
    rest: Canonical  # without them

    def error(self, model: PatchModel, plan: Plan) -> float:
        """Root mean square of what was predicted without them."""
        merged = merged_image(
            model, plan.best_finish, plan.merge, plan.keep_observed, learnt_only=True
        )
        own = self.canonical
        moved = (model.source.canonical.offset - own.offset) / own.scale
        squares = np.square(merged.mean + moved - own.values)
        where = self.where & ~np.isnan(squares)
        return own.scale * math.sqrt(own.band.total(squares, where) / own.band.count(where))


def hold_out(canonical: Canonical, seed: int) -> HeldOut:
    """A random choice of the observed values."""
    seen = True if canonical.observed is None else canonical.observed
    observed = np.flatnonzero(np.broadcast_to(seen, canonical.values.shape))
    shares = ranges_of(canonical.band.comm.collect(len(observed)))
    mine, number = shares[canonical.band.comm.rank], shares[-1].stop
    fewest = math.ceil(FEWEST_HELD_OUT / HELD_OUT)
    if number < fewest:
        raise ValueError(
            f"image must have at least {fewest} observed values for select='heldout'; got {number}."
        )
    # Apart from the order of patches, which is drawn by the seed alone.
    rng = np.random.default_rng((seed, number))
    chosen = rng.choice(number, int(HELD_OUT * number), replace=False)
    chosen = chosen[(mine.start <= chosen) & (chosen < mine.stop)]
    where = np.zeros(canonical.values.shape, np.bool_)
    where.flat[observed[chosen - mine.start]] = True
    return HeldOut(canonical, where, canonical_arrays.without(canonical, where))


class Candidate:
    """A plan that learns without the held-out values and is scored by them."""

    def __init__(self, plan: Plan, held_out: HeldOut, journal: Journal) -> None:
        self.plan = plan
        self.held_out = held_out
        self.journal = journal
        self.scores: list[Score] = []
        self.best: Best | None = None
        self._next = 1
        known = journal.recall("scores")
        if known is not None:
            self.scores = [Score(*values) for values in known]
            self._next = math.ceil(SPACING * self.scores[-1].iteration)
            score, params, infos, n_patches = journal.recall("best")
            learnt = Learnt(
                IMAGE_MODELS[plan.model].params(**params),
                [StepInfo(*values) for values in infos],
                n_patches,
            )
            self.best = Best(plan, Score(*score), learnt)

    def learn(self, clock: Clock, callback: Callback | None) -> Fit:
        """Learn until the scores get no better, or all iterations are done."""
        told = None if callback is None else partial(_tell, callback)
        fit = learn(self.held_out.rest, self.plan, clock, told, self.journal, self.judge)
        self.journal.note("ended", fit.ended)
        return fit

    def judge(self, model: PatchModel) -> bool:
        """Score a model now and then, and give it up if it gets no better."""
        iteration, settings = len(model.infos), self.plan.settings
        if iteration >= self._next or iteration == settings["max_iter"]:
            error = self.held_out.error(model, self.plan)
            score = Score(
                settings["patch_size"], settings["n_latents"], self.plan.seed, iteration, error
            )
            self.scores.append(score)
            self._next = math.ceil(SPACING * iteration)
            self.best = better(self.best, Best(self.plan, score, model.learnt))
            self._note()
        return self.n_worse() >= PATIENCE

    def _note(self) -> None:
        if self.best is None:
            return
        params, infos, n_patches = self.best.learnt
        self.journal.note("scores", [tuple(score) for score in self.scores])
        self.journal.note(
            "best",
            (
                tuple(self.best.score),
                params._asdict(),
                [list(map(checkpoints.number, info)) for info in infos],
                n_patches,
            ),
        )

    def n_worse(self) -> int:
        """Scores since the best."""
        return 0 if self.best is None else len(self.scores) - 1 - self.scores.index(self.best.score)


def _tell(callback: Callback, progress: Progress) -> Any:
    return callback(progress._replace(stage="selecting"))


def better(one: Best | None, other: Best | None) -> Best | None:
    """The one with the smaller error; the first if both have the same, or if it is the only one."""
    if one is None or other is None:
        return one or other
    return min(one, other, key=lambda best: best.score.heldout_error)


def select_plan(
    held_out: HeldOut,
    plans: list[Plan],
    clock: Clock,
    callback: Callback | None,
    journal: Journal = UNKEPT,
) -> Selection:
    """The plan that predicts held-out values best, with the best number of iterations.

    Each gets an equal share of the time that is left, and so does the final run of the chosen plan.
    If learning is interrupted, or the callback ends it, there is no final run.
    """
    for plan in plans:
        check(held_out.rest, plan)
    scores: list[Score] = []
    best: Best | None = None
    for number, plan in enumerate(plans):
        with journal.within(f"candidate {number}"):
            candidate, fit = Candidate(plan, held_out, journal), None
            ended = journal.recall("ended")
            if ended is None and best is not None and agreed(plan.comm, clock.left() <= 0):
                break
            if ended is None:
                try:
                    share = clock.part(1 / (len(plans) - number + 1))
                    fit = candidate.learn(share, callback)
                    ended = fit.ended
                except KeyboardInterrupt:  # before it learnt
                    if best is None:
                        raise
                    journal.stop()
                    ended = "interrupted"
        scores += candidate.scores
        best = better(best, candidate.best)
        if ended in ("callback", "interrupted"):
            if best is not None and best is not candidate.best:
                fit = adopted(held_out.canonical, best.plan, best.learnt, ended)
                plan = best.plan
            return Selection(plan, tuple(scores), fit)
    if best is None:
        raise RuntimeError("No plan was scored, though each is after its first iteration.")
    settings = best.plan.settings | {"max_iter": best.score.iteration}
    return Selection(best.plan._replace(settings=settings), tuple(scores))
