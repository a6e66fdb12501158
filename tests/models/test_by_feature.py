"""Dictionaries learnt feature by feature, against regressions by NumPy and the plain way."""

import numpy as np
import pytest
import reference
from em_runs import OPERATORS, assert_same, bounds, run, start
from hypothesis import given, settings
from hypothesis import strategies as st
from posteriors import LINEAR, collect_statistics, moments_of, packed_all
from problems import data_of, make_model, make_problem, seen

from evoem import em
from evoem.models import BinarySparseCodingModel, by_feature
from evoem.models.base import size_in_bytes
from evoem.models.triangles import unpack

MISSING = (0.4, 0.8)


def by_feature_problem(name, **options):
    return make_problem(name, by_feature=True, **options)


@pytest.mark.interpreted
@pytest.mark.parametrize("missing", MISSING)
@pytest.mark.parametrize("name", LINEAR)
def test_statistics_are_moments_of_the_rows_that_a_feature_was_observed_in(name, missing):
    problem = by_feature_problem(name, missing=missing, seed=3)
    dense, kept = packed_all(problem)
    kept = kept[:, 3:12]  # a truncated posterior
    stats = collect_statistics(problem, kept)
    sums = problem.model.linear_part(stats)
    H, D = problem.params.components.shape
    activation, first, power = np.zeros((3, H))
    second, cross, square = np.zeros((D, H, H)), np.zeros((H, D)), 0.0
    for x, mask in zip(problem.X, seen(problem), strict=True):
        a, m1, m2 = reference.row_moments(
            problem.log_joint, moments_of(name), problem.params, x, mask, dense[3:12]
        )
        activation, first, power = activation + a, first + m1, power + np.diag(m2)
        for d in np.flatnonzero(mask):
            second[d] += m2
            cross[:, d] += m1 * x[d]
            square += x[d] ** 2
    complete = unpack(sums.second)
    np.testing.assert_allclose(sums.activation, activation, rtol=1e-9)
    np.testing.assert_allclose(sums.first, first, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(sums.cross, cross, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(np.diag(complete) + sums.power, power, rtol=1e-9, atol=1e-12)
    for d in range(D):
        own = complete + unpack(sums.observed_second[:, d])
        np.testing.assert_allclose(own, np.tril(second[d]), rtol=1e-9, atol=1e-12)
    assert float(sums.data_square) == pytest.approx(square, rel=1e-9)
    assert float(sums.n_observed) == seen(problem).sum()
    assert float(sums.n_rows) == len(problem.X)


@pytest.mark.parametrize("missing", [0.2, 0.7])
def test_binary_features_are_weighted_least_squares(missing):
    """Of each feature over all states of the rows in which it was observed."""
    problem = by_feature_problem("binary", N=60, missing=missing, seed=5)
    dense, kept = packed_all(problem)
    new = problem.model.update(problem.params, collect_statistics(problem, kept))
    expected, left = np.empty_like(new.components), 0.0
    weights = [
        reference.posterior(problem.log_joint, problem.params, x, mask, dense)[0]
        for x, mask in zip(problem.X, seen(problem), strict=True)
    ]
    for d in range(problem.X.shape[1]):
        own = np.flatnonzero(seen(problem)[:, d])
        roots = np.sqrt([weights[n] for n in own])
        A = (roots[:, :, None] * dense).reshape(-1, dense.shape[1])
        y = (roots * problem.X[own, d][:, None]).ravel()
        expected[:, d] = np.linalg.lstsq(A, y)[0]
        left += np.square(y - A @ expected[:, d]).sum()
    np.testing.assert_allclose(new.components, expected, rtol=1e-6)
    assert float(new.noise_variance) == pytest.approx(left / seen(problem).sum(), rel=1e-7)


@pytest.mark.parametrize("name", LINEAR[1:])
def test_spike_slab_features_are_regressions_and_the_slab_counts_all_rows(name):
    problem = by_feature_problem(name, N=60, missing=0.5, seed=6)
    dense, kept = packed_all(problem)
    offered = problem.model.update(problem.params, collect_statistics(problem, kept))
    new = next(offered) if name == "spike_slab_full" else offered
    H, D = problem.params.components.shape
    second, cross, square = np.zeros((D, H, H)), np.zeros((D, H)), 0.0
    activation, first, power = np.zeros((3, H))
    for x, mask in zip(problem.X, seen(problem), strict=True):
        a, m1, m2 = reference.row_moments(
            problem.log_joint, moments_of(name), problem.params, x, mask, dense
        )
        activation, first, power = activation + a, first + m1, power + np.diag(m2)
        second[mask] += m2
        cross[mask] += np.outer(x[mask], m1)
        square += x[mask] @ x[mask]
    expected = np.linalg.solve(second, cross[..., None])[..., 0].T
    noise = (square - np.vdot(cross.T, expected)) / seen(problem).sum()
    np.testing.assert_allclose(new.components, expected, rtol=1e-6)
    assert float(new.noise_variance) == pytest.approx(noise, rel=1e-7)
    if name == "spike_slab_diagonal":
        means = first / activation
        np.testing.assert_allclose(new.slab_means, means, rtol=1e-9)
        np.testing.assert_allclose(new.slab_covariance, power / activation - means**2, rtol=1e-8)


@pytest.mark.parametrize("name", LINEAR)
def test_where_all_is_observed_it_is_the_plain_update(name):
    """Whether rows are complete, or all of them have a mask that says so."""
    problem = make_problem(name, N=40, seed=8)
    kept = packed_all(problem)[1]
    offered = []
    for option in (False, True):
        own = problem._replace(model=make_model(name, by_feature=option))
        updated = own.model.update(own.params, collect_statistics(own, kept))
        offered.append(next(updated) if name == "spike_slab_full" else updated)
    for mine, other in zip(*offered, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-7, atol=1e-8)


def test_features_and_latents_never_seen_stay():
    problem = by_feature_problem("binary", N=40, missing=0.4, seed=9)
    problem.observed[:, 2] = False
    problem = problem._replace(X=np.where(problem.observed, problem.X, 0.0))
    dense, kept = packed_all(problem)
    without = np.ascontiguousarray(kept[:, ~dense[:, 1]])
    new = problem.model.update(problem.params, collect_statistics(problem, without))
    old = problem.params.components
    np.testing.assert_allclose(new.components[:, 2], old[:, 2])
    np.testing.assert_allclose(new.components[1], old[1])
    others = np.delete(np.delete(new.components - old, 2, 1), 1, 0)
    assert (np.abs(others) > 1e-6).all()


@settings(max_examples=40)
@given(
    st.sampled_from(LINEAR),
    st.sampled_from(OPERATORS),
    st.sampled_from([0.2, 0.5, 0.9]),
    st.integers(0, 10_000),
)
def test_the_bound_never_falls(name, evolution, missing, seed):
    rng = np.random.default_rng(seed)
    shape = {
        "H": int(rng.integers(3, 7)),
        "D": int(rng.integers(1, 9)),
        "N": int(rng.integers(5, 40)),
    }
    problem = by_feature_problem(name, missing=missing, seed=seed, **shape)
    state = start(problem, n_states=6, seed=seed)
    learnt = []
    _, infos = em.run(
        problem.model, data_of(problem), state, evolution, max_iter=12,
        callback=lambda info, state: learnt.append(float(state.params.noise_variance)),
    )  # fmt: skip
    found = bounds(infos)
    rounding = 4e-15 * np.square(problem.X).sum(1).max() / min(learnt)
    assert np.diff(found).min() > -1e-8 * max(1.0, np.abs(found).max()) - rounding


@pytest.mark.parametrize("name", LINEAR)
def test_with_mini_batches_the_bound_rises_and_threads_change_nothing(name):
    problem = by_feature_problem(name, N=60, missing=0.6, seed=10)
    results = []
    for n_jobs in (1, 2):
        state = start(problem, n_states=16)
        results.append(run(problem, state, iterations=8, n_parts=4, n_jobs=n_jobs))
    (one, infos), (two, _) = results
    assert_same(one.params, two.params)
    assert_same(one.statistics, two.statistics)
    assert (np.diff(bounds(infos)) > 0).all()


@pytest.mark.parametrize("name", LINEAR)
def test_it_learns_faster_where_much_is_missing(name):
    """80 % missing: as high a bound takes at most half of the iterations."""
    truth = make_problem(name, H=5, D=12, N=600, seed=11)
    observed = np.random.default_rng(0).random(truth.X.shape) < 0.2
    X, found = np.where(observed, truth.X, 0.0), {}
    for option in (False, True):
        own = truth._replace(model=make_model(name, by_feature=option), X=X, observed=observed)
        _, infos = run(own, start(own, n_states=32), iterations=24)
        found[option] = bounds(infos)
    assert found[True][12] >= found[False][-1]


def test_it_pays_where_much_is_missing_and_statistics_are_no_larger_than_the_data():
    usual = {"missing": 0.5, "n_rows": 60, "n_features": 10, "n_latents": 10}
    assert by_feature.pays(**usual)  # 55 pairs
    assert not by_feature.pays(**usual | {"missing": 0.2})
    assert not by_feature.pays(**usual | {"n_rows": 50})
    assert not by_feature.pays(**usual, n_parts=2)
    assert not by_feature.pays(0.5, 10**6, 1000, 100)  # five million entries


def test_statistics_take_the_memory_that_the_rule_counts():
    problem = by_feature_problem("binary", H=30, D=20)
    plain = size_in_bytes(make_model("binary").empty_statistics(problem.params))
    more = size_in_bytes(problem.model.empty_statistics(problem.params)) - plain
    assert more == 8 * (20 * 30 * 31 // 2 + 30)


def test_printed_updates_are_not_by_feature():
    with pytest.raises(ValueError, match="by_feature must be False for the paper's updates"):
        BinarySparseCodingModel(updates="printed", by_feature=True)
