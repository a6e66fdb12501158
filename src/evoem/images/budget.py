"""How a run ends once it has learnt: which patches are restored, by how much search, in time.

Patches that were learnt from have states. Those of others, of a large image, are searched for with
the learnt parameters. If time is short, that takes fewer E-steps; then fewer patches take part; and
then like patches are seen together less often, and at last not at all.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evoem.images.nonlocal_bayes import WIDTHS
from evoem.images.patches import Grid

# E-steps for states of patches that were not learnt from, at most, where rows start from their best
# states of one latent and from random ones; at least; and how much a row's bound must rise by for
# another one.
SEARCH_STEPS = 4
RANDOM_SEARCH_STEPS = 30
FEWEST_SEARCH_STEPS = 3
SEARCH_TOLERANCE = 1e-2


class Closing(NamedTuple):
    """How patches that were not learnt from are treated, and the image once all are merged."""

    steps: int  # E-steps for their states
    thinning: int = 1  # of so many rows and columns of them, one takes part
    looks: int = len(WIDTHS)  # times that like patches are seen together, if they can be


class Costs(NamedTuple):
    """Measured seconds."""

    step: float  # of an E-step of a patch
    patch: float  # to reconstruct and merge one with states
    block: float  # and what a block of them takes beside
    around: tuple[float, ...]  # of each look at like patches, at the whole image


def others(places: Grid, learnt: NDArray[np.int64], thinning: int) -> NDArray[np.int64]:
    """Numbers of patches that were not learnt from and take part."""
    rows, columns = (
        (np.arange(len(starts)) % thinning == 0) | (np.arange(len(starts)) == len(starts) - 1)
        for starts in (places.tops, places.lefts)
    )
    chosen = np.outer(rows, columns).ravel()
    chosen[learnt] = False
    return np.flatnonzero(chosen)


def seconds(closing: Closing, costs: Costs, n_learnt: int, n_others: int, at_once: int) -> float:
    """How long it takes from the last iteration to the image, `at_once` patches to a block."""
    n_patches = n_learnt + n_others
    merging = n_patches * costs.patch + -(-n_patches // at_once) * costs.block
    around = sum(costs.around[len(costs.around) - closing.looks :])
    return n_others * closing.steps * costs.step + merging + around


def ways(most_steps: int, widest_thinning: int, most_looks: int) -> Iterator[Closing]:
    """From the best to the quickest."""
    for looks in range(most_looks, -1, -1):
        for thinning in range(1, widest_thinning + 1):
            for steps in range(most_steps, FEWEST_SEARCH_STEPS - 1, -1):
                yield Closing(steps, thinning, looks)
