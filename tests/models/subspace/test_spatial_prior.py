"""Activation probabilities that vary over a plane, against their slow twin and their limits."""

import itertools

import numpy as np
import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.interpolate import RegularGridInterpolator
from subspace_problems import MODEL, UNIFORM, for_all, make_problem, run_with_params, seen

from evoem import em, inference
from evoem import posterior as truncated
from evoem.models import BinarySparseCodingModel
from evoem.models.base import Posterior
from evoem.models.subspace import spatial_prior

SHAPE = (3, 4)
MISSING = (0.0, 0.4)


def make_placed(missing=0.0, shape=SHAPE, **options):
    """A problem of rows that lie somewhere, some of them at points of the grid or beyond it."""
    params, X, observed = make_problem(missing, **options)
    rng = np.random.default_rng(options.get("seed", 0) + 1)
    own = rng.uniform(0.05, 0.7, (*shape, len(params.activation_probs)))
    positions = rng.uniform(0, np.array(shape) - 1, (len(X), 2))
    positions[0] = 0.0
    positions[1] = np.array(shape) - 1
    positions[2] = -1.5, shape[1] + 3
    return params._replace(field=own), X, observed, positions


def slow_probs(own, positions):
    """What lies between the points of the grid, and at the nearest one beyond it."""
    axes = [np.arange(length) for length in own.shape[:2]]
    limits = np.array(own.shape[:2]) - 1
    return RegularGridInterpolator(axes, own)(np.clip(positions, 0, limits))


def alone(params, positions):
    """For each row the parameters of a model that has its probabilities everywhere."""
    probs = slow_probs(params.field, positions)
    return [params._replace(activation_probs=pi, field=None) for pi in probs]


def prepared(params, X, observed, positions):
    derived = MODEL.prepare(params, X.dtype)
    return derived, MODEL.prepare_rows(derived, X, observed, positions)


def posterior_over(params, X, observed, positions, kept):
    derived, rows = prepared(params, X, observed, positions)
    weights, _ = truncated.weigh(truncated.evaluate(MODEL, derived, rows, kept))
    return derived, rows, Posterior(kept, weights)


def log_density(own, overall):
    """Of the prior, up to a constant: what the bound gains and loses by it."""
    each = overall * np.log(own) + (1 - overall) * np.log1p(-own)
    return spatial_prior.STRENGTH * float(each.sum())


@pytest.mark.parametrize("missing", MISSING)
def test_log_joints_are_those_of_the_textbook(missing):
    params, X, observed, positions = make_placed(missing)
    dense = reference.all_states(len(params.activation_probs))
    derived, rows = prepared(params, X, observed, positions)
    fast = truncated.evaluate(MODEL, derived, rows, for_all(X, dense))
    slow = [
        [reference.subspace_log_joint(own, x, mask, s) for s in dense]
        for own, x, mask in zip(alone(params, positions), X, seen(X, observed), strict=True)
    ]
    np.testing.assert_allclose(fast, slow, rtol=1e-9)


@pytest.mark.parametrize("missing", MISSING)
def test_estimates_of_a_row_are_those_of_a_model_with_its_probabilities(missing):
    """Also of the row of which nothing was observed, which is its own prior."""
    params, X, observed, positions = make_placed(missing)
    kept = for_all(X, reference.all_states(len(params.activation_probs)))
    found = posterior_over(params, X, observed, positions, kept)
    for function in (MODEL.reconstruct, lambda *arguments: (MODEL.codes(*arguments),)):
        for part, fast in enumerate(function(params, *found)):
            for n, own in enumerate(alone(params, positions)):
                row = em.Data(X, observed).take(slice(n, n + 1))
                slow = inference.estimate(function, MODEL, row, own, kept[n : n + 1])
                np.testing.assert_allclose(fast[n], slow[0][part][0], rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("shape", [(1, 1), (1, 4), SHAPE])
def test_a_field_that_is_the_same_everywhere_is_none(shape):
    params, X, observed, positions = make_placed(0.4, shape, n_rows=30)
    params = params._replace(field=spatial_prior.uniform(shape, params.activation_probs))
    results = []
    for own, where in ((params, positions), (params._replace(field=None), None)):
        data = em.Data(X, observed, where)
        state = em.init(MODEL, data, n_states=8, params=own)
        results.append(em.step(MODEL, data, state, UNIFORM))
    (placed, info), (plain, other) = results
    assert info.free_energy == pytest.approx(other.free_energy, rel=1e-12)
    np.testing.assert_array_equal(placed.states, plain.states)
    for mine, its in zip(placed.params[:-1], plain.params[:-1], strict=True):
        np.testing.assert_allclose(mine, its, rtol=1e-10)


@pytest.mark.interpreted
def test_the_new_field_counts_which_point_decided():
    """Σ over rows, states and the points around, as it is written in the module's docstring."""
    params, X, observed, positions = make_placed(n_rows=12)
    G = len(params.activation_probs)
    dense = reference.all_states(G)
    kept = for_all(X, dense)
    derived, rows, posterior = posterior_over(params, X, observed, positions, kept)
    stats = MODEL.empty_statistics(params)
    MODEL.accumulate(stats, params, derived, rows, posterior)
    new = MODEL.update(params, MODEL.finish_statistics(derived, stats)[0])
    on, off = np.zeros((2, *params.field.shape))
    probs = slow_probs(params.field, positions)
    for j in np.ndindex(SHAPE):
        corner = np.zeros(SHAPE)
        corner[j] = 1.0
        shares = slow_probs(corner[..., None], positions)[:, 0]
        for n, share in enumerate(shares):
            for s, weight in zip(dense, posterior.weights[n], strict=True):
                one = share * params.field[j] / probs[n]
                other = share * (1 - params.field[j]) / (1 - probs[n])
                on[j] += weight * s * one
                off[j] += weight * (1 - s) * other
    assert (on + off).sum() == pytest.approx(len(X) * G)
    overall = (posterior.weights @ dense).mean(0)
    expected = (on + spatial_prior.STRENGTH * overall) / (on + off + spatial_prior.STRENGTH)
    np.testing.assert_allclose(new.field, expected, rtol=1e-6)


@settings(max_examples=30)
@given(st.sampled_from([0.0, 0.5]), st.integers(0, 10_000))
def test_the_bound_and_the_prior_together_never_fall(missing, seed):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 3, rng.integers(2, 6))
    n_rows = int(rng.integers(5, 40))
    params, X, observed, positions = make_placed(missing, sizes=sizes, n_rows=n_rows, seed=seed)
    n_states = int(rng.integers(1, min(7, 2 ** len(sizes))))
    data = em.Data(X, observed, positions)
    state = em.init(MODEL, data, n_states=n_states, params=params)
    evolution = UNIFORM._replace(n_parents=min(3, n_states))
    bounds, learnt = run_with_params(MODEL, data, state, evolution, max_iter=10)
    noise = min(float(params.noise_variance) for params in learnt)
    old = params.field
    for (before, after), new in zip(itertools.pairwise(bounds), learnt, strict=False):
        # The prior is about the probabilities that latents had overall at the M-step between.
        overall = new.activation_probs
        gain = n_rows * (after - before)
        gain += log_density(new.field, overall)
        gain -= log_density(old, overall)
        size = n_rows * max(1.0, abs(after))
        assert gain > -1e-8 * size - 4e-15 * np.square(X).sum() / noise
        old = new.field


