"""The EM loop: monotone bounds, exact limits, determinism, mini-batches."""

from typing import NamedTuple

import numpy as np
import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import MODELS, make_problem, seen

from evoem import LogJointError, em, models, states
from evoem.em import Evolution
from evoem.models import Model

OPERATORS = [
    Evolution(3, 2, 2, parents, mutation, crossover)
    for parents in ("fit", "random", "best")
    for mutation in ("uniform", "sparse")
    for crossover in (False, True)
]

# The gradient of a full slab covariance is not a statistic that outlives its parameters.


def start(problem, n_states=6, seed=0, **options):
    options = {"params": problem.params, "observed": problem.observed, "seed": seed} | options
    return em.init(problem.model, problem.X, n_states=n_states, **options)


def run(problem, state, evolution=OPERATORS[0], iterations=5, **options):
    return em.run(
        problem.model,
        problem.X,
        state,
        evolution,
        observed=problem.observed,
        max_iter=iterations,
        **options,
    )


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
    _, infos = run(problem, start(problem, seed=seed), evolution, iterations=12)
    steps = np.diff(bounds(infos))
    tolerance = 1e-8 * max(1.0, np.abs(bounds(infos)).max())
    if name != "noisy_or":
        # Tiny data can be explained without noise; |y|²/σ² is then large, and so is its rounding.
        noise = min(float(info.params.noise_variance) for info in infos)
        tolerance += 4e-15 * np.square(problem.X).sum(1).max() / noise
    assert steps.min() > -tolerance


@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize("name", MODELS)
def test_the_reported_bound_is_that_of_the_kept_states(name, missing):
    problem = make_problem(name, missing=missing, seed=22)
    state = start(problem, n_states=5)
    before = problem.params
    state, info = em.step(problem.model, problem.X, state, OPERATORS[0], observed=problem.observed)
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
    state, info = em.step(problem.model, problem.X, state, OPERATORS[0], observed=problem.observed)
    exact = reference.free_energy(
        problem.log_joint, problem.params, problem.X, seen(problem), [dense] * 30
    )
    assert info.free_energy == pytest.approx(exact, rel=1e-10)
    assert info.states_replaced == 0
    assert info.states_evaluated == 30 * 16 * (2 if problem.model.guarded else 1)
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
    new = em.step(problem.model, problem.X, start(problem, n_states=16), OPERATORS[0])[0].params
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
    plain, _ = run(problem, start(problem, rows=numbers), iterations=4)
    other, _ = run(permuted, start(permuted, rows=numbers[order]), iterations=4)
    np.testing.assert_array_equal(other.states, plain.states[order])
    np.testing.assert_allclose(other.params.components, plain.params.components, rtol=1e-8)


@pytest.mark.parametrize(
    ("name", "batch_size"),
    [(name, None) for name in MODELS] + [(name, 20) for name in MODELS],
)
def test_a_run_that_is_continued_is_one_that_never_stopped(name, batch_size):
    problem = make_problem(name, N=60, seed=29)
    whole, _ = run(problem, start(problem), iterations=6, batch_size=batch_size)
    part, _ = run(problem, start(problem), iterations=2, batch_size=batch_size)
    part, _ = run(problem, part, iterations=4, batch_size=batch_size)
    assert_same(whole, part)


@pytest.mark.parametrize("name", MODELS)
def test_mini_batches_of_everything_are_the_full_batch(name):
    problem = make_problem(name, N=60, seed=30)
    full, _ = run(problem, start(problem))
    batch, _ = run(problem, start(problem), batch_size=60)
    assert_same(full, batch)


@pytest.mark.parametrize("name", MODELS)
def test_incremental_em_with_exact_inference_raises_the_likelihood(name):
    problem = make_problem(name, N=60, missing=0.2, seed=31)
    dense = reference.all_states(4)
    state, previous = start(problem, n_states=16), -np.inf
    for _ in range(5):
        state, _ = run(problem, state, iterations=1, batch_size=20)
        now = reference.free_energy(
            problem.log_joint, state.params, problem.X, seen(problem), [dense] * 60
        )
        assert now > previous
        previous = now


def test_mini_batches_keep_the_latest_statistics_of_every_part():
    problem = make_problem("binary", N=50, seed=32)
    state, _ = run(problem, start(problem), iterations=3, batch_size=20)
    assert [float(part.n_rows) for part in state.statistics] == [20, 20, 10]
    # A new size of parts starts over with a full batch.
    state, _ = run(problem, state, iterations=1, batch_size=25)
    assert [float(part.n_rows) for part in state.statistics] == [25, 25]


