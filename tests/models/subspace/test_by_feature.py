"""How subspaces are learnt feature by feature, and with a prior, against slow twins and limits."""

import numpy as np
import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st
from subspace_problems import (
    GUIDED,
    MISSING,
    SIZES,
    UNIFORM,
    assert_that_the_bound_never_falls,
    for_all,
    log_joints,
    make_problem,
    precision,
    reconstruction,
    run_with_params,
    seen,
    statistics,
)

from evoem import em
from evoem.models import SubspaceModel
from evoem.models.subspace.by_feature import SubspacesByFeature, each_latent

BY_FEATURE = SubspacesByFeature()


def rows_of(X, observed):
    return zip(X, seen(X, observed), strict=True)


def weighed_states(params, x, mask, dense):
    """States with their weights and posterior moments."""
    weights, _ = reference.posterior(reference.subspace_log_joint, params, x, mask, dense)
    for weight, s in zip(weights, dense, strict=True):
        yield weight, s, *reference.subspace_moments(params, x, mask, s)


def own_patterns(params):
    return [slice(*params.groups[g : g + 2]) for g in range(len(params.groups) - 1)]


# -------------------------------------------------------------------------- feature by feature


@pytest.mark.interpreted
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("missing", MISSING)
def test_statistics_are_those_of_the_bound(missing, dtype):
    """Σ over states of k latents of 1/k Σ_g ⟨(r - k δ_gᵀ c_g)²⟩ over what was observed."""
    params, X, observed = make_problem(missing, seed=3)
    some = reference.all_states(len(SIZES))[:28]
    stats = statistics(params, X.astype(dtype), observed, for_all(X, some), BY_FEATURE)
    W, (C, D) = params.components, params.components.shape
    activation, first, squares = np.zeros(len(SIZES)), np.zeros(C), np.zeros((D, C, C))
    slopes, at_old, own = np.zeros((C, D)), 0.0, np.zeros((C, C))
    for x, mask in rows_of(X, observed):
        for weight, s, m1, m2 in weighed_states(params, x, mask, some):
            activation += weight * s
            first += weight * m1
            own += weight * m2
            for d in np.flatnonzero(mask):
                squares[d] += weight * s.sum() * m2
                slopes[:, d] += weight * (x[d] * m1 - m2 @ W[:, d])
                at_old += weight * (x[d] ** 2 - 2 * x[d] * W[:, d] @ m1 + W[:, d] @ m2 @ W[:, d])
    within = np.zeros((C, C), bool)
    for patterns in own_patterns(params):
        within[patterns, patterns] = True
    squares = np.where(within, squares, 0.0)
    cross = slopes + np.einsum("dhg,gd->hd", squares, W)
    square = at_old + np.vdot(W, cross + slopes)
    close = precision(dtype)
    np.testing.assert_allclose(stats.linear.activation, np.repeat(activation, SIZES), **close)
    np.testing.assert_allclose(stats.linear.first, first, **close)
    np.testing.assert_allclose(stats.linear.cross, cross, **close)
    np.testing.assert_allclose(float(stats.linear.data_square), square, **close)
    assert float(stats.linear.n_observed) == seen(X, observed).sum()
    assert float(stats.linear.n_rows) == len(X)
    for patterns, fast in zip(
        own_patterns(params), each_latent(params.groups, stats.squares), strict=True
    ):
        np.testing.assert_allclose(fast, squares[:, patterns, patterns], **close)
    np.testing.assert_allclose(BY_FEATURE.sums_of_squares(params, stats), np.diag(own), **close)


@pytest.mark.parametrize("missing", MISSING)
def test_with_one_active_latent_a_row_the_dictionary_is_the_best(missing):
    """Of each feature a regression on the rows in which it was observed."""
    params, X, observed = make_problem(missing, n_rows=60, seed=5)
    single = np.eye(len(SIZES), dtype=bool)
    stats = statistics(params, X, observed, for_all(X, single), BY_FEATURE)
    new = BY_FEATURE.update(params, stats)
    expected = np.empty_like(params.components)
    residual = 0.0
    moments = [list(weighed_states(params, x, mask, single)) for x, mask in rows_of(X, observed)]
    for g, patterns in enumerate(own_patterns(params)):
        for d in range(X.shape[1]):
            second, cross = 0.0, 0.0
            for x, mask, row in zip(X, seen(X, observed), moments, strict=True):
                weight, _, m1, m2 = row[g]
                if mask[d]:
                    second = second + weight * m2[patterns, patterns]
                    cross = cross + weight * m1[patterns] * x[d]
                    residual += weight * x[d] ** 2
            expected[patterns, d] = np.linalg.solve(second, cross)
            residual -= cross @ expected[patterns, d]
    np.testing.assert_allclose(new.components, expected, rtol=1e-5)
    assert float(new.noise_variance) == pytest.approx(residual / seen(X, observed).sum(), rel=1e-6)