@pytest.mark.parametrize("missing", MISSING)
def test_the_number_of_threads_changes_nothing(missing):
    params, X, observed, positions = make_placed(missing, n_rows=300, seed=9)
    results = []
    for n_jobs in (1, 2):
        data = em.Data(X, observed, positions)
        state = em.init(MODEL, data, n_states=4, params=params, n_jobs=n_jobs)
        state, _ = em.run(MODEL, data, state, UNIFORM, max_iter=4, n_parts=3, n_jobs=n_jobs)
        results.append(state)
    for mine, other in zip(results[0].params, results[1].params, strict=True):
        np.testing.assert_array_equal(mine, other)


def test_what_lies_on_two_sides_is_told_apart_by_where_it_lies():
    """Two latents alike but for a little: rows on the left have one of them, on the right other."""
    rng = np.random.default_rng(4)
    params, _, _ = make_problem(sizes=(1, 1), n_features=4, seed=4)
    params = params._replace(
        components=np.array([[3.0, 3, 3, 3], [3.0, 3, 3, 4]]),
        activation_probs=np.array([0.5, 0.5]),
        noise_variance=np.array(1.0),
        slab_means=np.ones(2),
        slab_covariance=np.full(2, 1e-4),
    )
    positions = rng.uniform(0, 1, (4000, 2)) * (1, 2)
    right = positions[:, 1] > 1
    X = params.components[right.astype(int)] + rng.normal(size=(4000, 4))
    errors = []
    for own, where in (
        (spatial_prior.uniform((2, 3), params.activation_probs), positions),
        (None, None),
    ):
        data = em.Data(X, positions=where)
        state = em.init(MODEL, data, n_states=4, params=params._replace(field=own))
        state, _ = em.run(MODEL, data, state, UNIFORM, max_iter=30)
        codes = inference.estimate(MODEL.codes, MODEL, data, state.params, state.states)
        errors.append(np.square(np.concatenate(codes) - np.stack([~right, right], 1)).mean())
        if own is not None:
            found = state.params.field
    assert errors[0] < 0.5 * errors[1]
    assert (found[:, 0] > (0.9, -1)).all()
    assert (found[:, 0, 1] < 0.1).all()
    assert (found[:, 2, 0] < 0.1).all()


def test_states_are_searched_for_with_the_prior_of_their_place():
    params, X, _, positions = make_placed(n_rows=40)
    G = len(params.activation_probs)
    data = em.Data(X, positions=positions)
    found = inference.infer(MODEL, data, params, UNIFORM, n_states=2**G)
    slow = [
        np.logaddexp.reduce(
            [
                reference.subspace_log_joint(own, x, np.ones(len(x), bool), s)
                for s in reference.all_states(G)
            ]
        )
        for own, x in zip(alone(params, positions), X, strict=True)
    ]
    np.testing.assert_allclose(found.bounds, slow, rtol=1e-9)
    kept = inference.bounds(MODEL, data, params, found.states)
    np.testing.assert_allclose(kept, slow, rtol=1e-9)


@pytest.mark.parametrize(
    ("positions", "sentence"),
    [
        ([[0, 0]] * 9, "positions must be an array of float32 or float64; got <class 'list'>"),
        (np.zeros((9, 2), int), "positions must be an array of float32 or float64; got dtype"),
        (np.zeros((9, 3)), r"positions must have the shape \(9, 2\); got \(9, 3\)"),
        (np.full((9, 2), np.nan), "positions must be finite; got nan"),
    ],
)
def test_bad_positions_get_one_sentence(positions, sentence):
    with pytest.raises(ValueError, match=sentence):
        em.Data(np.zeros((9, 3)), positions=positions)


def test_a_model_that_knows_no_places_says_so():
    X = np.random.default_rng(0).normal(size=(9, 3))
    model = BinarySparseCodingModel()
    data = em.Data(X, positions=np.zeros((9, 2)))
    state = em.init(model, data, n_latents=3, n_states=4)
    with pytest.raises(TypeError, match="must define a prior that depends on positions"):
        em.step(model, data, state, UNIFORM)
