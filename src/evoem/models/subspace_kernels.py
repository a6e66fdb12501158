"""Log-joints, moments and additions of `subspaces`, row by row."""

import numpy as np

from evoem.compile import inlined, kernel
from evoem.models.subspace_pairs import pair_map, pair_means, single_square
from evoem.models.subspace_products import forget_row, gather_observed
from evoem.models.subspace_sums import add_second
from evoem.models.subspace_systems import (
    LARGE,
    factorise,
    gather,
    invert,
    list_patterns,
    solve_back,
)
from evoem.ranking import GROUPS, best_scores
from evoem.states import active_latents


@inlined
def fill_system(
    complete_row, observed, known, V, gram, groups, latents, k, active, n, row, eta, local,
):  # fmt: skip
    """η and the Gram matrix of a state; how many of its first rows are diagonal."""
    for i in range(n):
        eta[i] = row[active[i]]
    if complete_row:
        gather(gram, active, n, local)
        return groups[latents[0] + 1] - groups[latents[0]] if k > 0 else 0
    if observed is not None:
        gather_observed(known, V, groups, latents, k, local)
    return 0


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
        own = r if len(bias) > 1 else 0
        for h in range(C):
            row[h] = projections[r, h] + shift[h]
        for m in range(starts[r], stops[r]):
            k = active_latents(states, r, m, latents)
            value = base[r]
            for i in range(k):
                value += bias[own, latents[i]]
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
            n = list_patterns(groups, latents, k, active)
            if n > room:
                room = min(2 * n, C)
                local = np.empty((room, room))
            diagonal = fill_system(
                complete_row, observed, known, V, gram, groups, latents, k, active, n, row,
                eta, local,
            )  # fmt: skip
            out[r, m] = value + factorise(local, eta, n, diagonal, inverse)


@kernel
def moments(
    groups, V, gram, shift, pivots, pairs, projections, complete, observed, known,
    offsets, squares, members, activation, first, second, states, weights, negligible,
    blocks, sums, together,
):  # fmt: skip
    """Moments of the patterns, rotated; if there is room for them, the sums of second moments by
    pairs of latents, but for covariances of states that are counted in `together`."""
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
                n = list_patterns(groups, latents, k, active)
                if n > room:
                    room = min(2 * n, C)
                    local, N = np.empty((2, room, room))
                diagonal = fill_system(
                    complete_row, observed, known, V, gram, groups, latents, k, active, n, row,
                    eta, local,
                )  # fmt: skip
                factorise(local, eta, n, diagonal, inverse)
                solve_back(local, eta, n, diagonal, inverse, u)
                invert(local, n, diagonal, inverse, N)
            for i in range(n):
                place = begin + places[active[i]]
                first[place] += weight * u[i]  # eq. 46
                activation[place] += weight
            if keep:
                for i in range(n):  # eq. 47
                    start = matrix + places[active[i]] * size
                    for j in range(i + 1):
                        value = weight * (local[i, j] + u[i] * u[j])
                        second[start + places[active[j]]] += value
            if len(sums) > 0:
                add_second(groups, latents, k, weight, u, not known_system, local, blocks, sums)


@kernel
def what_is_left(
    groups, V, gram, shift, pivots, sigma, projections, X, complete, observed, known, states,
    counts, out,
):  # fmt: skip
    """What a state leaves of the observed values of its row, in units of the noise."""
    C, D = V.shape
    latents, active = np.empty((2, C + 1), np.int64)
    room = 32
    local = np.empty((room, room))
    eta, u, inverse = np.empty(C), np.empty(C), np.empty(C)
    row = np.empty(C, V.dtype)
    for r in range(states.shape[0]):
        if observed is not None:
            forget_row(known, observed, r)
        complete_row = observed is None or complete[r]
        for h in range(C):
            row[h] = projections[r, h] + shift[h]
        for p in range(counts[r]):
            k = active_latents(states, r, p, latents)
            n = list_patterns(groups, latents, k, active)
            if complete_row and k == 1:
                for i in range(n):
                    u[i] = row[active[i]] * pivots[active[i]]
            else:
                if n > room:
                    room = min(2 * n, C)
                    local = np.empty((room, room))
                diagonal = fill_system(
                    complete_row, observed, known, V, gram, groups, latents, k, active, n, row,
                    eta, local,
                )  # fmt: skip
                factorise(local, eta, n, diagonal, inverse)
                solve_back(local, eta, n, diagonal, inverse, u)
            left = out[r, p]
            for d in range(D):
                left[d] = X[r, d] / sigma
            for i in range(n):
                amount, h = V.dtype.type(u[i]), active[i]
                for d in range(D):
                    left[d] -= amount * V[h, d]
            if observed is not None and not complete_row:
                for d in range(D):
                    left[d] *= observed[r, d]


@kernel
def rank_additions(groups, shift, squares, owns, correlations, states, counts, out):
    """Rank the latents that a state lacks by how well they correlate with what it leaves."""
    C, G = len(shift), len(groups) - 1
    latents = np.empty(G + 1, np.int64)
    halves, constants = np.empty(C, correlations.dtype), np.empty(G, correlations.dtype)
    scores, tops = np.empty(G, correlations.dtype), np.empty(GROUPS, correlations.dtype)
    prepared = -1
    for r in range(states.shape[0]):
        if owns[r] != prepared:
            prepared = owns[r]
            own = squares[prepared]
            for h in range(C):
                halves[h] = 0.5 / (1 + own[h])
            for g in range(G):
                total, product = 0.0, 1.0
                for h in range(groups[g], groups[g + 1]):
                    total += shift[h] * shift[h]
                    product *= 1.0 + own[h]
                    if product > LARGE:
                        total += np.log(product)
                        product = 1.0
                constants[g] = 0.5 * (total + np.log(product))
        for p in range(counts[r]):
            z = correlations[r, p]
            for g in range(G):
                total = -constants[g]
                for h in range(groups[g], groups[g + 1]):
                    value = z[h] + shift[h]
                    total += halves[h] * value * value
                scores[g] = total
            for i in range(active_latents(states, r, p, latents)):
                scores[latents[i]] = -np.inf
            best_scores(scores, tops, out, r, p)
