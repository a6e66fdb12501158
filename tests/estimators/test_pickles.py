"""Pickles of estimators: their version, and what makes them large."""

import pickle
import warnings

import numpy as np
import pytest
import sklearn.exceptions

from evoem import BinarySparseCoding
from evoem.estimators import pickles
from evoem.estimators.pickles import InconsistentVersionWarning

RNG = np.random.default_rng(0)
X = (RNG.random((400, 5)) < 0.3) @ RNG.normal(size=(5, 6)) * 4 + RNG.normal(size=(400, 6))


def fitted(**options):
    return BinarySparseCoding(5, n_states=20, max_iter=6, tol=0, random_state=0, **options).fit(X)


def test_a_pickle_of_another_version_warns_as_those_of_scikit_learn_do():
    whole = pickle.dumps(fitted())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = pickle.loads(whole)
    state = again.__getstate__() | {pickles.MADE_BY: "99.0"}
    again = BinarySparseCoding()
    with pytest.warns(InconsistentVersionWarning) as caught:
        again.__setstate__(state)
    assert isinstance(caught[0].message, sklearn.exceptions.InconsistentVersionWarning)
    assert "BinarySparseCoding was pickled by evoem 99.0" in str(caught[0].message)
    assert f"is read by evoem {pickles.version()}" in str(caught[0].message)
    np.testing.assert_array_equal(again.components_, fitted().components_)
    assert pickles.MADE_BY not in vars(again)


def test_a_pickle_that_does_not_say_its_version_warns():
    state = {name: value for name, value in vars(fitted()).items()}
    with pytest.warns(InconsistentVersionWarning, match="evoem before 0.1.0"):
        BinarySparseCoding().__setstate__(state)


def test_kept_states_are_nearly_all_of_a_pickle():
    large, small = len(pickle.dumps(fitted())), len(pickle.dumps(fitted(keep_states=False)))
    rows = fitted().state_
    assert large - small > rows.states.nbytes + rows.log_joints.nbytes
    assert small < 0.1 * large


def test_without_kept_states_they_are_inferred_as_for_new_rows():
    with_states, without = fitted(), fitted(keep_states=False)
    np.testing.assert_array_equal(with_states.components_, without.components_)
    new = np.concatenate([X + 1e-9, X])
    mixed = with_states.score_samples(new)
    np.testing.assert_array_equal(without.score_samples(X + 1e-9), mixed[: len(X)])
    np.testing.assert_allclose(without.score_samples(X).mean(), mixed[len(X) :].mean(), atol=0.5)
    again = pickle.loads(pickle.dumps(without))
    np.testing.assert_array_equal(again.transform(X), without.transform(X))


def test_a_warm_start_keeps_states_in_any_case():
    both = [
        fitted(warm_start=True, keep_states=keep_states).set_params(max_iter=3).fit(X)
        for keep_states in (False, True)
    ]
    np.testing.assert_array_equal(both[0].free_energies_, both[1].free_energies_)
    assert len(both[0].state_.states) == len(X)


def test_a_warm_start_after_states_were_left_out_starts_from_the_parameters():
    model = fitted(keep_states=False).set_params(warm_start=True, max_iter=2)
    afresh = BinarySparseCoding(5, n_states=20, max_iter=2, tol=0, random_state=0).fit(X)
    assert model.fit(X).free_energy_ > afresh.free_energy_
