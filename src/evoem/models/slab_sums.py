"""Statistics of spike-and-slab coding of rows in which nothing is missing.

Moments of single rows are not wanted then, so states are added up as they are met, in one kernel.
"""

import numpy as np

from evoem.compile import inlined, kernel
from evoem.models.linear import add_cross
from evoem.models.slab_posterior import add_few, expect, solve
from evoem.models.triangles import row_start
from evoem.states import active_latents


@inlined
def add_slab_terms(k, active, weight, eta, covariance, Q, printed, pairs, pull):
    """Add the terms of the gradients of a full Ψ and of μ, see `slab_posterior.expect`."""
    for i in range(k):
        h = active[i]
        pull[h] += weight * eta[i]
        start = row_start(len(pull), h)
        for j in range(i + 1):
            place = h if j == i else start + active[j]
            pairs[place, 0] += weight * (1.0 if printed else covariance[i * k + j])
            pairs[place, 1] += weight * Q[i * k + j]


@kernel
def add_complete_rows(
    products, shift, spread, tables, projections, X, states, weights, negligible, printed,
    sums, pairs, pull,
):  # fmt: skip
    """Add the moments of all rows to the sums of linear models and of a full slab; gives Σ yᵀy."""
    sum_activation, sum_first, sum_second, cross, outer = sums
    n_rows, H = len(X), len(shift)
    active, itself = np.empty(H + 1, np.int64), np.arange(H)
    room = 16  # active latents there is room for; most states have few
    local, L, N = np.empty(room**2), np.empty(room**2), np.empty(room**2)
    eta, v, u = np.empty(H), np.empty(H), np.empty(H)
    inverse, variances = np.empty(H), np.ones(H)
    R, Q, covariance = np.empty(room**2), np.empty(room**2), np.empty(room**2)
    t, precisions = np.empty(H), np.empty(H)
    # Of one row, and of all of them: which latents were active, and ⟨c⟩ of these. A member has its
    # place before it is known whether it is new: a branch on that could not be predicted.
    activation, first = np.zeros(H), np.zeros(H)
    offsets = np.empty(n_rows + 1, np.int64)
    members, means = np.empty(n_rows * H + 1, np.int64), np.empty(n_rows * H)
    total, square = 0, 0.0
    for r in range(n_rows):
        offsets[r] = total
        for d in range(X.shape[1]):
            square += np.float64(X[r, d]) * np.float64(X[r, d])
        for m in range(states.shape[1]):
            weight = weights[r, m]
            if not weight > negligible:
                continue
            k = active_latents(states, r, m, active)
            for i in range(k):
                eta[i] = projections[r, active[i]]
                members[total] = active[i]
                total += activation[active[i]] == 0.0  # met for the first time
            if tables is None and 0 < k < 3:
                add_few(
                    k, products, shift, spread, active, eta, weight, itself, activation, first,
                    sum_second,
                )  # fmt: skip
                continue
            if k > room:
                room = min(2 * k, H)
                local, L, N = np.empty(room**2), np.empty(room**2), np.empty(room**2)
                R, Q, covariance = np.empty(room**2), np.empty(room**2), np.empty(room**2)
            solve(
                k, products, shift, tables, active, True, local, covariance, eta, R, t,
                variances, precisions, L, inverse, v,
            )  # fmt: skip
            expect(
                k, spread, tables, active, local, covariance, eta, R, t, variances, precisions,
                L, inverse, v, N, u, Q,
            )  # fmt: skip
            for i in range(k):
                h = active[i]
                activation[h] += weight
                first[h] += weight * u[i]  # eq. 46
                start = row_start(H, h)
                for j in range(i + 1):  # eq. 47
                    sum_second[h if j == i else start + active[j]] += weight * local[i * k + j]
            if tables is not None:
                add_slab_terms(k, active, weight, eta, covariance, Q, printed, pairs, pull)
        for i in range(offsets[r], total):
            h = members[i]
            means[i] = first[h]
            sum_activation[h] += activation[h]
            sum_first[h] += first[h]
            if printed:
                for j in range(offsets[r], i):
                    g = members[j]
                    outer[row_start(H, max(g, h)) + min(g, h)] += means[i] * means[j]
                outer[h] += means[i] * means[i]
            activation[h] = 0.0
            first[h] = 0.0
    offsets[n_rows] = total
    ends, next_place = np.empty(H + 1, np.int64), np.empty(H, np.int64)
    of_rows, of_means = np.empty(total, np.int64), np.empty(total)
    add_cross(offsets, members, means, X, ends, next_place, of_rows, of_means, cross)
    return square
