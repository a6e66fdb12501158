"""Subspaces row by row: log-joints, moments and their sums, promising additions.

`known` has the inner products over observed values. It is None where nothing is missing, and the
compiler then leaves out the code for them. Kernels unpack records before their loops, because each
access to an array of a record counts a reference to it.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evoem.models.ceiling import below_ceiling
from evoem.models.subspace.small_systems import (
    LARGE,
    System,
    cholesky,
    fill_system,
    invert,
    list_patterns,
    pair_map,
    pair_means,
    single_square,
    solve_back,
    start_row,
)
from evoem.ranking import GROUPS, NONE, best_scores
from evoem.runtime.compile import inlined, kernel
from evoem.states import active_latents

# Factors of a product that are multiplied before its logarithm is taken: it does not overflow.
FACTORS = 8


@inlined
def _shift_projections(projections, r, shift, row):
    for h in range(len(shift)):
        row[h] = projections[r, h] + shift[h]


@inlined
def _add_known_value(value, k, derived, latents, row, v):
    """Add the share of a state of one latent or two in the log-joint of a complete row."""
    groups, pairs, a = derived.groups, derived.pairs, latents[0]
    value += 0.5 * single_square(row, derived.pivots, groups[a], groups[a + 1])
    if k == 1:
        return value + derived.constants[a]
    b = latents[1]
    pair_map(row, groups, pairs, a, b, v)
    total = 0.0
    for i in range(groups[b + 1] - groups[b]):
        total += v[i] * v[i]
    return value + 0.5 * total + pairs.constants[a, b]


@kernel
def log_joints(first_row, derived, rows, known, population, room):
    """Log-joints of the states of each row between start and stop, see `with_scratch`."""
    states, out, starts, stops = population
    groups, V, shift = derived.groups, derived.scaled, derived.shift
    base, bias, complete = rows.base, rows.bias, rows.complete
    ceilings, logits = rows.ceiling, rows.logits
    projections, observed = rows.projections, rows.observed
    most = 2 if len(derived.pairs.offsets) else 1  # latents of states whose systems are known
    C = len(V)
    latents, active = np.empty((2, C + 1), np.int64)
    local = np.empty((room, room))
    row, v = np.empty(C, V.dtype), np.empty(C, V.dtype)
    eta, inverse = np.empty(C), np.empty(C)
    system = System(local, local, eta, inverse, eta)  # without what moments alone need
    for r in range(states.shape[0]):
        if r < first_row:
            continue
        if known is not None:
            start_row(known, observed, r)
        complete_row = known is None or complete[r]
        own = r if len(bias) > 1 else 0
        own_logits = logits[own]
        least = own_logits.min()
        _shift_projections(projections, r, shift, row)
        for m in range(starts[r], stops[r]):
            k = active_latents(states, r, m, latents)
            value = base[r]
            for i in range(k):
                value += bias[own, latents[i]]
            if complete_row and 0 < k <= most:
                value = _add_known_value(value, k, derived, latents, row, v)
            else:
                n = list_patterns(groups, latents, k, active)
                if n > room:
                    return r
                diagonal = fill_system(
                    derived, known, complete_row, latents, k, active, n, row, system
                )
                value += cholesky(n, diagonal, system)
            out[r, m] = below_ceiling(value, ceilings[r], own_logits, least, latents, k)
    return states.shape[0]


@kernel
def single_scores(derived, rows, squares, out):
    """Log-joints of the states of one latent; `squares` are those of V that incomplete rows saw."""
    groups, shift, pivots, constants = (
        derived.groups, derived.shift, derived.pivots, derived.constants
    )  # fmt: skip
    projections, base, bias, complete = rows.projections, rows.base, rows.bias, rows.complete
    row = np.empty(len(shift), shift.dtype)
    n_incomplete = 0
    for r in range(len(out)):
        own = r if len(bias) > 1 else 0
        _shift_projections(projections, r, shift, row)
        for a in range(out.shape[1]):
            value = base[r] + bias[own, a]
            if complete[r]:
                square = single_square(row, pivots, groups[a], groups[a + 1])
                out[r, a] = value + 0.5 * square + constants[a]
                continue
            determinant = 1.0
            for i in range(groups[a], groups[a + 1]):
                pivot = 1.0 + squares[n_incomplete, i]
                determinant *= pivot
                value += 0.5 * row[i] * row[i] / pivot
                if determinant > LARGE:
                    value -= 0.5 * np.log(determinant)
                    determinant = 1.0
            out[r, a] = value - 0.5 * np.log(determinant)
        n_incomplete += not complete[r]


@kernel
def most_patterns(groups, posterior, negligible):
    """The largest number of active patterns in any state that is not negligible."""
    states, weights = posterior
    latents = np.empty(len(groups), np.int64)
    most = 0
    for r in range(states.shape[0]):
        for m in range(states.shape[1]):
            if weights[r, m] > negligible:
                n = 0
                for i in range(active_latents(states, r, m, latents)):
                    n += groups[latents[i] + 1] - groups[latents[i]]
                most = max(most, n)
    return most


@inlined
def _add_moments(n, active, weight, positions, size, begin, matrix, keep, system, moments):
    """Add the moments of a state to those of its row; second moments only if they are kept."""
    u = system.u
    for i in range(n):
        member = begin + positions[active[i]]
        moments.first[member] += weight * u[i]  # eq:sssc_exp_sz
        moments.activation[member] += weight
    if keep:
        for i in range(n):  # eq:sssc_exp_szszT
            start = matrix + positions[active[i]] * size
            for j in range(i + 1):
                value = weight * (system.local[i, j] + u[i] * u[j])
                moments.second[start + positions[active[j]]] += value


@inlined
def _known_means(k, derived, latents, active, n, row, v, u):
    """u = M⁻¹ η of a state of one latent or two in a complete row."""
    if k == 1:
        for i in range(n):
            u[i] = row[active[i]] * derived.pivots[active[i]]
    else:
        pair_means(row, derived, latents[0], latents[1], v, u)


@inlined
def _solve(derived, known, complete_row, latents, k, active, n, row, system):
    """u = M⁻¹ η of a state; returns how many of the first rows of M are diagonal."""
    diagonal = fill_system(derived, known, complete_row, latents, k, active, n, row, system)
    cholesky(n, diagonal, system)
    solve_back(n, diagonal, system)
    return diagonal


@kernel
def fill_moments(derived, rows, known, posterior, negligible, moments, sums, together, room):
    """Moments of the rotated patterns and, if there is room for them, sums of second moments by
    pairs of latents, without the covariances of states that are counted in `together`."""
    states, weights = posterior
    groups, V, shift, blocks = derived.groups, derived.scaled, derived.shift, derived.blocks
    complete, projections, observed = rows.complete, rows.projections, rows.observed
    offsets, squares, members = moments.offsets, moments.squares, moments.members
    most = 2 if len(derived.pairs.offsets) else 1  # latents of states whose systems are known
    C = len(V)
    latents, active = np.empty((2, C + 1), np.int64)
    positions = np.empty(C, np.int64)  # of patterns among the members of a row
    local, N = np.empty((2, room, room))
    row, v = np.empty(C, V.dtype), np.empty(C, V.dtype)
    eta, u, inverse = np.empty(C), np.empty(C), np.empty(C)
    system = System(local, N, eta, inverse, u)
    for r in range(states.shape[0]):
        begin, matrix = offsets[r], squares[r]
        size = offsets[r + 1] - begin
        keep = squares[r + 1] > matrix
        for i in range(size):
            positions[members[begin + i]] = i
        if known is not None:
            start_row(known, observed, r)
        complete_row = known is None or complete[r]
        _shift_projections(projections, r, shift, row)
        for m in range(states.shape[1]):
            weight = weights[r, m]
            if not weight > negligible:
                continue
            k = active_latents(states, r, m, latents)
            n = list_patterns(groups, latents, k, active)
            known_system = complete_row and 0 < k <= most and not keep
            if known_system:
                together[latents[0], latents[k - 1]] += weight
                _known_means(k, derived, latents, active, n, row, v, system.u)
            else:
                diagonal = _solve(derived, known, complete_row, latents, k, active, n, row, system)
                invert(n, diagonal, system)
            _add_moments(n, active, weight, positions, size, begin, matrix, keep, system, moments)
            if len(sums) > 0:
                add_second(groups, latents, k, weight, not known_system, system, blocks, sums)


# ------------------------------------------------------------------ sums of second moments
# A pair of latents has its block in one piece, rather than in many rows of a large matrix, most of
# which would not be in the processor's cache.


def block_offsets(groups: NDArray[np.int64]) -> NDArray[np.int64]:
    """(G, G): where the block of each pair of latents a ≤ b starts; rows belong to b."""
    sizes = np.diff(groups)
    entries = np.triu(np.outer(sizes, sizes))
    ends: NDArray[np.int64] = np.cumsum(entries).reshape(entries.shape)
    return ends - entries


@inlined
def add_second(groups, latents, k, weight, uncertain, system, blocks, sums):
    """Add the second moments of a state, or the products of its means alone if not `uncertain`."""
    u, covariance = system.u, system.local
    row = 0
    for x in range(k):
        b = latents[x]
        height = groups[b + 1] - groups[b]
        column = 0
        for y in range(x + 1):
            a = latents[y]
            width = groups[a + 1] - groups[a]
            offset = blocks[a, b]
            of_a = u[column : column + width]
            for i in range(height):
                line = sums[offset : offset + width]
                offset += width
                scaled = weight * u[row + i]
                n = width if y < x else i + 1
                for j in range(n):
                    line[j] += scaled * of_a[j]
                if uncertain:
                    own = covariance[row + i, column : column + width]
                    for j in range(n):
                        line[j] += weight * own[j]
            column += width
        row += height


@inlined
def add_outer(first, second, weight, sums, offset):
    """Add the products of all pairs of numbers."""
    for i in range(len(first)):
        line = sums[offset : offset + len(second)]
        offset += len(second)
        scaled = weight * first[i]
        for j in range(len(second)):
            line[j] += scaled * second[j]


@kernel
def add_covariances(derived, together, sums):
    """Add M⁻¹ of states of one and two latents as often as they occurred in complete rows."""
    groups, pivots, blocks = derived.groups, derived.pivots, derived.blocks
    offsets, maps, _ = derived.pairs
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
            for i in range(height):
                start = offsets[a, b] + i * (width + height)
                of_a = maps[start : start + width]  # Aᵀ A, see `Pairs`
                of_b = maps[start + width : start + width + height]
                add_outer(of_a, of_a, weight, sums, blocks[a, a])
                add_outer(of_b, of_a, weight, sums, blocks[a, b])
                add_outer(of_b, of_b, weight, sums, blocks[b, b])
        for i in range(width):
            sums[blocks[a, a] + i * width + i] += alone * pivots[groups[a] + i]


@kernel
def rotate_moments(derived, sums):
    """Second moments from rotated patterns to those of the parameters, in offset: B_b S B_aᵀ for
    each pair of latents."""
    groups, back, blocks = derived.groups, derived.back, derived.blocks
    G, room = len(groups) - 1, back.shape[1]
    block, half = np.empty((2, room, room))
    for b in range(G):
        height = groups[b + 1] - groups[b]
        of_b = back[groups[b] : groups[b + 1]]
        for a in range(b + 1):
            width, offset = groups[a + 1] - groups[a], blocks[a, b]
            of_a = back[groups[a] : groups[a + 1]]
            for i in range(height):
                for j in range(width):
                    low, high = (j, i) if a == b and j > i else (i, j)
                    block[i, j] = sums[offset + low * width + high]
            for i in range(height):
                for j in range(width):
                    half[i, j] = 0.0
                for p in range(height):
                    for j in range(width):
                        half[i, j] += of_b[i, p] * block[p, j]
            for i in range(height):
                for j in range(width):
                    total = 0.0
                    for p in range(width):
                        total += half[i, p] * of_a[j, p]
                    sums[offset + i * width + j] = total


@kernel
def _spread(groups, blocks, sums, second):
    G = len(groups) - 1
    for b in range(G):
        for a in range(b + 1):
            width, offset = groups[a + 1] - groups[a], blocks[a, b]
            for h in range(groups[b], groups[b + 1]):
                line = sums[offset : offset + width]
                for j in range(min(width, h + 1 - groups[a])):
                    second[h, groups[a] + j] = line[j]
                offset += width


def spread(groups: NDArray[np.int64], sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sums by pairs of latents as the lower triangle of a matrix."""
    second = np.zeros((groups[-1], groups[-1]))
    _spread(groups, block_offsets(groups), sums, second)
    return second


