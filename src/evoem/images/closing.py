"""How a run ends once it has learnt: which patches are restored, by how much search, in time.

Patches that were learnt from have states. Those of others, of a large image, are searched for with
the learnt parameters. If time is short, that takes fewer E-steps; then fewer patches take part; and
then the image is not looked at again.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evoem.images.patches import Grid

# E-steps for states of patches that were not learnt from, at most, where rows start from their best
# states of one latent and from random ones; at least; and how much a row's bound must rise by for
# another one.
SEARCH_STEPS = 4
RANDOM_SEARCH_STEPS = 30
FEWEST_SEARCH_STEPS = 3
SEARCH_TOLERANCE = 1e-2
# E-steps of a second look, from known states and from none.
SECOND_STEPS = 1
SECOND_SEARCH_STEPS = 5
# Looks at like patches: two, and at a quarter of the pixels each.
LOOKS_AROUND = 2.5


class Closing(NamedTuple):
    """How patches that were not learnt from are treated, and the image after the first look."""

    steps: int  # E-steps for their states
    thinning: int = 1  # of so many rows and columns of them, one takes part
    looks: bool = True  # whether the image is looked at again, if it can be


class Look(NamedTuple):
    """Measured seconds of a look at patches with states."""

    per_patch: float
    per_block: float

    def at(self, n_patches: int, at_once: int) -> float:
        """At so many patches, in blocks."""
        return n_patches * self.per_patch + -(-n_patches // at_once) * self.per_block


class Costs(NamedTuple):
    """Measured seconds."""

    step: float  # of an E-step of a patch
    first: Look
    second: Look
    around: float  # of a look at like patches, of the whole image
    keeps_states: bool  # of all patches, from the first look to the second


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
    steps = closing.steps
    merging = costs.first.at(n_learnt + n_others, at_once)
    if closing.looks:
        merging += costs.second.at(n_learnt + n_others, at_once) + LOOKS_AROUND * costs.around
        if not costs.keeps_states:
            steps += min(SECOND_SEARCH_STEPS, closing.steps)
    return n_others * steps * costs.step + merging


def ways(most_steps: int, widest_thinning: int, can_look: bool) -> Iterator[Closing]:
    """From the best to the quickest."""
    for looks in (True, False) if can_look else (False,):
        for thinning in range(1, widest_thinning + 1):
            for steps in range(most_steps, FEWEST_SEARCH_STEPS - 1, -1):
                yield Closing(steps, thinning, looks)