def test_seeds_differ_and_repeat():
    problem = make_problem("binary", H=8, N=40, seed=33)
    one, again, two = (run(problem, start(problem, seed=s))[0] for s in (1, 1, 2))
    assert_same(one, again)
    assert (one.states != two.states).any()


def test_a_guarded_update_that_would_lower_the_bound_is_refused():
    problem = make_problem("spike_slab_full", N=60, seed=34)

    class Reckless(type(problem.model)):
        def update(self, params, stats):
            return params._replace(slab_covariance=100.0 * params.slab_covariance)

    reckless = problem._replace(model=Reckless(slab="full"))
    _, infos = run(reckless, start(reckless), iterations=8)
    assert np.diff(bounds(infos)).min() > 0


def test_the_fast_full_slab_update_is_mostly_accepted_and_beats_the_cautious_one():
    problem = make_problem("spike_slab_full", N=300, seed=35)

    class Cautious(type(problem.model)):
        def update(self, params, stats):
            return self.fallback_update(params, stats)

    slow = problem._replace(model=Cautious(slab="full"))
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


@pytest.mark.parametrize("missing", [0.0, 0.4])
@pytest.mark.parametrize("name", MODELS)
def test_inference_finds_the_best_states_of_new_rows(name, missing):
    problem = make_problem(name, H=6, N=40, missing=missing, seed=37)
    dense = reference.all_states(6)
    found = em.infer(
        problem.model,
        problem.X,
        problem.params,
        Evolution(4, 3, 2),
        n_states=20,
        observed=problem.observed,
    )
    exact = []
    for x, mask in zip(problem.X, seen(problem), strict=True):
        values = [problem.log_joint(problem.params, x, mask, s) for s in dense]
        exact.append(reference.logsumexp(np.sort(values)[-20:]))
    assert (found.bounds <= np.array(exact) + 1e-9).all()
    assert np.mean(np.array(exact) - found.bounds) < 0.02


def test_inference_of_a_row_does_not_depend_on_its_company():
    problem = make_problem("spike_slab_diagonal", H=8, D=13, N=50, missing=0.2, seed=38)

    def states_of(rows):
        return em.infer(
            problem.model,
            problem.X[rows],
            problem.params,
            Evolution(4, 3, 1),
            n_states=10,
            observed=problem.observed[rows],
        ).states

    together = states_of(np.arange(50))
    np.testing.assert_array_equal(states_of(np.arange(50)[::-1])[::-1], together)
    for n in range(0, 50, 7):
        np.testing.assert_array_equal(states_of(np.array([n]))[0], together[n])


def test_inference_goes_on_from_the_first_states():
    """They are left as they are, and nothing that was found is lost."""
    problem = make_problem("spike_slab_diagonal", H=8, D=13, N=30, seed=40)
    options = {"n_states": 10, "max_iter": 1}
    given = problem.model, problem.X, problem.params, Evolution(4, 3, 1)
    once = em.infer(*given, **options)
    before = once.states.copy()
    twice = em.infer(*given, first=once.states, **options)
    np.testing.assert_array_equal(once.states, before)
    assert (twice.bounds >= once.bounds).all()
    assert (twice.bounds > once.bounds).mean() > 0.5
    with pytest.raises(ValueError, match=r"^first must have 9 \(n_states\) states a row; got 10.$"):
        em.infer(*given, n_states=9, first=once.states)


def test_a_row_with_nothing_observed_gives_the_prior_mean():
    for name in MODELS:
        problem = make_problem(name, H=9, missing=0.3, seed=39)  # truncated: 20 of 512 states
        state = start(problem, n_states=20)
        parts = em.estimate(
            problem.model.reconstruct,
            problem.model,
            problem.X,
            problem.params,
            state.states,
            observed=problem.observed,
        )
        prior = problem.model.prior(problem.params)
        np.testing.assert_allclose(parts[-1][0][-1], prior.mean)
        np.testing.assert_allclose(parts[-1][1][-1], prior.variance)


