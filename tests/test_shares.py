"""Blocks of rows lie where they lie whatever the number of processes, and rows find their way."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from problems import make_problem

from evoem import em
from evoem.shares import blocks_of_parts


@given(st.integers(1, 5000), st.integers(1, 40), st.integers(0, 2**22))
def test_blocks_of_parts_are_all_rows_in_their_order(n_rows, n_parts, n_bytes):
    parts = blocks_of_parts(n_rows, n_parts, n_bytes)
    assert len(parts) == n_parts
    ordered = sorted((block.start, block.stop) for part in parts for block in part)
    assert [start for start, _ in ordered] == [0, *(stop for _, stop in ordered[:-1])]
    assert ordered[-1][1] == n_rows
    sizes = [sum(block.stop - block.start for block in part) for part in parts]
    assert max(sizes) == -(-n_rows // n_parts)


def test_consecutive_rows_are_in_all_parts():
    parts = blocks_of_parts(10_000, 5, 0)
    for start in range(0, 10_000, 2500):
        for part in parts:
            assert any(start <= block.start < start + 2500 for block in part)


@pytest.mark.parametrize(("n_rows", "n_parts"), [(10, 3), (9, 7), (3, 8), (64, 8), (1, 1)])
def test_few_rows_make_consecutive_parts(n_rows, n_parts):
    parts = blocks_of_parts(n_rows, n_parts, 0)
    found = [row for part in parts for block in part for row in range(n_rows)[block]]
    assert found == list(range(n_rows))


def test_no_rows_at_all_are_refused():
    problem = make_problem("binary")
    with pytest.raises(ValueError, match=r"X must have at least one row; got the shape \(0, 6\)."):
        em.init(problem.model, em.Data(problem.X[:0]), n_states=2, params=problem.params)
