"""Evolutionary expectation maximisation: `init`, `step`, `run` (Algorithm 1).

>>> import numpy as np
>>> from evoem import em
>>> from evoem.models import BinarySparseCodingModel
>>> X = np.random.default_rng(0).normal(size=(200, 6))
>>> model = BinarySparseCodingModel()
>>> state = em.init(model, X, n_latents=4, n_states=8, seed=1)
>>> state, infos = em.run(model, X, state, em.Evolution(n_parents=4, n_children=2), max_iter=3)
>>> [info.iteration for info in infos]
[1, 2, 3]

A run is a chain of `step`s over an `EMState`, which holds everything the next step needs: save it,
and a run can be continued as if it had never stopped. Rows are independent given the parameters, so
an E-step is threads over fixed blocks of rows, whose statistics are summed in the order of the
blocks: the number of threads changes nothing in the result.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from evoem import posterior, states, streams, validation
from evoem.errors import LogJointError
from evoem.evolution import Evolution
from evoem.models.base import Mask, Model, Posterior, add_statistics, size_in_bytes
from evoem.runtime.threads import crew, in_threads, one_blas_thread, split
from evoem.validation import Positions

__all__ = [
    "Convergence", "EMState", "Evolution", "Inference", "StepInfo",
    "bounds", "estimate", "infer", "init", "run", "step",
]  # fmt: skip

# Blocks are what threads take and what statistics are summed by. Their size depends on the number
# of rows and the size of statistics alone: enough of them to keep threads busy, few enough that
# summing them, and filling caches with what belongs to each, costs little.
BLOCKS = 24
FEWEST_BLOCKS = 12  # if statistics are large
LAST_SHARE = 3  # of what is left, the most that a block takes
SMALLEST_BLOCK = 64
LARGEST_BLOCK = 2048
BYTES_PER_ROW = 1 << 10  # of statistics, for which a block has one row, if there are enough rows
MOST_BYTES_PER_ROW = 1 << 15  # for which it has at least one in any case
PATIENCE = 50  # E-steps for a row of which no possible state is known
INIT_STREAM = 2**63  # the "iteration" that draws the first states; no run counts this far

T = TypeVar("T")


class EMState(NamedTuple):
    """All that the next step needs. `step` overwrites its arrays: copy what must be kept."""

    params: Any
    states: NDArray[np.uint64]  # (n_samples, n_states, n_words), see `evoem.states`
    log_joints: NDArray[np.float64]  # (n_samples, n_states)
    rows: NDArray[np.uint64]  # (n_samples,): the rows' global numbers, which key their randomness
    statistics: tuple[Any, ...]  # of each part of the data, for mini-batches; empty before
    current: bool  # whether the log-joints belong to `params`, not to those before the last M-step
    iteration: int
    seed: int


class StepInfo(NamedTuple):
    """What happened in one iteration."""

    iteration: int  # from one
    free_energy: float  # the bound per data point after the E-step, before the M-step
    seconds: float
    states_evaluated: int
    states_replaced: int
    params: Any  # after the M-step


class Inference(NamedTuple):
    """Posteriors of rows with the parameters held fixed."""

    states: NDArray[np.uint64]
    log_joints: NDArray[np.float64]
    bounds: NDArray[np.float64]  # (n_samples,)


class Criterion(Protocol):
    """Decides when a run has converged."""

    def __call__(self, free_energies: list[float]) -> bool: ...


class Convergence(NamedTuple):
    """Converged when the bound rose, on average over `window` iterations, by less than `tol` each.

    In nats per data point. An average, because what one evolutionary E-step finds is chance.
    `tol=0` never stops.
    """

    tol: float = 1e-4
    window: int = 5

    def __call__(self, free_energies: list[float]) -> bool:
        if self.tol == 0 or len(free_energies) <= self.window:
            return False
        gain = free_energies[-1] - free_energies[-1 - self.window]
        return gain < self.tol * self.window


def blocks(part: slice, n_bytes: int) -> list[slice]:
    """The blocks of a part of the data, with statistics of so many bytes each.

    The last ones are smaller and smaller: a thread that finds nothing left to do waits less long.
    """
    n_rows = part.stop - part.start
    smallest = max(SMALLEST_BLOCK, n_bytes // MOST_BYTES_PER_ROW)
    usual = min(-(-n_rows // BLOCKS), LARGEST_BLOCK)
    size = max(usual, min(n_bytes // BYTES_PER_ROW, -(-n_rows // FEWEST_BLOCKS)), smallest)
    sizes = []
    while n_rows > 0:
        sizes.append(min(max(min(size, -(-n_rows // LAST_SHARE)), smallest), n_rows))
        n_rows -= sizes[-1]
    ends = part.start + np.cumsum(sizes, dtype=int)
    return [slice(int(end) - length, int(end)) for end, length in zip(ends, sizes, strict=True)]


def map_blocks(
    work: Callable[[slice], T],
    part: slice,
    n_jobs: int,
    n_bytes: int = 0,
    take: Callable[[T], Any] = lambda result: None,
) -> None:
    """`work` on every block of a part of the data; `take` gets the results in their order."""
    in_threads(work, blocks(part, n_bytes), n_jobs, take)


@contextmanager
def numbering(rows: range | NDArray[np.int64]) -> Iterator[None]:
    """An error about a row of those that are worked on names its number among all."""
    try:
        yield
    except LogJointError as error:
        error.row = int(rows[error.row])
        raise


def chunks(block: slice, n_states: int) -> list[slice]:
    """Rows of a block that are worked on together."""
    size = posterior.rows_at_once(n_states)
    return [slice(s, min(s + size, block.stop)) for s in range(block.start, block.stop, size)]


class _Data(NamedTuple):
    """Rows, what was observed of them, and where they lie."""

    X: NDArray[np.floating]
    observed: Mask
    positions: Positions

    def prepare(self, model: Model, derived: Any, which: Any) -> Any:
        """What the model needs of some of the rows."""
        observed = None if self.observed is None else self.observed[which]
        rows = model.prepare_rows(derived, self.X[which], observed)
        return rows if self.positions is None else model.place(derived, rows, self.positions[which])


def _checked(model: Model, X: NDArray[np.floating], observed: Mask, positions: Positions) -> _Data:
    """A mask of ones becomes None: the same result from the same, faster, code."""
    validation.model(model)
    validation.data(X, observed)
    validation.positions(positions, len(X))
    return _Data(X, None if observed is None or observed.all() else observed, positions)


def _check_kept(
    X: NDArray[np.floating], params: Any, kept: NDArray[np.uint64], n_jobs: int
) -> None:
    validation.same_features(X, params)
    validation.kept_states("kept", kept, len(X), len(params.activation_probs))
    validation.integer("n_jobs", n_jobs, 1)


def init(
    model: Model,
    X: NDArray[np.floating],
    *,
    n_states: int,
    n_latents: int = 0,
    params: Any = None,
    observed: Mask = None,
    positions: Positions = None,
    seed: int = 0,
    rows: NDArray[np.uint64] | None = None,
    n_jobs: int = 1,
    derived: Any = None,
) -> EMState:
    """The state before the first iteration.

    Parameters
    ----------
    model : Model
    X : array of shape (n_samples, n_features)
        float32 or float64, zeros where nothing was observed.
    n_states : int
        States kept per row; 2**n_latents keeps all of them, which is exact inference.
    n_latents : int
        Needed unless `params` are given.
    params : NamedTuple, optional
        The model's parameters to start from; by default `model.initialize` makes them.
    observed : bool array of the shape of X, optional
        False where a value is missing.
    positions : array of shape (n_samples, 2), optional
        Where rows lie, for models whose prior depends on it, see `Model.place`.
    seed : int
        Everything random follows from it.
    rows : uint64 array of shape (n_samples,), optional
        Global numbers of the rows, if these are a part of larger data.
    n_jobs : int
        Threads.
    derived : optional
        What `model.prepare` makes of `params`, if that is at hand: for rows that come in many
        blocks it is made once.
    """
    data = _checked(model, X, observed, positions)
    validation.finite(X, observed)
    validation.integer("seed", seed, 0, streams.LARGEST_WORD)
    validation.integer("n_jobs", n_jobs, 1)
    if params is None:
        validation.integer("n_latents", n_latents, 1)
        params = model.initialize(X, observed, n_latents, np.random.default_rng(seed))
    validation.same_features(X, params)
    H = len(params.activation_probs)
    n_states = validation.n_states(n_states, H)
    if rows is None:
        rows = np.arange(len(X), dtype=np.uint64)
    validation.row_numbers(rows, len(X))
    first = np.empty((len(X), n_states, states.n_words(H)), np.uint64)

    def draw(block: slice) -> None:
        own = streams.start(seed, INIT_STREAM, rows[block])
        states.draw_distinct(H, n_states, own, first[block])

    if model.starts_single and n_states <= H:
        _take_best_single(model, data, params, first, n_jobs, derived)
    else:
        map_blocks(draw, slice(0, len(X)), n_jobs)
    model.check(params, X, observed, first)
    return EMState(params, first, np.full(first.shape[:2], -np.inf), rows, (), False, 0, seed)


def _take_best_single(
    model: Model,
    data: _Data,
    params: Any,
    first: NDArray[np.uint64],
    n_jobs: int,
    derived: Any,
) -> None:
    """Fill in the best states of one active latent of each row."""
    single = states.pack(np.eye(len(params.activation_probs), dtype=np.bool_))
    n_rows, n_states, _ = first.shape
    if derived is None:
        derived = model.prepare(params, data.X.dtype)

    def choose(block: slice) -> None:
        for chunk in chunks(block, len(single)):
            best = np.empty((chunk.stop - chunk.start, n_states), np.int64)
            with numbering(range(chunk.start, chunk.stop)):
                model.best_single(derived, data.prepare(model, derived, chunk), best)
            first[chunk] = single[np.sort(best, axis=1)]

    with one_blas_thread():
        map_blocks(choose, slice(0, n_rows), n_jobs)


class _PartResult(NamedTuple):
    statistics: Any
    bound: float
    evaluated: int
    replaced: int


def _e_step(
    model: Model,
    data: _Data,
    state: EMState,
    evolution: Evolution,
    part: slice,
    n_jobs: int,
) -> _PartResult:
    """Better states and the statistics of a part of the data; `state` is changed in place."""
    params = state.params
    derived = model.prepare(params, data.X.dtype)
    n_states = state.states.shape[1]
    own = streams.start(state.seed, state.iteration, state.rows[part])

    def work(block: slice) -> _PartResult:
        stats = model.empty_statistics(params)
        bound, evaluated, replaced = 0.0, 0, 0
        for chunk in chunks(block, n_states + evolution.n_bred):
            rows = data.prepare(model, derived, chunk)
            kept, log_joints = state.states[chunk], state.log_joints[chunk]
            with numbering(range(chunk.start, chunk.stop)):
                improvement = posterior.improve(
                    model,
                    derived,
                    rows,
                    evolution,
                    own[chunk.start - part.start : chunk.stop - part.start],
                    kept,
                    log_joints,
                    state.current,
                )
            weights, bounds = posterior.weigh(log_joints)
            model.accumulate(stats, params, derived, rows, Posterior(kept, weights))
            bound += bounds.sum()
            evaluated += improvement.evaluated
            replaced += improvement.replaced
        return _PartResult(stats, bound, evaluated, replaced)

    statistics = model.empty_statistics(params)
    counts: list[tuple[float, int, int]] = []

    def add(result: _PartResult) -> None:
        add_statistics(statistics, result.statistics)
        counts.append((result.bound, result.evaluated, result.replaced))

    map_blocks(work, part, n_jobs, size_in_bytes(statistics), add)
    bound, evaluated, replaced = map(sum, zip(*counts, strict=True))
    return _PartResult(model.gathered(derived, statistics), bound, evaluated, replaced)


def _over_chunks(
    function: Callable[..., T],
    model: Model,
    data: _Data,
    params: Any,
    kept: NDArray[np.uint64],
    part: slice,
    n_jobs: int,
    derived: Any = None,
) -> list[T]:
    """`function(derived, rows, chunk, log_joints)` of the chunks of a part, in their order."""
    if derived is None:
        derived = model.prepare(params, data.X.dtype)

    def work(block: slice) -> list[T]:
        found = []
        for chunk in chunks(block, kept.shape[1]):
            rows = data.prepare(model, derived, chunk)
            with numbering(range(chunk.start, chunk.stop)):
                log_joints = posterior.evaluate(model, derived, rows, kept[chunk])
            found.append(function(derived, rows, chunk, log_joints))
        return found

    results: list[T] = []
    with one_blas_thread():
        map_blocks(work, part, n_jobs, take=results.extend)
    return results


def _evaluate(
    model: Model,
    data: _Data,
    state: EMState,
    params: Any,
    part: slice,
    n_jobs: int,
) -> float:
    """Log-joints of the states as they are, in place, and the bound of a part of the data."""

    def bound(derived: Any, rows: Any, chunk: slice, log_joints: NDArray[np.float64]) -> float:
        state.log_joints[chunk] = log_joints
        return float(posterior.weigh(log_joints)[1].sum())

    return sum(_over_chunks(bound, model, data, params, state.states, part, n_jobs))


def _sum(model: Model, params: Any, parts: list[Any]) -> Any:
    """The statistics of all parts together."""
    if len(parts) == 1:
        return parts[0]
    total = model.empty_statistics(params)
    for statistics in parts:
        add_statistics(total, statistics)
    return total


def _m_step(
    model: Model,
    params: Any,
    statistics: Any,
    bound: float,
    evaluate: Callable[[Any], float] | None,
) -> tuple[Any, bool]:
    """New parameters, and whether the log-joints were evaluated with them.

    With `evaluate` they are taken only if the bound does not fall by them.
    """
    new = model.update(params, statistics)
    if evaluate is None:
        return new, False
    try:
        risen = evaluate(new) >= bound
    except LogJointError:
        if not model.explores:
            raise
        risen = False
    if risen:
        return new, True
    return model.fallback_update(params, statistics), False


def step(
    model: Model,
    X: NDArray[np.floating],
    state: EMState,
    evolution: Evolution,
    *,
    observed: Mask = None,
    positions: Positions = None,
    batch_size: int | None = None,
    n_jobs: int = 1,
) -> tuple[EMState, StepInfo]:
    """One iteration: a variational E-step and an M-step (the outer loop of Algorithm 1).

    With `batch_size` the rows are visited in consecutive parts of that size, and each is followed
    by an M-step on the latest statistics of *all* parts (incremental EM, Neal and Hinton 1998). The
    first iteration is full-batch in any case: else the first parts would take the whole dictionary.

    The arrays of `state` are overwritten.
    """
    started = time.perf_counter()
    data = _checked(model, X, observed, positions)
    validation.breeding(evolution, len(state.params.activation_probs))
    validation.same_rows(X, state.states)
    validation.same_features(X, state.params)
    validation.batches(batch_size)
    validation.integer("n_jobs", n_jobs, 1)
    parts = split(len(X), len(X) if batch_size is None else batch_size)
    numbers = list(range(len(parts)))
    incremental = len(state.statistics) == len(parts)
    latest = list(state.statistics) if incremental else [None] * len(parts)
    bound, evaluated, replaced = 0.0, 0, 0
    with one_blas_thread(), crew(n_jobs):
        for group in [[number] for number in numbers] if incremental else [numbers]:
            before = bound
            for number in group:
                result = _e_step(model, data, state, evolution, parts[number], n_jobs)
                latest[number] = result.statistics
                bound += result.bound
                evaluated += result.evaluated
                replaced += result.replaced
            part = slice(parts[group[0]].start, parts[group[-1]].stop)
            # A part's own bound may fall by a step that is good for all.
            guard = model.guarded and not incremental
            evaluate = partial(_evaluate, model, data, state, part=part, n_jobs=n_jobs)
            params, current = _m_step(
                model,
                state.params,
                _sum(model, state.params, latest),
                bound - before,
                evaluate if guard else None,
            )
            if guard:
                evaluated += state.log_joints[part].size
            if len(parts) == 1:  # statistics of other parts would be in the old scale
                params = model.canonical(params)
            else:
                for number in group:
                    latest[number] = model.settled(latest[number])
            state = state._replace(params=params, current=current and len(parts) == 1)
    state = state._replace(
        iteration=state.iteration + 1, statistics=tuple(latest) if len(parts) > 1 else ()
    )
    seconds = time.perf_counter() - started
    info = StepInfo(
        state.iteration, float(bound) / len(X), seconds, evaluated, replaced, state.params
    )
    return state, info


def says_stop(answer: Any) -> bool:
    """Whether a callback returned True; anything else that is true in a condition is no order."""
    return isinstance(answer, bool | np.bool_) and bool(answer)


def run(
    model: Model,
    X: NDArray[np.floating],
    state: EMState,
    evolution: Evolution,
    *,
    observed: Mask = None,
    positions: Positions = None,
    max_iter: int = 100,
    convergence: Criterion | None = None,
    callback: Callable[[StepInfo], Any] | None = None,
    batch_size: int | None = None,
    n_jobs: int = 1,
) -> tuple[EMState, list[StepInfo]]:
    """Iterate until converged, until `callback(info)` returns True, or `max_iter` times."""
    validation.integer("max_iter", max_iter, 0)
    validation.integer("n_jobs", n_jobs, 1)
    infos: list[StepInfo] = []
    free_energies: list[float] = []
    with crew(n_jobs):
        for _ in range(max_iter):
            state, info = step(
                model, X, state, evolution, observed=observed, positions=positions,
                batch_size=batch_size, n_jobs=n_jobs,
            )  # fmt: skip
            infos.append(info)
            free_energies.append(info.free_energy)
            if callback is not None and says_stop(callback(info)):
                break
            if convergence is not None and convergence(free_energies):
                break
    return state, infos


def infer(
    model: Model,
    X: NDArray[np.floating],
    params: Any,
    evolution: Evolution,
    *,
    n_states: int,
    observed: Mask = None,
    positions: Positions = None,
    seed: int = 0,
    rows: NDArray[np.uint64] | None = None,
    first: NDArray[np.uint64] | None = None,
    tol: float = 1e-4,
    max_iter: int = 1000,
    n_jobs: int = 1,
    derived: Any = None,
) -> Inference:
    """Posteriors of rows with the parameters held fixed.

    E-steps alone, for each row until its own bound has stopped rising (`Convergence(tol)`), so that
    what is found for a row does not depend on the others. By default `rows` are numbers made from
    the rows' content, see `streams.row_keys`, and the `first` states those of `init`. `derived` is
    as for `init`.
    """
    data = _checked(model, X, observed, positions)
    H = len(params.activation_probs)
    validation.breeding(evolution, H)
    validation.same_features(X, params)
    validation.integer("max_iter", max_iter, 1)
    validation.integer("n_jobs", n_jobs, 1)
    if rows is None:
        rows = streams.row_keys(X, observed)
    validation.row_numbers(rows, len(X))
    if derived is None:
        derived = model.prepare(params, X.dtype)
    if first is None:
        all_states = init(
            model, X, n_states=n_states, params=params, observed=data.observed,
            positions=positions, seed=seed, rows=rows, n_jobs=n_jobs, derived=derived,
        ).states  # fmt: skip
    else:
        validation.kept_states("first", first, len(X), H)
        validation.same_size("first", first, n_states)
        all_states = first.copy()
    all_log_joints = np.full(all_states.shape[:2], -np.inf)
    found = np.empty(len(X))
    exact = n_states == 2**H
    window = 0 if exact else Convergence().window

    def work(block: slice) -> None:
        for chunk in chunks(block, n_states + evolution.n_bred):
            open_rows = np.arange(chunk.start, chunk.stop)
            recent = np.full((len(open_rows), window + 1), -np.inf)
            for iteration in range(max_iter):
                some = data.prepare(model, derived, open_rows)
                kept, log_joints = all_states[open_rows], all_log_joints[open_rows]
                with numbering(open_rows):
                    posterior.improve(
                        model,
                        derived,
                        some,
                        evolution,
                        streams.start(seed, iteration, rows[open_rows]),
                        kept,
                        log_joints,
                    )
                all_states[open_rows], all_log_joints[open_rows] = kept, log_joints
                found[open_rows] = posterior.weigh(log_joints)[1]
                recent = np.column_stack([recent[:, 1:], found[open_rows]])
                # While only impossible states are known anything may be found, but not for ever.
                now, before = recent[:, -1], recent[:, 0]
                possible = now > -np.inf
                risen = np.where(possible, now >= before + tol * window, iteration < PATIENCE)
                if exact or not risen.any():
                    break
                open_rows, recent = open_rows[risen], recent[risen]

    with one_blas_thread():
        map_blocks(work, slice(0, len(X)), n_jobs)
    return Inference(all_states, all_log_joints, found)


def bounds(
    model: Model,
    X: NDArray[np.floating],
    params: Any,
    kept: NDArray[np.uint64],
    *,
    observed: Mask = None,
    positions: Positions = None,
    n_jobs: int = 1,
) -> NDArray[np.float64]:
    """The bound log Σ_s p(s, x) of each row over its kept states."""

    def weigh(derived: Any, rows: Any, chunk: slice, log_joints: Any) -> NDArray[np.float64]:
        return posterior.weigh(log_joints)[1]

    data, whole = _checked(model, X, observed, positions), slice(0, len(X))
    _check_kept(X, params, kept, n_jobs)
    return np.concatenate(_over_chunks(weigh, model, data, params, kept, whole, n_jobs))


def estimate(
    function: Callable[..., T],
    model: Model,
    X: NDArray[np.floating],
    params: Any,
    kept: NDArray[np.uint64],
    *,
    observed: Mask = None,
    positions: Positions = None,
    n_jobs: int = 1,
    derived: Any = None,
) -> list[T]:
    """`function(params, derived, rows, posterior)`, such as `model.reconstruct`, of all rows.

    One result per chunk of rows, in their order. `derived` is as for `init`.
    """

    def apply(derived: Any, rows: Any, chunk: slice, log_joints: NDArray[np.float64]) -> T:
        weights, _ = posterior.weigh(log_joints)
        return function(params, derived, rows, Posterior(kept[chunk], weights))

    data, whole = _checked(model, X, observed, positions), slice(0, len(X))
    _check_kept(X, params, kept, n_jobs)
    return _over_chunks(apply, model, data, params, kept, whole, n_jobs, derived)
