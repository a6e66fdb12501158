"""Log-joints and moments of `subspaces`, row by row."""

import numpy as np

from evoem.models.subspace.latent_pairs import pair_map, pair_means, single_square
from evoem.models.subspace.observed_gram import fill_system, forget_row
from evoem.models.subspace.second_moments import add_second
from evoem.models.subspace.small_systems import (
    LARGE,
    factorise,
    invert,
    list_patterns,
    solve_back,
)
from evoem.runtime.compile import kernel
from evoem.states import active_latents


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
def single_scores(
    groups, bias, shift, pivots, constants, projections, base, complete, squares, out,
):  # fmt: skip
    """Log-joints of the states of one latent; `squares` are those of V that incomplete rows saw."""
    row = np.empty(len(shift), shift.dtype)
    n_incomplete = 0
    for r in range(len(out)):
        own = r if len(bias) > 1 else 0
        for h in range(len(row)):
            row[h] = projections[r, h] + shift[h]
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
                first[place] += weight * u[i]  # eq:sssc_exp_sz
                activation[place] += weight
            if keep:
                for i in range(n):  # eq:sssc_exp_szszT
                    start = matrix + places[active[i]] * size
                    for j in range(i + 1):
                        value = weight * (local[i, j] + u[i] * u[j])
                        second[start + places[active[j]]] += value
            if len(sums) > 0:
                add_second(groups, latents, k, weight, u, not known_system, local, blocks, sums)
