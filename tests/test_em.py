"""The EM loop: monotone bounds, exact limits, determinism, mini-batches."""

import numpy as np
import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import MODELS, data_of, make_problem, seen

from evoem import LogJointError, em, states
from evoem.em import Evolution
from evoem.incremental import parts_of

OPERATORS = [
    Evolution(3, 2, 2, parents, mutation, crossover)
    for parents in ("fit", "random", "best")
    for mutation in ("uniform", "sparse")
    for crossover in (False, True)
]

# The gradient of a full slab covariance is not a statistic that outlives its parameters.


def start(problem, n_states=6, seed=0, **options):
    options = {"params": problem.params, "seed": seed} | options
    return em.init(problem.model, data_of(problem), n_states=n_states, **options)


def run(problem, state, evolution=OPERATORS[0], iterations=5, **options):
    given = problem.model, data_of(problem), state, evolution
    return em.run(*given, max_iter=iterations, **options)


def bounds(infos):
    return np.array([info.free_energy for info in infos])


def assert_same(a, b):
    """NamedTuples of arrays, equal to the last bit."""
    for mine, other in zip(a, b, strict=True):
        if isinstance(mine, tuple):
            assert_same(mine, other)
        else:
            np.testing.assert_array_equal(mine, other)


@pytest.mark.parametrize("evolution", OPERATORS, ids=lambda e: "-".join(map(str, e[3:])))
@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize("name", MODELS)
def test_the_bound_never_falls_in_any_step(name, missing, evolution):
    problem = make_problem(name, H=6, D=8, N=60, missing=missing, seed=21)
    _, infos = run(problem, start(problem), evolution, iterations=30)
    steps = np.diff(bounds(infos))
    assert steps.min() > -1e-9 * np.abs(bounds(infos)).max()
    assert bounds(infos)[-1] > bounds(infos)[0]


@settings(max_examples=25)
@given(
    st.sampled_from(MODELS),
    st.sampled_from(OPERATORS),
    st.sampled_from([0.0, 0.2, 0.7]),
    st.integers(0, 10_000),
)
def test_the_bound_never_falls_for_random_problems(name, evolution, missing, seed):
    rng = np.random.default_rng(seed)
    H, D, N = int(rng.integers(3, 9)), int(rng.integers(1, 10)), int(rng.integers(2, 40))
    problem = make_problem(name, H=H, D=D, N=N, missing=missing, seed=seed)
    noises = []

    def note(info, state):
        noises.append(float(getattr(state.params, "noise_variance", 1.0)))

    _, infos = run(problem, start(problem, seed=seed), evolution, iterations=12, callback=note)
    steps = np.diff(bounds(infos))
    tolerance = 1e-8 * max(1.0, np.abs(bounds(infos)).max())
    if name != "noisy_or":
        # Tiny data can be explained without noise; |y|²/σ² is then large, and so is its rounding.
        tolerance += 4e-15 * np.square(problem.X).sum(1).max() / min(noises)
    assert steps.min() > -tolerance


@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize("name", MODELS)
def test_the_reported_bound_is_that_of_the_kept_states(name, missing):
    problem = make_problem(name, missing=missing, seed=22)
    state = start(problem, n_states=5)
    before = problem.params
    state, info = em.step(problem.model, data_of(problem), state, OPERATORS[0])
    kept = states.unpack(state.states, 4)
    expected = reference.free_energy(problem.log_joint, before, problem.X, seen(problem), kept)
    assert info.free_energy == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize("name", MODELS)
def test_all_states_kept_is_exact_em(name, missing):
    """The bound is the likelihood, and no parameter in its neighbourhood has a higher Q."""
    problem = make_problem(name, N=30, missing=missing, seed=23)
    dense = reference.all_states(4)
    state = start(problem, n_states=16)
    state, info = em.step(problem.model, data_of(problem), state, OPERATORS[0])
    exact = reference.free_energy(
        problem.log_joint, problem.params, problem.X, seen(problem), [dense] * 30
    )
    assert info.free_energy == pytest.approx(exact, rel=1e-10)
    assert info.states_replaced == 0
    assert info.states_evaluated == 30 * 16 * (2 if name == "spike_slab_full" else 1)
    following = reference.free_energy(
        problem.log_joint, state.params, problem.X, seen(problem), [dense] * 30
    )
    assert following > exact


@pytest.mark.parametrize("name", ["binary", "spike_slab_diagonal"])
def test_the_m_step_is_the_maximiser_of_the_expected_log_joint(name, monkeypatch):
    """Q(Θ) by the slow twin falls in every direction from the updated parameters."""
    problem = make_problem(name, N=40, seed=24)
    # Q is written for the amplitudes as they were, not for those of the scale convention.
    monkeypatch.setattr(problem.model, "canonical", lambda params: params)
    dense = reference.all_states(4)
    mask = np.ones(problem.X.shape[1], bool)
    old = problem.params
    state = start(problem, n_states=16)
    new = em.step(problem.model, data_of(problem), state, OPERATORS[0])[0].params
    slab = name != "binary"
    moments = reference.spike_slab_moments if slab else reference.binary_moments
    rows = []
    for x in problem.X:
        weights, _ = reference.posterior(problem.log_joint, old, x, mask, dense)
        rows.append((x, weights, [moments(old, x, mask, s) for s in dense]))

    def Q(params):
        W, noise, pi = params.components, params.noise_variance, params.activation_probs
        total = 0.0
        for x, weights, given_s in rows:
            for weight, s, (m1, m2) in zip(weights, dense, given_s, strict=True):
                square = x @ x - 2 * m1 @ W @ x + np.trace(W.T @ m2 @ W)
                value = -0.5 * len(x) * np.log(noise) - 0.5 * square / noise
                value += np.log(np.where(s, pi, 1 - pi)).sum()
                if slab:
                    mu, psi = params.slab_means, params.slab_covariance
                    spread = np.diag(m2) - 2 * mu * m1 + mu**2
                    value -= 0.5 * (s * (np.log(psi) + spread / psi)).sum()
                total += weight * value
        return total

    best = Q(new)
    rng = np.random.default_rng(0)
    for field in new._fields:
        value = getattr(new, field)
        for _ in range(8):
            direction = rng.normal(size=value.shape)
            if not slab and field == "activation_probs":
                direction = np.full(value.shape, direction[0])  # one π for all
            for size in (1e-3, -1e-3):
                moved = new._replace(**{field: value * (1 + size * direction)})
                assert Q(moved) <= best + 1e-9


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