# ---------------------------------------------------------------------------------- additions
# Which latents correlate best with what a state of a row leaves: additions that promise most. The
# gain of a latent is a sum over its patterns. Those are laid out anew for it: the first patterns of
# all latents, then the second ones of those that have any, and so on, latents of most patterns
# first. A sum over the patterns of a latent is then a sum of vectors over the latents.


class Tiers(NamedTuple):
    """Patterns laid out in tiers, as above; tier i has the patterns `starts[i]:starts[i + 1]`."""

    starts: NDArray[np.int64]  # (most patterns of a latent + 1,)
    order: NDArray[np.int64]  # (G,)  latents, those of most patterns first
    positions: NDArray[np.int64]  # (G,)  where they stand in that order
    patterns: NDArray[np.int64]  # (C,)


def tiers_of(groups: NDArray[np.int64]) -> Tiers:
    """The patterns of latents, laid out anew."""
    sizes = np.diff(groups)
    order = np.argsort(-sizes, kind="stable")
    lengths = [int((sizes > i).sum()) for i in range(sizes.max())]
    patterns = np.concatenate([groups[order[:n]] + i for i, n in enumerate(lengths)])
    return Tiers(np.cumsum([0, *lengths]), order, np.argsort(order), patterns)


@inlined
def _subtract_patterns(n, active, V, u, left):
    """Subtract what the active patterns explain from a row."""
    for i in range(n):
        amount, h = V.dtype.type(u[i]), active[i]
        for d in range(len(left)):
            left[d] -= amount * V[h, d]


