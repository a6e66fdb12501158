"""Additive statistics of models whose latents superpose linearly, see `linear`."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evoem.models.triangles import n_pairs, row_start
from evoem.runtime.compile import inlined, kernel

# The noise variance stays above this share of the data's mean square: below it log-joints, which
# have |y|²/σ² in them, would be rounding alone, and so would systems of latents that are alike.
NOISE_FLOORS = {np.dtype(np.float32): 1e-4, np.dtype(np.float64): 1e-10}


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
    outer: NDArray[np.float64]  # Σ⟨c⟩⟨c⟩ᵀ, likewise; only the printed updates need it

    @property
    def arrays(self) -> tuple[NDArray[np.float64], ...]:
        """Those that rows are added to by kernels."""
        return self.activation, self.first, self.second, self.cross, self.outer


def empty_stats(W: NDArray[np.float64], printed: bool) -> LinearStats:
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
    )


def count(stats: LinearStats, X: NDArray[np.floating], n_observed: float, square: float) -> None:
    """Add rows, of which so many entries were observed, with their expected sum of squares."""
    stats.n_rows[...] += len(X)
    stats.n_observed[...] += n_observed
    stats.data_square[...] += square
    stats.floor[...] += NOISE_FLOORS[X.dtype] * square


@kernel
def add_cross(offsets, members, first, X, cross):
    """Add Σ⟨c⟩ yᵀ latent by latent: some rows of data stay in the cache, all of `cross` would not.

    X is zero where it is missing.
    """
    H, D = cross.shape
    n_listed = offsets[-1] - offsets[0]
    rows, weights = np.empty(n_listed, np.int64), np.empty(n_listed)
    ends, next_place = np.empty(H + 1, np.int64), np.empty(H, np.int64)
    ends[:] = 0
    for u in range(offsets[0], offsets[-1]):
        ends[members[u] + 1] += 1
    for h in range(H):
        next_place[h] = ends[h]
        ends[h + 1] += ends[h]
    for r in range(X.shape[0]):
        for u in range(offsets[r], offsets[r + 1]):
            place = next_place[members[u]]
            next_place[members[u]] = place + 1
            rows[place], weights[place] = r, first[u]
    for h in range(H):
        place, stop = ends[h], ends[h + 1]
        while place + 3 < stop:  # four rows for each time that the sum is read and written
            r0, r1, r2, r3 = rows[place], rows[place + 1], rows[place + 2], rows[place + 3]
            w0, w1, w2, w3 = (
                weights[place], weights[place + 1], weights[place + 2], weights[place + 3]
            )  # fmt: skip
            for d in range(D):
                cross[h, d] += w0 * X[r0, d] + w1 * X[r1, d] + w2 * X[r2, d] + w3 * X[r3, d]
            place += 4
        while place < stop:
            r0, w0 = rows[place], weights[place]
            for d in range(D):
                cross[h, d] += w0 * X[r0, d]
            place += 1


@inlined
def close_row(members, begin, end, activation, first, means, printed, sums):
    """Add the members' ⟨s⟩ and ⟨c⟩ of a row, note ⟨c⟩ as `means`, and clear both for the next."""
    sum_activation, sum_first, _, cross, outer = sums
    for i in range(begin, end):
        h = members[i]
        means[i] = first[h]
        sum_activation[h] += activation[h]
        sum_first[h] += first[h]
        if printed:
            for j in range(begin, i):
                g = members[j]
                outer[row_start(len(cross), max(g, h)) + min(g, h)] += means[i] * means[j]
            outer[h] += means[i] * means[i]
        activation[h] = 0.0
        first[h] = 0.0


@kernel
def add_moments(
    offsets, squares, members, activation, first, second,
    complete, X, observed, W, printed, sums, scalars,
):  # fmt: skip
    """Add the moments of some rows; to `scalars` what was observed of them, and Σ⟨yᵀy⟩."""
    sum_activation, sum_first, sum_second, cross, outer = sums
    D = cross.shape[1]
    add_cross(offsets, members, first, X, cross)
    expected = np.empty(D)
    for r in range(X.shape[0]):
        begin, matrix = offsets[r], squares[r]
        n = offsets[r + 1] - begin
        total = 0.0
        for d in range(D):
            total += np.float64(X[r, d]) * np.float64(X[r, d])
        scalars[1] += total
        for u in range(n):
            h = members[begin + u]
            weight = first[begin + u]
            sum_activation[h] += activation[begin + u]
            sum_first[h] += weight
            if printed:
                outer[h] += weight * weight
                start = row_start(len(cross), h)
                for v in range(u):
                    outer[start + members[begin + v]] += weight * first[begin + v]
        if observed is None or complete[r]:
            scalars[0] += D
            continue
        if observed is not None:  # said again for the compiler, which then leaves this part out
            for d in range(D):
                scalars[0] += observed[r, d]
            # A missing y_d is one more latent, ⟨y_d cᵀ⟩ = W_d ⟨c cᵀ⟩. The printed way puts in the
            # estimate W_d ⟨c⟩ as if it had been observed.
            for u in range(n):
                h = members[begin + u]
                expected[:] = 0.0
                for v in range(n):
                    g = members[begin + v]
                    weight = second[matrix + max(u, v) * n + min(u, v)]
                    if v <= u and len(sum_second) > 0:
                        sum_second[h if v == u else row_start(len(cross), h) + g] += weight
                    if printed:
                        weight = first[begin + u] * first[begin + v]
                    if weight != 0.0:  # most pairs of members are active in no state together
                        for d in range(D):
                            expected[d] += weight * W[g, d]
                for d in range(D):
                    if not observed[r, d]:
                        cross[h, d] += expected[d]
                        scalars[1] += W[h, d] * expected[d]
