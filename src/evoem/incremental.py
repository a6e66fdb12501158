"""The incremental schedule of EM, for mini-batches (Neal and Hinton, 1998)."""

from collections.abc import Callable
from typing import Any

from evoem.em_state import EMState, EStepInfo, PartResult
from evoem.models.base import Model, add_statistics

Improve = Callable[[EMState, int], PartResult]
Update = Callable[[EMState, Any, EStepInfo | None], tuple[EMState, int]]


def incremental_step(
    model: Model, state: EMState, n_parts: int, improve: Improve, update: Update
) -> tuple[EMState, EStepInfo]:
    """An E-step for each part of the rows, and after it an M-step on the statistics of *all* parts.

    `improve` is the E-step of the part with a given number, `update` the M-step. The first
    iteration is always full-batch: otherwise the first parts would take up the whole dictionary.
    """
    first = len(state.statistics) != n_parts
    latest: list[Any] = [None] * n_parts if first else list(state.statistics)
    total = EStepInfo()
    for group in [range(n_parts)] if first else [[number] for number in range(n_parts)]:
        later = {}
        for number in group:
            found = improve(state, number)
            latest[number], later[number] = found.statistics, found.later
            total = total.plus(found.info)
        statistics = model.empty_statistics(state.params)
        for own in latest:
            add_statistics(statistics, own)
        # A part's own bound may fall by a step that is good for all. Statistics of other parts are
        # in the old scale, so parameters are not made canonical.
        bound = total if first else None
        state, compared = update(state, statistics, bound)
        state = state._replace(current=False)
        total = total._replace(evaluated=total.evaluated + compared)
        for number, kept in later.items():
            latest[number] = kept
    return state._replace(statistics=tuple(latest)), total
