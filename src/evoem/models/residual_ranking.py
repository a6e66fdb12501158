"""Which latents correlate best with what a state leaves of the data: additions that promise most.

A step of matching pursuit, by which guided mutation is told what to activate.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evoem.ranking import best_scores
from evoem.runtime.compile import inlined


class Guide(NamedTuple):
    """How promising a latent is: (curvature z + slope) z - constant, z its correlation with what
    a state leaves of the data. One row for all, or one for each row of the data.

    Of a row with missing values z is a guess: what a latent explains of others is taken to be
    their inner product times the share of its own square that was observed.
    """

    start: NDArray[np.floating]  # (H,)  added to the correlations
    shares: NDArray[np.floating]  # (1 or n_rows, H)
    curvatures: NDArray[np.floating]
    constants: NDArray[np.floating]
    slope: Any  # a number of the same type


@inlined
def rank_by_residual(guide, gram, projections, coefficients, active, k, r, p, room, out):
    """The latents that correlate best with what a state leaves of the data, see `Guide`."""
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
