"""Small systems of `subspaces`: those of a state whose latents have several patterns each.

Of matrices of the n active patterns the first n rows and columns are used, and of these the lower
triangle. They have two dimensions, since of an index that is a sum the compiler cannot tell that it
is not negative, and then loads values one by one.
"""

import numpy as np

from evoem.runtime.compile import inlined, inlined_in_order

# The product of pivots is turned into a logarithm before it can overflow.
LARGE = 1e200
# Matrices are worked on in tiles of so many rows and columns.
TILE = 3


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
