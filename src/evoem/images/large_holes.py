"""Fill holes larger than a patch, from their edges inwards."""

import numpy as np
from numpy.typing import NDArray

from evoem import em
from evoem.images import bands, patches
from evoem.images.patch_model import Patches, PatchModel


def fill(
    model: PatchModel,
    mean: NDArray[np.float64],
    near: NDArray[np.bool_],
    search_steps: int,
) -> NDArray[np.float64]:
    """`mean` with new values where `near` is false: where no patch has any observed value.

    There the model has only its prior. So patches across the edge of a hole are completed first,
    their values are taken as observed, and so on inwards. The result looks like its surroundings,
    but is a guess.
    """
    # All patches, whatever the stride: there is then always one across the edge.
    own, band = model.source.grid, model.source.canonical.band
    rows = bands.patch_rows(patches.regular_grid(own.shape, max(own.patch)), band)
    grid, around = rows.grid, rows.pixels()
    first = around[band.comm.rank].start
    window = patches.window(grid.patch, "centre", grid.shape[2])
    mean, known = mean.copy(), near.copy()
    while band.any(not known.all())[0]:
        canvas = patches.Canvas(grid, rows.strip)
        values = band.fetch(np.where(known, mean, 0.0).astype(np.float32), around)
        known_around = band.fetch(known, around)
        for numbers in rows.numbers():
            seen = patches.cut(known_around, grid, numbers, first)
            across = seen.any(1) & ~seen.all(1)
            if not across.any():
                continue
            numbers, seen = numbers[across], seen[across]
            X = patches.cut(values, grid, numbers, first)
            data = em.Data(X, seen, model.source.positions(grid, numbers))
            block = Patches(numbers, data)
            completed, _ = model.reconstruct(block, model.infer(block, search_steps))
            canvas.add(numbers, completed, window)
        rows.add([canvas.totals, canvas.weights])
        new = ~known & (canvas.weight > 0)
        if not band.any(new.any())[0]:
            break  # patches of a single pixel lie across no edge: their prior is all there is
        mean[new] = canvas.mean()[new]
        known |= new
    return mean
