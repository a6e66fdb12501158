"""Posterior moments of c for models y ≈ W c, and the statistics and estimates computed from them.

c is s for binary sparse coding and s⊙z for spike-and-slab coding. Moments are stored for the
*members* of a row, the latents that are active in any state with a weight: few, however large H is.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evoem.models.base import Posterior
from evoem.models.triangles import n_pairs, row_start
from evoem.runtime.compile import ZERO, inlined, kernel
from evoem.states import active_latents, clear

# The noise variance stays above this share of the data's mean square: below it log-joints, which
# have |y|²/σ² in them, would be rounding alone, and so would systems of latents that are alike.
NOISE_FLOORS = {np.dtype(np.float32): 1e-4, np.dtype(np.float64): 1e-10}
# Second moments of as many rows are held at once as fit into this many entries.
MOMENT_ENTRIES = 1 << 18


class Moments(NamedTuple):
    """Posterior moments of some rows: row r has the members `offsets[r]:offsets[r + 1]`."""

    offsets: NDArray[np.int64]  # (n_rows + 1,)
    squares: NDArray[np.int64]  # (n_rows + 1,): where each row's second moments start
    members: NDArray[np.int64]  # ascending within a row
    activation: NDArray[np.float64]  # ⟨s⟩
    first: NDArray[np.float64]  # ⟨c⟩
    second: NDArray[np.float64]  # ⟨c cᵀ⟩, lower triangles of flat matrices over the members


class LinearStats(NamedTuple):
    """Additive statistics of W, π and σ²."""

    n_rows: NDArray[np.float64]
    n_observed: NDArray[np.float64]  # observed entries
    activation: NDArray[np.float64]  # (H,)  Σ⟨s⟩
    first: NDArray[np.float64]  # (H,)  Σ⟨c⟩
    second: NDArray[np.float64]  # Σ⟨c cᵀ⟩, see `triangles`; empty if held elsewhere
    cross: NDArray[np.float64]  # (H, D)  Σ⟨c yᵀ⟩, missing y replaced by its expectation
    data_square: NDArray[np.float64]  # Σ⟨yᵀy⟩, likewise
    floor: NDArray[np.float64]  # what `data_square` is known to
    # Only the printed updates need what follows, else it is empty.
    outer: NDArray[np.float64]  # Σ⟨c⟩⟨c⟩ᵀ, likewise
    filled: NDArray[np.float64]  # (2, D)  Σ⟨W_d c⟩² and Σ Var(W_d c) of values that are missing
    joint: NDArray[np.float64]  # (H, H)  Σ⟨s⟩⟨c⟩ᵀ, for a full Ψ as the authors' programs learn it
    # Only what is learnt feature by feature needs this, see `by_feature`. `cross` and `data_square`
    # are then over what was observed, and `second` over rows in which nothing is missing.
    observed_second: NDArray[np.float64]  # (pairs, D)  Σ o_d⟨c cᵀ⟩ over other rows, likewise
    power: NDArray[np.float64]  # (H,)  Σ⟨c²⟩ over these


def empty_stats(
    W: NDArray[np.float64], printed: bool = False, by_feature: bool = False
) -> LinearStats:
    """Statistics of no rows, for a dictionary like W."""
    n_latents, n_features = W.shape
    return LinearStats(
        np.zeros(()),
        np.zeros(()),
        np.zeros(n_latents),
        np.zeros(n_latents),
        np.zeros(n_pairs(n_latents)),
        np.zeros((n_latents, n_features)),
        np.zeros(()),
        np.zeros(()),
        np.zeros(n_pairs(n_latents) if printed else 0),
        np.zeros((2, n_features if printed else 0)),
        np.zeros((0, 0)),
        np.zeros((n_pairs(n_latents) if by_feature else 0, n_features)),
        np.zeros(n_latents if by_feature else 0),
    )


def count(
    stats: LinearStats, dtype: np.dtype[Any], n_rows: float, n_observed: float, square: float
) -> None:
    """Add rows: the number of their observed entries, and their expected sum of squares."""
    stats.n_rows[...] += n_rows
    stats.n_observed[...] += n_observed
    stats.data_square[...] += square
    stats.floor[...] += NOISE_FLOORS[dtype] * square


def negligible_weight(dtype: Any) -> float:
    """States below this weight are left out of the sums.

    In single precision, errors of the log-joints change weights by far more than this.
    """
    return 8.0 * float(np.finfo(dtype).eps)


# ------------------------------------------------------------------------------------- members


@kernel
def _list_members(posterior, negligible, keep, groups, offsets, squares, members, active, union):
    states, weights = posterior
    n_rows, n_states, width = states.shape
    total, square = 0, 0
    for r in range(n_rows):
        offsets[r] = total
        squares[r] = square
        clear(union, ZERO, ZERO)
        for m in range(n_states):
            if weights[r, m] > negligible:
                for w in range(width):
                    union[0, 0, w] |= states[r, m, w]
        k = active_latents(union, ZERO, ZERO, active)
        for i in range(k):
            if groups is None:
                members[total] = active[i]
                total += 1
                continue
            for h in range(groups[active[i]], groups[active[i] + 1]):
                members[total] = h
                total += 1
        if keep[r]:
            square += (total - offsets[r]) ** 2
    offsets[n_rows] = total
    squares[n_rows] = square


def moment_parts(
    posterior: Posterior,
    n_latents: int,
    negligible: float,
    keep: NDArray[np.bool_],
    groups: NDArray[np.int64] | None = None,
) -> Iterator[tuple[slice, Moments]]:
    """Empty moments with their members listed, for as many rows at a time as MOMENT_ENTRIES allows.

    There is room for second moments where `keep` is true. Elsewhere only their sum over rows is
    needed, and kernels add to it directly.
    """
    n_rows, _, width = posterior.states.shape
    offsets = np.empty(n_rows + 1, np.int64)
    squares = np.empty(n_rows + 1, np.int64)
    members = np.empty(n_rows * n_latents, np.int64)
    scratch = np.empty(n_latents + 1, np.int64), np.empty((1, 1, width), np.uint64)
    _list_members(posterior, negligible, keep, groups, offsets, squares, members, *scratch)
    activation, first = np.zeros((2, offsets[-1]))
    room = max(MOMENT_ENTRIES, int(np.diff(squares).max()))
    start = 0
    while start < n_rows:
        stop = int(np.searchsorted(squares, squares[start] + room, side="right")) - 1
        own = squares[start : stop + 1] - squares[start]
        second = np.zeros(own[-1])
        yield (
            slice(start, stop),
            Moments(offsets[start : stop + 1], own, members, activation, first, second),
        )
        start = stop


# ---------------------------------------------------------------------------------------- sums


@kernel
def add_cross(offsets, members, first, X, cross):
    """Add Σ⟨c⟩ yᵀ latent by latent: some rows of data fit into the cache, all of `cross` would not.

    X is zero where it is missing.
    """
    H, D = cross.shape
    n_listed = offsets[-1] - offsets[0]
    rows, weights = np.empty(n_listed, np.int64), np.empty(n_listed)
    ends, next_free = np.empty(H + 1, np.int64), np.empty(H, np.int64)
    ends[:] = 0
    for u in range(offsets[0], offsets[-1]):
        ends[members[u] + 1] += 1
    for h in range(H):
        next_free[h] = ends[h]
        ends[h + 1] += ends[h]
    for r in range(X.shape[0]):
        for u in range(offsets[r], offsets[r + 1]):
            i = next_free[members[u]]
            next_free[members[u]] = i + 1
            rows[i], weights[i] = r, first[u]
    for h in range(H):
        i, stop = ends[h], ends[h + 1]
        while i + 3 < stop:  # four rows for each time that the sum is read and written
            r0, r1, r2, r3 = rows[i], rows[i + 1], rows[i + 2], rows[i + 3]
            w0, w1, w2, w3 = weights[i], weights[i + 1], weights[i + 2], weights[i + 3]
            for d in range(D):
                cross[h, d] += w0 * X[r0, d] + w1 * X[r1, d] + w2 * X[r2, d] + w3 * X[r3, d]
            i += 4
        while i < stop:
            r0, w0 = rows[i], weights[i]
            for d in range(D):
                cross[h, d] += w0 * X[r0, d]
            i += 1


@inlined
def finish_row(members, begin, end, activation, first, means, printed, stats):
    """Add the members' ⟨s⟩ and ⟨c⟩ of a row, write ⟨c⟩ to `means`, and clear both for the next."""
    if len(stats.joint) > 0:
        for i in range(begin, end):
            for j in range(begin, end):
                stats.joint[members[i], members[j]] += activation[members[i]] * first[members[j]]
    for i in range(begin, end):
        h = members[i]
        means[i] = first[h]
        stats.activation[h] += activation[h]
        stats.first[h] += first[h]
        if printed:
            for j in range(begin, i):
                g = members[j]
                start = row_start(len(stats.cross), max(g, h))
                stats.outer[start + min(g, h)] += means[i] * means[j]
            stats.outer[h] += means[i] * means[i]
        activation[h] = 0.0
        first[h] = 0.0


