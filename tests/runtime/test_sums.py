"""Exact sums depend on neither order nor grouping, and lose no more than plain ones."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from evoem.runtime.sums import OF_BLOCKS, OF_ROWS, ExactSum, PlainSum, add_over_processes

FINITE = st.floats(-1e150, 1e150, allow_nan=False)
ADDENDS = arrays.arrays(
    np.float64, st.tuples(st.integers(1, 12), st.integers(1, 4)), elements=FINITE
)


class Others:
    """What other processes of the same program would bring, brought by this one."""

    size, exact = 2, True

    def __init__(self, sums):
        self._sums = sums

    def largest(self, buffer):
        for one in self._sums:
            np.maximum(buffer, [[one.level, one.special is not None]], out=buffer)
        for one in self._sums:
            one.raise_to(int(buffer[0, 0]))
            if buffer[0, 1]:
                one.allow_special()

    def add(self, buffer):
        for one in self._sums:
            buffer += np.concatenate(one.arrays())


def sum_of(addends, slicing=OF_BLOCKS):
    total = ExactSum(addends.shape[1:], slicing)
    for addend in addends:
        total.add(addend)
    return total


@given(ADDENDS, st.randoms(use_true_random=False), st.sampled_from([OF_BLOCKS, OF_ROWS]))
def test_the_order_changes_no_bit(addends, random, slicing):
    order = list(range(len(addends)))
    random.shuffle(order)
    found = sum_of(addends, slicing).value()
    np.testing.assert_array_equal(sum_of(addends[order], slicing).value(), found)
    rows = ExactSum(addends.shape[1:], slicing)
    rows.add_rows(addends[order])
    np.testing.assert_array_equal(rows.value(), found)


@given(ADDENDS, st.lists(st.integers(0, 11), max_size=3))
def test_shares_of_processes_change_no_bit(addends, cuts):
    shares = [
        sum_of(part) for part in np.split(addends, sorted(min(c, len(addends)) for c in cuts))
    ]
    add_over_processes(shares[:1], Others(shares[1:]))
    np.testing.assert_array_equal(shares[0].value(), sum_of(addends).value())


@given(ADDENDS)
def test_what_is_lost_is_small_beside_the_largest_addend(addends):
    found = sum_of(addends).value()
    largest = Fraction(float(np.abs(addends).max()))
    for column, value in zip(addends.T, found, strict=True):
        exact = sum(map(Fraction, column.tolist()))
        allowed = len(column) * largest / 2**64 + abs(exact) / 2**52 + Fraction(1, 2**900)
        assert abs(Fraction(float(value)) - exact) <= allowed


@pytest.mark.parametrize("special", [np.inf, -np.inf, np.nan, 1e300])
def test_what_is_not_finite_stays_where_it_is(special):
    addends = np.array([[1.0, 2.0], [special, 1e-3], [3.0, 4.0]])
    for order in ([0, 1, 2], [1, 2, 0], [2, 0, 1]):
        np.testing.assert_array_equal(sum_of(addends[order]).value(), [1 + special + 3, 6.001])


def test_many_addends_of_one_size_are_added_without_an_error():
    total, value = ExactSum((1,)), np.array([0.1])
    for _ in range(10_000):
        total.add(value)
    assert total.value()[0] == float(10_000 * Fraction(0.1))


def test_a_plain_sum_is_one_in_the_order_given():
    addends = np.random.default_rng(0).normal(size=(50, 3))
    total = PlainSum((3,))
    for addend in addends:
        total.add(addend)
    np.testing.assert_array_equal(total.value(), np.add.accumulate(addends)[-1])
