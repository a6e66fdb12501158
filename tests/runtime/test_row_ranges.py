"""Consecutive rows by process, and how values of rows come from one process to another."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from process_threads import together

from evoem.runtime.row_ranges import even_share, moved, ranges_of, whole_blocks


@given(st.integers(0, 1000), st.integers(1, 9))
def test_even_shares_are_all_rows_in_order_and_differ_by_one(n_rows, size):
    class Comm:
        def __init__(self, rank):
            self.rank, self.size = rank, size

    shares = [even_share(n_rows, Comm(rank)) for rank in range(size)]
    assert [row for share in shares for row in range(n_rows)[share]] == list(range(n_rows))
    lengths = [share.stop - share.start for share in shares]
    assert max(lengths) - min(lengths) <= 1
    assert ranges_of(lengths) == shares


@given(st.lists(st.integers(0, 40), min_size=1, max_size=5), st.integers(1, 30))
def test_whole_blocks_belong_to_who_has_their_first_row(counts, size):
    if sum(counts) == 0:
        counts[0] = 1
    own, n_rows = ranges_of(counts), sum(counts)
    edges = np.append(np.arange(0, n_rows, size), n_rows)
    after = whole_blocks(own, edges)
    assert (after[0].start, after[-1].stop) == (0, n_rows)
    for mine, lent in zip(own, after, strict=True):
        first_rows = [edge for edge in edges[:-1] if mine.start <= edge < mine.stop]
        assert [edge for edge in edges[:-1] if lent.start <= edge < lent.stop] == first_rows


@given(st.lists(st.integers(0, 20), min_size=2, max_size=4), st.integers(1, 15))
def test_values_come_to_where_they_are_asked_for_and_back(counts, size):
    counts[0] += 1
    before, values = ranges_of(counts), np.arange(2 * sum(counts)).reshape(-1, 2)
    after = whole_blocks(before, np.append(np.arange(0, len(values), size), len(values)))

    def there_and_back(comm):
        there = moved(values[before[comm.rank]], before, after, comm)
        return there, moved(there, after, before, comm)

    for rank, (there, back) in enumerate(together(len(counts), there_and_back)):
        np.testing.assert_array_equal(there, values[after[rank]])
        np.testing.assert_array_equal(back, values[before[rank]])
