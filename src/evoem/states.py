"""Latent states as packed bits: `(…, n_words)` arrays of 64-bit words, latent h is bit h % 64.

A bit per latent holds any state, dense or sparse, in a fixed place; kernels that want the active
latents list them with `active_latents`.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evoem.runtime.compile import ZERO, inlined, kernel
from evoem.streams import next_below, next_float, next_word

States = NDArray[np.uint64]

ONE = np.uint64(1)
NEW = np.int64(-1)  # the number of a state that was not known
LOW6 = np.uint64(63)
# Multiplying a lone bit by this de Bruijn sequence puts its position into the top six bits.
DE_BRUIJN = np.uint64(0x03F79D71B4CB0A89)
_POSITIONS = np.zeros(64, np.int64)
for _bit in range(64):
    _POSITIONS[(((1 << _bit) * 0x03F79D71B4CB0A89) & 0xFFFFFFFFFFFFFFFF) >> 58] = _bit

_MULTIPLIERS = np.random.default_rng(0).integers(0, 2**63, 64, np.uint64) * np.uint64(2) + ONE

# More than this many rejected draws in a row: the sparse corner of the state space is used up.
PATIENCE = 32


class Population(NamedTuple):
    """States of a block of rows: those of row r are `states[r, starts[r]:stops[r]]`."""

    states: States  # (n_rows, capacity, n_words)
    log_joints: NDArray[np.float64]  # (n_rows, capacity)
    starts: NDArray[np.int64]
    stops: NDArray[np.int64]


def whole_population(states: States, log_joints: NDArray[np.float64]) -> Population:
    """All states of each row, whose log-joints are to be filled in."""
    n_rows, n_states, _ = states.shape
    starts, stops = np.zeros(n_rows, np.int64), np.full(n_rows, n_states)
    return Population(states, log_joints, starts, stops)


class Genomes(NamedTuple):
    """Parents or children of a block of rows, not yet evaluated: `states[r, :counts[r]]`."""

    states: States
    counts: NDArray[np.int64]


def n_words(n_latents: int) -> int:
    """64-bit words a state takes."""
    return (n_latents + 63) // 64


# Helpers of kernels take a whole array and the place of a state in it: a view of one state would
# cost more than most of them do (its reference is counted, atomically).


@inlined
def active_latents(states, r, m, out):
    """Write the active latents of `states[r, m]` to `out`, ascending; returns their number.

    `out` needs room for one more than there can be: the first bit of each word is written before it
    is known whether there is one, since a branch on that could not be predicted.
    """
    k = 0
    for i in range(states.shape[2]):
        word = states[r, m, i]
        lone = word & (~word + ONE)
        out[k] = i * 64 + _POSITIONS[(lone * DE_BRUIJN) >> np.uint64(58)]
        k += word != np.uint64(0)
        word ^= lone
        while word != np.uint64(0):
            lone = word & (~word + ONE)
            out[k] = i * 64 + _POSITIONS[(lone * DE_BRUIJN) >> np.uint64(58)]
            k += 1
            word ^= lone
    return k


@inlined
def has(states, r, m, h):
    """Whether latent h is active in `states[r, m]`."""
    return (states[r, m, h >> 6] >> (np.uint64(h) & LOW6)) & ONE != np.uint64(0)


@inlined
def flip(states, r, m, h):
    """Flip latent h of `states[r, m]`."""
    states[r, m, h >> 6] ^= ONE << (np.uint64(h) & LOW6)


@inlined
def copy(source, r, m, target, s, n):
    """Copy the state `source[r, m]` to `target[s, n]`."""
    for i in range(source.shape[2]):
        target[s, n, i] = source[r, m, i]


@inlined
def clear(states, r, m):
    """Make every latent of `states[r, m]` inactive."""
    for i in range(states.shape[2]):
        states[r, m, i] = np.uint64(0)


@inlined
def hash_of(states, r, m):
    """The hash of `states[r, m]`, best in the upper half.

    A sum of products, which run in parallel, mixed once.
    """
    value = np.uint64(0)
    for i in range(states.shape[2]):
        value += states[r, m, i] * _MULTIPLIERS[i & 63]
    return (value ^ (value >> np.uint64(32))) * _MULTIPLIERS[0]


@inlined
def equal(states, r, m, others, n):
    """Whether `states[r, m]` and `others[r, n]` are the same."""
    for i in range(states.shape[2]):
        if states[r, m, i] != others[r, n, i]:
            return False
    return True


@kernel
def _pack(dense, out):
    for m in range(dense.shape[0]):
        for h in range(dense.shape[1]):
            if dense[m, h]:
                flip(out, ZERO, m, h)


@kernel
def _unpack(packed, out):
    for m in range(out.shape[0]):
        for h in range(out.shape[1]):
            out[m, h] = has(packed, ZERO, m, h)


def pack(dense: NDArray[np.bool_]) -> States:
    """Packed form of boolean states.

    Parameters
    ----------
    dense : bool array of shape (…, n_latents)

    Returns
    -------
    packed : uint64 array of shape (…, n_words)
        Latent h is bit h % 64 of word h // 64.

    Examples
    --------
    >>> import numpy as np
    >>> from evoem.states import pack
    >>> pack(np.array([[True, False, True]])).tolist()
    [[5]]
    """
    dense = np.ascontiguousarray(dense, np.bool_)
    n_latents = dense.shape[-1]
    out = np.zeros((*dense.shape[:-1], n_words(n_latents)), np.uint64)
    _pack(dense.reshape(-1, n_latents), out.reshape(1, -1, out.shape[-1]))
    return out


def unpack(packed: States, n_latents: int) -> NDArray[np.bool_]:
    """Boolean states of packed ones.

    Parameters
    ----------
    packed : uint64 array of shape (…, n_words)
    n_latents : int

    Returns
    -------
    dense : bool array of shape (…, n_latents)

    Examples
    --------
    >>> import numpy as np
    >>> from evoem.states import unpack
    >>> unpack(np.array([[5]], np.uint64), 3).tolist()
    [[True, False, True]]
    """
    packed = np.ascontiguousarray(packed)
    out = np.empty((*packed.shape[:-1], n_latents), np.bool_)
    _unpack(packed.reshape(1, -1, packed.shape[-1]), out.reshape(-1, n_latents))
    return out


@kernel
def add_weighted(states, weights, out):
    """Add the weighted states of each row to its `out` (n_rows, n_latents)."""
    active = np.empty(out.shape[1] + 1, np.int64)
    for r in range(states.shape[0]):
        for m in range(states.shape[1]):
            for i in range(active_latents(states, r, m, active)):
                out[r, active[i]] += weights[r, m]


def enumerate_all(n_latents: int) -> States:
    """All 2**n_latents states, packed."""
    return np.arange(2**n_latents, dtype=np.uint64)[:, None]


def empty_tables(n_rows: int, capacity: int) -> NDArray[np.unsignedinteger]:
    """Hash tables for `capacity` states of each row: a power of two slots, at most two thirds full.

    They are small, since those of all rows that are worked on together are to stay in the cache.
    """
    slots = 1 << (3 * capacity // 2).bit_length()
    return np.zeros((n_rows, slots), np.uint32 if capacity < 2**16 else np.uint64)


@inlined
def known_number(states, r, m, kept, bred, number, tables):
    """The number of `states[r, m]` in the set of row r; NEW if it is taken in as this `number`.

    States are numbered through `kept[r]`, then `bred[r]`. The lower half of a slot of `tables[r]`
    is a number plus one, zero if the slot is free; the upper half is a part of the hash. Where that
    is equal the states themselves are compared.
    """
    value = hash_of(states, r, m)
    half = np.uint64(4 * tables.itemsize)
    last = np.uint64(tables.shape[1] - 1)
    slot = (value >> np.uint64(32)) & last
    part = value >> (np.uint64(64) - half)
    n_kept = kept.shape[1]
    while tables[r, slot] != 0:
        entry = np.uint64(tables[r, slot])
        if entry >> half == part:
            known = np.int64(entry & ((ONE << half) - ONE)) - 1
            if known < n_kept:
                if equal(states, r, m, kept, known):
                    return known
            elif equal(states, r, m, bred, known - n_kept):
                return known
        slot = (slot + ONE) & last
    tables[r, slot] = (part << half) | np.uint64(number + 1)
    return NEW


@inlined
def insert_if_new(states, r, m, kept, bred, number, tables):
    """Take `states[r, m]` as this `number` into the set of row r, unless it is known."""
    return known_number(states, r, m, kept, bred, number, tables) == NEW


@inlined
def flip_each(states, r, m, n_latents, probability, streams, row):
    """Flip each latent independently with a small probability, at the cost of the flips alone."""
    if probability <= 0.0:
        return
    if probability >= 1.0:
        for h in range(n_latents):
            flip(states, r, m, h)
        return
    scale = 1.0 / np.log1p(-probability)
    h = np.log1p(-next_float(streams, row)) * scale  # skipped latents follow a geometric law
    while h < n_latents:
        flip(states, r, m, np.int64(h))
        h = np.floor(h) + 1.0 + np.floor(np.log1p(-next_float(streams, row)) * scale)


@kernel
def _draw_distinct(n_latents, tables, streams, out):
    nothing = np.empty((1, 0, out.shape[2]), np.uint64)
    drawn = np.empty((1, *out.shape[1:]), np.uint64)
    for n in range(out.shape[0]):
        tables[:] = 0
        for m in range(out.shape[1]):
            rejected = 0
            new = False
            while not new:
                if rejected <= 2 * PATIENCE:
                    clear(drawn, ZERO, m)
                if rejected < PATIENCE:
                    flip_each(
                        drawn, ZERO, m, n_latents, 1.0 / n_latents, streams, n
                    )  # subsec:verification
                elif rejected <= 2 * PATIENCE:
                    for h in range(n_latents):
                        if next_word(streams, n) & ONE:
                            flip(drawn, ZERO, m, h)
                else:  # nearly all states are taken: walk on until a free one is met
                    flip(drawn, ZERO, m, next_below(streams, n, n_latents))
                new = insert_if_new(drawn, ZERO, m, nothing, drawn, m, tables)
                rejected += 1
            copy(drawn, ZERO, m, out, n, m)


def draw_distinct(n_latents: int, n_states: int, streams: NDArray[np.uint64], out: States) -> None:
    """For each stream, fill `out` with distinct states whose bits are active with probability 1/H.

    All 2**n_latents states, in order, if that many are asked for.
    """
    if n_latents < 63 and n_states == 2**n_latents:
        out[:] = enumerate_all(n_latents)
    else:
        _draw_distinct(n_latents, empty_tables(1, n_states), streams, out)
