"""Statistics of linear models: rows go different ways, and all of them count the same."""

import numpy as np
import pytest
from problems import make_model

from evoem import em, states
from evoem.models.base import Posterior

LINEAR = ["binary", "spike_slab_diagonal", "spike_slab_full", "spike_slab_fixed"]
N_ROWS, N_LATENTS = 9, 70


def arrays_of(stats):
    """The arrays of nested NamedTuples."""
    if isinstance(stats, np.ndarray):
        return [stats]
    return [array for field in stats for array in arrays_of(field)]


def make_rows(name, updates, share_active):
    """A model, its parameters, and rows with posteriors of random states."""
    model = make_model(name, updates=updates)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N_ROWS, 6))
    params = em.init(model, em.Data(X), n_latents=N_LATENTS, n_states=2).params
    dense = rng.random((N_ROWS, 20, N_LATENTS)) < share_active
    return model, params, X, Posterior(states.pack(dense), rng.dirichlet(np.ones(20), N_ROWS))


@pytest.mark.parametrize("updates", ["monotone", "printed"])
@pytest.mark.parametrize("name", LINEAR)
@pytest.mark.parametrize("share_active", [0.02, 0.5, 1.0])
def test_complete_rows_are_summed_as_by_their_moments(name, updates, share_active):
    """By the moments of each, as if something might be missing of them."""
    model, params, X, posterior = make_rows(name, updates, share_active)
    derived = model.prepare(params, X.dtype)
    rows = model.prepare_rows(derived, X, np.ones(X.shape, np.bool_))
    fast, slow = model.empty_statistics(params), model.empty_statistics(params)
    model.accumulate(fast, params, derived, rows, posterior)
    rows = rows._replace(complete=np.zeros(N_ROWS, np.bool_))
    model.accumulate(slow, params, derived, rows, posterior)
    for mine, other in zip(arrays_of(fast), arrays_of(slow), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-10, atol=1e-9)


@pytest.mark.parametrize("updates", ["monotone", "printed"])
@pytest.mark.parametrize("name", LINEAR)
@pytest.mark.parametrize("incomplete", [[1, 2, 6], [0, 1, 2, 3, 5, 6, 8]], ids=["few", "most"])
def test_complete_rows_among_incomplete_ones_count_as_they_do_alone(name, updates, incomplete):
    model, params, X, posterior = make_rows(name, updates, 0.1)
    observed = np.ones(X.shape, np.bool_)
    observed[incomplete, np.arange(len(incomplete)) % 6] = False
    observed[incomplete[0]] = False
    X = np.where(observed, X, 0.0)
    derived = model.prepare(params, X.dtype)
    together, alone = model.empty_statistics(params), model.empty_statistics(params)
    rows = model.prepare_rows(derived, X, observed)
    model.accumulate(together, params, derived, rows, posterior)
    for n in range(N_ROWS):
        own = slice(n, n + 1)
        mask = None if observed[n].all() else observed[own]
        row = model.prepare_rows(derived, X[own], mask)
        mine = Posterior(posterior.states[own], posterior.weights[own])
        model.accumulate(alone, params, derived, row, mine)
    for mine, other in zip(arrays_of(together), arrays_of(alone), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-10, atol=1e-9)
