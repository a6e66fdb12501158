"""The estimator of subspaces: planted ones are recovered."""

import pickle

import numpy as np
import pytest
from scipy.linalg import subspace_angles
from subspace_problems import planted

from evoem import SubspaceCoding


def learn(X, **options):
    options = {"n_latents": 3, "n_states": 3, "max_iter": 60, "tol": 0} | options
    return SubspaceCoding(**options).fit(X)


@pytest.fixture(scope="module", params=range(3))
def recovery(request):
    """The best of three starts: clusters may share a kind, which takes long to converge."""
    rng = np.random.default_rng(100 + request.param)
    problem = planted(800, rng)
    starts = [learn(problem[1], random_state=seed) for seed in range(3)]
    return rng, problem, max(starts, key=lambda model: model.free_energy_)


def test_planted_subspaces_are_recovered(recovery):
    _, (_, X, kinds, means, directions), model = recovery
    assert model.noise_variance_ == pytest.approx(0.01, rel=0.1)
    np.testing.assert_array_equal(np.diff(model.groups_), 3)
    codes = model.transform(X)
    for kind in range(3):
        g = codes[kinds == kind].mean(0).argmax()
        assert codes[kinds == kind, g].mean() > 0.99
        learnt = model.components_[model.groups_[g] : model.groups_[g + 1]]
        truth = np.concatenate([means[kind : kind + 1], directions[kind]])
        assert np.rad2deg(subspace_angles(truth.T, learnt.T)).max() < 3


def test_missing_values_are_filled_from_the_subspace(recovery):
    """Better than by the mean of all rows, and by that of the rows of their kind."""
    _, (clean, X, kinds, means, _), model = recovery
    hidden = np.random.default_rng(21).random(X.shape) < 0.2
    filled = model.reconstruct(np.where(hidden, np.nan, X))
    error = np.square(filled - clean)[hidden].mean()
    assert error < 0.1 * np.square(X.mean(0) - clean)[hidden].mean()
    assert error < 0.5 * np.square(means[kinds] - clean)[hidden].mean()


def test_subspaces_are_learnt_from_incomplete_rows():
    _, X, _, _, _ = planted(800, np.random.default_rng(22))
    X[np.random.default_rng(23).random(X.shape) < 0.15] = np.nan
    starts = [learn(X, n_states="all", random_state=seed) for seed in range(3)]
    model = max(starts, key=lambda model: model.free_energy_)
    assert model.noise_variance_ == pytest.approx(0.01, rel=0.25)


def test_a_warm_start_is_a_run_that_never_stopped_and_so_is_a_pickled_one():
    _, X, _, _, _ = planted(200, np.random.default_rng(24), noise=1.0)
    options = {"tol": 0, "random_state": 0, "warm_start": True}
    whole = learn(X, max_iter=6, **options)
    part = pickle.loads(pickle.dumps(learn(X, max_iter=2, **options)))
    part.set_params(max_iter=4).fit(X)
    np.testing.assert_array_equal(part.components_, whole.components_)
    np.testing.assert_array_equal(part.free_energies_, whole.free_energies_)
    np.testing.assert_array_equal(part.groups_, whole.groups_)


@pytest.mark.parametrize("seed", [3, 4])
def test_outliers_of_either_sign_do_not_make_the_bound_fall(seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(100, 16))
    X.flat[rng.choice(X.size, 20, replace=False)] = 1e6 * rng.choice([-1, 1], 20)
    model = SubspaceCoding(6, n_states=6, max_iter=12, tol=0, random_state=seed).fit(X)
    assert np.diff(model.free_energies_).min() > -0.01
    assert model.noise_variance_ > 1.0


@pytest.mark.parametrize("rank", [-1, 1.5, True, "two", None])
def test_a_bad_rank_gets_one_sentence(rank):
    with pytest.raises(ValueError, match=f"^rank must be an integer at least 0; got {rank!r}.$"):
        learn(np.eye(4), rank=rank)