GOOD = np.zeros((5, 3)) + np.arange(3.0)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"X": np.ones((5, 3), int)}, "X must be a 2-D array of float32 or float64; got int64"),
        ({"X": np.ones(5)}, "X must be a 2-D array of float32 or float64; got float64 of shape"),
        ({"X": [[1.0]]}, "X must be a 2-D array of float32 or float64; got <class 'list'>"),
        ({"X": np.ones((0, 3))}, "X must have at least one row; got the shape"),
        ({"X": GOOD + np.nan}, "X must be finite, with missing values False in observed"),
        ({"observed": np.ones((5, 3))}, "observed must be a boolean array or None; got"),
        ({"observed": np.ones((5, 2), bool)}, "observed must have the shape of X"),
        (
            {"observed": GOOD < 2},
            "X must be finite, with missing values False in observed and zero here; got 2.0.",
        ),
        ({"seed": -1}, "seed must be an integer between 0 and 18446744073709551615; got -1."),
        ({"seed": 2**64}, "seed must be an integer between 0 and .*; got 18446744073709551616."),
        ({"n_jobs": 0}, "n_jobs must be an integer at least 1; got 0."),
        (
            {"rows": np.arange(3, dtype=np.uint64)},
            r"rows must be a uint64 array of shape \(5,\); got uint64 of shape \(3,\).",
        ),
        ({"rows": np.arange(5.0)}, r"rows must be a uint64 array of shape \(5,\); got float64"),
        ({"rows": [1, 2, 3, 4, 5]}, r"rows must be a uint64 array .*; got \[1, 2, 3, 4, 5\]."),
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
    arguments = {"X": GOOD, "n_latents": 3, "n_states": 4} | changes
    with pytest.raises(ValueError, match=sentence):
        em.init(make_problem("binary").model, arguments.pop("X"), **arguments)


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
        ({"batch_size": 0}, "batch_size must be an integer at least 1; got 0."),
        ({"n_jobs": -1}, "n_jobs must be an integer at least 1; got -1."),
        ({"X": GOOD[:, :2]}, "X must have the 3 features of the parameters; got 2."),
    ],
)
def test_bad_arguments_of_step_get_one_sentence(changes, sentence):
    model = make_problem("binary").model
    state = em.init(model, GOOD, n_latents=3, n_states=4)
    arguments = {"X": GOOD, "evolution": Evolution(n_children=2)} | changes
    with pytest.raises(ValueError, match=sentence):
        em.step(model, arguments.pop("X"), state, arguments.pop("evolution"), **arguments)


@pytest.mark.parametrize(
    ("kept", "sentence"),
    [
        (
            np.ones((4, 2, 1), np.uint64),
            r"must be .* of shape \(5, n_states, 1\); got uint64 of shape \(4, 2",
        ),
        (np.ones((5, 2, 1), np.int64), r"must be a uint64 array of shape .*; got int64 of"),
        (np.ones((5, 2, 2), np.uint64), r"must be a uint64 array of shape .*; got uint64 of"),
        ([[1]], r"must be a uint64 array of shape .*; got \[\[1\]\]."),
        (np.full((5, 2, 1), 8, np.uint64), "must have no latent beyond the 3 there are; got some."),
    ],
)
def test_states_that_kernels_would_misread_are_refused(kept, sentence):
    model = make_problem("binary").model
    params = em.init(model, GOOD, n_latents=3, n_states=2).params
    with pytest.raises(ValueError, match=f"^first {sentence}"):
        em.infer(model, GOOD, params, Evolution(2, 2), n_states=2, first=kept)
    with pytest.raises(ValueError, match=f"^kept {sentence}"):
        em.bounds(model, GOOD, params, kept)
    with pytest.raises(ValueError, match=f"^kept {sentence}"):
        em.estimate(model.codes, model, GOOD, params, kept)


def test_states_that_are_not_distinct_are_refused():
    model = make_problem("binary").model
    params = em.init(model, GOOD, n_latents=3, n_states=2).params
    twice = np.ones((5, 2, 1), np.uint64)
    with pytest.raises(ValueError, match=r"^states must differ within each row; got some twice.$"):
        em.infer(model, GOOD, params, Evolution(2, 2), n_states=2, first=twice)