def test_complete_rows_of_one_latent_each_are_learnt_from_as_ever():
    params, X, _ = make_problem(n_rows=60, seed=6)
    kept = for_all(X, np.eye(len(SIZES), dtype=bool))
    new, expected = (
        model.update(params, statistics(params, X, None, kept, model))
        for model in (BY_FEATURE, SubspaceModel())
    )
    for mine, theirs in zip(new[:-1], expected[:-1], strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-6)


def test_states_and_estimates_are_those_of_subspaces():
    params, X, observed = make_problem(0.4, seed=7)
    kept = for_all(X, reference.all_states(len(SIZES)))
    for function in (log_joints, reconstruction):
        np.testing.assert_array_equal(
            function(params, X, observed, kept, BY_FEATURE), function(params, X, observed, kept)
        )


def test_a_mask_of_ones_is_no_mask():
    params, X, _ = make_problem(seed=8)
    kept = for_all(X, reference.all_states(len(SIZES)))
    masked, plain = (
        BY_FEATURE.update(params, statistics(params, X, mask, kept, BY_FEATURE))
        for mask in (np.ones(X.shape, bool), None)
    )
    for mine, other in zip(masked[:-1], plain[:-1], strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-12)


def test_patterns_of_features_and_latents_never_seen_stay():
    params, X, observed = make_problem(0.4, seed=9)
    observed[:, 2] = False
    X = np.where(observed, X, 0.0)
    dense = np.zeros((1, len(SIZES)), bool)
    dense[0, 1:3] = True
    stats = statistics(params, X, observed, for_all(X, dense), BY_FEATURE)
    new = BY_FEATURE.update(params, stats)
    np.testing.assert_allclose(new.components[:, 2], params.components[:, 2])
    used = np.zeros(sum(SIZES), bool)
    used[params.groups[1] : params.groups[3]] = True
    np.testing.assert_allclose(new.components[~used], params.components[~used])
    assert (np.abs(new.components - params.components)[used][:, [0, 1, 3, 4, 5]] > 1e-6).all()


def test_it_learns_faster_where_much_is_missing():
    """Three quarters missing: as high a bound takes half of the iterations."""
    rng = np.random.default_rng(10)
    params, X, _ = make_problem(sizes=(3, 3, 3), n_features=20, n_rows=400, seed=10)
    kinds = rng.integers(3, size=len(X))
    planted = rng.normal(size=(3, 3, 20))
    X = np.einsum("ni,nid->nd", rng.normal(size=(len(X), 3)), planted[kinds])
    X += 0.3 * rng.normal(size=X.shape)
    observed = rng.random(X.shape) < 0.25
    X = np.where(observed, X, 0.0)
    bounds = {}
    for model in (SubspaceModel(), BY_FEATURE):
        data = em.Data(X, observed)
        state = em.init(model, data, n_states=3, params=params)
        _, infos = em.run(model, data, state, UNIFORM, max_iter=40)
        bounds[type(model)] = [info.free_energy for info in infos]
    assert bounds[SubspacesByFeature][20] > bounds[SubspaceModel][-1]


@settings(max_examples=30)
@given(
    st.sampled_from([UNIFORM, GUIDED]),
    st.sampled_from([0.0, 0.2, 0.7]),
    st.integers(0, 10_000),
)
def test_the_bound_never_falls(evolution, missing, seed):
    assert_that_the_bound_never_falls(BY_FEATURE, evolution, missing, seed)


@pytest.mark.parametrize("missing", MISSING)
def test_parts_and_threads(missing):
    """Parts keep statistics of older dictionaries, and the bound rises all the same."""
    params, X, observed = make_problem(missing, n_rows=50, seed=25)
    results = []
    for n_parts, n_jobs in ((1, 1), (4, 1), (4, 2)):
        data, options = em.Data(X, observed), {"n_parts": n_parts, "n_jobs": n_jobs}
        state = em.init(BY_FEATURE, data, n_states=32, params=params, n_jobs=n_jobs)
        results.append(run_with_params(BY_FEATURE, data, state, UNIFORM, max_iter=8, **options))
    for whole, parts in zip(*(params[0][:-1] for _, params in results[:2]), strict=True):
        np.testing.assert_allclose(parts, whole, rtol=1e-8)
    (bounds, one), (others, two) = results[1:]
    assert (np.diff(bounds) > 0).all()
    np.testing.assert_array_equal(bounds, others)
    for mine, other in zip(one, two, strict=True):
        np.testing.assert_array_equal(mine.components, other.components)


# --------------------------------------------------------------------------------------- prior
