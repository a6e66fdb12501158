"""How learning goes and ends: threads, seeds, callbacks, interrupts, progress."""

import signal
import time
from types import SimpleNamespace

import numpy as np
import pytest
from sample_images import GREY, MASK, MODELS, SIGMA, TINY, assert_same, tiny_run
from watched_models import at, watch

from evoem import em, restore
from evoem.images import patches
from evoem.images.budget import Clock, Costs, Finish, Forecast
from evoem.images.image_models import IMAGE_MODELS
from evoem.images.learning import Stage


@pytest.mark.parametrize("options", [{}, {"model": "ebsc", "n_parts": 3}, {"memory": 50_000}])
@pytest.mark.parametrize("masked", [False, True])
def test_the_number_of_threads_changes_nothing(options, masked):
    mask = MASK if masked else None
    runs = [restore(GREY, mask=mask, **TINY | options | {"n_jobs": n}) for n in (1, 2, 3)]
    assert_same(runs[0], runs[1])
    assert_same(runs[0], runs[2])


@pytest.mark.parametrize("model", MODELS)
def test_everything_random_follows_from_the_seed(model):
    first = restore(GREY, seed=3, **TINY | {"model": model})
    assert_same(first, restore(GREY, seed=3, **TINY | {"model": model}))
    other = restore(GREY, seed=4, **TINY | {"model": model})
    assert (other.image != first.image).mean() > 0.9
    assert other.free_energies[0] != first.free_energies[0]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("masked", [False, True])
def test_the_bound_never_falls(model, masked):
    mask = MASK if masked else None
    bounds = restore(GREY, mask=mask, **TINY | {"model": model, "max_iter": 25}).free_energies
    assert len(bounds) == 25
    assert (np.diff(bounds) >= -1e-5 * np.abs(bounds[1:])).all()
    assert bounds[-1] > bounds[0] + 0.5


def test_runs_end_after_max_iter():
    result = tiny_run(max_iter=7)
    assert result.ended == "max_iter"
    assert len(result.free_energies) == 7
    assert len(tiny_run(max_iter=7, n_parts=4).free_energies) == 7


def test_a_callback_that_returns_true_ends_the_run():
    result = restore(GREY, callback=lambda progress: progress.iteration == 2, **TINY)
    assert result.ended == "callback"
    assert_same(result, tiny_run(max_iter=2))


def test_an_interrupt_keeps_what_was_learnt():
    def interrupt(progress):
        if progress.iteration == 2:
            raise KeyboardInterrupt

    result = restore(GREY, callback=interrupt, **TINY)
    assert result.ended == "interrupted"
    assert_same(result, tiny_run(max_iter=2))
    assert result.estimator.n_iter_ == 2


@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize("calls", [1, 45])
def test_an_interrupt_in_the_middle_of_an_iteration_leaves_an_image(calls, n_jobs, monkeypatch):
    def interrupt():
        raise KeyboardInterrupt

    watch(monkeypatch, "es3c", accumulate=at([calls + 1], interrupt))
    result = restore(GREY, **TINY | {"max_iter": 1000, "n_jobs": n_jobs})
    assert result.ended == "interrupted"
    assert len(result.free_energies) == (0 if calls == 1 else 5)  # eight blocks to an iteration
    assert GREY.min() - SIGMA < result.image.min() <= result.image.max() < GREY.max() + SIGMA
    assert result.estimator.n_iter_ == len(result.free_energies)


def test_other_errors_of_a_callback_are_the_callers():
    def fail(progress):
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        restore(GREY, callback=fail, **TINY)


def test_runs_end_when_the_bound_stops_rising():
    easy = restore(GREY, tol=1e6, **TINY | {"max_iter": 50})
    assert easy.ended == "converged"
    assert_same(easy, tiny_run(max_iter=6))  # the rise is that of five iterations
    result = restore(GREY, tol=0.02, **TINY | {"max_iter": 500})
    assert result.ended == "converged"
    bounds = result.free_energies
    assert 6 < len(bounds) < 500
    rises = (bounds[5:] - bounds[:-5]) / 5
    assert rises[-1] < 0.02
    assert (rises[:-1] >= 0.02).all()


def test_progress_says_where_the_run_stands():
    seen = []
    result = restore(GREY, callback=seen.append, time_limit=1e4, **TINY)
    assert [progress.iteration for progress in seen] == [1, 2, 3]
    assert {progress.max_iter for progress in seen} == {3}
    np.testing.assert_array_equal([p.free_energy for p in seen], result.free_energies)
    assert seen[-1].noise_level == result.noise_level
    assert seen[-1].active == pytest.approx(result.estimator.activation_probs_.sum())
    assert 0 < seen[0].seconds < seen[1].seconds < seen[2].seconds < result.seconds
    assert all(0 < p.seconds_left < 1e4 for p in seen)
    assert all(p.patches_per_second > 0 and p.states_replaced >= 0 for p in seen)
    assert seen[0].states_replaced > 0


def test_an_interrupt_while_the_image_is_finished_loses_nothing(monkeypatch):
    whole = tiny_run(max_iter=2)
    watch(monkeypatch, "es3c", reconstruct=at([1], lambda: signal.raise_signal(signal.SIGINT)))
    result = restore(GREY, **TINY | {"max_iter": 2})
    np.testing.assert_array_equal(result.image, whole.image)


def test_an_interrupt_before_the_first_iteration_leaves_the_coarse_start(monkeypatch):
    subspaces = IMAGE_MODELS["subspaces"]

    def interrupted(*arguments):
        signal.raise_signal(signal.SIGINT)
        return subspaces.start(*arguments)

    monkeypatch.setitem(IMAGE_MODELS, "subspaces", subspaces._replace(start=interrupted))
    result = restore(GREY, preset="fast", n_jobs=1)
    assert result.ended == "interrupted"
    assert len(result.free_energies) > 0
    assert "The run ended during the coarse start." in result.notes


class Idle:
    """A model that takes a second to learn nothing."""

    def __init__(self):
        self.infos = []
        self.params = SimpleNamespace(activation_probs=np.ones(2))
        self.noise_level = 1.0
        self.source = SimpleNamespace(canonical=SimpleNamespace(noise_unit=1.0))
        self.numbers = range(10)

    def start(self, params):
        pass

    def iterate(self, max_iter, after):
        for _ in range(max_iter):
            self.infos.append(em.StepInfo(len(self.infos) + 1, 0.0, 1.0, 0, 0))
            if after():
                break


@pytest.mark.parametrize(
    ("callback", "time_limit", "expected"),
    [(None, None, []), (lambda progress: None, None, [1, 2, 4]), (None, 1e6, [1, 2, 4])],
)
def test_nothing_is_measured_unless_somebody_looks(callback, time_limit, expected):
    measured = []
    grid = patches.regular_grid((5, 5, 1), 3)

    def measure(model, nonlocal_passes):
        measured.append(len(model.infos))
        return Forecast(Costs(0.0, 0.0, 0.0), grid, np.arange(9))

    stage = Stage(
        name="learning", kind="es3c", max_iter=5, tol=0.0, finish=Finish(3, 0),
        clock=Clock(time.perf_counter(), time_limit), callback=callback, judge=None,
        preview=lambda model: GREY, measure=measure,
    )  # fmt: skip
    fit = stage.learn(Idle(), lambda: None)
    assert measured == expected
    assert (fit.ended, len(fit.model.infos)) == ("max_iter", 5)