@pytest.mark.parametrize("mutation", ["uniform", "sparse", "guided"])
@pytest.mark.parametrize("parents", ["fit", "random", "best"])
@pytest.mark.parametrize("name", MODELS[1:])  # noisy-OR asks whether values are above zero
def test_data_that_are_no_numbers_end_in_an_error(name, parents, mutation):
    problem = make_problem(name, H=70, D=5, N=20, seed=3)
    state = start(problem, n_states=3)
    problem.X[11, 2] = np.nan
    with pytest.raises(LogJointError, match=r"log_joints must be finite or -inf; got nan.*row 11"):
        run(problem, state, Evolution(3, 2, 3, parents, mutation))


def test_rows_of_which_only_impossible_states_are_known_are_searched_further():
    """A feature that one latent of many can turn on, and only that one."""

    class OnlyOne(NamedTuple):
        activation_probs: np.ndarray

    class OnlyOneModel(Model):
        def prepare(self, params, dtype):
            return params

        def prepare_rows(self, derived, X, observed):
            return X

        def n_latents(self, derived):
            return len(derived.activation_probs)

        def expected_active(self, derived):
            return 1.0

        def dense_log_joints(self, derived, rows, states):
            return np.where(states[:, :, 7], 0.0, -np.inf)

    params = OnlyOne(np.full(12, 0.5))
    given = OnlyOneModel(), np.ones((30, 1)), params, Evolution(2, 2, 1)
    found = em.infer(*given, n_states=4, rows=np.arange(30, dtype=np.uint64))
    assert (found.bounds > -np.inf).all()
    few = em.infer(*given, n_states=4, rows=np.arange(30, dtype=np.uint64), max_iter=2)
    assert (few.bounds == -np.inf).any()


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
        state = em.init(
            problem.model,
            scale * problem.X,
            n_latents=4,
            n_states=6,
            observed=problem.observed,
        )
        scaled = problem._replace(X=scale * problem.X)
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
        state = em.init(same.model, same.X, n_latents=4, n_states=10, seed=seed)
        _, infos = run(same, state, iterations=20)
        assert np.isfinite(bounds(infos)).all()
        assert bounds(infos)[-1] > bounds(infos)[0]


def test_the_cautious_full_slab_update_never_lowers_the_bound():
    """Also where Ψ nears the edge of the positive definite matrices and scales differ widely."""
    for seed in range(6):
        problem = make_problem("spike_slab_full", H=6, D=8, N=10, seed=seed)

        class Cautious(type(problem.model)):
            def update(self, params, stats):
                return self.fallback_update(params, stats)

        scales = 10.0 ** np.arange(-3, 3)
        params = problem.params._replace(
            slab_means=problem.params.slab_means * scales,
            slab_covariance=problem.params.slab_covariance * np.outer(scales, scales),
        )
        slow = problem._replace(model=Cautious(slab="full"), params=params)
        _, infos = run(slow, start(slow, n_states=20), iterations=15)
        assert np.diff(bounds(infos)).min() > -1e-8 * np.abs(bounds(infos)).max()


@given(st.integers(0, 10_000), st.integers(1, 300_000), st.integers(0, 2**28))
@settings(deadline=None)
def test_blocks_are_consecutive_and_large_enough_for_their_statistics(first, n_rows, n_bytes):
    found = em.blocks(slice(first, first + n_rows), n_bytes)
    assert [block.start for block in found] == [first, *(block.stop for block in found[:-1])]
    assert found[-1].stop == first + n_rows
    sizes = np.array([block.stop - block.start for block in found])
    least = max(64, n_bytes // 2**15)
    assert (sizes[:-1] >= least).all()
    assert sizes[-1] > 0
    assert (np.diff(sizes) <= 0).all()
    assert sizes[0] <= max(least, 2048, n_bytes // 2**10)
    if n_rows > 100 * least:  # the last of four threads waits for a small part of the work
        assert len(sizes) > (24 if n_bytes < 2**16 else 12)
        assert sizes[-1] <= 0.01 * n_rows


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (models.SpikeSlabModel(slab="foo"), "slab must be one of 'diagonal', 'full', 'fixed'"),
        (models.SpikeSlabModel(updates="foo"), "updates must be one of 'monotone', 'printed'"),
        (models.BinarySparseCodingModel(init="foo"), "init must be one of 'mean', 'data'"),
        (models.NoisyOrModel(init="foo"), "init must be one of 'random', 'data'"),
    ],
)
def test_a_model_with_an_option_it_does_not_know_is_refused(model, message):
    X = np.ones((5, 3))
    with pytest.raises(ValueError, match=f"^{message}; got 'foo'.$"):
        em.init(model, X, n_latents=2, n_states=2)
