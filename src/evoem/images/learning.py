"""Learn a model of an image's patches in limited time, and report progress."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evoem import em
from evoem.images import budget, canonical_arrays, coarse_start, patches
from evoem.images.budget import Clock, Finish, Forecast
from evoem.images.canonical_arrays import Canonical
from evoem.images.image_models import IMAGE_MODELS
from evoem.images.journal import UNKEPT, Journal
from evoem.images.patch_model import Learnt, PatchModel, PatchSource, Search, points_for
from evoem.images.patches import Grid
from evoem.images.plan import Plan, best_finish, evolution_of
from evoem.images.reconstruction import whole_image
from evoem.images.settings import Settings, stride_for
from evoem.runtime import interrupts, stages
from evoem.runtime.communicator import ALONE, Communicator, agreed
from evoem.stopping import says_stop

# Iterations whose time is that of those to come.
RECENT = 5


class Progress(NamedTuple):
    """The progress of a restoration, which a callback gets after each iteration.

    Attributes
    ----------
    iteration, max_iter : int
        Number of this iteration, from one, and of the last one at most.
    free_energy : float
        The bound per patch.
    noise_level : float
        Learnt standard deviation of the noise, in units of the image.
    active : float
        Expected number of active latents per patch.
    states_replaced : int
        Kept states that were replaced by better ones.
    patches_per_second : float
    seconds : float
        Time since the start.
    seconds_left : float
        Predicted time to the result, at most.
    params : NamedTuple
        The model's parameters.
    stage : {"selecting", "coarse start", "learning"}
        The part of the run.
    restored : callable
        `restored()` is the image, or all slices of a stack, as it would be returned now; takes a
        while.
    seconds_to_stop : float
        Predicted time from an interrupt to the result, at most.
    of_others : str
        With several processes, time spent waiting for others and the amount of data sent to them.

    Examples
    --------
    >>> import numpy as np
    >>> import evoem
    >>> noisy = 100 + np.random.default_rng(0).normal(0, 10, (16, 16))
    >>> def stop_early(progress):
    ...     print(progress.stage, progress.iteration, progress.restored().shape)
    ...     return True
    >>> result = evoem.restore(noisy, preset="fast", callback=stop_early)
    coarse start 1 (16, 16)
    >>> result.ended
    'callback'
    """

    iteration: int
    max_iter: int
    free_energy: float
    noise_level: float
    active: float
    states_replaced: int
    patches_per_second: float
    seconds: float
    seconds_left: float
    params: Any
    stage: str
    restored: Callable[[], NDArray[Any]]
    seconds_to_stop: float = 0.0
    of_others: str = ""


Callback = Callable[[Progress], Any]
Measure = Callable[[PatchModel, int], Forecast]
# Given the model after an iteration, whether to give it up.
Judge = Callable[[PatchModel], bool]


class Fit(NamedTuple):
    """A learnt model, and how its image is to be finished."""

    kind: str  # of the model
    model: PatchModel
    finish: Finish
    ended: str  # as in `Restoration`, or "given up"
    coarse: bool = False  # whether it is the small one


class Reached(NamedTuple):
    """What a stage needs besides its model in order to resume."""

    limit: float | None  # of its clock
    allowed: float  # seconds at its start
    ended: str | None = None
    finish: tuple[int, ...] = ()  # that was chosen when it ended


class Stage(NamedTuple):
    """A part of a run, in which one model learns."""

    name: str
    kind: str
    max_iter: int
    tol: float
    finish: Finish  # the best there is
    clock: Clock
    callback: Callback | None
    judge: Judge | None
    preview: Callable[[PatchModel], NDArray[Any]]  # the image that would be returned now
    journal: Journal = UNKEPT
    # How long a model takes to finish its image, with a number of nonlocal passes.
    measure: Measure = budget.forecast
    comm: Communicator = ALONE

    def learn(self, model: PatchModel, start: Callable[[], Any]) -> Fit:
        """Iterate from the first parameters, or resume the stage from where the journal has it.

        If there is a checkpoint, an interrupt waits for the end of the iteration, so that a resumed
        run equals one that was never interrupted.
        """
        advance = stages.begin(self.name, self.max_iter)
        params = IMAGE_MODELS[self.kind].params
        noted = self.journal.go_on(self.name, model, params)
        if noted is None:
            model.start(start())
            reached = Reached(self.clock.limit, self.clock.left())
        else:
            reached = Reached(*noted)
        own = self._replace(clock=self.clock._replace(limit=reached.limit))
        self.journal.keep()
        advance(len(model.infos))
        stopped = None
        try:
            with interrupts.raised():
                interrupts.check()
                if reached.ended is None:
                    reached, stopped = own._iterate(model, reached, advance)
        except KeyboardInterrupt:
            stopped = "interrupted"
        if stopped is not None:
            self.journal.stop()
        finish = Finish(*reached.finish) if reached.finish else self.finish
        if stopped == "interrupted":
            finish = self.finish.quickest_search
        return Fit(self.kind, model, finish, stopped or reached.ended or "max_iter")

    def _iterate(
        self, model: PatchModel, reached: Reached, advance: Callable[[int], None]
    ) -> tuple[Reached, str | None]:
        """Learn; returns how far that led, and what stopped it early, if anything did."""
        watched = self.callback is not None or self.clock.limit is not None
        forecast, stopped = None, False

        def after() -> bool:
            nonlocal forecast, reached, stopped
            advance(1)
            interrupts.agree(self.comm)
            if watched and (forecast is None or len(model.infos).bit_count() == 1):
                forecast = self.measure(model, self.finish.nonlocal_passes)  # it takes a while
            ended = self._reason_to_end(model, forecast, reached.allowed)
            if self.callback is not None and forecast is not None:
                stopped = says_stop(self.callback(self._progress(model, forecast)))
            ended, stopped = agreed(self.comm, (ended, stopped))  # clocks differ
            finish = self.finish
            if (ended or stopped) and self.clock.limit is not None and forecast is not None:
                finish = agreed(self.comm, forecast.best_within(finish, self.clock.left()))
            reached = reached._replace(ended=ended, finish=tuple(finish))
            self.journal.reached(self.name, model, tuple(reached))
            self.journal.keep(at_once=stopped)
            with interrupts.raised():
                interrupts.check()
            return stopped or ended is not None

        with interrupts.raised(0 if self.journal.is_kept else 1):
            model.iterate(self.max_iter - len(model.infos), after)
        return reached, "callback" if stopped else None

    def _reason_to_end(
        self, model: PatchModel, forecast: Forecast | None, allowed: float
    ) -> str | None:
        """Why this iteration is the last one; None if it is not."""
        if self.judge is not None and self.judge(model):
            return "given up"
        if em.Convergence(self.tol)([info.free_energy for info in model.infos]):
            return "converged"
        if self.clock.limit is not None and forecast is not None:
            reserved = forecast.reserved(self.finish, allowed)
            if self.clock.left() < model.infos[-1].seconds + reserved:
                return "time_limit"
        return "max_iter" if len(model.infos) == self.max_iter else None

    def _progress(self, model: PatchModel, forecast: Forecast) -> Progress:
        """The progress of the run."""
        info, recent = model.infos[-1], [entry.seconds for entry in model.infos[-RECENT:]]
        left = (self.max_iter - len(model.infos)) * sum(recent) / len(recent)
        left += forecast.seconds(self.finish)
        return Progress(
            iteration=info.iteration,
            max_iter=self.max_iter,
            free_energy=info.free_energy,
            noise_level=model.source.canonical.noise_unit * model.noise_level,
            active=float(model.params.activation_probs.sum()),
            states_replaced=info.states_replaced,
            patches_per_second=len(model.numbers) / info.seconds,
            seconds=self.clock.seconds,
            seconds_left=min(left, max(self.clock.left(), 0.0)),
            params=model.params,
            stage=self.name,
            restored=lambda: self.preview(model),
            seconds_to_stop=info.seconds + forecast.seconds(self.finish.quickest_search),
            of_others=self.comm.report(),
        )


def learn(
    canonical: Canonical,
    plan: Plan,
    clock: Clock,
    callback: Callback | None,
    journal: Journal = UNKEPT,
    judge: Judge | None = None,
    measure: Measure = budget.forecast,
    images_of: Callable[[Fit], NDArray[Any]] | None = None,
) -> Fit:
    """Learn a model of an image's patches, after a small one if the plan has a coarse start.

    `images_of` makes previews, if the image is not what is to be restored.
    """
    from_coarse = plan.settings["start"] == "coarse"
    if from_coarse:
        canonical = canonical_arrays.centred(canonical)
    kind = IMAGE_MODELS[plan.model]
    model = new_model(canonical, plan.grid, plan.model, plan.settings, plan)

    def preview(current: PatchModel) -> NDArray[Any]:
        fit = Fit(plan.model, current, plan.best_finish, "")
        if current is not model:
            finish = best_finish(plan.model, current.source.grid, 0)
            small = Fit(plan.model, current, finish, "", coarse=True)
            fit = for_whole_image(small, canonical, plan)
        if images_of is not None:
            return images_of(fit)
        mean = whole_image(fit.model, fit.finish, plan.merge, plan.keep_observed).mean
        return canonical_arrays.write(canonical, mean, plan.keep_observed)

    first = None
    if from_coarse and not journal.is_at("learning"):
        first = learn_coarse(canonical, plan, clock, callback, journal, preview)
        if first.ended in ("callback", "interrupted"):
            return for_whole_image(first, canonical, plan)

    def start() -> Any:
        if first is None:
            return None
        keep = plan.keep_observed and canonical.observed_as_given is not None
        return kind.start(model, coarse_start.coarse_image(first.model, keep))

    stage = Stage(
        name="learning",
        kind=plan.model,
        max_iter=plan.settings["max_iter"],
        tol=plan.tol,
        finish=plan.best_finish,
        clock=clock,
        callback=callback,
        judge=judge,
        preview=preview,
        journal=journal,
        measure=measure,
        comm=plan.comm,
    )
    fit = stage.learn(model, start)
    if first is not None and fit.ended == "interrupted" and not model.infos:
        return for_whole_image(
            first._replace(ended=fit.ended, finish=first.finish.quickest_search), canonical, plan
        )
    return fit


def learn_coarse(
    canonical: Canonical,
    plan: Plan,
    clock: Clock,
    callback: Callback | None,
    journal: Journal,
    preview: Callable[[PatchModel], NDArray[Any]],
) -> Fit:
    """Learn the small model, from a window if the image is large."""
    window = coarse_start.most_varied_window(canonical)
    kind = IMAGE_MODELS[plan.model]
    settings = coarse_start.settings_of(kind.small, window)
    grid = patches.regular_grid(window.shape, settings["patch_size"])
    small = new_model(window, grid, plan.model, settings, plan)
    stage = Stage(
        name="coarse start",
        kind=plan.model,
        max_iter=settings["max_iter"],
        tol=0.0,
        finish=best_finish(plan.model, grid, 0),  # as a rule no image is made of it
        clock=clock.part(coarse_start.TIME_SHARE),
        callback=callback,
        judge=None,
        preview=preview,
        journal=journal,
        comm=plan.comm,
    )

    def start() -> Any:
        return kind.start_small(small, coarse_start.damaged(small))

    return stage.learn(small, start)._replace(coarse=True)


def new_model(
    canonical: Canonical,
    grid: Grid,
    kind: str,
    settings: Settings,
    plan: Plan,
    learnt: Learnt | None = None,
) -> PatchModel:
    """A new model for an image, which learns from as many patches as fit into memory.

    A model that adopts what another one has learnt needs only a few.
    """
    room = budget.enough_in_memory(canonical, grid, settings, plan.memory)
    most = settings["n_learnt"] if learnt is None else settings["n_latents"]
    # In random order, so that mini-batches are alike.
    numbers = np.random.default_rng(plan.seed).permutation(grid.n_patches)
    numbers = numbers[: min(room, most)]
    points = None
    if IMAGE_MODELS[kind].spatial_prior:
        if learnt is None:
            points = points_for(grid, settings["patch_size"], len(numbers))
        else:
            points = learnt.params.field.shape[:2]
    search = Search(
        n_latents=settings["n_latents"],
        n_states=settings["n_states"],
        evolution=evolution_of(settings),
        n_parts=settings["n_parts"],
        seed=plan.seed,
        n_jobs=plan.n_jobs,
        comm=plan.comm,
    )
    model = IMAGE_MODELS[kind].make(settings, canonical)
    return PatchModel(model, PatchSource(canonical, grid, points), numbers, search)


def adopted(canonical: Canonical, plan: Plan, learnt: Learnt, ended: str) -> Fit:
    """A model for this image with what another run of the plan has learnt."""
    if plan.settings["start"] == "coarse":
        canonical = canonical_arrays.centred(canonical)
    finish = plan.best_finish.quickest_search if ended == "interrupted" else plan.best_finish
    model = new_model(canonical, plan.grid, plan.model, plan.settings, plan, learnt)
    model.adopt(learnt, finish.search_steps)
    return Fit(plan.model, model, finish, ended)


def for_whole_image(small: Fit, canonical: Canonical, plan: Plan) -> Fit:
    """The small model, which may have learnt from a part of the image, for all of it."""
    model, finish = small.model, small.finish
    shape, grid = canonical.shape, small.model.source.grid
    if grid.shape != shape:
        small_settings = IMAGE_MODELS[small.kind].small
        settings = coarse_start.settings_of(small_settings, model.source.canonical)
        patch_size = settings["patch_size"]
        grid = patches.regular_grid(shape, patch_size, stride_for(shape, patch_size))
        learnt, finish = model.learnt, finish._replace(thinning=1)
        model = new_model(canonical, grid, small.kind, settings, plan, learnt)
        model.adopt(learnt, finish.search_steps)
    best = best_finish(small.kind, grid, plan.settings["nonlocal_passes"])
    finish = finish._replace(nonlocal_passes=best.nonlocal_passes)
    return small._replace(model=model, finish=finish)
