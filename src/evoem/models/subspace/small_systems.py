"""Linear systems of a state of subspaces, whose latents have several patterns each.

Their Cholesky factor also serves similar patches, see `images.nonlocal_bayes`. That of states of
spike-and-slab coding is another one, since tiles do not pay for few latents: docs/experiments.md
has the times.

Matrices of the n active patterns use the lower triangle of the first n rows and columns. They have
two dimensions: if an index is a sum, the compiler cannot tell that it is not negative, and then
loads values one by one.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evoem.runtime.compile import inlined, inlined_in_order, kernel
from evoem.validation import Mask

# The product of pivots is turned into a logarithm before it can overflow.
LARGE = 1e200
# Rows and columns of the tiles that matrices are worked on in.
TILE = 3
# Tables of pairs of latents have at most as many entries as this; without them pairs take longer.
LARGEST_TABLES = 1 << 25


class System(NamedTuple):
    """Scratch memory for the system M = 1 + V_s V_sᵀ of a state."""

    local: NDArray[np.float64]  # V_s V_sᵀ, then L of M = L Lᵀ, at last M⁻¹
    N: NDArray[np.float64]  # L⁻¹
    eta: NDArray[np.float64]  # η, then L⁻¹ η
    inverse: NDArray[np.float64]  # one over the diagonal of L
    u: NDArray[np.float64]  # M⁻¹ η


@inlined
def list_patterns(groups, latents, k, active):
    """List the patterns of k latents, one latent after the other; returns their number."""
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
    """Inner products of the first entries of three rows from i on with three from j on: each value
    that is loaded is used three times."""
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
    """Inner product of the first entries of two rows."""
    total = rows.dtype.type(0)
    for d in range(length):
        total += rows[i, d] * rows[j, d]
    return total


@inlined
def subtract_three(rows, i, j, three):
    """Subtract three numbers from entries of a row."""
    rows[i, j] -= three[0]
    rows[i, j + 1] -= three[1]
    rows[i, j + 2] -= three[2]


@inlined
def subtract_known(local, n, begin, end):
    """Subtract products of the columns of L before `begin` from columns `begin:end`, at most 3."""
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


# Apart from `spike_slab.state_posterior.ldl`: with tiles 27 patterns take 0.8 times as long, 40
# take 0.6 times, but 3 take 2.6 times.
@inlined
def cholesky(n, diagonal, system):
    """½ ηᵀ M⁻¹ η - ½ log|M| of M = 1 + `local`, whose first `diagonal` rows are diagonal.

    Leaves L of M = L Lᵀ below the diagonal of `local`.
    """
    local, eta, inverse = system.local, system.eta, system.inverse
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
def solve_back(n, diagonal, system):
    """u = L⁻ᵀ `eta`."""
    local, eta, inverse, u = system.local, system.eta, system.inverse, system.u
    for i in range(n):
        u[i] = eta[i]
    for j in range(n - 1, -1, -1):
        last = u[j] * inverse[j]
        u[j] = last
        if j >= diagonal:
            for i in range(j):
                u[i] -= local[j, i] * last


@inlined_in_order
def invert_factor(n, diagonal, begin, system):
    """Rows of N = L⁻¹ from `begin` on, of which those before `diagonal` are diagonal."""
    local, inverse, N = system.local, system.inverse, system.N
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
def invert(n, diagonal, system):
    """M⁻¹ over `local`, lower triangle, from what `cholesky` left there."""
    local, N = system.local, system.N
    invert_factor(n, diagonal, 0, system)
    for i in range(n):
        for j in range(i + 1):
            local[i, j] = 0.0
    for p in range(n):  # Nᵀ N
        for i in range(p + 1):
            factor = N[p, i]
            if factor != 0.0:
                for j in range(i + 1):
                    local[i, j] += factor * N[p, j]


# Inner products of patterns over what was observed of a row. Those of `evoem.models.observed_gram`
# are of single latents; here blocks of several patterns are worth packing what was observed.


class ObservedGram(NamedTuple):
    """Inner products of patterns over the observed values of a row, by pairs of latents.

    The states of a row share latents, so a block is kept until the next row.
    """

    packed: NDArray[np.floating]  # (C, D): patterns of numbered latents, where observed
    numbers: NDArray[np.int64]  # (G,): latents are numbered as states come up with them, -1 before
    latents: NDArray[np.int64]  # (G,): these
    offsets: NDArray[np.int64]  # (G, G): of blocks, by numbers, the later first; -1 if not filled
    blocks: NDArray[np.floating]
    sizes: NDArray[np.int64]  # number of values observed, of latents numbered, of entries of blocks
    observed: NDArray[np.int64]  # (D,): which values these are


@inlined
def start_row(known, observed, r):
    """Forget the inner products of the last row."""
    for u in range(known.sizes[1]):
        known.numbers[known.latents[u]] = -1
    n_seen = 0
    for d in range(observed.shape[1]):
        if observed[r, d]:
            known.observed[n_seen] = d
            n_seen += 1
    known.sizes[0], known.sizes[1], known.sizes[2] = n_seen, 0, 0


@inlined
def number_latent(known, V, groups, g):
    """Number a latent and pack its patterns."""
    number = known.sizes[1]
    known.numbers[g], known.latents[number] = number, g
    known.sizes[1] += 1
    for u in range(number + 1):
        known.offsets[number, u] = -1
    for h in range(groups[g], groups[g + 1]):
        for d in range(known.sizes[0]):
            known.packed[h, d] = V[h, known.observed[d]]


@inlined
def fill_block(known, groups, a, b, offset):
    """Inner products of the patterns of two latents."""
    packed, blocks, length = known.packed, known.blocks, known.sizes[0]
    first, last, begin, end = groups[a], groups[a + 1], groups[b], groups[b + 1]
    width = end - begin
    for i in range(first, last, TILE):
        for j in range(begin, end, TILE):
            at = offset + (i - first) * width + j - begin
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
    """The lower triangle of the Gram matrix of the patterns of a state, over observed values."""
    for i in range(k):
        if known.numbers[latents[i]] < 0:
            number_latent(known, V, groups, latents[i])
    row = 0
    for i in range(k):
        a = latents[i]
        height = groups[a + 1] - groups[a]
        column = 0
        for j in range(i + 1):
            b = latents[j]
            width = groups[b + 1] - groups[b]
            turned = known.numbers[a] < known.numbers[b]
            late, early = (b, a) if turned else (a, b)
            offset = known.offsets[known.numbers[late], known.numbers[early]]
            if offset < 0:
                offset = known.sizes[2]
                known.offsets[known.numbers[late], known.numbers[early]] = offset
                known.sizes[2] += height * width
                fill_block(known, groups, late, early, offset)
            block = known.blocks[offset : offset + height * width]
            for x in range(height):
                if turned:
                    for y in range(width):
                        out[row + x, column + y] = block[y * height + x]
                else:
                    for y in range(width):
                        out[row + x, column + y] = block[x * width + y]
            column += width
        row += height


def empty_gram(
    V: NDArray[np.floating], groups: NDArray[np.int64], observed: Mask | None
) -> ObservedGram | None:
    """Room for the inner products of one row at a time; None if nothing is missing."""
    if observed is None:
        return None
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


@inlined
def fill_system(derived, known, complete_row, latents, k, active, n, row, system):
    """η and the Gram matrix of a state; returns how many of its first rows are diagonal."""
    groups = derived.groups
    for i in range(n):
        system.eta[i] = row[active[i]]
    if complete_row:
        gather(derived.gram, active, n, system.local)
        return groups[latents[0] + 1] - groups[latents[0]] if k > 0 else 0
    if known is not None:
        gather_observed(known, derived.scaled, groups, latents, k, system.local)
    return 0


# States of two latents: in complete rows their systems are solved once for all.


class Pairs(NamedTuple):
    """States of two latents a < b in complete rows: their systems, solved once for all rows.

    With η the correlations of both, M⁻¹ = diag(d_a⁻¹, 0) + Aᵀ A, so that

        ηᵀ M⁻¹ η = Σ η_a² / d_a + |A η|².
    """

    offsets: NDArray[np.int64]  # (G, G): where A starts in `maps`
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
def pair_map(eta, groups, pairs, a, b, v):
    """v = A η of two latents."""
    maps, offset = pairs.maps, pairs.offsets[a, b]
    of_a, of_b = eta[groups[a] : groups[a + 1]], eta[groups[b] : groups[b + 1]]
    for i in range(len(of_b)):
        total = maps.dtype.type(0)
        row = maps[offset : offset + len(of_a)]
        for j in range(len(of_a)):
            total += row[j] * of_a[j]
        offset += len(of_a)
        row = maps[offset : offset + len(of_b)]
        for j in range(len(of_b)):
            total += row[j] * of_b[j]
        offset += len(of_b)
        v[i] = total


@inlined
def pair_means(eta, derived, a, b, v, u):
    """u = M⁻¹ η of two latents: (A η)ᵀ A, and for the first one given the second."""
    groups, gram, pivots = derived.groups, derived.gram, derived.pivots
    maps, offset = derived.pairs.maps, derived.pairs.offsets[a, b]
    first, second = groups[a], groups[b]
    n_first, n_second = groups[a + 1] - first, groups[b + 1] - second
    pair_map(eta, groups, derived.pairs, a, b, v)
    of_second = u[n_first : n_first + n_second]
    for j in range(n_second):
        of_second[j] = 0.0
    for i in range(n_second):
        offset += n_first
        row = maps[offset : offset + n_second]
        for j in range(n_second):
            of_second[j] += v[i] * row[j]
        offset += n_second
    for i in range(n_first):
        total = eta[first + i]
        row = gram[first + i, second : second + n_second]
        for j in range(n_second):
            total -= row[j] * maps.dtype.type(of_second[j])
        u[i] = total * pivots[first + i]


@kernel
def _solve_pairs(groups, gram, pairs, room):
    offsets, maps, constants = pairs
    local, N = np.empty((2, room, room))
    eta, inverse = np.zeros(room), np.empty(room)
    system = System(local, N, eta, inverse, eta)
    latents, active = np.empty((2, room), np.int64)
    for b in range(len(groups) - 1):
        for a in range(b):
            latents[0], latents[1] = a, b
            n = list_patterns(groups, latents, 2, active)
            diagonal = groups[a + 1] - groups[a]
            gather(gram, active, n, system.local)
            constants[a, b] = cholesky(n, diagonal, system)
            # A is the rows of L⁻¹ that belong to b.
            invert_factor(n, diagonal, diagonal, system)
            offset = offsets[a, b]
            for i in range(diagonal, n):
                for j in range(n):
                    maps[offset + j] = system.N[i, j] if j <= i else 0.0
                offset += n


def solve_pairs(groups: NDArray[np.int64], gram: NDArray[np.floating]) -> Pairs:
    """The systems of all pairs of latents, solved; none if there are too many pairs."""
    sizes = np.diff(groups)
    entries = np.triu(sizes * (sizes[:, None] + sizes), 1)
    if entries.sum() > LARGEST_TABLES:
        return Pairs(np.empty((0, 0), np.int64), np.empty(0, gram.dtype), np.empty((0, 0)))
    ends = np.cumsum(entries).reshape(entries.shape)
    maps = np.empty(int(ends[-1, -1]), gram.dtype)
    pairs = Pairs(ends - entries, maps, np.zeros(entries.shape))
    _solve_pairs(groups, gram, pairs, 2 * int(sizes.max()))
    return pairs
