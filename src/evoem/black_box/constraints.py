"""Constraints on parameters, by transforms of free parameters, which gradients move.

Transforms and their derivatives are plain NumPy, so they work with parameters of every library.

| constraint | values | of a free u |
| --- | --- | --- |
| "positive" | above 0 | exp(u) |
| "unit" | between 0 and 1 | 1 / (1 + exp(-u)) |
| "simplex" | positive, the last axis sums to one | softmax(u) |
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit, softmax

Array = NDArray[np.float64]

# Parameters start, and stay, this far inside of what they are constrained to.
MARGIN = 1e-9
LARGEST_EXPONENT = 600.0


class Transform(NamedTuple):
    """A transform between a constrained parameter and a free one."""

    rule: str
    holds: Callable[[Array], bool]
    free: Callable[[Array], Array]
    constrained: Callable[[Array], Array]
    gradient: Callable[[Array, Array], Array]  # of the free one, from the constrained and its own


def _pulled_back_softmax(values: Array, gradient: Array) -> Array:
    along: Array = (values * gradient).sum(-1, keepdims=True)
    return values * (gradient - along)


def _sums_to_one(values: Array) -> bool:
    return bool(
        values.ndim > 0
        and (values >= 0).all()
        and np.allclose(values.sum(-1), 1.0, rtol=0.0, atol=1e-5)
    )


TRANSFORMS = {
    "positive": Transform(
        "be positive",
        lambda values: bool((values > 0).all()),
        np.log,
        lambda free: np.exp(np.clip(free, -LARGEST_EXPONENT, LARGEST_EXPONENT)),
        lambda values, gradient: values * gradient,
    ),
    "unit": Transform(
        "lie between 0 and 1",
        lambda values: bool(((values >= 0) & (values <= 1)).all()),
        lambda values: logit(np.clip(values, MARGIN, 1 - MARGIN)),
        lambda free: np.clip(expit(free), MARGIN, 1 - MARGIN),
        lambda values, gradient: values * (1 - values) * gradient,
    ),
    "simplex": Transform(
        "be at least 0 and sum to one along the last axis",
        _sums_to_one,
        lambda values: np.log(np.maximum(values, MARGIN)),
        lambda free: softmax(free, axis=-1),
        _pulled_back_softmax,
    ),
}
UNCONSTRAINED = Transform(
    "be finite",
    lambda values: True,
    lambda values: values,
    lambda free: free,
    lambda values, gradient: gradient,
)
