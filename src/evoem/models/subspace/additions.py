"""Which latents correlate best with what a state of a row leaves: additions that promise most.

The gain of a latent is a sum over its patterns. Those are laid out anew for it: the first patterns
of all latents, then the second ones of those that have any, and so on, latents of most patterns
first. A sum over the patterns of a latent is then a sum of vectors over the latents.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evoem.models.subspace.observed_gram import fill_system, forget_row
from evoem.models.subspace.small_systems import factorise, list_patterns, solve_back
from evoem.ranking import GROUPS, NONE, best_scores
from evoem.runtime.compile import kernel
from evoem.states import active_latents

# Factors of a product that are multiplied before its logarithm is taken: it does not overflow.
FACTORS = 8


class Tiers(NamedTuple):
    """Patterns as said above; tier i has the patterns `starts[i]:starts[i + 1]`."""

    starts: NDArray[np.int64]  # (most patterns of a latent + 1,)
    order: NDArray[np.int64]  # (G,)  latents, those of most patterns first
    places: NDArray[np.int64]  # (G,)  where they stand in that order
    patterns: NDArray[np.int64]  # (C,)


def tiers_of(groups: NDArray[np.int64]) -> Tiers:
    """The patterns of latents, laid out anew."""
    sizes = np.diff(groups)
    order = np.argsort(-sizes, kind="stable")
    lengths = [int((sizes > i).sum()) for i in range(sizes.max())]
    patterns = np.concatenate([groups[order[:n]] + i for i, n in enumerate(lengths)])
    return Tiers(np.cumsum([0, *lengths]), order, np.argsort(order), patterns)


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
def rank_additions(tiers, shift, squares, owns, correlations, states, counts, out):
    """Rank the latents that a state lacks, by patterns that are laid out in tiers."""
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
                scores[tiers.places[latents[i]]] = -np.inf
            best_scores(scores, tops, out, r, p)
            for i in range(out.shape[2]):
                if out[r, p, i] != NONE:
                    out[r, p, i] = tiers.order[out[r, p, i]]