@inlined
def add_means(members, begin, n, activation, first, printed, stats):
    """Add the n members' ⟨s⟩ and ⟨c⟩ of a row."""
    if len(stats.joint) > 0:
        for u in range(begin, begin + n):
            for v in range(begin, begin + n):
                stats.joint[members[u], members[v]] += activation[u] * first[v]
    for u in range(begin, begin + n):
        h = members[u]
        stats.activation[h] += activation[u]
        stats.first[h] += first[u]
        if printed:
            stats.outer[h] += first[u] * first[u]
            start = row_start(len(stats.cross), h)
            for v in range(begin, u):
                stats.outer[start + members[v]] += first[u] * first[v]


@inlined
def _add_incomplete_row(r, moments, observed, W, printed, expected, left, stats, scalars):
    """Add what a missing y_d contributes as one more latent: ⟨y_d cᵀ⟩ = W_d ⟨c cᵀ⟩.

    The printed M-step uses the estimate W_d ⟨c⟩ as if it had been observed.
    """
    offsets, squares, members, _, first, second = moments
    begin, matrix = offsets[r], squares[r]
    n, D = offsets[r + 1] - begin, W.shape[1]
    for d in range(D):
        scalars[0] += observed[r, d]
    for u in range(n):
        h = members[begin + u]
        expected[:] = 0.0
        left[:] = 0.0
        for v in range(n):
            g = members[begin + v]
            weight = second[matrix + max(u, v) * n + min(u, v)]
            if v <= u and len(stats.second) > 0:
                stats.second[h if v == u else row_start(len(W), h) + g] += weight
            if printed:
                square = weight
                weight = first[begin + u] * first[begin + v]
                for d in range(D):
                    left[d] += (square - weight) * W[g, d]
            if weight != 0.0:  # most pairs of members are active in no state together
                for d in range(D):
                    expected[d] += weight * W[g, d]
        for d in range(D):
            if not observed[r, d]:
                stats.cross[h, d] += expected[d]
                scalars[1] += W[h, d] * expected[d]
                if printed:
                    stats.filled[0, d] += W[h, d] * expected[d]
                    stats.filled[1, d] += W[h, d] * left[d]


