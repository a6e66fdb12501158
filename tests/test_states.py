"""Packed states against plain boolean arrays, first states by their distribution, the hash set."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from evoem import states, streams
from evoem.runtime.compile import kernel

IMPROBABLE = 1e-4
repeatable = settings(deadline=None, derandomize=True, max_examples=60)

boolean_states = st.tuples(st.integers(1, 6), st.integers(1, 200)).flatmap(
    lambda shape: arrays(np.bool_, shape)
)


def start(n_rows, seed=0):
    return streams.start(seed, 0, np.arange(n_rows, dtype=np.uint64))


def draw(n_latents, n_states, row_streams):
    out = np.empty((len(row_streams), n_states, states.n_words(n_latents)), np.uint64)
    states.draw_distinct(n_latents, n_states, row_streams, out)
    return out


def n_distinct(row):
    return len(np.unique(row, axis=0))


# ------------------------------------------------------------------------------------- packing


@repeatable
@given(boolean_states)
def test_unpacking_undoes_packing(dense):
    packed = states.pack(dense)
    assert packed.shape == (len(dense), -(-dense.shape[1] // 64))
    np.testing.assert_array_equal(states.unpack(packed, dense.shape[1]), dense)


@repeatable
@given(boolean_states)
def test_latent_h_is_bit_h(dense):
    as_integers = [sum(1 << h for h in np.flatnonzero(row).tolist()) for row in dense]
    packed = states.pack(dense)
    assert [sum(int(w) << (64 * i) for i, w in enumerate(row)) for row in packed] == as_integers


def test_packing_keeps_leading_dimensions_and_takes_any_layout():
    dense = np.asfortranarray(np.random.default_rng(0).random((3, 4, 70)) < 0.4)
    packed = states.pack(dense)
    assert packed.shape == (3, 4, 2)
    np.testing.assert_array_equal(states.unpack(packed[:, ::2], 70), dense[:, ::2])


def test_every_state_is_enumerated_once_and_in_order():
    dense = states.unpack(states.enumerate_all(5), 5)
    assert [sum(1 << h for h in np.flatnonzero(s)) for s in dense] == list(range(32))


@kernel
def _list_active(packed, out, counts):
    for m in range(packed.shape[1]):
        counts[m] = states.active_latents(packed, 0, m, out[m])


@pytest.mark.interpreted
@repeatable
@given(boolean_states)
def test_active_latents_are_listed_in_order(dense):
    out = np.empty((len(dense), dense.shape[1] + 1), np.int64)
    counts = np.empty(len(dense), np.int64)
    _list_active(states.pack(dense)[None], out, counts)
    for row, listed, count in zip(dense, out, counts, strict=True):
        np.testing.assert_array_equal(listed[:count], np.flatnonzero(row))


@kernel
def _flip_latents(packed, latents):
    for h in latents:
        states.flip(packed, 0, 0, h)


@repeatable
@given(boolean_states, st.data())
def test_flipping_changes_the_latents_named_and_no_other(dense, data):
    n_latents = dense.shape[1]
    latents = data.draw(st.sets(st.integers(0, n_latents - 1), min_size=1))
    packed = states.pack(dense)[None, :1].copy()
    _flip_latents(packed, np.array(sorted(latents)))
    changed = states.unpack(packed[0, 0], n_latents) ^ dense[0]
    assert set(np.flatnonzero(changed).tolist()) == latents


# -------------------------------------------------------------------------------- first states


@pytest.mark.parametrize(
    ("n_latents", "n_states"),
    [(1, 1), (2, 3), (3, 7), (5, 31), (8, 255), (8, 100), (64, 300), (65, 300), (200, 300)],
)
def test_first_states_of_a_row_are_distinct_and_use_no_bit_past_the_last_latent(
    n_latents, n_states
):
    drawn = draw(n_latents, n_states, start(20))
    assert [n_distinct(row) for row in drawn] == [n_states] * 20
    np.testing.assert_array_equal(states.pack(states.unpack(drawn, n_latents)), drawn)


@pytest.mark.parametrize("n_latents", [1, 2, 5, 8])
def test_as_many_first_states_as_there_are_come_in_order(n_latents):
    drawn = draw(n_latents, 2**n_latents, start(3))
    assert drawn[..., 0].tolist() == [list(range(2**n_latents))] * 3


def test_first_states_of_a_row_depend_on_its_stream_alone():
    order = np.random.default_rng(0).permutation(50)
    np.testing.assert_array_equal(draw(70, 9, start(50)[order]), draw(70, 9, start(50))[order])


def bernoulli_product(probability, n_latents):
    """Probability of each state, in the order of `enumerate_all`."""
    bits = states.unpack(states.enumerate_all(n_latents), n_latents)
    return np.where(bits, probability, 1.0 - probability).prod(1)


def assert_counts_follow(counts, expected):
    """By chi-square, with all that is rare taken together."""
    rare = expected < 5
    if rare.any():
        counts = np.append(counts[~rare], counts[rare].sum())
        expected = np.append(expected[~rare], expected[rare].sum())
    assert stats.chisquare(counts, expected).pvalue > IMPROBABLE


@pytest.mark.parametrize("n_latents", [2, 3, 5])
def test_bits_of_a_single_first_state_are_independent_and_active_one_time_in_h(n_latents):
    n_rows = 20_000
    drawn = draw(n_latents, 1, start(n_rows)).ravel().astype(int)
    counts = np.bincount(drawn, minlength=2**n_latents)
    expected = n_rows * bernoulli_product(1.0 / n_latents, n_latents)
    assert_counts_follow(counts, expected)


@pytest.mark.parametrize("n_latents", [64, 130])
def test_every_bit_of_a_single_first_state_is_active_one_time_in_h(n_latents):
    n_rows = 20_000
    counts = states.unpack(draw(n_latents, 1, start(n_rows)), n_latents).sum((0, 1))
    p = 1.0 / n_latents
    chi_square = ((counts - n_rows * p) ** 2 / (n_rows * p * (1 - p))).sum()
    assert stats.chi2.sf(chi_square, n_latents) > IMPROBABLE


def test_further_first_states_follow_the_same_law_among_those_not_drawn():
    n_rows = 20_000
    p = bernoulli_product(1.0 / 3, 3)
    pairs = {(a, b): p[a] * p[b] / (1 - p[a]) for a, b in product(range(8), repeat=2) if a != b}
    first, second = draw(3, 2, start(n_rows))[..., 0].astype(int).T
    counts = [np.sum((first == a) & (second == b)) for a, b in pairs]
    assert stats.chisquare(counts, n_rows * np.array(list(pairs.values()))).pvalue > IMPROBABLE


@kernel
def _flip_each(packed, n_latents, probability, row_streams):
    for r in range(packed.shape[0]):
        states.flip_each(packed, r, 0, n_latents, probability, row_streams, r)


@pytest.mark.parametrize("probability", [-0.1, 0.0, 1.0, 1.5])
def test_flipping_each_bit_never_or_always(probability):
    packed = states.pack(np.arange(70)[None, None] % 3 == 0)
    flipped = packed.copy()
    _flip_each(flipped, 70, probability, start(1))
    changed = states.unpack(flipped ^ packed, 70)
    assert changed.all() if probability >= 1 else not changed.any()


@pytest.mark.parametrize("probability", [0.05, 0.5, 0.9])
def test_each_bit_is_flipped_independently(probability):
    n_rows = 20_000
    packed = np.full((n_rows, 1, 1), 0b0101, np.uint64)
    _flip_each(packed, 4, probability, start(n_rows))
    counts = np.bincount(packed.ravel().astype(int) ^ 0b0101, minlength=16)
    expected = n_rows * bernoulli_product(probability, 4)
    assert_counts_follow(counts, expected)


# -------------------------------------------------------------------------------- the hash set


@kernel
def _insert_all(candidates, n_kept, tables, kept, bred):
    size = 0
    for m in range(candidates.shape[1]):
        if states.insert_if_new(candidates, 0, m, kept, bred, size, tables):
            if size < n_kept:
                states.copy(candidates, 0, m, kept, 0, size)
            else:
                states.copy(candidates, 0, m, bred, 0, size - n_kept)
            size += 1
    return size


@kernel
def _hash_all(packed, out):
    for m in range(packed.shape[1]):
        out[m] = states.hash_of(packed, 0, m)


def insert_all(candidates, n_kept=0):
    """Different states in the order of arrival, the first `n_kept` in another array; the table."""
    _, capacity, width = candidates.shape
    kept, bred = np.empty((1, n_kept, width), np.uint64), np.empty_like(candidates)
    tables = states.empty_tables(1, capacity)
    size = _insert_all(candidates, n_kept, tables, kept, bred)
    found = np.concatenate([kept[0], bred[0]])[:size]
    return list(map(tuple, found.tolist())), tables[0]


def hash_all(packed):
    values = np.empty(packed.shape[1], np.uint64)
    _hash_all(packed, values)
    return values


def without_repeats(rows):
    return list(dict.fromkeys(map(tuple, rows.tolist())))


few_different_states = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=40
).map(lambda rows: np.array(rows, np.uint64)[None])


@pytest.mark.interpreted
@repeatable
@given(few_different_states, st.integers(0, 5))
def test_the_set_holds_each_state_once_in_the_order_of_arrival(candidates, n_kept):
    found, _ = insert_all(candidates, n_kept)
    assert found == without_repeats(candidates[0])


def same_hash():
    """More words than there are multipliers: a word moved by so many places has the same hash."""
    words = np.zeros((1, 6, 192), np.uint64)
    words[0, [0, 3], 5] = 7
    words[0, [1, 4], 5 + 64] = 7
    words[0, [2, 5], 5 + 128] = 7
    return words


@pytest.mark.parametrize("n_kept", [0, 1, 2, 3])
def test_the_set_tells_states_of_equal_hash_apart(n_kept):
    candidates = same_hash()
    assert len(set(hash_all(candidates).tolist())) == 1
    found, _ = insert_all(candidates, n_kept)
    assert found == without_repeats(candidates[0])
    assert len(found) == 3


@pytest.mark.parametrize("n_latents", [30, 64, 130])
def test_sparse_states_are_found_within_a_few_slots_of_their_own(n_latents):
    h = np.arange(n_latents)
    pairs = np.array([(h == a) | (h == b) for a in range(n_latents) for b in range(a + 1)])
    packed = states.pack(pairs)[None]
    values = hash_all(packed)
    _, table = insert_all(packed)
    taken = np.flatnonzero(table)
    positions = (table[taken] & np.uint32(2**16 - 1)).astype(np.int64) - 1
    own = (values[positions] >> np.uint64(32)).astype(np.int64)
    assert len(taken) == len(pairs)
    assert ((taken - own) % len(table)).mean() < 2


@pytest.mark.parametrize("capacity", [1, 2, 3, 63, 64, 65, 1000, 2**16 - 1, 2**16])
def test_hash_tables_are_at_most_two_thirds_full_and_have_room_for_positions(capacity):
    tables = states.empty_tables(3, capacity)
    assert tables.shape[0] == 3
    assert 2 * tables.shape[1] >= 3 * capacity
    assert tables.shape[1].bit_count() == 1
    assert capacity < 2 ** (4 * tables.itemsize)


def test_the_set_holds_more_states_than_two_bytes_can_number():
    packed = np.arange(2**16 + 100, dtype=np.uint64).reshape(1, -1, 1)
    twice = np.concatenate([packed, packed], axis=1)
    found, _ = insert_all(twice)
    assert found == without_repeats(packed[0])
