"""Mini-batches: the incremental schedule."""

import numpy as np
import pytest
import reference
from em_runs import bounds, run, start
from problems import MODELS, make_problem, seen


@pytest.mark.parametrize("name", MODELS)
def test_incremental_em_with_exact_inference_raises_the_likelihood(name):
    problem = make_problem(name, N=60, missing=0.2, seed=31)
    dense = reference.all_states(4)
    state, previous = start(problem, n_states=16), -np.inf
    for _ in range(5):
        state, _ = run(problem, state, iterations=1, n_parts=3)
        now = reference.free_energy(
            problem.log_joint, state.params, problem.X, seen(problem), [dense] * 60
        )
        assert now > previous
        previous = now


def test_mini_batches_keep_the_latest_statistics_of_every_part():
    problem = make_problem("binary", N=50, seed=32)
    state, _ = run(problem, start(problem), iterations=3, n_parts=3)
    assert [float(part.n_rows) for part in state.statistics] == [17, 17, 16]
    # Another number of parts starts over with a full batch.
    state, _ = run(problem, state, iterations=1, n_parts=2)
    assert [float(part.n_rows) for part in state.statistics] == [25, 25]


@pytest.mark.parametrize("name", MODELS)
def test_parts_without_rows_are_passed_over(name):
    """Nine rows in seven parts are two in each of four, one in the next, and none in two."""
    problem = make_problem(name, N=9, seed=32)
    state, infos = run(problem, start(problem), iterations=3, n_parts=7)
    assert [
        float(np.asarray(part[0] if not isinstance(part[0], tuple) else part[0][0]))
        for part in state.statistics
    ] == [2, 2, 2, 2, 1, 0, 0]
    assert np.isfinite(bounds(infos)).all()


@pytest.mark.parametrize("n_parts", [2, 5])
@pytest.mark.parametrize("name", MODELS)
def test_the_first_iteration_is_a_full_batch(name, n_parts):
    """Parameters are those of one step, whose scale convention comes after it."""
    problem = make_problem(name, N=60, missing=0.2, seed=33)
    parts, (info,) = run(problem, start(problem), iterations=1, n_parts=n_parts)
    whole, (expected,) = run(problem, start(problem), iterations=1)
    np.testing.assert_array_equal(parts.states, whole.states)
    assert info.free_energy == pytest.approx(expected.free_energy, rel=1e-12)
    learnt = problem.model.canonical(parts.params)
    for mine, other in zip(learnt, whole.params, strict=True):
        if isinstance(mine, np.ndarray):
            np.testing.assert_allclose(mine, other, rtol=1e-6, atol=1e-9)
