"""Truncated posteriors: the best distinct states of each row, their weights, and the bound.

`improve` is the variational E-step of Algorithm 1 for a block of rows.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evoem.errors import LogJointError
from evoem.evolution import Breeding, Evolution, Pool, breed
from evoem.models.base import Model, flip_gains
from evoem.ranking import kth_largest
from evoem.runtime.compile import ZERO, kernel
from evoem.states import Genomes, States, copy, unpack, whole_population

# Few rows are processed at a time, so that their arrays stay in the processor's cache.
STATES_AT_ONCE = 120_000
ROWS_AT_ONCE = 256


class Improvement(NamedTuple):
    """What an E-step of a block of rows changed."""

    evaluated: int  # log-joints computed
    replaced: int  # kept states that gave way to better ones


def rows_at_once(n_states: int) -> int:
    """Rows that are processed together when each has `n_states` states; a multiple of 8."""
    return max(8, min(ROWS_AT_ONCE, STATES_AT_ONCE // n_states) // 8 * 8)


def chunks(block: slice, n_states: int) -> list[slice]:
    """The rows of a block in chunks that are processed together, for `n_states` states each."""
    size = rows_at_once(n_states)
    return [slice(s, min(s + size, block.stop)) for s in range(block.start, block.stop, size)]


@kernel
def _keep_best(kept_log_joints, bred, bred_log_joints, sizes, states, log_joints):
    """Keep the S best of the states kept so far, which come first, and of those bred.

    Returns how many are new, or -1 - r if row r has a log-joint that is not a number.
    """
    n_states = states.shape[1]
    scratch = np.empty(n_states + bred.shape[1])
    replaced = 0
    for r in range(states.shape[0]):
        for m in range(n_states):
            scratch[m] = kept_log_joints[r, m]
        for c in range(sizes[r]):
            scratch[n_states + c] = bred_log_joints[r, c]
        size = n_states + sizes[r]
        for m in range(size):
            if not scratch[m] < np.inf:
                return -1 - r
        least = kth_largest(scratch, size, n_states)
        ties = n_states  # how many of those as good as the last kept one stay: the older first
        for m in range(n_states):
            ties -= kept_log_joints[r, m] > least
        for c in range(sizes[r]):
            ties -= bred_log_joints[r, c] > least
        bred_ties = ties
        for m in range(n_states):
            bred_ties -= kept_log_joints[r, m] == least
        new = ZERO
        for m in range(n_states):
            value = kept_log_joints[r, m]
            if value > least or (value == least and ties > 0):
                ties -= value == least
                log_joints[r, m] = value
                continue
            # eq:tvem_criterion: a state gives way to one of higher joint probability. Exactly as
            # many children rise as kept states fall, so `new` stays within those bred.
            while bred_log_joints[r, new] < least or (
                bred_log_joints[r, new] == least and bred_ties <= 0
            ):
                new += 1
            bred_ties -= bred_log_joints[r, new] == least
            copy(bred, r, new, states, r, m)
            log_joints[r, m] = bred_log_joints[r, new]
            new += 1
            replaced += 1
    return replaced


def keep_best(pool: Pool, log_joints: NDArray[np.float64]) -> int:
    """Overwrite the kept states by the best of each row's pool, and `log_joints` by theirs.

    Returns how many are new.
    """
    states, kept_log_joints, _, _ = pool.kept
    replaced = int(
        _keep_best(kept_log_joints, pool.states, pool.log_joints, pool.sizes, states, log_joints)
    )
    if replaced < 0:
        row = -1 - replaced
        bred = slice(pool.sizes[row])
        values = np.concatenate([kept_log_joints[row], pool.log_joints[row, bred]])
        wrong = int(np.flatnonzero(~(values < np.inf))[0])
        state = np.concatenate([states[row], pool.states[row, bred]])[wrong]
        active = np.flatnonzero(unpack(state, 64 * len(state)))
        raise LogJointError(
            f"log_joints must be finite or -inf; got {values[wrong]}", row, active.tolist()
        )
    return replaced


@kernel
def _weigh(log_joints, weights, bounds):
    for r in range(log_joints.shape[0]):
        largest = -np.inf
        for m in range(log_joints.shape[1]):
            largest = max(largest, log_joints[r, m])
        if largest == -np.inf:
            weights[r] = 0.0
            bounds[r] = -np.inf
            continue
        total = 0.0
        for m in range(log_joints.shape[1]):
            weights[r, m] = np.exp(log_joints[r, m] - largest)
            total += weights[r, m]
        for m in range(log_joints.shape[1]):
            weights[r, m] /= total  # eq:tvem_truncated_posterior
        bounds[r] = largest + np.log(total)  # eq:tvem_free_energy


def weigh(log_joints: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Truncated posterior weights of each row's states, and the row's bound log Σ_s p(s, y).

    For a row whose states are all impossible the weights are zero and the bound is -inf.
    """
    weights, bounds = np.empty_like(log_joints), np.empty(len(log_joints))
    _weigh(log_joints, weights, bounds)
    return weights, bounds


def evaluate(model: Model, derived: Any, rows: Any, states: States) -> NDArray[np.float64]:
    """Log-joints of `states` (n_rows, n_states, n_words)."""
    out = np.empty(states.shape[:2])
    own = np.ascontiguousarray(states)  # the same for all rows, they may be a view of one
    model.log_joints(derived, rows, whole_population(own, out))
    return out


def improve(
    model: Model,
    derived: Any,
    rows: Any,
    evolution: Evolution,
    streams: NDArray[np.uint64],
    states: States,
    log_joints: NDArray[np.float64],
    current: bool = False,
) -> Improvement:
    """Breed, evaluate new states, keep the best, in place (Algorithm 1, the loop over g).

    `current` says that `log_joints` already belong to these parameters.
    """
    n_latents = derived.n_latents
    if n_latents < 63 and states.shape[1] == 2**n_latents:  # all states are kept: exact inference
        if current:
            return Improvement(0, 0)
        log_joints[:] = evaluate(model, derived, rows, states)
        return Improvement(log_joints.size, 0)
    pool = Pool(states, evolution.n_bred)
    population = pool.kept
    if current:
        population.log_joints[:] = log_joints
    else:
        model.log_joints(derived, rows, population)
    constants = np.empty(len(states))
    constants[:] = model.log_constants(derived, rows)
    breeding = Breeding(
        n_latents=n_latents,
        streams=streams,
        log_constants=constants,
        expected_active=derived.expected_active,
        flip_gains=lambda genomes: flip_gains(model, derived, rows, genomes),
        best_additions=lambda genomes, n: model.best_additions(derived, rows, genomes, n),
    )
    children: Genomes | None = None
    for _ in range(evolution.n_generations):
        if children is not None and evolution.known_children:
            population = pool.all_of(children)
        children = breed(population, evolution, breeding)
        population = pool.admit(children)
        model.log_joints(derived, rows, population)
    replaced = keep_best(pool, log_joints)
    unknown = 0 if current else log_joints.size
    return Improvement(unknown + int(pool.sizes.sum()), replaced)