@kernel
def residuals(first_row, derived, sigma, rows, known, genomes, out, room):
    """The residual of a state over the observed values of its row, in units of the noise, see
    `with_scratch`."""
    states, counts = genomes
    groups, V, shift, pivots = derived.groups, derived.scaled, derived.shift, derived.pivots
    X, complete, projections, observed = rows.X, rows.complete, rows.projections, rows.observed
    C, D = V.shape
    latents, active = np.empty((2, C + 1), np.int64)
    local = np.empty((room, room))
    eta, u, inverse = np.empty(C), np.empty(C), np.empty(C)
    system = System(local, local, eta, inverse, u)  # no inverse is wanted
    row = np.empty(C, V.dtype)
    for r in range(states.shape[0]):
        if r < first_row:
            continue
        if known is not None:
            start_row(known, observed, r)
        complete_row = known is None or complete[r]
        _shift_projections(projections, r, shift, row)
        for p in range(counts[r]):
            k = active_latents(states, r, p, latents)
            n = list_patterns(groups, latents, k, active)
            if complete_row and k == 1:
                for i in range(n):
                    u[i] = row[active[i]] * pivots[active[i]]
            elif n > room:
                return r
            else:
                _solve(derived, known, complete_row, latents, k, active, n, row, system)
            left = out[r, p]
            for d in range(D):
                left[d] = X[r, d] / sigma
            _subtract_patterns(n, active, V, system.u, left)
            if known is not None and not complete_row:
                for d in range(D):
                    left[d] *= observed[r, d]
    return states.shape[0]


