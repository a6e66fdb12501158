"""Inference with fixed parameters: `infer`, `bounds`, `estimate`."""

from collections.abc import Callable
from itertools import chain
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from evoem import em, posterior, streams, validation
from evoem import evolution as breeding
from evoem.data import Data, map_chunks
from evoem.em import Convergence, Evolution
from evoem.errors import numbered_rows
from evoem.models.base import Model, Posterior
from evoem.runtime.allocation import keep_freed_memory
from evoem.runtime.threads import map_blocks, one_blas_thread

__all__ = ["Inference", "bounds", "estimate", "infer"]

PATIENCE = 50  # E-steps for a row of which no possible state is known

T = TypeVar("T")


class Inference(NamedTuple):
    """Truncated posteriors of rows, as `infer` returns them.

    Attributes
    ----------
    states : uint64 array of shape (n_samples, n_states, n_words)
        The states kept for each row, see `evoem.states`.
    log_joints : float64 array of shape (n_samples, n_states)
        log p(s, x) of each.
    bounds : float64 array of shape (n_samples,)
        log Σ_s p(s, x) of each row.

    Examples
    --------
    >>> import numpy as np
    >>> from evoem import em, inference
    >>> from evoem.models import BinarySparseCodingModel
    >>> model, data = BinarySparseCodingModel(), em.Data(np.arange(80.0).reshape(20, 4) % 7)
    >>> params = em.init(model, data, n_latents=2, n_states=4).params
    >>> found = inference.infer(model, data, params, em.Evolution(2, 1), n_states=4)
    >>> found
    Inference(20 rows with 4 states each)
    >>> bool(np.allclose(found.bounds, np.logaddexp.reduce(found.log_joints, axis=1)))
    True
    """

    states: NDArray[np.uint64]
    log_joints: NDArray[np.float64]
    bounds: NDArray[np.float64]

    def __repr__(self) -> str:
        n_rows, n_states = self.log_joints.shape
        return f"Inference({n_rows} rows with {n_states} states each)"


def infer(
    model: Model,
    data: Data,
    params: Any,
    evolution: Evolution,
    *,
    n_states: int,
    seed: int = 0,
    first: NDArray[np.uint64] | None = None,
    tol: float = 1e-4,
    max_iter: int = 1000,
    n_jobs: int = 1,
    derived: Any = None,
) -> Inference:
    """Truncated posteriors of rows: E-steps alone, for each row until its bound stops rising.

    The result for a row does not depend on the other rows.

    Parameters
    ----------
    model : Model
    data : Data
        By default its rows are numbered by their content, see `streams.row_keys`.
    params : NamedTuple
        The model's parameters.
    evolution : Evolution
    n_states : int
        States kept per row; with all 2**n_latents of them inference is exact.
    seed : int
        Seed of all random numbers.
    first : uint64 array of shape (n_samples, n_states, n_words), optional
        States to start from; by default those of `em.init`.
    tol : float
        A row is done when its bound rises by less than this per E-step (`em.Convergence`).
    max_iter : int
        Largest number of E-steps.
    n_jobs : int
        Threads.
    derived : optional
        The result of `model.prepare(params)`, if it has been computed already.

    Returns
    -------
    Inference
        States, log-joints and bounds of all rows.

    Examples
    --------
    >>> import numpy as np
    >>> from evoem import em, inference
    >>> from evoem.models import BinarySparseCodingModel
    >>> model, data = BinarySparseCodingModel(), em.Data(np.arange(80.0).reshape(20, 4) % 7)
    >>> state = em.init(model, data, n_latents=3, n_states=4)
    >>> evolution = em.Evolution(n_parents=3, n_children=2)
    >>> found = inference.infer(model, data, state.params, evolution, n_states=4)
    >>> found.states.shape, found.bounds.shape
    ((20, 4, 1), (20,))
    """
    H = len(params.activation_probs)
    evolution = breeding.checked(evolution, H)
    validation.same_features(data.X, params)
    max_iter = validation.integer("max_iter", max_iter, 1)
    n_jobs = validation.integer("n_jobs", n_jobs, 1)
    rows = streams.row_keys(data.X, data.observed) if data.rows is None else data.rows
    if derived is None:
        derived = model.prepare(params, data.X.dtype)
    if first is None:
        all_states = em.init(
            model, data.numbered(rows), n_states=n_states, params=params, seed=seed, n_jobs=n_jobs,
            derived=derived,
        ).states  # fmt: skip
    else:
        validation.kept_states("first", first, len(data), H)
        validation.same_size("first", first, n_states)
        all_states = first.copy()
    all_log_joints = np.full(all_states.shape[:2], -np.inf)
    found = np.empty(len(data))
    exact = n_states == 2**H
    window = 0 if exact else Convergence().window

    def work(block: slice) -> None:
        for chunk in posterior.chunks(block, n_states + evolution.n_bred):
            open_rows = np.arange(chunk.start, chunk.stop)
            recent = np.full((len(open_rows), window + 1), -np.inf)
            for iteration in range(max_iter):
                some = data.take(open_rows).prepare(model, derived)
                kept, log_joints = all_states[open_rows], all_log_joints[open_rows]
                random = streams.start(seed, iteration, rows[open_rows])
                with numbered_rows(open_rows):
                    posterior.improve(model, derived, some, evolution, random, kept, log_joints)
                all_states[open_rows], all_log_joints[open_rows] = kept, log_joints
                found[open_rows] = posterior.weigh(log_joints)[1]
                recent = np.column_stack([recent[:, 1:], found[open_rows]])
                # A row whose known states are all impossible may still find others, in some time.
                now, before = recent[:, -1], recent[:, 0]
                possible = now > -np.inf
                risen = np.where(possible, now >= before + tol * window, iteration < PATIENCE)
                if exact or not risen.any():
                    break
                open_rows, recent = open_rows[risen], recent[risen]

    keep_freed_memory()
    with one_blas_thread():
        map_blocks(work, slice(0, len(data)), n_jobs)
    return Inference(all_states, all_log_joints, found)


