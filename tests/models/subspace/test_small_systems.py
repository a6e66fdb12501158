"""Systems of states of subspaces, against dense linear algebra."""

import numpy as np
import pytest

from evoem.models.subspace import small_systems
from evoem.models.subspace.small_systems import System
from evoem.runtime.compile import kernel


@kernel
def solved(n, diagonal, system):
    value = small_systems.cholesky(n, diagonal, system)
    small_systems.solve_back(n, diagonal, system)
    small_systems.invert(n, diagonal, system)
    return value


@kernel
def gathered(known, V, groups, observed, rows, latents, sizes, out):
    """Gram matrices of states, each of a row that comes again or for the first time."""
    last = -1
    for m in range(len(rows)):
        if rows[m] != last:
            last = rows[m]
            small_systems.start_row(known, observed, last)
        small_systems.gather_observed(known, V, groups, latents[m], sizes[m], out[m])


@pytest.mark.parametrize("n", [1, 2, 3, 5, 6, 13, 40])
@pytest.mark.parametrize("diagonal", [0, 1, 4])
def test_systems_are_solved(n, diagonal):
    """The first patterns are orthogonal to each other, as those of one latent are."""
    rng = np.random.default_rng(n)
    diagonal = min(n, diagonal)
    V = rng.normal(size=(n, 50))
    V[:diagonal] = np.linalg.qr(V[:diagonal].T)[0].T * rng.uniform(1, 3, (diagonal, 1))
    gram, eta = V @ V.T, rng.normal(size=n)
    M = np.eye(n) + gram
    room = n + 3
    local, N = np.full((2, room, room), np.nan)
    local[:n, :n] = np.tril(gram)
    system = System(local, N, np.r_[eta, 3 * [np.nan]], np.empty(room), np.empty(room))
    value = solved(n, diagonal, system)
    inverse = np.linalg.inv(M)
    expected = 0.5 * eta @ inverse @ eta - 0.5 * np.linalg.slogdet(M)[1]
    assert value == pytest.approx(expected, rel=1e-10)
    np.testing.assert_allclose(system.u[:n], inverse @ eta, rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(np.tril(local[:n, :n]), np.tril(inverse), rtol=1e-8, atol=1e-12)


def test_a_product_of_pivots_may_be_larger_than_any_number():
    n = 9
    system = System(1e60 * np.eye(n), np.empty((n, n)), np.zeros(n), np.empty(n), np.empty(n))
    assert solved(n, n, system) == pytest.approx(-0.5 * n * np.log(1e60))


def test_pairs_of_latents_are_solved_once_for_all():
    """M⁻¹ = diag(d_a⁻¹, 0) + Aᵀ A, and -½ log|M|."""
    sizes = np.array([2, 1, 4])
    groups = np.r_[0, np.cumsum(sizes)]
    rng = np.random.default_rng(0)
    V = np.concatenate([np.linalg.qr(rng.normal(size=(9, size)))[0].T for size in sizes])
    V *= rng.uniform(0.5, 3, (len(V), 1))
    gram = V @ V.T
    pairs = small_systems.solve_pairs(groups, gram)
    for b in range(3):
        for a in range(b):
            own = [*range(groups[a], groups[a + 1]), *range(groups[b], groups[b + 1])]
            M = np.eye(len(own)) + gram[np.ix_(own, own)]
            start = pairs.offsets[a, b]
            A = pairs.maps[start : start + sizes[b] * len(own)].reshape(sizes[b], len(own))
            alone = np.diag(1 / np.diag(M)) * (np.arange(len(own)) < sizes[a])
            np.testing.assert_allclose(alone + A.T @ A, np.linalg.inv(M), rtol=1e-9, atol=1e-12)
            assert pairs.constants[a, b] == pytest.approx(-0.5 * np.linalg.slogdet(M)[1])


def test_inner_products_over_what_was_observed_are_kept_until_the_next_row():
    sizes = np.array([2, 7, 1, 4, 3])
    groups = np.r_[0, np.cumsum(sizes)]
    rng = np.random.default_rng(1)
    V, observed = rng.normal(size=(groups[-1], 11)), rng.random((3, 11)) < 0.6
    rows = np.repeat(np.arange(3), 8)
    states = [np.sort(rng.permutation(5)[: rng.integers(0, 6)]) for _ in rows]
    latents = np.zeros((len(rows), 5), np.int64)
    for own, state in zip(latents, states, strict=True):
        own[: len(state)] = state
    out = np.zeros((len(rows), groups[-1], groups[-1]))
    known = small_systems.empty_gram(V, groups, observed)
    gathered(known, V, groups, observed, rows, latents, np.array([*map(len, states)]), out)
    for row, state, found in zip(rows, states, out, strict=True):
        own = [h for g in state for h in range(groups[g], groups[g + 1])]
        expected = (V[own] * observed[row]) @ V[own].T
        size = len(own)
        np.testing.assert_allclose(np.tril(found[:size, :size]), np.tril(expected), atol=1e-12)


def test_complete_rows_need_no_inner_products_of_their_own():
    assert small_systems.empty_gram(np.eye(3), np.arange(4), None) is None
