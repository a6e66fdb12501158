"""Sums over rows, and some of them, are the same however the rows lie among processes."""

from itertools import pairwise

import numpy as np
import pytest
from process_threads import together

from evoem.models.all_rows import AllRows, median_of_counts, share_of_blocks
from evoem.runtime.communicator import ALONE

N, D = 60, 3
CUTS = ([], [25], [0, 60], [10, 10, 59])


def problem(missing):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, D)) * 10.0 ** rng.integers(-6, 6, (N, D))
    observed = rng.random((N, D)) > 0.3 if missing else None
    return (X if observed is None else np.where(observed, X, 0.0)), observed


def in_processes(cuts, program, missing=True, **options):
    """What `program(rows, comm)` returns in processes that have rows up to these numbers."""
    X, observed = problem(missing)
    edges = [0, *cuts, N]

    def run(comm):
        own = slice(edges[comm.rank], edges[comm.rank + 1])
        mask = None if observed is None else observed[own]
        return program(AllRows(X[own], mask, comm, **options), comm)

    return together(len(edges) - 1, run)


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("cuts", CUTS)
def test_sums_are_those_of_numpy_to_the_same_bits_everywhere(cuts, missing):
    X, observed = problem(missing)
    seen = np.ones(X.shape, bool) if observed is None else observed
    centre = X.mean(0)
    alone = AllRows(X, observed)
    expected = [alone.counts(), alone.sums(), alone.squares(), alone.squares(centre)]
    np.testing.assert_array_equal(expected[0], seen.sum(0))
    np.testing.assert_allclose(expected[1], X.sum(0), rtol=1e-9)
    np.testing.assert_allclose(expected[2], (X**2).sum(0), rtol=1e-12)
    np.testing.assert_allclose(expected[3], (seen * (X - centre) ** 2).sum(0), rtol=1e-12)
    assert alone.mean_square() == pytest.approx((X**2).sum() / seen.sum(), rel=1e-12)

    def sums(rows, comm):
        return [rows.counts(), rows.sums(), rows.squares(), rows.squares(centre)]

    for found in in_processes(cuts, sums, missing):
        for mine, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(mine, other)


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("cuts", CUTS)
def test_rows_are_taken_by_their_numbers_wherever_they_lie(cuts, missing):
    X, observed = problem(missing)
    numbers = np.array([59, 0, 10, 9, 10, 24, 25])
    seen = np.ones(X.shape, bool) if observed is None else observed
    for rows, mask in in_processes(cuts, lambda rows, comm: rows.take(numbers), missing):
        np.testing.assert_array_equal(rows, X[numbers])
        np.testing.assert_array_equal(mask, seen[numbers])


@pytest.mark.parametrize("number", [7, N, 3 * N])
def test_the_same_rows_are_drawn_in_all_processes_and_twice_only_if_they_are_too_few(number):
    X, _ = problem(False)
    expected, _ = AllRows(X).draw(np.random.default_rng(5), number)
    assert {tuple(row) for row in expected} <= {tuple(row) for row in X}
    assert len(np.unique(expected, axis=0)) == number or number > N

    def draw(rows, comm):
        return rows.draw(np.random.default_rng(5), number)[0]

    for found in in_processes([10, 10, 59], draw, missing=False):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("size", [7, 20, 100])
@pytest.mark.parametrize("cuts", CUTS)
def test_blocks_are_cut_by_no_process_once_rows_are_in_whole_ones(cuts, size):
    X, observed = problem(True)

    def blocks(rows, comm):
        whole = rows.in_whole_blocks()
        found = []
        for block in whole.blocks():
            found.append((whole.start + block.start, whole.X[block], whole.seen(block)))
        return found

    by_process = in_processes(cuts, blocks, rows_of_block=size)
    starts, rows, seen = zip(*(block for own in by_process for block in own), strict=True)
    assert list(starts) == list(range(0, N, size))
    np.testing.assert_array_equal(np.concatenate(rows), X)
    np.testing.assert_array_equal(np.concatenate(seen), observed)


@pytest.mark.parametrize("counts", [[3], [1, 2, 2, 5], [0, 0, 4, 4, 4, 9], [2, 2, 3]])
def test_the_median_is_that_of_numpy(counts):
    def median(comm):
        return median_of_counts(np.array(counts)[comm.rank :: comm.size], 9, comm)

    for n in (1, 3):
        assert set(together(n, median)) == {float(np.median(counts))}


def test_shares_of_blocks_are_all_rows_once():
    for n_rows in (0, 1, 16384, 100_000):
        shares = together(3, lambda comm, n_rows=n_rows: share_of_blocks(n_rows, comm))
        assert shares[0].start == 0
        assert shares[-1].stop == n_rows
        assert all(a.stop == b.start for a, b in pairwise(shares))
        assert all(share.start % 16384 == 0 or share.start == n_rows for share in shares)
    assert share_of_blocks(5, ALONE) == slice(0, 5)
