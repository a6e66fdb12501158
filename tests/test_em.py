"""Runs: the same bits for any number of threads, order of rows and continuation; bad arguments."""

import numpy as np
import pytest
from em_runs import OPERATORS, assert_same, bounds, run, start
from problems import MODELS, data_of, make_problem

from evoem import LogJointError, em
from evoem.em import Evolution


@pytest.mark.parametrize("name", MODELS)
def test_a_mask_of_ones_is_no_mask(name):
    problem = make_problem(name, N=25, seed=25)
    plain, _ = run(problem, start(problem))
    masked = problem._replace(observed=np.ones(problem.X.shape, bool))
    with_mask, _ = run(masked, start(masked))
    assert_same(plain, with_mask)


@pytest.mark.parametrize("name", MODELS)
def test_nearly_complete_rows_and_complete_rows_follow_the_same_formulas(name):
    """One missing value of 200: the masked kernels meet the complete ones in the limit."""
    problem = make_problem(name, N=50, D=8, seed=26)
    observed = np.ones(problem.X.shape, bool)
    observed[:, 0] = False
    shorter = problem._replace(
        X=problem.X[:, 1:].copy(),
        params=problem.params._replace(components=problem.params.components[:, 1:].copy()),
    )
    masked = problem._replace(observed=observed, X=np.where(observed, problem.X, 0.0))
    without, infos = run(shorter, start(shorter), iterations=6)
    with_mask, masked_infos = run(masked, start(masked), iterations=6)
    np.testing.assert_allclose(bounds(masked_infos), bounds(infos), rtol=1e-9)
    np.testing.assert_array_equal(with_mask.states, without.states)


@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize("name", MODELS)
def test_the_number_of_threads_changes_no_bit(name, missing):
    problem = make_problem(name, H=7, N=700, missing=missing, seed=27)
    results = [
        run(problem, start(problem, n_states=8, n_jobs=n), iterations=3, n_jobs=n)
        for n in (1, 2, 5)
    ]
    for state, infos in results[1:]:
        assert_same(results[0][0], state)
        np.testing.assert_array_equal(bounds(results[0][1]), bounds(infos))


@pytest.mark.parametrize("name", MODELS)
def test_permuted_rows_with_their_numbers_give_the_same_states(name):
    problem = make_problem(name, H=6, N=90, missing=0.3, seed=28)
    order = np.random.default_rng(0).permutation(90)
    numbers = np.arange(90, dtype=np.uint64)
    permuted = problem._replace(X=problem.X[order], observed=problem.observed[order])
    plain, _ = run(problem, start(problem), iterations=4)
    data = em.Data(permuted.X, permuted.observed, rows=numbers[order])
    state = em.init(permuted.model, data, n_states=6, params=permuted.params)
    other, _ = em.run(permuted.model, data, state, OPERATORS[0], max_iter=4)
    np.testing.assert_array_equal(other.states, plain.states[order])
    np.testing.assert_allclose(other.params.components, plain.params.components, rtol=1e-8)


@pytest.mark.parametrize(
    ("name", "n_parts"),
    [(name, 1) for name in MODELS] + [(name, 3) for name in MODELS],
)
def test_a_run_that_is_continued_is_one_that_never_stopped(name, n_parts):
    problem = make_problem(name, N=60, seed=29)
    whole, _ = run(problem, start(problem), iterations=6, n_parts=n_parts)
    part, _ = run(problem, start(problem), iterations=2, n_parts=n_parts)
    part, _ = run(problem, part, iterations=4, n_parts=n_parts)
    assert_same(whole, part)


def test_seeds_differ_and_repeat():
    problem = make_problem("binary", H=8, N=40, seed=33)
    one, again, two = (run(problem, start(problem, seed=s))[0] for s in (1, 1, 2))
    assert_same(one, again)
    assert (one.states != two.states).any()


