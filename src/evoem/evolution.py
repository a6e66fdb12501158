"""The evolutionary operators: parent selection, crossover, mutation.

subsec:evolutionary_optimization and app:eem_sparseflips of the paper.

Every operator processes a block of rows at once and is listed in `OPERATORS`, where others can be
added. An operator is a plain function, so it may call compiled code, NumPy, or the model:
`Breeding.flip_gains` returns the change of the log-joint by every single flip of a state.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evoem import validation
from evoem.ranking import NONE, kth_largest
from evoem.runtime.compile import ZERO, inlined, kernel
from evoem.states import (
    ONE,
    Genomes,
    Population,
    States,
    active_latents,
    clear,
    copy,
    empty_tables,
    flip,
    flip_each,
    has,
    insert_if_new,
    known_number,
    whole_population,
)
from evoem.streams import next_below, next_float

# Draws that hit a parent already chosen before the rest is drawn from the others alone.
REJECTIONS = 8
# Guided mutation: shares of activated and of dropped latents, and how many of the best there are to
# choose from for each child.
ADDED = 0.5
DROPPED = 0.25
CANDIDATES = 2


class Evolution(NamedTuple):
    """How children are bred (subsec:evolutionary_optimization).

    Parameters
    ----------
    n_parents : int, default=6
        N_p, the parents that each row selects among its states.
    n_children : int, default=5
        N_m, the mutations of each parent; ignored with crossover.
    n_generations : int, default=2
        N_g, generations per E-step.
    parents : str, default="fit"
        How parents are selected: by fitness ("fit"), uniformly ("random"), or the "best".
    mutation : str, default="uniform"
        Which bits are flipped: one chosen uniformly ("uniform"), some so that children are as
        sparse as the prior ("sparse"), or one that the model finds promising ("guided").
    crossover : bool, default=False
        Whether all pairs of parents are crossed before mutation.

    Examples
    --------
    >>> from evoem import em
    >>> em.Evolution(n_parents=4, n_children=3).n_bred
    24
    >>> em.Evolution(n_parents=4, crossover=True, mutation="sparse").children_per_generation
    12
    """

    n_parents: int = 6
    n_children: int = 5
    n_generations: int = 2
    parents: str = "fit"
    mutation: str = "uniform"
    crossover: bool = False
    # Whether children that exist already may be parents of the next generation too (alg:eem).
    known_children: bool = False

    @property
    def children_per_generation(self) -> int:
        """N_c: N_p (N_p - 1) with crossover, N_p N_m without."""
        each = self.n_parents - 1 if self.crossover else self.n_children
        return self.n_parents * each

    @property
    def n_bred(self) -> int:
        """Children of all generations."""
        return self.n_generations * self.children_per_generation


class Breeding(NamedTuple):
    """What operators can use besides the population."""

    n_latents: int
    streams: NDArray[np.uint64]  # one random stream per row, advanced by every draw
    log_constants: NDArray[np.float64]  # C(Θ) of each row, which the fitness leaves out
    expected_active: float  # s̃ of app:eem_sparseflips: Σ_h π_h
    flip_gains: Callable[[Genomes], NDArray[np.float64]]  # (n_rows, n_states, n_latents)
    best_additions: Callable[[Genomes, int], NDArray[np.int32]]  # see `Model.best_additions`


# ---------------------------------------------------------------------------- parent selection


@inlined
def _fitness_sums(log_joints, r, start, stop, constant, sums):
    """Cumulative fitness: lpj + |2 min lpj| (eq:eem_fitness), zero for impossible states."""
    least = np.inf
    for m in range(start, stop):
        if log_joints[r, m] > -np.inf and log_joints[r, m] < least:
            least = log_joints[r, m]
    offset = abs(2.0 * (least - constant)) - constant
    total = 0.0
    for m in range(start, stop):
        if log_joints[r, m] > -np.inf:
            total += max(log_joints[r, m] + offset, 0.0)
        sums[m - start] = total
    return total


@inlined
def _draw_from(sums, n, total, taken, log_joints, start, streams, r):
    """Draw an index that is not taken yet, by fitness.

    If none of them has any fitness it is drawn uniformly, from possible states while there are any.
    """
    if total > 0.0:
        for _ in range(REJECTIONS):
            u = next_float(streams, r) * total
            low, high = 0, n - 1
            while low < high:
                middle = (low + high) >> 1
                if sums[middle] > u:
                    high = middle
                else:
                    low = middle + 1
            if not taken[low]:
                return low
    # Draws that were rejected leave the distribution over the others as it is.
    rest = 0.0
    possible, left = 0, 0
    for m in range(n):
        if not taken[m]:
            left += 1
            possible += log_joints[r, start + m] > -np.inf
            rest += sums[m] - (sums[m - 1] if m > 0 else 0.0)
    u = next_float(streams, r) * (rest if rest > 0.0 else possible if possible > 0 else left)
    last = -1
    for m in range(n):
        if not taken[m]:
            weight = 1.0
            if rest > 0.0:
                weight = sums[m] - (sums[m - 1] if m > 0 else 0.0)
            elif possible > 0 and log_joints[r, start + m] == -np.inf:
                weight = 0.0
            if weight > 0.0:
                last = m
                u -= weight
                if u < 0.0:
                    return m
    return last


@kernel
def _select_by_fitness(states, log_joints, starts, stops, constants, streams, out, counts):
    sums = np.empty(states.shape[1])
    taken = np.empty(states.shape[1], np.bool_)
    for r in range(states.shape[0]):
        n = stops[r] - starts[r]
        counts[r] = min(n, out.shape[1])
        if counts[r] == n:  # without replacement: every state is a parent once
            for p in range(n):
                copy(states, r, starts[r] + p, out, r, p)
            continue
        taken[:n] = False
        total = _fitness_sums(log_joints, r, starts[r], stops[r], constants[r], sums)
        for p in range(counts[r]):
            chosen = _draw_from(sums, n, total, taken, log_joints, starts[r], streams, r)
            taken[chosen] = True
            copy(states, r, starts[r] + chosen, out, r, p)


@kernel
def _select_uniformly(states, starts, stops, streams, out, counts):
    order = np.empty(states.shape[1], np.int64)
    for r in range(states.shape[0]):
        n = stops[r] - starts[r]
        counts[r] = min(n, out.shape[1])
        for m in range(n):
            order[m] = starts[r] + m
        for p in range(counts[r]):  # the first steps of a Fisher-Yates shuffle
            other = p + next_below(streams, r, n - p)
            order[p], order[other] = order[other], order[p]
            copy(states, r, order[p], out, r, p)


@kernel
def _select_best(states, log_joints, starts, stops, out, counts):
    values = np.empty(states.shape[1])
    for r in range(states.shape[0]):
        n = stops[r] - starts[r]
        counts[r] = min(n, out.shape[1])
        if counts[r] == 0:
            continue
        for m in range(n):
            values[m] = log_joints[r, starts[r] + m]
        least = kth_largest(values, n, counts[r])
        p, ties = 0, counts[r]
        for m in range(starts[r], stops[r]):
            ties -= log_joints[r, m] > least
        for m in range(starts[r], stops[r]):
            if p < counts[r] and (
                log_joints[r, m] > least or (log_joints[r, m] == least and ties > 0)
            ):
                ties -= log_joints[r, m] == least
                copy(states, r, m, out, r, p)
                p += 1
        counts[r] = p  # fewer only if some are no numbers, which `posterior.keep_best` refuses


def _empty_genomes(n_rows: int, capacity: int, n_words: int) -> Genomes:
    return Genomes(np.empty((n_rows, capacity, n_words), np.uint64), np.zeros(n_rows, np.int64))


def _room_for_children(parents: Genomes, n_each: int) -> Genomes:
    n_rows, _, n_words = parents.states.shape
    return _empty_genomes(n_rows, int(parents.counts.max()) * int(n_each), n_words)


def select_by_fitness(population: Population, n_parents: int, breeding: Breeding) -> Genomes:
    """Parents drawn without replacement with probability proportional to fitness ("fitparents")."""
    states, _, starts, stops = population
    if not starts.any() and stops.max() <= n_parents:  # every state is a parent once, as it stands
        return Genomes(states, stops)
    out = _empty_genomes(len(states), n_parents, states.shape[2])
    _select_by_fitness(*population, breeding.log_constants, breeding.streams, *out)
    return out


def select_uniformly(population: Population, n_parents: int, breeding: Breeding) -> Genomes:
    """Parents drawn uniformly without replacement ("randparents")."""
    states, _, starts, stops = population
    out = _empty_genomes(len(states), n_parents, states.shape[2])
    _select_uniformly(states, starts, stops, breeding.streams, *out)
    return out


def select_best(population: Population, n_parents: int, breeding: Breeding) -> Genomes:
    """The best states, the first of equals."""
    states = population.states
    out = _empty_genomes(len(states), n_parents, states.shape[2])
    _select_best(*population, *out)
    return out


# ----------------------------------------------------------------------------------- crossover


@kernel
def _cross_all_pairs(parents, n_parents, n_latents, streams, out, counts):
    for r in range(parents.shape[0]):
        c = ZERO
        for i in range(n_parents[r]):
            for j in range(i):
                cut = 1 + next_below(streams, r, n_latents - 1)  # the first `cut` bits stay
                for w in range(parents.shape[2]):
                    kept = min(max(cut - 64 * w, 0), 64)
                    low = ~np.uint64(0)
                    if kept < 64:
                        low = (ONE << np.uint64(kept)) - ONE
                    a, b = parents[r, i, w], parents[r, j, w]
                    out[r, c, w] = (a & low) | (b & ~low)
                    out[r, c + 1, w] = (b & low) | (a & ~low)
                c += 2
        counts[r] = c


def cross_all_pairs(parents: Genomes, breeding: Breeding) -> Genomes:
    """Single-point crossover of every pair of parents: N_p (N_p - 1) children."""
    out = _room_for_children(parents, parents.counts.max() - 1)
    _cross_all_pairs(*parents, breeding.n_latents, breeding.streams, *out)
    return out


# ------------------------------------------------------------------------------------ mutation


@kernel
def _flip_uniformly(parents, n_parents, n_children, n_latents, streams, out, counts):
    flipped = np.empty((1, 1, parents.shape[2]), np.uint64)
    for r in range(parents.shape[0]):
        c = ZERO
        for p in range(n_parents[r]):
            clear(flipped, ZERO, ZERO)
            for last in range(n_latents - n_children, n_latents):
                # Floyd's algorithm: every set of n_children different bits is equally likely.
                h = next_below(streams, r, last + 1)
                if has(flipped, ZERO, ZERO, h):
                    h = last
                flip(flipped, ZERO, ZERO, h)
                copy(parents, r, p, out, r, c)
                flip(out, r, c, h)
                c += 1
        counts[r] = c


def flip_uniformly(parents: Genomes, n_children: int, breeding: Breeding) -> Genomes:
    """Flip one uniformly chosen bit; the children of one parent differ ("randflips")."""
    out = _room_for_children(parents, n_children)
    _flip_uniformly(*parents, n_children, breeding.n_latents, breeding.streams, *out)
    return out


@inlined
def sparse_flip_probabilities(n_active, n_latents, expected_active):
    """p_0 and p_1 of app:eem_sparseflips with p_bf = 1/H, in [0, 1].

    The two conditions behind the printed formula, p_0 (H-|s|) + p_1 |s| = H p_bf = 1 flips and
    p_0 (H-|s|) - p_1 |s| = s̃ - |s| on average, solved without the ratio α, which has no value for
    |s| = 0. Where they ask for a negative probability it is zero.
    """
    surplus = expected_active - n_active
    p0 = (1.0 + surplus) / (2.0 * (n_latents - n_active)) if n_active < n_latents else 0.0
    p1 = (1.0 - surplus) / (2.0 * n_active) if n_active > 0 else 0.0
    return min(max(p0, 0.0), 1.0), min(max(p1, 0.0), 1.0)


@kernel
def _flip_sparsely(
    parents, n_parents, n_children, n_latents, expected_active, streams, out, counts
):
    active = np.empty(n_latents + 1, np.int64)
    flipped = np.empty((1, 1, parents.shape[2]), np.uint64)
    for r in range(parents.shape[0]):
        c = ZERO
        for p in range(n_parents[r]):
            k = active_latents(parents, r, p, active)
            p0, p1 = sparse_flip_probabilities(k, n_latents, expected_active)
            for _ in range(n_children):
                clear(flipped, ZERO, ZERO)
                flip_each(flipped, ZERO, ZERO, n_latents, p0, streams, r)
                for w in range(parents.shape[2]):  # p_0 is for the inactive bits only
                    out[r, c, w] = parents[r, p, w] | flipped[0, 0, w]
                for i in range(k):
                    if next_float(streams, r) < p1:
                        flip(out, r, c, active[i])
                c += 1
        counts[r] = c


def flip_sparsely(parents: Genomes, n_children: int, breeding: Breeding) -> Genomes:
    """Flip each bit with a probability that leads back to the mean activity of the prior."""
    out = _room_for_children(parents, n_children)
    _flip_sparsely(
        *parents,
        n_children,
        breeding.n_latents,
        breeding.expected_active,
        breeding.streams,
        *out,
    )
    return out


@kernel
def _flip_guided(parents, n_parents, n_children, n_latents, ranks, streams, out, counts):
    active = np.empty(n_latents + 1, np.int64)
    best = np.empty(ranks.shape[2], np.int64)
    for r in range(parents.shape[0]):
        c = ZERO
        for p in range(n_parents[r]):
            k = active_latents(parents, r, p, active)
            left = 0
            while left < len(best) and ranks[r, p, left] != NONE:
                best[left] = ranks[r, p, left]
                left += 1
            for _ in range(n_children):
                copy(parents, r, p, out, r, c)
                kind = next_float(streams, r)
                if kind < ADDED and left > 0:
                    chosen = next_below(streams, r, left)
                    flip(out, r, c, best[chosen])
                    left -= 1
                    best[chosen] = best[left]
                elif kind < ADDED + DROPPED and k > 0:
                    flip(out, r, c, active[next_below(streams, r, k)])
                else:
                    flip(out, r, c, next_below(streams, r, n_latents))
                c += 1
        counts[r] = c


def flip_guided(parents: Genomes, n_children: int, breeding: Breeding) -> Genomes:
    """Flip one bit; half of the flips activate a latent that the model finds promising.

    It is drawn from the best few, so that generations differ. A quarter of the flips drops an
    active latent, and a quarter is uniform, to explore what the model does not suggest.
    """
    out = _room_for_children(parents, n_children)
    states = np.ascontiguousarray(parents.states[:, : parents.counts.max()])
    parents = Genomes(states, parents.counts)  # models are asked about no others
    ranks = breeding.best_additions(parents, min(CANDIDATES * n_children, breeding.n_latents))
    _flip_guided(*parents, n_children, breeding.n_latents, ranks, breeding.streams, *out)
    return out


# ----------------------------------------------------------------------------------- the table

Operators = dict[str, dict[str, Callable[..., Genomes]]]

OPERATORS: Operators = {
    # (population, n_parents, breeding) -> parents
    "parents": {"fit": select_by_fitness, "random": select_uniformly, "best": select_best},
    # (parents, breeding) -> children
    "crossover": {"all_pairs": cross_all_pairs},
    # (parents, n_children, breeding) -> children
    "mutation": {"uniform": flip_uniformly, "sparse": flip_sparsely, "guided": flip_guided},
}


def evolution_for(
    *,
    n_latents: int,
    n_states: int,
    n_parents: Any,
    n_children: Any,
    n_generations: Any,
    parents: Any,
    mutation: Any,
    crossover: Any,
    known_children: bool = False,
) -> Evolution:
    """Settings of the evolutionary algorithm; None takes the default that fits."""
    crossover = validation.boolean("crossover", crossover)
    if crossover and n_states < 2:
        raise ValueError(f"crossover=True needs n_states of at least 2; got {n_states}.")
    if n_parents is None:
        n_parents = min(6, n_states)
    if n_children is None:
        n_children = min(5, n_latents)
    validation.integer("n_parents", n_parents, 1, n_states, " (n_states)")
    settings = Evolution(
        n_parents, n_children, n_generations, parents, mutation, crossover, known_children
    )
    return checked(settings, n_latents)


def checked(evolution: Evolution, n_latents: int) -> Evolution:
    """Settings of the evolutionary algorithm, refused if they cannot be carried out."""
    crossover = validation.boolean("crossover", evolution.crossover)
    least, most = 2 if crossover else 1, int(n_latents)
    n_parents = validation.integer("n_parents", evolution.n_parents, least)
    n_children = validation.integer("n_children", evolution.n_children, 1, most, " (n_latents)")
    n_generations = validation.integer("n_generations", evolution.n_generations, 1)
    validation.choice("parents", evolution.parents, OPERATORS["parents"])
    validation.choice("mutation", evolution.mutation, OPERATORS["mutation"])
    if crossover and n_latents < 2:
        raise ValueError(f"crossover=True needs n_latents of at least 2; got {n_latents}.")
    return evolution._replace(
        n_parents=n_parents,
        n_children=n_children,
        n_generations=n_generations,
        crossover=crossover,
        known_children=validation.boolean("known_children", evolution.known_children),
    )


def breed(population: Population, evolution: Evolution, breeding: Breeding) -> Genomes:
    """One generation of Algorithm 1: mutation(crossover(selection(population)))."""
    select = OPERATORS["parents"][evolution.parents]
    mutate = OPERATORS["mutation"][evolution.mutation]
    parents = select(population, evolution.n_parents, breeding)
    if not parents.counts.any():  # no row has a state left that it has not seen
        return parents
    if evolution.crossover:
        return mutate(OPERATORS["crossover"]["all_pairs"](parents, breeding), 1, breeding)
    return mutate(parents, evolution.n_children, breeding)


# ------------------------------------------------------------------- the set of distinct states


@kernel
def _admit(kept, children, counts, first, bred, tables, sizes):
    """Copy the children that are new; the first ones come with the kept states.

    Returns whether these are all different.
    """
    n_kept = kept.shape[1]
    for r in range(children.shape[0]):
        if first:
            for m in range(n_kept):
                if not insert_if_new(kept, r, m, kept, bred, m, tables):
                    return False
        size = sizes[r]
        for c in range(counts[r]):
            if insert_if_new(children, r, c, kept, bred, n_kept + size, tables):
                copy(children, r, c, bred, r, size)
                size += 1
        sizes[r] = size
    return True


@kernel
def _all_children(
    children, counts, kept, kept_log_joints, bred, bred_log_joints, tables, log_joints
):
    """Gather the distinct children of each row with their log-joints, all of which are known."""
    n_kept = kept.shape[1]
    listed = np.empty(n_kept + bred.shape[1], np.bool_)
    for r in range(children.shape[0]):
        listed[:] = False
        n = 0
        for c in range(counts[r]):
            number = known_number(children, r, c, kept, bred, ZERO, tables)
            if listed[number]:
                continue
            listed[number] = True
            copy(children, r, c, children, r, n)
            if number < n_kept:
                log_joints[r, n] = kept_log_joints[r, number]
            else:
                log_joints[r, n] = bred_log_joints[r, number - n_kept]
            n += 1
        counts[r] = n


class Pool:
    """All distinct states of a block of rows in one E-step: the kept ones, then their children.

    Kept states are not copied, to keep the memory of a chunk of rows small.
    """

    def __init__(self, kept: States, n_bred: int) -> None:
        n_rows, n_states, n_words = kept.shape
        self.kept = whole_population(kept, np.empty((n_rows, n_states)))
        self.states = np.empty((n_rows, n_bred, n_words), np.uint64)
        self.log_joints = np.empty((n_rows, n_bred))
        self.sizes = np.zeros(n_rows, np.int64)
        self._tables = empty_tables(n_rows, n_states + n_bred)
        self._first = True

    def admit(self, children: Genomes) -> Population:
        """Add the children that are new; they are the next population."""
        starts = self.sizes.copy()
        kept = self.kept.states
        if not _admit(kept, *children, self._first, self.states, self._tables, self.sizes):
            raise ValueError("states must differ within each row; got some twice.")
        self._first = False
        return Population(self.states, self.log_joints, starts, self.sizes.copy())

    def all_of(self, children: Genomes) -> Population:
        """Children that were admitted, whether or not they were new then, each once.

        Their arrays are overwritten. The log-joints of those that were new must be known by now.
        """
        states, counts = children
        log_joints = np.empty(states.shape[:2])
        _all_children(
            states, counts, *self.kept[:2], self.states, self.log_joints, self._tables, log_joints
        )
        return Population(states, log_joints, np.zeros(len(states), np.int64), counts)
