"""The states that a run starts from."""

import numpy as np
import pytest
import reference
from subspace_problems import (
    MISSING,
    MODEL,
    SIZES,
    make_problem,
    seen,
)

from evoem import em, states
from evoem.first_states import first_states
from evoem.models import BinarySparseCodingModel, SpikeSlabModel
from evoem.models.spike_slab.model import SpikeSlabParams


@pytest.mark.interpreted
@pytest.mark.parametrize("missing", MISSING)
@pytest.mark.parametrize("n_states", [1, 3, 5])
def test_rows_start_from_their_best_single_latents(n_states, missing):
    params, X, observed = make_problem(missing, n_rows=100, seed=12)
    data = em.Data(X, observed)
    state = em.init(MODEL, data, n_states=n_states, params=params, n_jobs=2)
    single = np.eye(len(SIZES), dtype=bool)
    for x, mask, kept in zip(X, seen(X, observed), state.states, strict=True):
        dense = states.unpack(kept, len(SIZES))
        values = [reference.subspace_log_joint(params, x, mask, s) for s in single]
        assert (dense.sum(1) == 1).all()
        assert set(dense.argmax(1)) == set(np.argsort(values)[-n_states:])


def test_rows_start_from_random_states_if_there_are_not_enough_single_ones():
    params, X, _ = make_problem(n_rows=20, seed=13)
    data = em.Data(X)
    state = em.init(MODEL, data, n_states=6, params=params, seed=3)
    other = SpikeSlabParams(params.components[:5], params.activation_probs, *params[2:3],
                            params.slab_means[:5], params.slab_covariance[:5])  # fmt: skip
    expected = em.init(SpikeSlabModel(), data, n_states=6, params=other, seed=3)
    np.testing.assert_array_equal(state.states, expected.states)


@pytest.mark.parametrize("n_latents", [4, 70])
def test_random_states_are_distinct_and_follow_the_rows_numbers(n_latents):
    model = BinarySparseCodingModel()
    X = np.random.default_rng(0).normal(size=(30, 5))
    params = model.initialize(X, None, n_latents, np.random.default_rng(1))
    data = em.Data(X)
    whole = first_states(model, data, params, 12, 3, 1, None)
    assert all(len(np.unique(row, axis=0)) == 12 for row in whole)
    np.testing.assert_array_equal(first_states(model, data, params, 12, 3, 2, None), whole)
    order = np.random.default_rng(2).permutation(30)
    part = data.numbered(data.numbers).take(order[:11])
    own = first_states(model, part, params, 12, 3, 1, None)
    np.testing.assert_array_equal(own, whole[order[:11]])
    assert (first_states(model, data, params, 12, 4, 1, None) != whole).any()


def test_all_states_there_are_can_be_the_first_ones():
    model = BinarySparseCodingModel()
    X = np.random.default_rng(0).normal(size=(7, 5))
    params = model.initialize(X, None, 3, np.random.default_rng(1))
    found = first_states(model, em.Data(X), params, 8, 0, 1, None)
    np.testing.assert_array_equal(np.sort(found[..., 0], axis=1), np.tile(np.arange(8), (7, 1)))