GOOD = np.zeros((5, 3)) + np.arange(3.0)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"seed": -1}, "seed must be an integer between 0 and 18446744073709551615; got -1."),
        ({"seed": 2**64}, "seed must be an integer between 0 and .*; got 18446744073709551616."),
        ({"n_jobs": 0}, "n_jobs must be an integer at least 1; got 0."),
        (
            {"params": make_problem("binary", D=6).params},
            "X must have the 6 features of the parameters; got 3.",
        ),
        ({"n_latents": 0}, "n_latents must be an integer at least 1; got 0."),
        (
            {"n_states": 9},
            r"n_states must be an integer between 1 and 8 \(2\*\*n_latents\); got 9.",
        ),
    ],
)
def test_bad_arguments_of_init_get_one_sentence(changes, sentence):
    arguments = {"n_latents": 3, "n_states": 4} | changes
    with pytest.raises(ValueError, match=sentence):
        em.init(make_problem("binary").model, em.Data(GOOD), **arguments)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"X": GOOD[:4]}, "X must have the 5 rows of the state; got 4."),
        ({"evolution": Evolution(n_parents=0)}, "n_parents must be an integer at least 1; got 0."),
        ({"evolution": Evolution(n_children=4)}, "n_children must be an integer between 1 and 3"),
        (
            {"evolution": Evolution(2, 2, mutation="none")},
            "mutation must be one of 'uniform', 'sparse'",
        ),
        ({"n_parts": 0}, "n_parts must be an integer at least 1; got 0."),
        ({"n_jobs": -1}, "n_jobs must be an integer at least 1; got -1."),
        ({"X": GOOD[:, :2]}, "X must have the 3 features of the parameters; got 2."),
    ],
)
def test_bad_arguments_of_step_get_one_sentence(changes, sentence):
    model = make_problem("binary").model
    state = em.init(model, em.Data(GOOD), n_latents=3, n_states=4)
    arguments = {"X": GOOD, "evolution": Evolution(n_children=2)} | changes
    data = em.Data(arguments.pop("X"))
    with pytest.raises(ValueError, match=sentence):
        em.step(model, data, state, arguments.pop("evolution"), **arguments)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"n_jobs": 0}, "n_jobs must be an integer at least 1; got 0."),
        ({"comm": "mpi"}, "comm must be a communicator, .*; got 'mpi'."),
        ({"X": GOOD[:4]}, "X must have the 5 rows of the state; got 4."),
    ],
)
def test_bad_arguments_of_an_e_step_or_m_step_alone_get_one_sentence(changes, sentence):
    model, evolution = make_problem("binary").model, Evolution(n_children=2)
    state = em.init(model, em.Data(GOOD), n_latents=3, n_states=4)
    statistics = model.empty_statistics(state.params)
    arguments = {"X": GOOD} | changes
    data = em.Data(arguments.pop("X"))
    with pytest.raises(ValueError, match=sentence):
        em.e_step(model, data, state, evolution, **arguments)
    with pytest.raises(ValueError, match=sentence):
        em.m_step(model, data, state, statistics, **arguments)


@pytest.mark.parametrize("mutation", ["uniform", "sparse", "guided"])
@pytest.mark.parametrize("parents", ["fit", "random", "best"])
@pytest.mark.parametrize("name", MODELS[1:])  # noisy-OR asks whether values are above zero
def test_data_that_are_no_numbers_end_in_an_error(name, parents, mutation):
    problem = make_problem(name, H=70, D=5, N=20, seed=3)
    state = start(problem, n_states=3)
    data = data_of(problem)
    problem.X[11, 2] = np.nan  # after it was checked
    with pytest.raises(LogJointError, match=r"log_joints must be finite or -inf; got nan.*row 11"):
        em.step(problem.model, data, state, Evolution(3, 2, 3, parents, mutation))


@pytest.mark.parametrize("unit", [1e-12, 1e12])
@pytest.mark.parametrize("name", ["binary", "spike_slab_diagonal", "spike_slab_full"])
def test_the_unit_of_the_data_does_not_matter(name, unit):
    problem = make_problem(name, N=50, missing=0.2, seed=40)
    uniform = Evolution(3, 2, 2, "random")  # fitness has the unit's logarithm in it (app:lpj)
    results = []
    for scale in (1.0, unit):
        scaled = problem._replace(X=scale * problem.X)
        state = em.init(problem.model, data_of(scaled), n_latents=4, n_states=6)
        _, infos = run(scaled, state, uniform, iterations=8)
        assert np.diff(bounds(infos)).min() > -1e-7
        results.append(bounds(infos) + np.log(scale) * problem.observed.sum() / len(problem.X))
    np.testing.assert_allclose(results[0], results[1], rtol=1e-6)


@pytest.mark.parametrize("name", MODELS)
def test_rows_that_are_all_the_same_are_fitted_without_noise(name):
    """Degenerate data: the noise falls to its floor, and rounding must not make NaN of it."""
    problem = make_problem(name, N=1, seed=41)
    same = problem._replace(X=np.repeat(problem.X, 20, axis=0))
    for seed in range(4):
        state = em.init(same.model, data_of(same), n_latents=4, n_states=10, seed=seed)
        _, infos = run(same, state, iterations=20)
        assert np.isfinite(bounds(infos)).all()
        assert bounds(infos)[-1] > bounds(infos)[0]


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int64])
def test_integers_of_numpy_are_those_of_python(kind):
    """200 latents, 300 states or 40,000 children are more than eight bits hold."""
    problem = make_problem("binary", H=4, D=5, N=40, missing=0.0, seed=1)
    data = em.Data(problem.X)

    def bounds_with(number):
        state = em.init(
            problem.model, data, n_latents=number(100), n_states=number(60), seed=number(3)
        )
        evolution = Evolution(number(20), number(100), number(1), mutation="sparse")
        _, infos = em.run(
            problem.model, data, state, evolution, max_iter=number(2), n_parts=number(2)
        )
        return [info.free_energy for info in infos]

    assert bounds_with(kind) == bounds_with(int)


@pytest.mark.parametrize("mutation", ["uniform", "sparse", "guided"])
@pytest.mark.parametrize("crossover", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_generations_may_find_nothing_new(name, mutation, crossover):
    """Of two latents there are four states: after some generations all were seen."""
    problem = make_problem(name, H=2, D=3, N=20, missing=0.0, seed=2)
    evolution = Evolution(2, 2, 5, mutation=mutation, crossover=crossover)
    data = em.Data(problem.X)
    state = em.init(problem.model, data, n_latents=2, n_states=2)
    _, infos = em.run(problem.model, data, state, evolution, max_iter=3)
    assert np.isfinite(bounds(infos)).all()
