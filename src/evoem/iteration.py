"""Algorithm 1 on the rows of this process: E-step, M-step, and both as one iteration (alg:eem)."""

import time
from collections.abc import Generator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from evoem import posterior, streams
from evoem.candidates import choose
from evoem.data import Data
from evoem.em_state import BlockSums, EMState, EStepInfo, PartResult, StepInfo
from evoem.errors import numbered_rows
from evoem.evolution import Evolution
from evoem.incremental import incremental_step
from evoem.models.base import Model, Posterior
from evoem.runtime.allocation import keep_freed_memory
from evoem.runtime.threads import crew, in_threads, one_blas_thread
from evoem.shares import Layout
from evoem.statistics_sum import StatisticsSum


class Iteration(NamedTuple):
    """What all iterations of a run have in common. They overwrite the arrays of a state."""

    model: Model
    data: Data
    n_jobs: int
    layout: Layout

    def e_step(self, state: EMState, evolution: Evolution) -> tuple[EMState, Any, EStepInfo]:
        """The E-step of a full batch."""
        with one_blas_thread(), crew(self.n_jobs):
            found = self.improve(evolution, state, 0)
        return state._replace(current=True), found.statistics, found.info

    def improve(self, evolution: Evolution, state: EMState, part: int) -> PartResult:
        """Better states and the statistics of a part of the data; `state` is changed in place."""
        keep_freed_memory()
        model, data, params = self.model, self.data, state.params
        derived = model.prepare(params, data.X.dtype)
        n_states = state.states.shape[1]
        empty, numbers = model.empty_statistics(params), data.numbers
        total = StatisticsSum(BlockSums(empty, np.zeros(()), np.zeros(2)), self.layout.comm)

        def work(block: slice) -> BlockSums:
            sums, info = model.empty_statistics(params), EStepInfo()
            random = streams.start(state.seed, state.iteration, numbers[block])
            for chunk in posterior.chunks(block, n_states + evolution.n_bred):
                rows = data.take(chunk).prepare(model, derived)
                kept, log_joints = state.states[chunk], state.log_joints[chunk]
                own = random[chunk.start - block.start : chunk.stop - block.start]
                with numbered_rows(numbers[chunk]):
                    improvement = posterior.improve(
                        model, derived, rows, evolution, own, kept, log_joints, state.current
                    )
                weights, bounds = posterior.weigh(log_joints)
                model.accumulate(sums, params, derived, rows, Posterior(kept, weights))
                info = info.plus(EStepInfo(bounds.sum(), *improvement))
            return BlockSums(sums, np.array(info.bound), np.array(info[1:], np.float64))

        in_threads(work, self.layout.parts[part], self.n_jobs, total.add)
        statistics, bound, (evaluated, replaced) = total.total()
        found = EStepInfo(float(bound), int(evaluated), int(replaced))
        return PartResult(*model.finish_statistics(derived, statistics), found)

    def m_step(
        self, state: EMState, statistics: Any, info: EStepInfo | None
    ) -> tuple[EMState, int]:
        """New parameters from statistics, and how many log-joints it took to compare candidates."""
        offered, risen, evaluated = self.model.update(state.params, statistics), False, 0
        if isinstance(offered, Generator):
            bound = None if info is None else info.bound
            offered, risen, evaluated = choose(
                offered, self.model, self.data, state, bound, self.n_jobs, self.layout
            )
        return state._replace(params=offered, current=risen), evaluated

    def step(self, state: EMState, evolution: Evolution) -> tuple[EMState, StepInfo]:
        """An E-step and an M-step, or with mini-batches one of each for every part."""
        started, n_parts = time.perf_counter(), len(self.layout.parts)
        with one_blas_thread(), crew(self.n_jobs):
            if n_parts > 1:
                improve = partial(self.improve, evolution)
                state, found = incremental_step(self.model, state, n_parts, improve, self.m_step)
            else:
                state, statistics, found = self.e_step(state, evolution)
                state, compared = self.m_step(state, statistics, found)
                state = state._replace(params=self.model.canonical(state.params), statistics=())
                found = found._replace(evaluated=found.evaluated + compared)
        state = state._replace(iteration=state.iteration + 1)
        seconds = time.perf_counter() - started
        bound = found.bound / self.layout.n_rows
        return state, StepInfo(state.iteration, bound, seconds, found.evaluated, found.replaced)
