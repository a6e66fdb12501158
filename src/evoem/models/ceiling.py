"""No log-joint of a linear model may be above log p(s) - D/2 log 2πσ², D values observed: noise
of this variance has no higher density.

A log-joint has |y|²/2σ² taken off and nearly all of it added again. What is left is as exact as
that is, and where σ² has all but vanished it may come out positive by rounding. Evolution would
look for just those states.
"""

from evoem.runtime.compile import inlined


@inlined
def below_ceiling(value, ceiling, logits, least, active, k):
    """The value, or if that is lower, `ceiling` and the logits of the k active latents.

    What is not a number stays so. `least` is the least of all logits: nearly always it tells that
    no sum is needed, which would take 4 to 6 % of the time of an iteration.
    """
    if value > ceiling + k * least:
        for i in range(k):
            ceiling += logits[active[i]]
        if value > ceiling:
            return ceiling
    return value
