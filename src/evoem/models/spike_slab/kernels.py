"""Spike-and-slab coding row by row: log-joints, moments, sums, promising additions.

`known` has the inner products over observed values. It is None where nothing is missing, and the
compiler then leaves out the code for them.
"""

import numpy as np

from evoem.models.ceiling import below_ceiling
from evoem.models.linear_moments import add_cross, finish_row
from evoem.models.observed_gram import gather_observed, start_row
from evoem.models.residual_ranking import rank_by_residual
from evoem.models.spike_slab.state_posterior import add_few, expect, solve, value_of_few
from evoem.models.triangles import row_start
from evoem.ranking import GROUPS
from evoem.runtime.compile import YES, ZERO, inlined, kernel
from evoem.states import ONE, active_latents

# Kernels unpack records before their loops: to take an array from one counts a reference to it.

LISTED = 512  # amounts, after which they are added; more if a state may have more


@inlined
def _start(k, V, projections, r, active, known, complete, system):
    """V_sᵀ y / σ of the active latents, and for an incomplete row V_sᵀ V_s."""
    for i in range(k):
        system.eta[i] = projections[r, active[i]]
    if known is not None and not complete:
        gather_observed(known, V, active, k, system.local)


@kernel
def log_joints(first_row, derived, rows, known, population, system):
    """Log-joints of the states of each row between start and stop, see `with_scratch`."""
    states, out, starts, stops = population
    V, logits, bias, tables = derived.scaled, derived.logits, derived.bias, derived.tables
    base, ceilings, projections, observed = (
        rows.base, rows.ceiling, rows.projections, rows.observed
    )  # fmt: skip
    room, least = len(system.eta), logits.min()
    complete_rows = rows.complete
    active = np.empty(len(bias) + 1, np.int64)
    for r in range(states.shape[0]):
        if r < first_row:  # a range from there on might be negative, for all the compiler knows
            continue
        if known is not None:
            start_row(known, observed, r)
        complete = YES if known is None else complete_rows[r]
        for m in range(starts[r], stops[r]):
            k = active_latents(states, r, m, active)
            if k > room:
                return r
            value = base[r]
            for i in range(k):
                value += bias[active[i]]
            _start(k, V, projections, r, active, known, complete, system)
            if tables is None and complete and 0 < k < 3:
                value += value_of_few(k, derived, active, system)
            else:
                value += solve(k, YES, derived, tables, active, complete, system)
            out[r, m] = below_ceiling(value, ceilings[r], logits, least, active, k)
    return states.shape[0]


@inlined
def _add_slab_terms(k, tables, active, weight, printed, system, pairs, pull):
    """Add the terms of the gradients of a full Ψ and of μ, see `slab_gradients`."""
    if tables is not None and len(pull) > 0:  # it is empty where no sums are wanted
        for i in range(k):
            h = active[i]
            pull[h] += weight * system.eta[i]
            start = row_start(len(pull), h)
            for j in range(i + 1):
                pair = h if j == i else start + active[j]
                pairs[pair, 0] += weight * (1.0 if printed else system.covariance[i * k + j])
                pairs[pair, 1] += weight * system.Q[i * k + j]


@inlined
def _add_moments(k, active, weight, positions, n, begin, matrix, system, moments):
    """Add the moments of a state to those of its row."""
    for i in range(k):
        position = positions[active[i]]
        moments.activation[begin + position] += weight
        moments.first[begin + position] += weight * system.u[i]  # eq:sssc_exp_sz
        start = matrix + position * n
        for j in range(i + 1):  # eq:sssc_exp_szszT
            moments.second[start + positions[active[j]]] += weight * system.local[i * k + j]


@kernel
def fill_moments(
    derived, rows, known, posterior, negligible, printed, moments, pairs, pull, system
):
    """Moments of c; terms of the gradients of a full slab go to the sums, if there are any."""
    states, weights = posterior
    offsets, squares, members = moments.offsets, moments.squares, moments.members
    H, V, spread, tables = len(derived.shift), derived.scaled, derived.spread, derived.tables
    projections, observed, complete_rows = rows.projections, rows.observed, rows.complete
    active = np.empty(H + 1, np.int64)
    positions = np.empty(H, np.int64)  # of latents among the members of a row
    for r in range(states.shape[0]):
        begin, matrix = offsets[r], squares[r]
        n = offsets[r + 1] - begin
        for i in range(n):
            positions[members[begin + i]] = i
        if known is not None:
            start_row(known, observed, r)
        complete = YES if known is None else complete_rows[r]
        for m in range(states.shape[1]):
            weight = weights[r, m]
            if not weight > negligible:
                continue
            k = active_latents(states, r, m, active)
            _start(k, V, projections, r, active, known, complete, system)
            solve(k, YES, derived, tables, active, complete, system)
            expect(k, YES, spread, tables, active, system)
            _add_moments(k, active, weight, positions, n, begin, matrix, system, moments)
            _add_slab_terms(k, tables, active, weight, printed, system, pairs, pull)


# Statistics of rows in which nothing is missing need no moments of single rows, so states are added
# up as they come. Sums over pairs are larger than a core's own cache, and states add to them at
# random: what belongs to them is first listed, then added in a loop that does nothing else, in
# which the processor waits for many of them at once. Else two threads would slow each other down.


@inlined
def _count_ones(word):
    """The number of bits that are set; processors have an instruction for this."""
    word -= (word >> ONE) & np.uint64(0x5555555555555555)
    pairs = np.uint64(0x3333333333333333)
    word = (word & pairs) + ((word >> np.uint64(2)) & pairs)
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return (word * np.uint64(0x0101010101010101)) >> np.uint64(56)


