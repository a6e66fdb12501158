"""The states that EM starts from."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from evoem import posterior, states, streams
from evoem.data import Data
from evoem.errors import numbered_rows
from evoem.models.base import Model
from evoem.runtime.threads import map_blocks, one_blas_thread

INIT_STREAM = 2**63  # the "iteration" that draws the first states; no run counts this far


def first_states(
    model: Model, data: Data, params: Any, n_states: int, seed: int, n_jobs: int, derived: Any
) -> NDArray[np.uint64]:
    """First states of all rows, (n_samples, n_states, n_words): the model's, or random ones."""
    H = len(params.activation_probs)
    first = np.empty((len(data), n_states, states.n_words(H)), np.uint64)
    numbers, choose = data.numbers, model.first_states
    if choose is not None and n_states <= H and derived is None:
        derived = model.prepare(params, data.X.dtype)

    def fill(block: slice) -> None:
        if choose is None or n_states > H:
            own = streams.start(seed, INIT_STREAM, numbers[block])
            states.draw_distinct(H, n_states, own, first[block])
            return
        for chunk in posterior.chunks(block, H):
            with numbered_rows(range(chunk.start, chunk.stop)):
                rows = data.take(chunk).prepare(model, derived)
                first[chunk] = choose(derived, rows, n_states)

    with one_blas_thread():
        map_blocks(fill, slice(0, len(data)), n_jobs)
    return first
