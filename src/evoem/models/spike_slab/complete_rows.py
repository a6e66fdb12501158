"""Statistics of spike-and-slab coding of rows in which nothing is missing.

Moments of single rows are not wanted then, so states are added up as they are met, in one kernel.
Sums over pairs are larger than a core's own cache, and states meet them at random: what belongs to
them is first listed, then added in a loop that does nothing else, in which the processor waits for
many of them at once. Else two threads would slow each other down.
"""

import numpy as np

from evoem.models.linear_statistics import add_cross, close_row
from evoem.models.spike_slab.state_posterior import add_few, expect, solve
from evoem.models.triangles import row_start
from evoem.runtime.compile import YES, ZERO, inlined, kernel
from evoem.states import active_latents

LISTED = 512  # amounts, after which they are added; more if one state has more


@inlined
def _add_listed(places, amounts, n, second, pairs):
    """Add what is listed for pairs of latents, of a full slab or of second moments alone."""
    if len(pairs) > 0:
        for i in range(n):
            for term in range(3):
                pairs[places[i], term] += amounts[i, term]
    else:
        for i in range(n):
            second[places[i]] += amounts[i, 2]


@kernel
def add_complete_rows(
    products, shift, spread, tables, projections, X, states, weights, negligible, printed,
    sums, pairs, pull,
):  # fmt: skip
    """Add the moments of all rows to the sums of linear models and of a full slab; gives Σ yᵀy.

    With a full slab the second moments are those in `pairs`.
    """
    _, _, sum_second, cross, _ = sums
    n_rows, H = len(X), len(shift)
    active, itself = np.empty(H + 1, np.int64), np.empty(H, np.int64)
    for h in range(H):  # `arange` would take longer to compile
        itself[h] = h
    few = tables  # None if states of one or two latents need no system
    room = 16  # active latents there is room for; most states have few
    local, L, N = np.empty(room**2), np.empty(room**2), np.empty(room**2)
    eta, v, u = np.empty(H), np.empty(H), np.empty(H)
    inverse, variances = np.empty(H), np.ones(H)
    R, Q, covariance = np.empty(room**2), np.empty(room**2), np.empty(room**2)
    t, precisions = np.empty(H), np.empty(H)
    places, amounts, listed = np.empty(LISTED, np.int64), np.empty((LISTED, 3)), ZERO
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
            if k > room:
                room = min(2 * k, H)
                local, L, N = np.empty(room**2), np.empty(room**2), np.empty(room**2)
                R, Q, covariance = np.empty(room**2), np.empty(room**2), np.empty(room**2)
            if listed + k * k > len(places):
                _add_listed(places, amounts, listed, sum_second, pairs)
                listed = ZERO
                if k * k > len(places):
                    places, amounts = np.empty(room**2, np.int64), np.empty((room**2, 3))
            if tables is None and 0 < k < 3:
                places[listed], amounts[listed, 2] = add_few(
                    k, products, shift, spread, active, eta, weight, itself, activation, first,
                    sum_second,
                )  # fmt: skip
                listed += k - 1
                continue
            solve(
                k, few, products, shift, tables, active, YES, local, covariance, eta, R, t,
                variances, precisions, L, inverse, v,
            )  # fmt: skip
            expect(
                k, few, spread, tables, active, local, covariance, eta, R, t, variances, precisions,
                L, inverse, v, N, u, Q,
            )  # fmt: skip
            for i in range(k):
                h = active[i]
                activation[h] += weight
                first[h] += weight * u[i]  # eq:sssc_exp_sz
                start = row_start(H, h)
                for j in range(i + 1):
                    places[listed] = h if j == i else start + active[j]
                    amounts[listed, 2] = weight * local[i * k + j]  # eq:sssc_exp_szszT
                    if tables is not None:  # the gradient of Ψ, see `slab_posterior.expect`
                        amounts[listed, 0] = weight * (1.0 if printed else covariance[i * k + j])
                        amounts[listed, 1] = weight * Q[i * k + j]
                    listed += 1
                if tables is not None:
                    pull[h] += weight * eta[i]
        close_row(members, offsets[r], total, activation, first, means, printed, sums)
    _add_listed(places, amounts, listed, sum_second, pairs)
    offsets[n_rows] = total
    add_cross(offsets, members, means, X, cross)
    return square