@kernel
def _add_moments(moments, X, complete, observed, W, printed, stats, scalars):
    """Adds to `scalars` the number of observed entries, and Σ⟨yᵀy⟩."""
    offsets, _, members, activation, first, _ = moments
    add_cross(offsets, members, first, X, stats.cross)
    D = X.shape[1]
    expected, left = np.empty((2, D))
    for r in range(X.shape[0]):
        total = 0.0
        for d in range(D):
            total += np.float64(X[r, d]) * np.float64(X[r, d])
        scalars[1] += total
        n = offsets[r + 1] - offsets[r]
        add_means(members, offsets[r], n, activation, first, printed, stats)
        if observed is None or complete[r]:
            scalars[0] += D
            continue
        if observed is not None:  # said again for the compiler, which then leaves this part out
            _add_incomplete_row(r, moments, observed, W, printed, expected, left, stats, scalars)


def add_moments(
    stats: LinearStats, moments: Moments, rows: Any, W: NDArray[np.float64], printed: bool
) -> None:
    """Add the moments of some rows to the statistics, in place."""
    scalars = np.zeros(2)
    _add_moments(moments, rows.X, rows.complete, rows.observed, W, printed, stats, scalars)
    count(stats, rows.X.dtype, len(rows.X), *scalars)


# ----------------------------------------------------------------------------------- estimates


@kernel
def _reconstruct(moments, W, mean, variance):
    offsets, squares, members, _, first, second = moments
    D = W.shape[1]
    for r in range(mean.shape[0]):
        begin, matrix = offsets[r], squares[r]
        n = offsets[r + 1] - begin
        mean[r] = 0.0
        for u in range(begin, begin + n):  # eq:bsc_data_estimator, eq:sssc_data_estimator
            for d in range(D):
                mean[r, d] += first[u] * W[members[u], d]
        for d in range(D):
            variance[r, d] = -(mean[r, d] ** 2)
        for u in range(n):
            for v in range(u + 1):
                g, h = members[begin + u], members[begin + v]
                weight = second[matrix + u * n + v]
                if weight != 0.0:
                    if u != v:
                        weight *= 2.0
                    for d in range(D):
                        variance[r, d] += weight * W[g, d] * W[h, d]


def reconstruct(
    moments: Moments, n_rows: int, W: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Posterior mean and variance of W c."""
    mean = np.empty((n_rows, W.shape[1]))
    variance = np.empty_like(mean)
    _reconstruct(moments, W, mean, variance)
    return mean, np.maximum(variance, 0.0)


def codes(moments: Moments, n_rows: int, n_latents: int) -> NDArray[np.float64]:
    """⟨c⟩ as a dense array."""
    out = np.zeros((n_rows, n_latents))
    rows = np.repeat(np.arange(n_rows), np.diff(moments.offsets))
    own = slice(moments.offsets[0], moments.offsets[-1])
    out[rows, moments.members[own]] = moments.first[own]
    return out