@kernel
def most_active(posterior, negligible):
    """The largest number of active latents in any state that is not negligible."""
    states, weights = posterior
    most = np.uint64(0)
    for r in range(states.shape[0]):
        for m in range(states.shape[1]):
            if weights[r, m] > negligible:
                k = np.uint64(0)
                for w in range(states.shape[2]):
                    k += _count_ones(states[r, m, w])
                most = max(most, k)
    return most


@inlined
def _add_listed(indices, amounts, n, second, pairs):
    """Add the listed values of pairs of latents, for a full slab or for second moments alone."""
    if len(pairs) > 0:
        for i in range(n):
            for term in range(3):
                pairs[indices[i], term] += amounts[i, term]
    else:
        for i in range(n):
            second[indices[i]] += amounts[i, 2]


@inlined
def _list_pairs(k, tables, n_latents, active, weight, printed, system, indices, amounts, n):
    """List what a state adds to pairs of latents, from n on; returns the length of the list."""
    for i in range(k):
        h = active[i]
        start = row_start(n_latents, h)
        for j in range(i + 1):
            indices[n] = h if j == i else start + active[j]
            amounts[n, 2] = weight * system.local[i * k + j]  # eq:sssc_exp_szszT
            if tables is not None:  # the gradient of Ψ, see `slab_gradients`
                amounts[n, 0] = weight * (1.0 if printed else system.covariance[i * k + j])
                amounts[n, 1] = weight * system.Q[i * k + j]
            n += 1
    return n


@inlined
def _add_means(k, tables, active, weight, system, activation, first, pull):
    for i in range(k):
        h = active[i]
        activation[h] += weight
        first[h] += weight * system.u[i]  # eq:sssc_exp_sz
        if tables is not None:
            pull[h] += weight * system.eta[i]


@kernel
def add_complete_rows(derived, rows, posterior, negligible, printed, stats, system):
    """Add the moments of complete rows to the sums of linear models and of a full slab; Σ yᵀy.

    With a full slab the second moments are those in `pairs`.
    """
    states, weights = posterior
    X, V, projections, complete = rows.X, derived.scaled, rows.projections, rows.complete
    spread, tables = derived.spread, derived.tables
    linear, pairs, pull = stats.linear, stats.pairs, stats.pull
    second, cross = linear.second, linear.cross
    n_rows, H = len(X), len(derived.shift)
    active = np.empty(H + 1, np.int64)
    few = tables  # None: states of one or two latents need no system
    capacity, listed = max(LISTED, len(system.local)), ZERO
    indices, amounts = np.empty(capacity, np.int64), np.empty((capacity, 3))
    # Of one row, and of all of them: which latents were active, and ⟨c⟩ of these. A member is
    # listed before it is known whether it is new: a branch on that could not be predicted.
    activation, first = np.zeros(H), np.zeros(H)
    offsets = np.empty(n_rows + 1, np.int64)
    members, means = np.empty(n_rows * H + 1, np.int64), np.empty(n_rows * H)
    total, square = 0, 0.0
    for r in range(n_rows):
        offsets[r] = total
        if not complete[r]:
            continue
        for d in range(X.shape[1]):
            square += np.float64(X[r, d]) * np.float64(X[r, d])
        for m in range(states.shape[1]):
            weight = weights[r, m]
            if not weight > negligible:
                continue
            k = active_latents(states, r, m, active)
            for i in range(k):
                members[total] = active[i]
                total += activation[active[i]] == 0.0
            if listed + k * k > capacity:
                _add_listed(indices, amounts, listed, second, pairs)
                listed = ZERO
            _start(k, V, projections, r, active, None, YES, system)
            if tables is None and 0 < k < 3:
                indices[listed], amounts[listed, 2] = add_few(
                    k, derived, active, system, weight, activation, first, second
                )
                listed += k - 1
                continue
            solve(k, few, derived, tables, active, YES, system)
            expect(k, few, spread, tables, active, system)
            _add_means(k, tables, active, weight, system, activation, first, pull)
            listed = _list_pairs(
                k, tables, H, active, weight, printed, system, indices, amounts, listed
            )
        finish_row(members, offsets[r], total, activation, first, means, printed, linear)
    _add_listed(indices, amounts, listed, second, pairs)
    offsets[n_rows] = total
    add_cross(offsets, members, means, X, cross)
    return square


@inlined
def _rank(k, guide, derived, projections, active, r, p, system, ranking, out):
    u = system.u
    for i in range(k):  # ⟨z⟩ is in units of √ψ, and so is V
        u[i] /= derived.spread[active[i]]
    rank_by_residual(guide, derived.gram, projections, u, active, k, r, p, ranking, out)


@kernel
def best_additions(first_row, guide, derived, rows, known, genomes, out, system):
    """Rank the latents that the states lack, see `Guide` and `with_scratch`."""
    states, counts = genomes
    room = len(system.eta)
    H, V, spread, tables = len(derived.shift), derived.scaled, derived.spread, derived.tables
    projections, observed, complete_rows = rows.projections, rows.observed, rows.complete
    active = np.empty(H + 1, np.int64)
    ranking = np.empty(H, V.dtype), np.empty(H, V.dtype), np.empty(GROUPS, V.dtype)
    for r in range(states.shape[0]):
        if r < first_row:  # a range from there on might be negative, for all the compiler knows
            continue
        if known is not None:
            start_row(known, observed, r)
        complete = YES if known is None else complete_rows[r]
        for p in range(counts[r]):
            k = active_latents(states, r, p, active)
            if k > room:
                return r
            _start(k, V, projections, r, active, known, complete, system)
            solve(k, YES, derived, tables, active, complete, system)
            expect(k, YES, spread, tables, active, system)
            _rank(k, guide, derived, projections, active, r, p, system, ranking, out)
    return states.shape[0]
