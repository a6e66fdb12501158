"""Upper limit of the log-joints of linear models: log p(s) - D/2 log 2πσ² for D observed values.

Noise of this variance has no higher density. But a log-joint subtracts |y|²/2σ² and adds nearly all
of it again. The remainder is as accurate as these terms are, and where σ² has all but vanished
rounding may lift it above the limit. Evolution would select just those states.
"""

from evoem.runtime.compile import inlined


@inlined
def below_ceiling(value, ceiling, logits, least, active, k):
    """The value, or if that is lower, `ceiling` plus the logits of the k active latents.

    NaN stays NaN. `least` is the smallest of all logits: it nearly always tells that the sum is not
    needed, which would take 4 to 6 % of the time of an iteration.
    """
    if value > ceiling + k * least:
        for i in range(k):
            ceiling += logits[active[i]]
        if value > ceiling:
            return ceiling
    return value
