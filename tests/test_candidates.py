"""Which candidates of an M-step are taken."""

import numpy as np
import pytest
from em_runs import assert_same, run, start
from problems import make_problem

from evoem import LogJointError


def test_the_first_candidate_that_does_not_lower_the_bound_is_taken():
    problem = make_problem("binary", N=60, seed=34)
    asked = []

    class Eager(type(problem.model)):
        def update(self, params, stats):
            best = super().update(params, stats)
            yield params._replace(noise_variance=100.0 * params.noise_variance)
            yield best
            asked.append("more")
            return params

    eager = problem._replace(model=Eager())
    state, _ = run(eager, start(eager), iterations=4)
    expected, _ = run(problem, start(problem), iterations=4)
    assert_same(state.params, expected.params)
    assert not asked
    mini, _ = run(eager, start(eager), iterations=1, n_parts=2)
    assert_same(mini.params, run(problem, start(problem), iterations=1, n_parts=2)[0].params)


def test_a_candidate_without_log_joints_is_an_error_unless_the_model_catches_it():
    problem = make_problem("binary", N=20, seed=34)

    class Broken(type(problem.model)):
        def __init__(self, catches):
            super().__init__()
            self.catches = catches

        def update(self, params, stats):
            try:
                yield params._replace(components=np.nan * params.components)
            except LogJointError:
                if not self.catches:
                    raise
            return super().update(params, stats)

        def log_joints(self, derived, rows, population):
            super().log_joints(derived, rows, population)
            if np.isnan(derived.gram).any():
                raise LogJointError("log_joints must be finite", 0, [])

    caught = problem._replace(model=Broken(True))
    assert_same(
        run(caught, start(caught), iterations=3)[0].params,
        run(problem, start(problem), iterations=3)[0].params,
    )
    with pytest.raises(LogJointError, match="log_joints must be finite"):
        run(problem._replace(model=Broken(False)), start(problem))
