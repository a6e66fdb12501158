"""Fill holes larger than a patch, from their edges inwards."""

import numpy as np
from numpy.typing import NDArray

from evoem.images import patch_model as learning
from evoem.images import patches


def fill(
    learner: learning.Learner, mean: NDArray[np.float64], near: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """`mean` with new values where `near` is false, that is, where no patch saw anything.

    There the model knows nothing but its prior. So patches across the edge of a hole are completed
    first, what they say is taken as if it had been observed, and so on inwards. The result looks
    like its surroundings, but is a guess.
    """
    # Every place, whatever the stride: there is then always a patch across the edge.
    places = patches.grid(learner.places.shape, learner.settings.patch_size)
    window = patches.window(places.patch, "centre", places.shape[2])
    mean, known = mean.copy(), near.copy()
    while not known.all():
        canvas = patches.Canvas(places)
        values = np.where(known, mean, 0.0).astype(np.float32)
        for start in range(0, places.n_patches, learning.PATCHES_AT_ONCE):
            numbers = np.arange(start, min(start + learning.PATCHES_AT_ONCE, places.n_patches))
            seen = patches.cut(known, places, numbers)
            across = seen.any(1) & ~seen.all(1)
            if not across.any():
                continue
            numbers, seen = numbers[across], seen[across]
            X = patches.cut(values, places, numbers)
            positions = learner.locate(places, numbers)
            block = learning.Block(numbers, X, seen, positions, None)
            completed, _ = learner.estimate(learner.search(block))
            canvas.add(numbers, completed, window)
        new = ~known & (canvas.weight > 0)
        mean[new] = canvas.mean()[new]
        known |= new
    return mean
