"""Rows with states of few and of many active patterns in one call, against one row at a time."""

import numpy as np
import pytest
from subspace_problems import MODEL, make_problem

from evoem.models.base import Posterior
from evoem.models.scratch import FEW
from evoem.models.subspace.by_feature import SubspacesByFeature
from evoem.states import Genomes, pack

G, N = 70, 7
# Active latents by row: those whose patterns need more room come amid others.
ACTIVE = [1, 2, FEW // 2 + 1, FEW, 3, G, 2]


def make_states():
    """Three states of each row, the last of so many active latents."""
    rng = np.random.default_rng(0)
    dense = rng.random((N, 3, G)) < 0.03
    for row, size in zip(dense, ACTIVE, strict=True):
        row[2] = rng.permutation(G) < size
    return dense


@pytest.mark.parametrize("missing", [0.0, 0.4])
@pytest.mark.parametrize("model", [MODEL, SubspacesByFeature()])
def test_moments_ranks_and_sums_do_not_depend_on_the_rows_beside(model, missing):
    sizes = np.random.default_rng(1).integers(1, 4, G)
    params, X, observed = make_problem(missing, sizes=sizes, n_rows=N)
    derived = model.prepare(params, X.dtype)
    packed, weights = pack(make_states()), np.random.default_rng(2).dirichlet(np.ones(3), N)

    def results(own):
        mask = None if observed is None else observed[own]
        rows = model.prepare_rows(derived, X[own], mask)
        genomes = Genomes(packed[own], np.full(len(rows.X), 3))
        ranks = model.best_additions(derived, rows, genomes, 5)
        posterior = Posterior(packed[own], weights[own])
        stats = model.empty_statistics(params)
        model.accumulate(stats, params, derived, rows, posterior)
        return (ranks, *model.reconstruct(params, derived, rows, posterior)), stats

    together, whole = results(slice(None))
    sums = [np.zeros_like(field) for field in (*whole.linear, *whole[1:3])]
    for n in range(N):
        alone, stats = results(slice(n, n + 1))
        for mine, other in zip(together, alone, strict=True):
            np.testing.assert_allclose(mine[n], other[0], rtol=1e-10, atol=1e-12)
        for total, field in zip(sums, (*stats.linear, *stats[1:3]), strict=True):
            total += field
    for total, field in zip(sums, (*whole.linear, *whole[1:3]), strict=True):
        np.testing.assert_allclose(field, total, rtol=1e-9, atol=1e-9)
