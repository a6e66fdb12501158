"""The compiled part of `subspaces`: systems of states of several latents, of several patterns each.

Of matrices of the n active patterns the first n rows and columns are used, and of these the lower
triangle. They have two dimensions, since of an index that is a sum the compiler cannot tell that it
is not negative, and then loads values one by one.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evoem.compile import inlined, inlined_in_order, kernel
from evoem.ranking import GROUPS, best_scores
from evoem.states import active_latents

# The product of pivots is turned into a logarithm before it can overflow.
LARGE = 1e200
# Matrices are worked on in tiles of so many rows and columns.
TILE = 3
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
def list_patterns(groups, latents, k, active):
    """The patterns of k latents, one latent after the other; how many these are."""
    n = 0
    for i in range(k):
        for h in range(groups[latents[i]], groups[latents[i] + 1]):
            active[n] = h
            n += 1
    return n


@inlined
def gather(gram, active, n, out):
    """The lower triangle of the Gram matrix of the active patterns."""
    for i in range(n):
        h = active[i]
        for j in range(i + 1):
            out[i, j] = gram[h, active[j]]


@inlined
def products_in_tile(rows, i, j, length):
    """Inner products of three rows from i on with three from j on, of their first entries: each
    that is loaded serves three of them."""
    s00, s01, s02 = rows.dtype.type(0), rows.dtype.type(0), rows.dtype.type(0)
    s10, s11, s12 = s00, s00, s00
    s20, s21, s22 = s00, s00, s00
    for d in range(length):
        a0, a1, a2 = rows[i, d], rows[i + 1, d], rows[i + 2, d]
        b0, b1, b2 = rows[j, d], rows[j + 1, d], rows[j + 2, d]
        s00 += a0 * b0
        s01 += a0 * b1
        s02 += a0 * b2
        s10 += a1 * b0
        s11 += a1 * b1
        s12 += a1 * b2
        s20 += a2 * b0
        s21 += a2 * b1
        s22 += a2 * b2
    return (s00, s01, s02), (s10, s11, s12), (s20, s21, s22)


@inlined
def inner_product(rows, i, j, length):
    """Of the first entries of two rows."""
    total = rows.dtype.type(0)
    for d in range(length):
        total += rows[i, d] * rows[j, d]
    return total


@inlined
def subtract_three(rows, i, j, three):
    """Take three numbers off entries of a row."""
    rows[i, j] -= three[0]
    rows[i, j + 1] -= three[1]
    rows[i, j + 2] -= three[2]


@inlined
def subtract_known(local, n, begin, end):
    """Take off what the columns of L before `begin` explain of columns `begin:end`, at most 3."""
    for i in range(begin, n, TILE):
        if end == begin + TILE and i + TILE <= n:
            first, second, third = products_in_tile(local, i, begin, begin)
            subtract_three(local, i, begin, first)
            subtract_three(local, i + 1, begin, second)
            subtract_three(local, i + 2, begin, third)
        else:
            for x in range(i, min(i + TILE, n)):
                for y in range(begin, end):
                    local[x, y] -= inner_product(local, x, y, begin)


@inlined
def factorise(local, eta, n, diagonal, inverse):
    """½ ηᵀ M⁻¹ η - ½ log|M| of M = 1 + `local`, whose first `diagonal` rows are diagonal.

    Leaves L of M = L Lᵀ below the diagonal of `local`, of which one over the diagonal is in
    `inverse`, and L⁻¹ η in `eta`.
    """
    value = 0.0
    determinant = 1.0
    for begin in range(0, n, TILE):
        end = min(begin + TILE, n)
        if end > diagonal:
            subtract_known(local, n, begin, end)
        for j in range(begin, end):
            pivot = max(1.0 + local[j, j], 1.0)  # below one by rounding alone
            determinant *= pivot
            if determinant > LARGE:
                value -= 0.5 * np.log(determinant)
                determinant = 1.0
            scale = 1.0 / np.sqrt(pivot)
            inverse[j] = scale
            for i in range(max(j + 1, diagonal), n):
                local[i, j] *= scale
            for p in range(max(j + 1, diagonal), end):
                factor = local[p, j]
                for i in range(p, n):
                    local[i, p] -= factor * local[i, j]
    for i in range(n):
        z = eta[i]
        if i >= diagonal:
            for j in range(i):
                z -= local[i, j] * eta[j]
        z *= inverse[i]
        eta[i] = z
        value += 0.5 * z * z
    return value - 0.5 * np.log(determinant)


@inlined_in_order
def solve_back(local, eta, n, diagonal, inverse, u):
    """u = L⁻ᵀ `eta`."""
    for i in range(n):
        u[i] = eta[i]
    for j in range(n - 1, -1, -1):
        last = u[j] * inverse[j]
        u[j] = last
        if j >= diagonal:
            for i in range(j):
                u[i] -= local[j, i] * last


@inlined_in_order
def invert_factor(local, n, diagonal, inverse, begin, N):
    """Rows of N = L⁻¹ from `begin` on, of which those before `diagonal` are diagonal."""
    for i in range(begin, n):
        for j in range(i):
            N[i, j] = 0.0
        N[i, i] = inverse[i]
        if i >= diagonal:
            for p in range(i):
                factor = local[i, p] * inverse[i]
                if p < diagonal:
                    N[i, p] -= factor * inverse[p]
                else:
                    for j in range(p + 1):
                        N[i, j] -= factor * N[p, j]


@inlined_in_order
def invert(local, n, diagonal, inverse, N):
    """M⁻¹ over `local`, lower triangle, from what `factorise` left there."""
    invert_factor(local, n, diagonal, inverse, 0, N)
    for i in range(n):
        for j in range(i + 1):
            local[i, j] = 0.0
    for p in range(n):  # Nᵀ N
        for i in range(p + 1):
            factor = N[p, i]
            if factor != 0.0:
                for j in range(i + 1):
                    local[i, j] += factor * N[p, j]


class ObservedGram(NamedTuple):
    """Inner products of patterns over what was observed of a row, by pairs of latents.

    The states of a row share their latents, so a block is kept until the next row.
    """

    packed: NDArray[np.floating]  # (C, D): patterns of latents that were met, where observed
    slots: NDArray[np.int64]  # (G,): latents are numbered as they are met, -1 before
    met: NDArray[np.int64]  # (G,): these
    places: NDArray[np.int64]  # (G, G): where blocks start, by slots, the later first; -1 if not
    blocks: NDArray[np.floating]
    sizes: NDArray[np.int64]  # number of values observed, of latents met, of entries of `blocks`
    observed: NDArray[np.int64]  # (D,): which values these are


@inlined
def forget_row(known, observed, r):
    """Start with what was observed of another row."""
    for u in range(known.sizes[1]):
        known.slots[known.met[u]] = -1
    n_seen = 0
    for d in range(observed.shape[1]):
        if observed[r, d]:
            known.observed[n_seen] = d
            n_seen += 1
    known.sizes[0], known.sizes[1], known.sizes[2] = n_seen, 0, 0


@inlined
def meet(known, V, groups, g):
    """Number a latent and pack its patterns."""
    slot = known.sizes[1]
    known.slots[g], known.met[slot] = slot, g
    known.sizes[1] += 1
    for u in range(slot + 1):
        known.places[slot, u] = -1
    for h in range(groups[g], groups[g + 1]):
        for d in range(known.sizes[0]):
            known.packed[h, d] = V[h, known.observed[d]]


@inlined
def fill_block(known, groups, a, b, place):
    """Inner products of the patterns of two latents."""
    packed, blocks, length = known.packed, known.blocks, known.sizes[0]
    first, last, begin, end = groups[a], groups[a + 1], groups[b], groups[b + 1]
    width = end - begin
    for i in range(first, last, TILE):
        for j in range(begin, end, TILE):
            at = place + (i - first) * width + j - begin
            if i + TILE <= last and j + TILE <= end:
                x, y, z = products_in_tile(packed, i, j, length)
                blocks[at], blocks[at + 1], blocks[at + 2] = x
                at += width
                blocks[at], blocks[at + 1], blocks[at + 2] = y
                at += width
                blocks[at], blocks[at + 1], blocks[at + 2] = z
            else:
                for p in range(min(TILE, last - i)):
                    for q in range(min(TILE, end - j)):
                        value = inner_product(packed, i + p, j + q, length)
                        blocks[at + p * width + q] = value


@inlined
def gather_observed(known, V, groups, latents, k, out):
    """The lower triangle of the Gram matrix, over what was observed, of the patterns of a state."""
    for i in range(k):
        if known.slots[latents[i]] < 0:
            meet(known, V, groups, latents[i])
    row = 0
    for i in range(k):
        a = latents[i]
        height = groups[a + 1] - groups[a]
        column = 0
        for j in range(i + 1):
            b = latents[j]
            width = groups[b + 1] - groups[b]
            turned = known.slots[a] < known.slots[b]
            late, early = (b, a) if turned else (a, b)
            place = known.places[known.slots[late], known.slots[early]]
            if place < 0:
                place = known.sizes[2]
                known.places[known.slots[late], known.slots[early]] = place
                known.sizes[2] += height * width
                fill_block(known, groups, late, early, place)
            block = known.blocks[place : place + height * width]
            for x in range(height):
                if turned:
                    for y in range(width):
                        out[row + x, column + y] = block[y * height + x]
                else:
                    for y in range(width):
                        out[row + x, column + y] = block[x * width + y]
            column += width
        row += height


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


def no_products_yet(V: NDArray[np.floating], groups: NDArray[np.int64]) -> ObservedGram:
    """Room for the inner products of one row at a time."""
    (C, D), G = V.shape, len(groups) - 1
    sizes = np.diff(groups)
    return ObservedGram(
        np.empty((C, D), V.dtype),
        np.full(G, -1),
        np.empty(G, np.int64),
        np.empty((G, G), np.int64),
        np.empty((C * C + int(sizes @ sizes)) // 2, V.dtype),
        np.zeros(3, np.int64),
        np.empty(D, np.int64),
    )


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
    known, states, out, starts, stops,
):  # fmt: skip
    """Log-joints of the states of each row between start and stop."""
    places, maps, pair_constants = pairs
    most = 2 if len(places) else 1  # latents of states whose systems are known
    C = len(V)
    latents, active = np.empty((2, C + 1), np.int64)
    room = 32
    local = np.empty((room, room))
    row, v = np.empty(C, V.dtype), np.empty(C, V.dtype)
    eta, inverse = np.empty(C), np.empty(C)
    for r in range(states.shape[0]):
        if observed is not None:
            forget_row(known, observed, r)
        complete_row = observed is None or complete[r]
        for h in range(C):
            row[h] = projections[r, h] + shift[h]
        for m in range(starts[r], stops[r]):
            k = active_latents(states, r, m, latents)
            value = base[r]
            for i in range(k):
                value += bias[latents[i]]
            if complete_row and 0 < k <= most:
                a = latents[0]
                value += 0.5 * single_square(row, pivots, groups[a], groups[a + 1])
                if k == 1:
                    out[r, m] = value + constants[a]
                    continue
                b = latents[1]
                pair_map(row, groups, maps, places[a, b], a, b, v)
                total = 0.0
                for i in range(groups[b + 1] - groups[b]):
                    total += v[i] * v[i]
                out[r, m] = value + 0.5 * total + pair_constants[a, b]
                continue
            diagonal = 0
            if complete_row and k > 0:
                diagonal = groups[latents[0] + 1] - groups[latents[0]]
            n = list_patterns(groups, latents, k, active)
            if n > room:
                room = min(2 * n, C)
                local = np.empty((room, room))
            for i in range(n):
                eta[i] = row[active[i]]
            if complete_row:
                gather(gram, active, n, local)
            elif observed is not None:
                gather_observed(known, V, groups, latents, k, local)
            out[r, m] = value + factorise(local, eta, n, diagonal, inverse)


@kernel
def moments(
    groups, V, gram, shift, pivots, pairs, projections, complete, observed, known,
    offsets, squares, members, activation, first, second, states, weights, negligible,
    sum_second, together,
):  # fmt: skip
    """Moments of the patterns, rotated; of second moments without room the sums, but for the
    covariances of states that are counted in `together`."""
    pair_places, maps, _ = pairs
    most = 2 if len(pair_places) else 1  # latents of states whose systems are known
    C = len(V)
    latents, active = np.empty((2, C + 1), np.int64)
    places = np.empty(C, np.int64)
    room = 32
    local, N = np.empty((2, room, room))
    row, v = np.empty(C, V.dtype), np.empty(C, V.dtype)
    eta, u, inverse = np.empty(C), np.empty(C), np.empty(C)
    for r in range(states.shape[0]):
        begin, matrix = offsets[r], squares[r]
        size = offsets[r + 1] - begin
        keep = squares[r + 1] > matrix
        for i in range(size):
            places[members[begin + i]] = i
        if observed is not None:
            forget_row(known, observed, r)
        complete_row = observed is None or complete[r]
        for h in range(C):
            row[h] = projections[r, h] + shift[h]
        for m in range(states.shape[1]):
            weight = weights[r, m]
            if not weight > negligible:
                continue
            k = active_latents(states, r, m, latents)
            known_system = complete_row and 0 < k <= most and not keep
            if known_system:
                a, b = latents[0], latents[k - 1]
                together[a, b] += weight
                n = list_patterns(groups, latents, k, active)
                if k == 1:
                    for i in range(n):
                        u[i] = row[active[i]] * pivots[active[i]]
                else:
                    place = pair_places[a, b]
                    pair_means(row, groups, pivots, gram, maps, place, a, b, v, u)
            else:
                diagonal = 0
                if complete_row and k > 0:
                    diagonal = groups[latents[0] + 1] - groups[latents[0]]
                n = list_patterns(groups, latents, k, active)
                if n > room:
                    room = min(2 * n, C)
                    local, N = np.empty((2, room, room))
                for i in range(n):
                    eta[i] = row[active[i]]
                if complete_row:
                    gather(gram, active, n, local)
                elif observed is not None:
                    gather_observed(known, V, groups, latents, k, local)
                factorise(local, eta, n, diagonal, inverse)
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
                        value = weight * local[i, j] + scaled * u[j]
                        second[start + places[active[j]]] += value
                else:
                    for j in range(i + 1):
                        value = weight * local[i, j] + scaled * u[j]
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
    known, states, counts, out,
):  # fmt: skip
    """Rank the latents by how well their patterns correlate with what a state leaves."""
    C, G = len(V), len(groups) - 1
    latents, active = np.empty((2, C + 1), np.int64)
    room = 32
    local = np.empty((room, room))
    eta, u, inverse = np.empty(C), np.empty(C), np.empty(C)
    row, z = np.empty(C, V.dtype), np.empty(C, V.dtype)
    scores, tops = np.empty(G, V.dtype), np.empty(GROUPS, V.dtype)
    for r in range(states.shape[0]):
        if observed is not None:
            forget_row(known, observed, r)
        complete_row = observed is None or complete[r]
        own = r if len(halves) > 1 else 0
        for h in range(C):
            row[h] = projections[r, h] + shift[h]
        for p in range(counts[r]):
            k = active_latents(states, r, p, latents)
            for g in range(G):
                scores[g] = -constants[own, g]
            for i in range(k):
                scores[latents[i]] = -np.inf
            diagonal = 0
            if complete_row and k > 0:
                diagonal = groups[latents[0] + 1] - groups[latents[0]]
            n = list_patterns(groups, latents, k, active)
            if complete_row and k == 1:
                for i in range(n):
                    u[i] = row[active[i]] * pivots[active[i]]
            else:
                if n > room:
                    room = min(2 * n, C)
                    local = np.empty((room, room))
                for i in range(n):
                    eta[i] = row[active[i]]
                if complete_row:
                    gather(gram, active, n, local)
                elif observed is not None:
                    gather_observed(known, V, groups, latents, k, local)
                factorise(local, eta, n, diagonal, inverse)
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
