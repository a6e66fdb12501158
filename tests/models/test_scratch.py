"""Kernels that ask for more room are called again, from the row that needs it."""

from hypothesis import given
from hypothesis import strategies as st

from evoem.models.scratch import FEW, with_scratch


def runs(needs, most):
    """What rows a kernel did, each with how much room, if rows need so much."""
    done = []

    def kernel(first, room):
        for row in range(first, len(needs)):
            if needs[row] > room:
                return row
            done.append((row, room))
        return len(needs)

    with_scratch(kernel, len(needs), most)
    return done


@given(st.lists(st.integers(0, 1000), max_size=20))
def test_every_row_is_done_once_in_order_with_enough_room_and_no_more_than_there_are(needs):
    most = max(needs, default=0)
    done = runs(needs, most)
    assert [row for row, _ in done] == list(range(len(needs)))
    for row, room in done:
        assert needs[row] <= room <= most
        # Room is only made where a row so far needed it.
        assert room <= max(FEW, 2 * max(needs[: row + 1]))


def test_rows_before_the_one_that_needs_more_are_not_done_again():
    calls = []

    def kernel(first, room):
        calls.append((first, room))
        return 3 if room < 2 * FEW + 1 else 5

    with_scratch(kernel, 5, 1000)
    assert calls == [(0, FEW), (3, 2 * FEW), (3, 4 * FEW)]
