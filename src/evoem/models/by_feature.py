"""Dictionaries learnt feature by feature, from the rows in which a feature was observed.

Where much is missing, it is slow to treat missing values as latent: the dictionary is then fitted
to values that it has filled in itself, and moves only by the observed share of the way. The bound
is maximised by a regression of each feature on the rows in which it was observed,

    W_d = (Σ_n o_nd ⟨c cᵀ⟩)⁻¹ Σ_n o_nd ⟨c⟩ y_nd.

This needs second moments for each feature. Rows in which nothing is missing share theirs.
"""

import numpy as np
from numpy.typing import NDArray

from evoem.models import linear_moments
from evoem.models.linear_moments import LinearStats, Moments, add_cross, add_means
from evoem.models.triangles import n_pairs, row_start
from evoem.runtime.compile import kernel

# Share of the data that is missing from which features are learnt each by itself. An iteration
# takes longer; below this, few are saved.
MUCH_MISSING = 0.25
# Second moments of all features, in entries. Some ten times their memory is in use at once.
MOST_ENTRIES = 1 << 22
# Entries of systems that are solved at once.
ENTRIES_AT_ONCE = 1 << 20
# Pulls weights of latents that are never active to their old value, and nothing else.
PROXIMITY = 1e-10


def pays(missing: float, n_rows: int, n_features: int, n_latents: int, n_parts: int = 1) -> bool:
    """Whether a dictionary is best learnt feature by feature.

    Much must be missing, and the second moments, which each mini-batch keeps, may take no more
    memory than the data, and at most MOST_ENTRIES.
    """
    kept = n_pairs(n_latents) * n_parts
    return missing > MUCH_MISSING and kept <= n_rows and kept * n_features <= MOST_ENTRIES


@kernel
def _add_observed(moments, X, observed, stats):
    """Σ⟨c⟩ yᵀ, ⟨c⟩ and ⟨c cᵀ⟩ over what was observed; the number and the squares of these."""
    offsets, squares, members, activation, first, second = moments
    add_cross(offsets, members, first, X, stats.cross)
    H, D = stats.cross.shape
    seen = np.empty(D)
    n_observed, total = 0.0, 0.0
    for r in range(X.shape[0]):
        begin, matrix = offsets[r], squares[r]
        n = offsets[r + 1] - begin
        for d in range(D):
            seen[d] = observed[r, d]
            n_observed += seen[d]
            total += np.float64(X[r, d]) * np.float64(X[r, d])
        add_means(members, begin, n, activation, first, False, stats)
        for u in range(n):
            h = members[begin + u]
            stats.power[h] += second[matrix + u * n + u]
            for v in range(u + 1):
                weight = second[matrix + u * n + v]
                if weight != 0.0:  # most pairs of members are active in no state together
                    line = stats.observed_second[
                        h if v == u else row_start(H, h) + members[begin + v]
                    ]
                    for d in range(D):
                        line[d] += weight * seen[d]
    return n_observed, total


def add_observed(
    stats: LinearStats, moments: Moments, X: NDArray[np.floating], observed: NDArray[np.bool_]
) -> None:
    """Add the moments of some rows to the statistics of each feature, in place."""
    linear_moments.count(stats, X.dtype, len(X), *_add_observed(moments, X, observed, stats))


def solve_features(
    systems: NDArray[np.float64],
    wanted: NDArray[np.float64],
    old: NDArray[np.float64],
    least: float,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """W with A_d W_d = `wanted` + a pull towards the old W, and the pull; each (q, D).

    `systems` (D, q, q), the A_d, are overwritten. The pull is at least `least`, so that the weights
    of features that were never observed do not change.
    """
    pull = PROXIMITY * np.trace(systems, axis1=1, axis2=2) + least
    systems += pull[:, None, None] * np.eye(systems.shape[1])
    target = wanted.T + pull[:, None] * old.T
    new = np.linalg.solve(systems, target[..., None])[..., 0].T
    return new, pull * (old - new)


def least_pull(typical: float) -> float:
    """The weakest pull that is allowed if latents are active in so many rows."""
    return PROXIMITY * typical + float(np.finfo(float).tiny)


def new_dictionary(
    stats: LinearStats, second: NDArray[np.float64], W: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The W that maximises the bound, and the pull towards the old one.

    `second`: Σ⟨c cᵀ⟩ of the rows in which nothing is missing, of which the lower triangle is used.
    """
    H, D = W.shape
    new, pulled = np.empty_like(W), np.empty_like(W)
    low, high = np.tril_indices(H, -1)
    diagonal = np.arange(H)
    least = least_pull(float(stats.activation.mean()))
    step = max(ENTRIES_AT_ONCE // (H * H), 1)
    for start in range(0, D, step):
        part = slice(start, start + step)
        moments = stats.observed_second[:, part].T
        systems = np.empty((len(moments), H, H))
        systems[:, diagonal, diagonal] = moments[:, :H] + np.diag(second)
        below = moments[:, H:] + second[low, high]
        systems[:, low, high] = below
        systems[:, high, low] = below
        new[:, part], pulled[:, part] = solve_features(
            systems, stats.cross[:, part], W[:, part], least
        )
    return new, pulled
