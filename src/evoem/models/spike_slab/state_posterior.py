"""Integrate out the Gaussian slab of one state: compiled, for the k active latents.

Amplitudes are measured in their own standard deviations √ψ, which go into the dictionary,
V = W √ψ / σ. With t = μ/√ψ, and C the correlations of the slab of the active latents, everything
follows from one k×k system, whatever D is:

    M = C⁻¹ + V_sᵀ V_s,    η = V_sᵀ y / σ + C⁻¹ t_s,
    log p(s, y) = … - ½ log|M C| + ½ ηᵀ M⁻¹ η - ½ t_sᵀ C⁻¹ t_s,    z_s/√ψ | s, y ~ N(M⁻¹ η, M⁻¹).

For a diagonal Ψ, C = 1; M is then never nearly singular, also as Ψ vanishes.

Latents may differ in √ψ, and therefore in V, by orders of magnitude. Each term of M is rounded in
the scale of its own row and column, in which M stays accurate. Whitening the slab first, by a
factor of C, would mix large values into small ones. So M has one factorisation, `ldl`, without
square roots, and C another in `add_slab`; docs/experiments.md has the times of sharing one.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evoem.models.triangles import gather, row_start
from evoem.runtime.compile import inlined_in_order, unrolled

# Slab variances stay above this share of the slab's second moment.
SLAB_FLOOR = 1e-8
# The product of pivots is turned into a logarithm before it can overflow.
LARGE = 1e200


class System(NamedTuple):
    """Scratch memory for the system of one state.

    Matrices are flat, k×k, so that they stay together in the cache; symmetric ones use the lower
    triangle.
    """

    local: NDArray[np.float64]  # V_sᵀ V_s, then M, M⁻¹, at last ⟨z zᵀ⟩
    L: NDArray[np.float64]  # M = L diag(d) Lᵀ; ones on the diagonal, not stored
    N: NDArray[np.float64]  # L⁻¹
    eta: NDArray[np.float64]  # V_sᵀ y / σ, then η
    inverse: NDArray[np.float64]  # 1/d
    v: NDArray[np.float64]  # L⁻¹ η
    u: NDArray[np.float64]  # ⟨z⟩/√ψ, at last ⟨z⟩
    # With a full Ψ:
    covariance: NDArray[np.float64]  # C, then C⁻¹, at last Ψ_ss⁻¹
    R: NDArray[np.float64]  # C = Rᵀ diag(d) R; above its diagonal the columns times d
    Q: NDArray[np.float64]  # see `slab_gradients`
    variances: NDArray[np.float64]  # d of C; ones with a diagonal Ψ
    precisions: NDArray[np.float64]  # one over it
    t: NDArray[np.float64]  # μ_s/√ψ


def empty_system(room: int) -> System:
    """Scratch memory for a system of up to `room` active latents."""
    local, L, N, covariance, R, Q = (np.empty(room * room) for _ in range(6))
    eta, inverse, v, u, variances, precisions, t = np.ones((7, room))
    return System(local, L, N, eta, inverse, v, u, covariance, R, Q, variances, precisions, t)


# Apart from `ldl`: it goes from the last latent to the first, so that 1/d are the pivots of C⁻¹
# where `ldl` compares them, and solves for t on the way. With one factorisation for both, of
# reversed latents here, this and `ldl` together take 1.2 to 1.5 times as long, `ldl` alone 1.1 to
# 1.5 times.
@inlined_in_order
def add_slab(k, shift, active, system):
    """With a full Ψ: C⁻¹ over `covariance`, and C⁻¹ less one added to `local`, C⁻¹ t to `eta`.
    Returns -½ tᵀ C⁻¹ t.
    """
    covariance, R, variances, precisions = (
        system.covariance, system.R, system.variances, system.precisions
    )  # fmt: skip
    local, N, eta, t, v = system.local, system.N, system.eta, system.t, system.v
    square = 0.0
    for i in range(k - 1, -1, -1):
        pivot = covariance[i * k + i]
        t[i] = shift[active[i]]
        z = t[i]
        for j in range(k - 1, i, -1):
            total = covariance[j * k + i]
            for p in range(j + 1, k):
                total -= R[i * k + p] * R[p * k + j]
            R[i * k + j] = total
            total *= precisions[j]
            R[j * k + i] = total
            pivot -= total * R[i * k + j]
            z -= total * v[j]
        pivot = max(pivot, SLAB_FLOOR * covariance[i * k + i])  # below that by rounding alone
        variances[i] = pivot
        precisions[i] = 1.0 / pivot
        v[i] = z  # R⁻ᵀ t
        square += z * z * precisions[i]
    invert_unit_triangle(k, R, N)
    for i in range(k):
        pull = 0.0
        for j in range(i + 1):
            total = 0.0
            for p in range(j + 1):
                total += N[i * k + p] * N[j * k + p] * precisions[p]
            covariance[i * k + j] = total
            covariance[j * k + i] = total
            local[i * k + j] += total
            pull += N[i * k + j] * v[j] * precisions[j]
        local[i * k + i] -= 1.0
        eta[i] += pull
    return -0.5 * square


# Apart from `subspace.small_systems.cholesky`: that takes 2.2 to 2.8 times as long for up to eight
# active latents, which nearly all states have.
@inlined_in_order
def ldl(k, system):
    """L and d of M = 1 + `local` = L diag(d) Lᵀ, v = L⁻¹ η; ½ ηᵀ M⁻¹ η - ½ log|M diag(variances)|.

    `local` is overwritten.
    """
    local, L, inverse, v, variances = (
        system.local, system.L, system.inverse, system.v, system.variances
    )  # fmt: skip
    value = 0.0
    determinant = 1.0
    for i in range(k):
        pivot = 1.0 + local[i * k + i]
        z = system.eta[i]
        for j in range(i):
            total = local[i * k + j]
            for p in range(j):
                total -= local[i * k + p] * L[j * k + p]
            local[i * k + j] = total  # L[i, j] d[j]
            L[i * k + j] = total * inverse[j]
            pivot -= total * L[i * k + j]
            z -= L[i * k + j] * v[j]
        if pivot * variances[i] < 1.0:  # by rounding alone: M d is one plus a positive matrix
            pivot = 1.0 / variances[i]
        determinant *= pivot * variances[i]
        if determinant > LARGE:
            value -= 0.5 * np.log(determinant)
            determinant = 1.0
        inverse[i] = 1.0 / pivot
        v[i] = z
        value += 0.5 * z * z * inverse[i]
    return value - 0.5 * np.log(determinant)


@inlined_in_order
def invert_unit_triangle(k, L, N):
    """N = L⁻¹ of a lower triangle with ones on its diagonal, which is stored in N alone."""
    for j in range(k):
        N[j * k + j] = 1.0
        for i in range(j + 1, k):
            total = -L[i * k + j]
            for p in range(j + 1, i):
                total -= L[i * k + p] * N[p * k + j]
            N[i * k + j] = total


@inlined_in_order
def solve_back(k, system):
    """N = L⁻¹, ones on its diagonal included, and u = M⁻¹ η = Nᵀ d⁻¹ v."""
    N, inverse, v = system.N, system.inverse, system.v
    invert_unit_triangle(k, system.L, N)
    for j in range(k):
        total = 0.0
        for p in range(j, k):
            total += N[p * k + j] * v[p] * inverse[p]
        system.u[j] = total


@inlined_in_order
def covariance_of(k, N, inverse, out):
    """Nᵀ d⁻¹ N, both triangles: with N = L⁻¹ the inverse of L d Lᵀ."""
    for i in range(k):
        for j in range(i + 1):
            total = 0.0
            for p in range(i, k):
                total += N[p * k + i] * N[p * k + j] * inverse[p]
            out[i * k + j] = total
            out[j * k + i] = total


@inlined_in_order
def add_outer(k, u, out):
    """Add u uᵀ."""
    for i in range(k):
        for j in range(k):
            out[i * k + j] += u[i] * u[j]


@inlined_in_order
def slab_gradients(k, system):
    """The terms of the gradients of a full Ψ and of μ, in units of √ψ, with u = ⟨z⟩/√ψ:

        eta = C⁻¹ (u - t),    Q = C⁻¹ (M⁻¹ + (u - t)(u - t)ᵀ - C) C⁻¹.

    R is overwritten.
    """
    covariance, N, R, u, t = system.covariance, system.N, system.R, system.u, system.t
    eta, Q, inverse = system.eta, system.Q, system.inverse
    for i in range(k):
        pull = 0.0
        for j in range(k):
            pull += covariance[i * k + j] * (u[j] - t[j])
            total = 0.0
            for p in range(i + 1):
                total += N[i * k + p] * covariance[p * k + j]
            R[i * k + j] = total  # N C⁻¹, and M⁻¹ = Nᵀ d⁻¹ N
        eta[i] = pull
    for i in range(k):
        for j in range(i + 1):
            total = eta[i] * eta[j] - covariance[i * k + j]
            for p in range(k):
                total += R[p * k + i] * R[p * k + j] * inverse[p]
            Q[i * k + j] = total


@inlined_in_order
def gather_both(k, tables, n_latents, active, complete, system):
    """Gather V Vᵀ, unless it is known already, and C of the active latents in one pass: most of the
    time is spent waiting for memory."""
    for i in range(k):
        start = row_start(n_latents, active[i])
        for j in range(i + 1):
            pair = active[i] if j == i else start + active[j]
            if complete:
                system.local[i * k + j] = tables[pair, 0]
            system.covariance[i * k + j] = tables[pair, 1]


# `tables`, a field of `derived`, is an argument of its own: the compiler looks at arguments alone
# to see that something is None, and leaves out what it would need.


@unrolled
def solve(k, derived, tables, active, complete, system):
    """Set up and factorise the system of a state; returns its share of the log-joint.

    `eta` = V_sᵀ y / σ, and unless `complete`, `local` = V_sᵀ V_s over what was observed.
    """
    value, shift = 0.0, derived.shift
    if tables is not None:
        gather_both(k, tables, len(shift), active, complete, system)
        value += add_slab(k, shift, active, system)
    else:
        if complete:
            gather(derived.products, len(shift), active, k, system.local)
        for i in range(k):
            system.eta[i] += shift[active[i]]
    return value + ldl(k, system)


@unrolled
def expect(k, spread, tables, active, system):
    """Compute `u` = ⟨z⟩ and `local` = ⟨z zᵀ⟩ from a solved system.

    With a full Ψ also the terms of its gradient, `Q`, and of that of μ, `eta`; and Ψ_ss⁻¹ over
    `covariance`.
    """
    local, u = system.local, system.u
    solve_back(k, system)
    covariance_of(k, system.N, system.inverse, local)
    if tables is not None:
        slab_gradients(k, system)
    add_outer(k, u, local)
    for i in range(k):  # z = √ψ u
        own = spread[active[i]]
        u[i] *= own
        if tables is not None:
            system.eta[i] /= own
        for j in range(i + 1):
            scale = own * spread[active[j]]
            local[i * k + j] *= scale
            if tables is not None:
                system.Q[i * k + j] /= scale
                system.covariance[i * k + j] /= scale


# With a diagonal Ψ and nothing missing, states of one or two latents, which most are, need no
# arrays: what is known of them stays in registers. Unrolled loops alone take an iteration 1.03 to
# 1.09 times as long (S = 60).


@inlined_in_order
def solve_few(k, derived, active, system):
    """1/d₀, L₁₀, 1/d₁, v₀ and v₁ of `ldl` for a state of one or two latents.

    `eta` = V_sᵀ y / σ. One latent is treated as two, of which the second has no effect.
    """
    products, shift, eta = derived.products, derived.shift, system.eta
    inverse = 1.0 / (1.0 + products[active[0]])
    v = eta[0] + shift[active[0]]
    slope, other_inverse, other_v = 0.0, 1.0, 0.0
    if k == 2:
        product = products[row_start(len(shift), active[1]) + active[0]]
        slope = product * inverse
        # At least one but for rounding: M is one plus a positive matrix.
        other_inverse = 1.0 / max(1.0 + products[active[1]] - slope * product, 1.0)
        other_v = eta[1] + shift[active[1]] - slope * v
    return inverse, slope, other_inverse, v, other_v


@inlined_in_order
def value_of_few(k, derived, active, system):
    """The same as `solve` returns."""
    inverse, _, other_inverse, v, other_v = solve_few(k, derived, active, system)
    square = v * v * inverse + other_v * other_v * other_inverse
    return 0.5 * (square + np.log(inverse * other_inverse))


@inlined_in_order
def add_few(k, derived, active, system, weight, activation, first, second):
    """Add the weighted moments of a state, see `expect`: squares to sums over pairs, see
    `triangles`.

    Returns index and value of what is still to be added to these: that of the pair, or zero.
    """
    spread = derived.spread
    inverse, slope, other_inverse, v, other_v = solve_few(k, derived, active, system)
    other = other_v * other_inverse
    u = v * inverse - slope * other
    h, scale = active[0], spread[active[0]]
    activation[h] += weight
    first[h] += weight * u * scale  # eq:sssc_exp_sz
    variance = inverse + slope * slope * other_inverse
    second[h] += weight * (variance + u * u) * scale * scale  # eq:sssc_exp_szszT
    if k == 1:
        return h, 0.0
    g, other_scale = active[1], spread[active[1]]
    activation[g] += weight
    first[g] += weight * other * other_scale
    second[g] += weight * (other_inverse + other * other) * other_scale * other_scale
    covariance = -slope * other_inverse
    amount = weight * (covariance + u * other) * scale * other_scale
    return row_start(len(spread), g) + h, amount
