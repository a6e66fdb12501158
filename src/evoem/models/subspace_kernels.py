"""The compiled part of `subspaces`: systems of states of several latents, of several patterns each.

Matrices of the n active patterns are flat, n×n, of which the lower triangle is used.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evoem.compile import inlined, inlined_in_order, kernel
from evoem.models import linear
from evoem.ranking import GROUPS, best_scores
from evoem.states import active_latents

# The product of pivots is turned into a logarithm before it can overflow.
LARGE = 1e200
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


@inlined_in_order
def factorise(local, eta, n, diagonal, column, inverse):
    """½ ηᵀ M⁻¹ η - ½ log|M| of M = 1 + `local`, whose first `diagonal` rows are diagonal.

    Leaves L of M = L d Lᵀ below the diagonal of `local`, 1/d in `inverse`, L⁻¹ η in `eta`.
    """
    value = 0.0
    determinant = 1.0
    for j in range(n):
        pivot = max(1.0 + local[j * n + j], 1.0)  # below one by rounding alone
        determinant *= pivot
        if determinant > LARGE:
            value -= 0.5 * np.log(determinant)
            determinant = 1.0
        inverse[j] = 1.0 / pivot
        z = eta[j]
        value += 0.5 * z * z * inverse[j]
        begin = max(j + 1, diagonal)
        for i in range(begin, n):
            column[i] = local[i * n + j]
        for i in range(begin, n):
            factor = column[i] * inverse[j]
            local[i * n + j] = factor
            eta[i] -= factor * z
            for p in range(begin, i + 1):
                local[i * n + p] -= factor * column[p]
    return value - 0.5 * np.log(determinant)


@inlined_in_order
def solve_back(local, eta, n, diagonal, inverse, u):
    """u = L⁻ᵀ d⁻¹ `eta`."""
    for i in range(n - 1, -1, -1):
        u[i] = eta[i] * inverse[i]
    for j in range(n - 1, diagonal - 1, -1):
        for i in range(j):
            u[i] -= local[j * n + i] * u[j]


@inlined_in_order
def invert(local, n, diagonal, inverse, N):
    """M⁻¹ over `local`, lower triangle, from what `factorise` left there."""
    for i in range(n):  # N = L⁻¹, row by row
        for j in range(i):
            N[i * n + j] = 0.0
        N[i * n + i] = 1.0
        if i >= diagonal:
            for p in range(i):
                factor = local[i * n + p]
                for j in range(p + 1):
                    N[i * n + j] -= factor * N[p * n + j]
    for i in range(n):
        for j in range(i + 1):
            local[i * n + j] = 0.0
    for p in range(n):  # Nᵀ d⁻¹ N
        for i in range(p + 1):
            factor = N[p * n + i] * inverse[p]
            if factor != 0.0:
                for j in range(i + 1):
                    local[i * n + j] += factor * N[p * n + j]


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
    first, second = groups[a], groups[b]
    n_first, n_second = groups[a + 1] - first, groups[b + 1] - second
    for i in range(n_second):
        total = maps.dtype.type(0)
        for j in range(n_first):
            total += maps[place + j] * eta[first + j]
        place += n_first
        for j in range(n_second):
            total += maps[place + j] * eta[second + j]
        place += n_second
        v[i] = total


@inlined
def pair_means(eta, groups, pivots, gram, maps, place, a, b, v, u):
    """u = M⁻¹ η of two latents: (A η)ᵀ A, and for the first as it is given the second."""
    first, second = groups[a], groups[b]
    n_first, n_second = groups[a + 1] - first, groups[b + 1] - second
    pair_map(eta, groups, maps, place, a, b, v)
    for j in range(n_second):
        u[n_first + j] = 0.0
    for i in range(n_second):
        row = place + i * (n_first + n_second) + n_first
        for j in range(n_second):
            u[n_first + j] += v[i] * maps[row + j]
    for i in range(n_first):
        total = eta[first + i]
        for j in range(n_second):
            total -= gram[first + i, second + j] * maps.dtype.type(u[n_first + j])
        u[i] = total * pivots[first + i]


@kernel
def _solve_pairs(groups, gram, places, maps, constants):
    G = len(groups) - 1
    room = 0
    for g in range(G):
        room = max(room, groups[g + 1] - groups[g])
    local, N = np.empty(4 * room * room), np.empty(4 * room * room)
    eta, column, inverse = np.zeros(2 * room), np.empty(2 * room), np.empty(2 * room)
    active = np.empty(2 * room + 2, np.int64)
    for b in range(G):
        for a in range(b):
            active[0], active[1] = a, b
            n = linear.expand(groups, active, 2)
            diagonal = groups[a + 1] - groups[a]
            linear.gather(gram, active, n, local)
            constants[a, b] = factorise(local, eta, n, diagonal, column, inverse)
            # A = d^-1/2 times the rows of L⁻¹ that belong to b.
            place = places[a, b]
            for i in range(diagonal, n):
                for j in range(i):
                    N[i * n + j] = 0.0
                N[i * n + i] = 1.0
                for p in range(i):
                    factor = local[i * n + p]
                    if p < diagonal:
                        N[i * n + p] -= factor
                    else:
                        for j in range(p + 1):
                            N[i * n + j] -= factor * N[p * n + j]
                for j in range(n):
                    maps[place + j] = N[i * n + j] * np.sqrt(inverse[i]) if j <= i else 0.0
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


@kernel
def log_joints(
    groups, V, gram, bias, shift, pivots, constants, pairs, projections, base, complete, observed,
    states, out, starts, stops,
):  # fmt: skip
    """Log-joints of the states of each row between start and stop."""
    places, maps, pair_constants = pairs
    most = 2 if len(places) else 1  # latents of states whose systems are known
    C, D = V.shape
    active = np.empty(C + 1, np.int64)
    room = 32
    local = np.empty(room**2)
    row, v = np.empty(C, V.dtype), np.empty(C, V.dtype)
    eta, column, inverse = np.empty(C), np.empty(C), np.empty(C)
    if observed is not None:
        slots = np.full(C, -1)
        members = np.empty(C, np.int64)
        n_members = 0
        known = np.empty(C * (C + 1) // 2)
        seen = np.empty(D, V.dtype)
    for r in range(states.shape[0]):
        if observed is not None:
            for d in range(D):
                seen[d] = observed[r, d]
            n_members = linear.reset_observed_gram(slots, members, n_members)
        complete_row = observed is None or complete[r]
        for h in range(C):
            row[h] = projections[r, h] + shift[h]
        for m in range(starts[r], stops[r]):
            k = active_latents(states, r, m, active)
            value = base[r]
            for i in range(k):
                value += bias[active[i]]
            if complete_row and 0 < k <= most:
                a = active[0]
                value += 0.5 * single_square(row, pivots, groups[a], groups[a + 1])
                if k == 1:
                    out[r, m] = value + constants[a]
                    continue
                b = active[1]
                pair_map(row, groups, maps, places[a, b], a, b, v)
                total = 0.0
                for i in range(groups[b + 1] - groups[b]):
                    total += v[i] * v[i]
                out[r, m] = value + 0.5 * total + pair_constants[a, b]
                continue
            diagonal = 0
            if complete_row and k > 0:
                diagonal = groups[active[0] + 1] - groups[active[0]]
            n = linear.expand(groups, active, k)
            if n > room:
                room = min(2 * n, C)
                local = np.empty(room**2)
            for i in range(n):
                eta[i] = row[active[i]]
            if complete_row:
                linear.gather(gram, active, n, local)
            elif observed is not None:
                n_members = linear.fill_observed_gram(
                    V, seen, active, n, slots, members, n_members, known, local
                )
            out[r, m] = value + factorise(local, eta, n, diagonal, column, inverse)


@kernel
def moments(
    groups, V, gram, shift, pivots, pairs, projections, complete, observed,
    offsets, squares, members, activation, first, second, states, weights, negligible,
    sum_second, together,
):  # fmt: skip
    """Moments of the patterns, rotated; of second moments without room the sums, but for the
    covariances of states that are counted in `together`."""
    pair_places, maps, _ = pairs
    most = 2 if len(pair_places) else 1  # latents of states whose systems are known
    C, D = V.shape
    active = np.empty(C + 1, np.int64)
    places = np.empty(C, np.int64)
    room = 32
    local, N = np.empty(room**2), np.empty(room**2)
    row, v = np.empty(C, V.dtype), np.empty(C, V.dtype)
    eta, u, column, inverse = np.empty(C), np.empty(C), np.empty(C), np.empty(C)
    if observed is not None:
        slots = np.full(C, -1)
        met = np.empty(C, np.int64)
        n_met = 0
        known = np.empty(C * (C + 1) // 2)
        seen = np.empty(D, V.dtype)
    for r in range(states.shape[0]):
        begin, matrix = offsets[r], squares[r]
        size = offsets[r + 1] - begin
        keep = squares[r + 1] > matrix
        for i in range(size):
            places[members[begin + i]] = i
        if observed is not None:
            for d in range(D):
                seen[d] = observed[r, d]
            n_met = linear.reset_observed_gram(slots, met, n_met)
        complete_row = observed is None or complete[r]
        for h in range(C):
            row[h] = projections[r, h] + shift[h]
        for m in range(states.shape[1]):
            weight = weights[r, m]
            if not weight > negligible:
                continue
            k = active_latents(states, r, m, active)
            known_system = complete_row and 0 < k <= most and not keep
            if known_system:
                a, b = active[0], active[k - 1]
                together[a, b] += weight
                n = linear.expand(groups, active, k)
                if k == 1:
                    for i in range(n):
                        u[i] = row[active[i]] * pivots[active[i]]
                else:
                    place = pair_places[a, b]
                    pair_means(row, groups, pivots, gram, maps, place, a, b, v, u)
            else:
                diagonal = 0
                if complete_row and k > 0:
                    diagonal = groups[active[0] + 1] - groups[active[0]]
                n = linear.expand(groups, active, k)
                if n > room:
                    room = min(2 * n, C)
                    local, N = np.empty(room**2), np.empty(room**2)
                for i in range(n):
                    eta[i] = row[active[i]]
                if complete_row:
                    linear.gather(gram, active, n, local)
                elif observed is not None:
                    n_met = linear.fill_observed_gram(
                        V, seen, active, n, slots, met, n_met, known, local
                    )
                factorise(local, eta, n, diagonal, column, inverse)
                solve_back(local, eta, n, diagonal, inverse, u)
                invert(local, n, diagonal, inverse, N)
            for i in range(n):
                place = begin + places[active[i]]
                first[place] += weight * u[i]  # eq. 46
                activation[place] += weight
            for i in range(n):  # eq. 47
                scaled = weight * u[i]
                if known_system:
                    for j in range(i + 1):
                        sum_second[active[i], active[j]] += scaled * u[j]
                elif keep:
                    start = matrix + places[active[i]] * size
                    for j in range(i + 1):
                        value = weight * local[i * n + j] + scaled * u[j]
                        second[start + places[active[j]]] += value
                else:
                    for j in range(i + 1):
                        value = weight * local[i * n + j] + scaled * u[j]
                        sum_second[active[i], active[j]] += value


@kernel
def add_covariances(groups, pivots, pairs, together, sum_second):
    """Add M⁻¹ of states of one and two latents as often as they were met in complete rows."""
    places, maps, _ = pairs
    G = len(groups) - 1
    for a in range(G):
        alone = together[a, a]
        width = groups[a + 1] - groups[a]
        for b in range(a + 1, G):
            weight = together[a, b]
            if weight == 0.0:
                continue
            alone += weight
            height = groups[b + 1] - groups[b]
            n = width + height
            for row in range(places[a, b], places[a, b] + height * n, n):  # Aᵀ A, see `Pairs`
                for i in range(n):
                    h = groups[a] + i if i < width else groups[b] + i - width
                    value = weight * maps[row + i]
                    for j in range(i + 1):
                        g = groups[a] + j if j < width else groups[b] + j - width
                        sum_second[h, g] += value * maps[row + j]
        for i in range(groups[a], groups[a + 1]):
            sum_second[i, i] += alone * pivots[i]


@kernel
def best_additions(
    groups, V, gram, shift, pivots, constants, halves, shares, projections, complete, observed,
    states, counts, out,
):  # fmt: skip
    """Rank the latents by how well their patterns correlate with what a state leaves."""
    C, D = V.shape
    G = len(groups) - 1
    active = np.empty(C + 1, np.int64)
    room = 32
    local = np.empty(room**2)
    eta, u, column, inverse = np.empty(C), np.empty(C), np.empty(C), np.empty(C)
    row, z = np.empty(C, V.dtype), np.empty(C, V.dtype)
    scores, tops = np.empty(G, V.dtype), np.empty(GROUPS, V.dtype)
    if observed is not None:
        slots = np.full(C, -1)
        met = np.empty(C, np.int64)
        n_met = 0
        known = np.empty(C * (C + 1) // 2)
        seen = np.empty(D, V.dtype)
    for r in range(states.shape[0]):
        if observed is not None:
            for d in range(D):
                seen[d] = observed[r, d]
            n_met = linear.reset_observed_gram(slots, met, n_met)
        complete_row = observed is None or complete[r]
        own = r if len(halves) > 1 else 0
        for h in range(C):
            row[h] = projections[r, h] + shift[h]
        for p in range(counts[r]):
            k = active_latents(states, r, p, active)
            for g in range(G):
                scores[g] = -constants[own, g]
            for i in range(k):
                scores[active[i]] = -np.inf
            diagonal = 0
            if complete_row and k > 0:
                diagonal = groups[active[0] + 1] - groups[active[0]]
            n = linear.expand(groups, active, k)
            if complete_row and k == 1:
                for i in range(n):
                    u[i] = row[active[i]] * pivots[active[i]]
            else:
                if n > room:
                    room = min(2 * n, C)
                    local = np.empty(room**2)
                for i in range(n):
                    eta[i] = row[active[i]]
                if complete_row:
                    linear.gather(gram, active, n, local)
                elif observed is not None:
                    n_met = linear.fill_observed_gram(
                        V, seen, active, n, slots, met, n_met, known, local
                    )
                factorise(local, eta, n, diagonal, column, inverse)
                solve_back(local, eta, n, diagonal, inverse, u)
            for h in range(C):
                z[h] = row[h]
            for i in range(n):
                h = active[i]
                c = V.dtype.type(u[i]) * shares[own, h]
                for g in range(C):
                    z[g] -= c * gram[h, g]
            for h in range(C):
                z[h] *= z[h] * halves[own, h]
            for g in range(G):
                total = scores[g]
                for h in range(groups[g], groups[g + 1]):
                    total += z[h]
                scores[g] = total
            best_scores(scores, tops, out, r, p)