@kernel
def rank_additions(tiers, shift, squares, owns, correlations, genomes, out):
    """Rank the latents that a state lacks, by patterns that are laid out in tiers."""
    states, counts = genomes
    C, G, n_tiers = len(shift), len(tiers.order), len(tiers.starts) - 1
    latents = np.empty(G + 1, np.int64)
    halves, constants = np.empty(C, correlations.dtype), np.empty(G, correlations.dtype)
    scores, tops = np.empty(G, correlations.dtype), np.empty(GROUPS, correlations.dtype)
    totals, products = np.empty((2, G))
    prepared = -1
    for r in range(states.shape[0]):
        if owns[r] != prepared:
            prepared = owns[r]
            own = squares[prepared]
            for c in range(C):
                halves[c] = 0.5 / (1 + own[c])
            totals[:] = 0.0
            products[:] = 1.0
            for i in range(n_tiers):
                tier = slice(tiers.starts[i], tiers.starts[i + 1])
                t, seen = shift[tier], own[tier]
                for g in range(len(t)):
                    totals[g] += t[g] * t[g]
                    products[g] *= 1.0 + seen[g]
                if i % FACTORS == FACTORS - 1 or i == n_tiers - 1:
                    for g in range(G):
                        totals[g] += np.log(products[g])
                    products[:] = 1.0
            for g in range(G):
                constants[g] = 0.5 * totals[g]
        for p in range(counts[r]):
            for g in range(G):
                scores[g] = -constants[g]
            for i in range(n_tiers):
                tier = slice(tiers.starts[i], tiers.starts[i + 1])
                z, t, half = correlations[r, p, tier], shift[tier], halves[tier]
                for g in range(len(z)):
                    value = z[g] + t[g]
                    scores[g] += half[g] * value * value
            for i in range(active_latents(states, r, p, latents)):
                scores[tiers.positions[latents[i]]] = -np.inf
            best_scores(scores, tops, out, r, p)
            for i in range(out.shape[2]):
                if out[r, p, i] != NONE:
                    out[r, p, i] = tiers.order[out[r, p, i]]
