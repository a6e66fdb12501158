"""What is special about the estimators of the paper's models."""

import numpy as np
import pytest
from estimator_problems import fitted, make_data
from sklearn.base import clone

from evoem import BinarySparseCoding, NoisyOr, SpikeSlabCoding, em, validation


@pytest.mark.parametrize("estimator", [BinarySparseCoding, SpikeSlabCoding])
def test_codes_times_dictionary_is_the_reconstruction(estimator):
    X = make_data(estimator)
    model = fitted(estimator)
    np.testing.assert_allclose(model.transform(X) @ model.components_, model.reconstruct(X))
    np.testing.assert_array_equal(model.fit_transform(X), model.transform(X))


def test_a_row_with_nothing_observed_gives_the_prior_mean():
    model = fitted(SpikeSlabCoding)
    empty = np.full((1, 9), np.nan)
    prior = model.activation_probs_ * model.slab_means_
    np.testing.assert_allclose(model.reconstruct(empty)[0], prior @ model.components_)
    np.testing.assert_allclose(model.transform(empty)[0], prior)


def test_a_dict_gives_parameters_to_start_from():
    W = np.arange(36.0).reshape(4, 9)
    model = fitted(
        SpikeSlabCoding,
        init={"components": W, "slab_means": np.full(4, 2.0)},
        learn_slab_means=False,
        slab="fixed",
        max_iter=1,
    )
    np.testing.assert_array_equal(model.slab_means_, np.full(4, 2.0))
    np.testing.assert_array_equal(model.slab_covariance_, np.ones(4))
    held = fitted(BinarySparseCoding, init={"activation_probs": 0.25, "noise_variance": 3.0})
    assert held.noise_variance_ != 3.0


def test_data_points_can_be_the_first_dictionary():
    X = make_data(BinarySparseCoding)
    model = BinarySparseCoding(n_latents=4, init="data")._make_model()
    first = model.initialize(X, None, 4, np.random.default_rng(0)).components
    assert all(np.equal(X, row).all(1).any() for row in first)


def test_given_parameters_move_to_where_updates_keep_them():
    X = make_data(NoisyOr)
    extreme = {"components": np.tile([0.0, 1.0, 0.5], (4, 3))}
    model = fitted(NoisyOr, X, init=extreme)
    assert np.isfinite(model.free_energies_).all()
    assert (np.diff(model.free_energies_) > -1e-9).all()
    with pytest.raises(ValueError, match=r"init\['components'\] must lie between 0 and 1; got"):
        fitted(NoisyOr, X, init={"components": np.full((4, 9), 2.0)})
    X = make_data(SpikeSlabCoding).astype(np.float32)
    model = fitted(SpikeSlabCoding, X, init={"noise_variance": 1e-12}, max_iter=1)
    assert model.noise_variance_ >= 0.9e-4 * np.square(X).mean()
    skewed = np.eye(4) + np.eye(4, k=1)
    with pytest.raises(ValueError, match=r"init\['slab_covariance'\] must be symmetric; got"):
        fitted(SpikeSlabCoding, slab="full", init={"slab_covariance": skewed})


@pytest.mark.parametrize("least", [0.2, 0.5])
def test_a_floor_of_probabilities_holds_from_the_start(least):
    X = (np.random.default_rng(0).random((300, 8)) < 0.5) * 1.0
    options = {"n_latents": 8, "min_activation_prob": least, "max_iter": 5, "tol": 0}
    model = NoisyOr(**options, random_state=0).fit(X)
    assert model.activation_probs_.min() >= least
    assert (np.diff(model.free_energies_) > -1e-9).all()


def test_noisy_or_refuses_data_that_is_not_binary_unless_told_to_threshold_it():
    X = np.array([[0.0, 1.0], [0.5, 1.0]])
    with pytest.raises(ValueError, match=r"X must hold only 0, 1 and NaN .*; got 0.5."):
        NoisyOr(n_latents=2).fit(X)
    model = NoisyOr(n_latents=2, binarize=0.4, max_iter=2, tol=0, random_state=0).fit(X)
    other = NoisyOr(n_latents=2, max_iter=2, tol=0, random_state=0).fit((X > 0.4) * 1.0)
    np.testing.assert_array_equal(model.components_, other.components_)


@pytest.mark.parametrize(
    ("missing", "options", "pays"),
    [
        (0.6, {}, True),
        (0.6, {"batch_size": 20}, True),
        (0.6, {"batch_size": 5}, False),  # 12 mini-batches would keep more than the data are
        (0.6, {"updates": "printed"}, False),
        (0.1, {}, False),
    ],
)
@pytest.mark.parametrize("estimator", [BinarySparseCoding(3), SpikeSlabCoding(3, slab="full")])
def test_it_learns_feature_by_feature_where_that_pays(estimator, missing, options, pays):
    rng = np.random.default_rng(6)
    X = (rng.random((60, 3)) < 0.4) @ rng.normal(size=(3, 8)) + 0.1 * rng.normal(size=(60, 8))
    X[rng.random(X.shape) < missing] = np.nan
    estimator = clone(estimator).set_params(max_iter=3, tol=0, random_state=1, **options)
    found = estimator.fit(X).free_energies_
    model = type(estimator)._model(
        **({"slab": "full"} if isinstance(estimator, SpikeSlabCoding) else {}),
        updates=estimator.updates,
        by_feature=pays,
    )
    data = em.Data(*validation.split_missing(X))
    state = em.init(model, data, n_latents=3, n_states=8, seed=estimator.state_.seed)
    evolution = em.Evolution(6, 3, 2)
    n_parts = -(-60 // options.get("batch_size", 60))
    _, infos = em.run(model, data, state, evolution, max_iter=3, n_parts=n_parts)
    np.testing.assert_array_equal(found, [info.free_energy for info in infos])
