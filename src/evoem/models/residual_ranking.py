"""Rank latents by their correlation with the residual of a state: the most promising additions.

This is a step of matching pursuit, which tells guided mutation what to activate.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evoem.ranking import best_scores
from evoem.runtime.compile import inlined


class Guide(NamedTuple):
    """How promising a latent is: (curvature z + slope) z - constant, with z its correlation with
    the residual of a state. One row for all, or one for each row of the data.

    For a row with missing values z is approximate: inner products of latents are scaled by the
    share of a latent's own square that was observed.
    """

    start: NDArray[np.floating]  # (H,)  added to the correlations
    shares: NDArray[np.floating]  # (1 or n_rows, H)
    curvatures: NDArray[np.floating]
    constants: NDArray[np.floating]
    slope: Any  # a number of the same type


@inlined
def rank_by_residual(guide, gram, projections, coefficients, active, k, r, p, room, out):
    """The latents that correlate best with the residual of a state, see `Guide`."""
    z, scores, tops = room
    own = r if len(guide.constants) > 1 else 0
    for g in range(len(z)):
        z[g] = projections[r, g] + guide.start[g]
    for i in range(k):
        h = active[i]
        c = z.dtype.type(coefficients[i]) * guide.shares[own, h]
        for g in range(len(z)):
            z[g] -= c * gram[h, g]
    for g in range(len(z)):
        scores[g] = (guide.curvatures[own, g] * z[g] + guide.slope) * z[g] - guide.constants[own, g]
    for i in range(k):
        scores[active[i]] = -np.inf
    best_scores(scores, tops, out, r, p)