@pytest.mark.parametrize(("n_rows", "n_parts"), [(10, 3), (9, 7), (3, 8), (64, 8), (1, 1)])
def test_parts_are_consecutive_and_of_equal_size(n_rows, n_parts):
    found = parts_of(n_rows, n_parts)
    assert len(found) == n_parts
    assert [row for part in found for row in range(n_rows)[part]] == list(range(n_rows))
    sizes = [part.stop - part.start for part in found if part.stop > part.start]
    assert len(set(sizes[:-1])) <= 1
    assert sizes[-1] <= sizes[0]


@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize("name", MODELS)
def test_a_step_is_an_e_step_and_an_m_step(name, missing):
    problem = make_problem(name, N=40, missing=missing, seed=42)
    model, data = problem.model, data_of(problem)
    whole, info = em.step(model, data, start(problem), OPERATORS[0])
    state, statistics, found = em.e_step(model, data, start(problem), OPERATORS[0])
    assert found.bound / 40 == info.free_energy
    weights = np.exp(state.log_joints - state.log_joints.max(1, keepdims=True))
    kept = [
        np.exp(
            em.posterior.evaluate(
                model,
                (derived := model.prepare(state.params, np.float64)),
                data.prepare(model, derived),
                state.states,
            )
            - state.log_joints.max(1, keepdims=True)
        )
    ]
    np.testing.assert_allclose(weights, kept[0])  # they belong to these parameters
    state, compared = em.m_step(model, data, state, statistics, found)
    assert found.evaluated + compared == info.states_evaluated
    assert_same(model.canonical(state.params), whole.params)
    np.testing.assert_array_equal(state.states, whole.states)


def test_seeds_differ_and_repeat():
    problem = make_problem("binary", H=8, N=40, seed=33)
    one, again, two = (run(problem, start(problem, seed=s))[0] for s in (1, 1, 2))
    assert_same(one, again)
    assert (one.states != two.states).any()


def in_any_case(problem, candidate):
    """The problem with a model whose M-step is one of those of a full slab."""

    class Decided(type(problem.model)):
        def update(self, params, stats):
            return self._update(params, stats, cautious=candidate == "cautious")

    return problem._replace(model=Decided(slab="full"))


def test_a_candidate_that_would_lower_the_bound_is_refused():
    problem = make_problem("spike_slab_full", N=60, seed=34)

    class Reckless(type(problem.model)):
        def update(self, params, stats):
            yield params._replace(slab_covariance=100.0 * params.slab_covariance)
            yield params._replace(noise_variance=100.0 * params.noise_variance)
            return self._update(params, stats, cautious=True)

    reckless = problem._replace(model=Reckless(slab="full"))
    state, infos = run(reckless, start(reckless), iterations=8)
    assert np.diff(bounds(infos)).min() > 0
    assert min(info.states_evaluated for info in infos) > 60 * 6 * 3  # kept, and two candidates
    careful = in_any_case(problem, "cautious")
    expected, _ = run(careful, start(careful), iterations=8)
    assert_same(state.params, expected.params)


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


def test_the_fast_full_slab_update_is_mostly_accepted_and_beats_the_cautious_one():
    problem = make_problem("spike_slab_full", N=300, seed=35)
    slow = in_any_case(problem, "cautious")
    _, fast_infos = run(problem, start(problem, n_states=16), iterations=15)
    _, slow_infos = run(slow, start(slow, n_states=16), iterations=15)
    assert bounds(fast_infos)[-1] > bounds(slow_infos)[-1]


def test_convergence_is_an_average_over_its_window():
    converged = em.Convergence(tol=0.1, window=2)
    assert not converged([0.0, 0.0])
    assert not converged([0.0, 0.0, 0.3])
    assert converged([0.0, 0.3, 0.3, 0.45])


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


def test_a_tolerance_of_zero_never_stops():
    assert not em.Convergence(0.0)([0.0, 0, 0, 0, 0, -1e-12])
    assert em.Convergence(1e-9)([0.0, 0, 0, 0, 0, -1e-12])


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


def test_the_cautious_full_slab_update_never_lowers_the_bound():
    """Also where Ψ nears the edge of the positive definite matrices and scales differ widely."""
    for seed in range(6):
        problem = make_problem("spike_slab_full", H=6, D=8, N=10, seed=seed)

        scales = 10.0 ** np.arange(-3, 3)
        params = problem.params._replace(
            slab_means=problem.params.slab_means * scales,
            slab_covariance=problem.params.slab_covariance * np.outer(scales, scales),
        )
        slow = in_any_case(problem, "cautious")._replace(params=params)
        _, infos = run(slow, start(slow, n_states=20), iterations=15)
        assert np.diff(bounds(infos)).min() > -1e-8 * np.abs(bounds(infos)).max()
