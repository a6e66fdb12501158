"""Fill holes larger than a patch, from their edges inwards."""

import numpy as np
from numpy.typing import NDArray

from evoem import em
from evoem.images import patch_model, patches
from evoem.images.patch_model import Patches, PatchModel


def fill(
    model: PatchModel,
    mean: NDArray[np.float64],
    near: NDArray[np.bool_],
    search_steps: int,
) -> NDArray[np.float64]:
    """`mean` with new values where `near` is false, that is, where no patch saw anything.

    There the model knows nothing but its prior. So patches across the edge of a hole are completed
    first, what they say is taken as if it had been observed, and so on inwards. The result looks
    like its surroundings, but is a guess.
    """
    # All patches, whatever the stride: there is then always one across the edge.
    own = model.source.grid
    grid = patches.regular_grid(own.shape, max(own.patch))
    window = patches.window(grid.patch, "centre", grid.shape[2])
    mean, known = mean.copy(), near.copy()
    while not known.all():
        canvas = patches.Canvas(grid)
        values = np.where(known, mean, 0.0).astype(np.float32)
        for start in range(0, grid.n_patches, patch_model.PATCHES_AT_ONCE):
            numbers = np.arange(start, min(start + patch_model.PATCHES_AT_ONCE, grid.n_patches))
            seen = patches.cut(known, grid, numbers)
            across = seen.any(1) & ~seen.all(1)
            if not across.any():
                continue
            numbers, seen = numbers[across], seen[across]
            X = patches.cut(values, grid, numbers)
            data = em.Data(X, seen, model.source.positions(grid, numbers))
            block = Patches(numbers, data)
            completed, _ = model.reconstruct(block, model.infer(block, search_steps))
            canvas.add(numbers, completed, window)
        new = ~known & (canvas.weight > 0)
        mean[new] = canvas.mean()[new]
        known |= new
    return mean