def bounds(
    model: Model, data: Data, params: Any, kept: NDArray[np.uint64], *, n_jobs: int = 1
) -> NDArray[np.float64]:
    """The bound log Σ_s p(s, x) of each row over its kept states (eq:tvem_free_energy).

    Parameters
    ----------
    model : Model
    data : Data
    params : NamedTuple
        The model's parameters.
    kept : uint64 array of shape (n_samples, n_states, n_words)
        States kept for each row, as from `infer`.
    n_jobs : int
        Threads.

    Returns
    -------
    ndarray of shape (n_samples,)
        In nats.

    Examples
    --------
    >>> import numpy as np
    >>> from evoem import em, inference
    >>> from evoem.models import BinarySparseCodingModel
    >>> model, data = BinarySparseCodingModel(), em.Data(np.arange(80.0).reshape(20, 4) % 7)
    >>> state = em.init(model, data, n_latents=3, n_states=4)
    >>> evolution = em.Evolution(n_parents=3, n_children=2)
    >>> found = inference.infer(model, data, state.params, evolution, n_states=4)
    >>> same = inference.bounds(model, data, state.params, found.states)
    >>> bool(np.allclose(same, found.bounds))
    True
    """

    def weigh(derived: Any, rows: Any, chunk: slice, log_joints: Any) -> NDArray[np.float64]:
        return posterior.weigh(log_joints)[1]

    _check_kept(data, params, kept, n_jobs)
    found = map_chunks(weigh, model, data, params, kept, n_jobs)
    return np.concatenate([np.empty(0), *chain.from_iterable(found)])


def estimate(
    function: Callable[..., T],
    model: Model,
    data: Data,
    params: Any,
    kept: NDArray[np.uint64],
    *,
    n_jobs: int = 1,
    derived: Any = None,
) -> list[T]:
    """Posterior expectations of all rows (eq:tvem_truncated_expectations), chunk by chunk.

    Parameters
    ----------
    function : callable
        `function(params, derived, rows, posterior)`, such as `model.reconstruct` or `model.codes`.
    model : Model
    data : Data
    params : NamedTuple
        The model's parameters.
    kept : uint64 array of shape (n_samples, n_states, n_words)
        States kept for each row, as from `infer`.
    n_jobs : int
        Threads.
    derived : optional
        The result of `model.prepare(params)`, if it has been computed already.

    Returns
    -------
    list
        What the function returned for each chunk of rows, in their order.

    Examples
    --------
    >>> import numpy as np
    >>> from evoem import em, inference
    >>> from evoem.models import BinarySparseCodingModel
    >>> model, data = BinarySparseCodingModel(), em.Data(np.arange(80.0).reshape(20, 4) % 7)
    >>> state = em.init(model, data, n_latents=3, n_states=4)
    >>> evolution = em.Evolution(n_parents=3, n_children=2)
    >>> found = inference.infer(model, data, state.params, evolution, n_states=4)
    >>> parts = inference.estimate(model.codes, model, data, state.params, found.states)
    >>> np.concatenate(parts).shape
    (20, 3)
    """

    def apply(derived: Any, rows: Any, chunk: slice, log_joints: NDArray[np.float64]) -> T:
        weights, _ = posterior.weigh(log_joints)
        return function(params, derived, rows, Posterior(kept[chunk], weights))

    _check_kept(data, params, kept, n_jobs)
    return list(chain.from_iterable(map_chunks(apply, model, data, params, kept, n_jobs, derived)))


def _check_kept(data: Data, params: Any, kept: NDArray[np.uint64], n_jobs: int) -> None:
    validation.same_features(data.X, params)
    validation.kept_states("kept", kept, len(data), len(params.activation_probs))
    n_jobs = validation.integer("n_jobs", n_jobs, 1)
