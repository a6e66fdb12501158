"""Rows with states of few and of many active latents in one call, against one row at a time."""

import numpy as np
import pytest
import reference
from problems import make_problem

from evoem import posterior as truncated
from evoem.models.base import Posterior
from evoem.models.scratch import FEW
from evoem.states import Genomes, pack

H, N = 70, 8
SLABS = ["spike_slab_diagonal", "spike_slab_full"]
# Active latents by row: those that need more room come amid others, one of them everything.
SIZES = [1, 2, FEW, FEW + 1, 3, 2 * FEW + 1, H, 2]


def make_states():
    """Three states of each row, the last of so many active latents."""
    rng = np.random.default_rng(0)
    dense = rng.random((N, 3, H)) < 0.03
    for row, size in zip(dense, SIZES, strict=True):
        row[2] = rng.permutation(H) < size
    return dense


def prepared(name, missing):
    problem = make_problem(name, H=H, D=9, N=N, missing=missing, seed=2)
    observed = problem.observed if missing else None
    derived = problem.model.prepare(problem.params, problem.X.dtype)
    return problem, observed, derived


@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize("name", SLABS)
def test_log_joints_of_states_of_any_size_are_those_of_the_textbook(name, missing):
    problem, observed, derived = prepared(name, missing)
    dense = make_states()
    rows = problem.model.prepare_rows(derived, problem.X, observed)
    fast = truncated.evaluate(problem.model, derived, rows, pack(dense))
    for n, x in enumerate(problem.X):
        mask = np.ones(len(x), np.bool_) if observed is None else observed[n]
        slow = [reference.spike_slab_log_joint(problem.params, x, mask, s) for s in dense[n]]
        np.testing.assert_allclose(fast[n], slow, rtol=1e-8)


@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize("name", SLABS)
def test_moments_and_ranks_do_not_depend_on_the_rows_beside(name, missing):
    problem, observed, derived = prepared(name, missing)
    model, params, packed = problem.model, problem.params, pack(make_states())
    weights = np.random.default_rng(1).dirichlet(np.ones(3), N)

    def results(own):
        mask = None if observed is None else observed[own]
        rows = model.prepare_rows(derived, problem.X[own], mask)
        genomes = Genomes(packed[own], np.full(len(rows.X), 3))
        ranks = model.best_additions(derived, rows, genomes, 5)
        posterior = Posterior(packed[own], weights[own])
        return ranks, *model.reconstruct(params, derived, rows, posterior)

    together = results(slice(None))
    for n in range(N):
        for whole, alone in zip(together, results(slice(n, n + 1)), strict=True):
            np.testing.assert_allclose(whole[n], alone[0], rtol=1e-12)
