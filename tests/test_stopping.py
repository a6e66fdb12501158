"""When a run ends: convergence and callbacks."""

import numpy as np
import pytest
from em_runs import run, start
from problems import make_problem

from evoem import em
from evoem.stopping import asks_to_stop, has_converged, says_stop


def test_convergence_is_an_average_over_its_window():
    converged = em.Convergence(tol=0.1, window=2)
    assert not converged([0.0, 0.0])
    assert not converged([0.0, 0.0, 0.3])
    assert converged([0.0, 0.3, 0.3, 0.45])


def test_a_tolerance_of_zero_never_stops():
    assert not em.Convergence(0.0)([0.0, 0, 0, 0, 0, -1e-12])
    assert em.Convergence(1e-9)([0.0, 0, 0, 0, 0, -1e-12])


def test_a_callback_that_returns_true_ends_the_run():
    problem = make_problem("binary", N=20, seed=36)
    _, infos = run(problem, start(problem), callback=lambda info: info.iteration == 3)
    assert [info.iteration for info in infos] == [1, 2, 3]


def test_a_callback_of_two_arguments_is_told_the_state():
    problem = make_problem("binary", N=20, seed=36)
    seen_states = []
    state, _ = run(problem, start(problem), callback=lambda info, state: seen_states.append(state))
    assert [one.iteration for one in seen_states] == [1, 2, 3, 4, 5]
    assert seen_states[-1].params is state.params
    assert not hasattr(em.StepInfo(1, 0.0, 0.0, 0, 0), "params")


@pytest.mark.parametrize(
    ("answer", "ends"), [(True, True), (np.True_, True), (1, False), ("yes", False), (None, False)]
)
def test_only_true_ends_a_run(answer, ends):
    info = em.StepInfo(1, 0.0, 0.0, 0, 0)
    assert asks_to_stop(lambda info: answer, info, None) is ends
    assert asks_to_stop(lambda info, state: answer, info, None) is ends
    assert says_stop(answer) is ends


def test_without_a_callback_or_a_criterion_a_run_goes_on():
    info = em.StepInfo(1, 0.0, 0.0, 0, 0)
    assert not asks_to_stop(None, info, None)
    assert not has_converged(None, [info])
    assert not has_converged(lambda bounds: True, [])
    assert has_converged(lambda bounds: bounds == [0.0], [info])
