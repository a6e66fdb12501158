"""States of two latents of `subspaces`: in complete rows their systems are solved once for all."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evoem.models.subspace.small_systems import factorise, gather, invert_factor, list_patterns
from evoem.runtime.compile import inlined, kernel

# Tables of pairs of latents have at most as many entries as this; without them pairs take longer.
LARGEST_TABLES = 1 << 25


class Pairs(NamedTuple):
    """States of two latents a < b of rows with nothing missing: their systems, solved once for all.

    With η the correlations of both, M⁻¹ = diag(d_a⁻¹, 0) + Aᵀ A, so that

        ηᵀ M⁻¹ η = Σ η_a² / d_a + |A η|².
    """

    places: NDArray[np.int64]  # (G, G): where A starts in `maps`
    maps: NDArray[np.floating]  # A, each (q_b, q_a + q_b)
    constants: NDArray[np.float64]  # (G, G)  -½ log|M|


@inlined
def single_square(eta, pivots, begin, end):
    """ηᵀ M⁻¹ η of one latent."""
    total = 0.0
    for i in range(begin, end):
        total += eta[i] * eta[i] * pivots[i]
    return total


@inlined
def pair_map(eta, groups, maps, place, a, b, v):
    """v = A η of two latents."""
    of_a, of_b = eta[groups[a] : groups[a + 1]], eta[groups[b] : groups[b + 1]]
    for i in range(len(of_b)):
        total = maps.dtype.type(0)
        row = maps[place : place + len(of_a)]
        for j in range(len(of_a)):
            total += row[j] * of_a[j]
        place += len(of_a)
        row = maps[place : place + len(of_b)]
        for j in range(len(of_b)):
            total += row[j] * of_b[j]
        place += len(of_b)
        v[i] = total


@inlined
def pair_means(eta, groups, pivots, gram, maps, place, a, b, v, u):
    """u = M⁻¹ η of two latents: (A η)ᵀ A, and for the first as it is given the second."""
    first, second = groups[a], groups[b]
    n_first, n_second = groups[a + 1] - first, groups[b + 1] - second
    pair_map(eta, groups, maps, place, a, b, v)
    of_second = u[n_first : n_first + n_second]
    for j in range(n_second):
        of_second[j] = 0.0
    for i in range(n_second):
        place += n_first
        row = maps[place : place + n_second]
        for j in range(n_second):
            of_second[j] += v[i] * row[j]
        place += n_second
    for i in range(n_first):
        total = eta[first + i]
        row = gram[first + i, second : second + n_second]
        for j in range(n_second):
            total -= row[j] * maps.dtype.type(of_second[j])
        u[i] = total * pivots[first + i]


@kernel
def _solve_pairs(groups, gram, places, maps, constants):
    G = len(groups) - 1
    room = 0
    for g in range(G):
        room = max(room, groups[g + 1] - groups[g])
    local, N = np.empty((2, 2 * room, 2 * room))
    eta, inverse = np.zeros(2 * room), np.empty(2 * room)
    latents, active = np.empty((2, 2 * room), np.int64)
    for b in range(G):
        for a in range(b):
            latents[0], latents[1] = a, b
            n = list_patterns(groups, latents, 2, active)
            diagonal = groups[a + 1] - groups[a]
            gather(gram, active, n, local)
            constants[a, b] = factorise(local, eta, n, diagonal, inverse)
            # A is the rows of L⁻¹ that belong to b.
            invert_factor(local, n, diagonal, inverse, diagonal, N)
            place = places[a, b]
            for i in range(diagonal, n):
                for j in range(n):
                    maps[place + j] = N[i, j] if j <= i else 0.0
                place += n


def solve_pairs(groups: NDArray[np.int64], gram: NDArray[np.floating]) -> Pairs:
    """The systems of all pairs of latents; none if these are too many."""
    sizes = np.diff(groups)
    entries = np.triu(sizes * (sizes[:, None] + sizes), 1)
    if entries.sum() > LARGEST_TABLES:
        return Pairs(np.empty((0, 0), np.int64), np.empty(0, gram.dtype), np.empty((0, 0)))
    ends = np.cumsum(entries).reshape(entries.shape)
    maps = np.empty(int(ends[-1, -1]), gram.dtype)
    constants = np.zeros(entries.shape)
    places = ends - entries
    _solve_pairs(groups, gram, places, maps, constants)
    return Pairs(places, maps, constants)
