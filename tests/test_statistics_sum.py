"""Statistics of blocks and processes, against sums of fractions."""

from fractions import Fraction
from typing import NamedTuple

import numpy as np
import pytest
from process_threads import together

from evoem.runtime.communicator import ALONE
from evoem.statistics_sum import StatisticsSum


class Inner(NamedTuple):
    matrix: np.ndarray
    named: dict


class Statistics(NamedTuple):
    count: np.ndarray
    inner: Inner


def empty():
    return Statistics(np.zeros(()), Inner(np.zeros((2, 3)), {}))


def block(rng, names=("a", "b")):
    def draw(*shape):
        return rng.normal(size=shape) * 10.0 ** rng.integers(-9, 9, shape)

    named = {name: draw(4) for name in names}
    return Statistics(np.array(draw(1)[0]), Inner(draw(2, 3), named))


def leaves(statistics):
    named = statistics.inner.named
    return {"count": statistics.count, "matrix": statistics.inner.matrix} | named


def total_of(blocks, comm):
    total = StatisticsSum(empty(), comm)
    for one in blocks:
        total.add(one)
    return total.total()


def assert_equal(found, expected):
    assert leaves(found).keys() == leaves(expected).keys()
    for name, values in leaves(expected).items():
        np.testing.assert_array_equal(leaves(found)[name], values, err_msg=name)


def test_a_sum_is_that_of_fractions_field_by_field():
    rng = np.random.default_rng(0)
    blocks = [block(rng) for _ in range(50)]
    found = leaves(total_of(blocks, ALONE))
    for name, values in found.items():
        every = np.stack([leaves(one)[name] for one in blocks])
        for place, value in np.ndenumerate(values):
            exact = sum(map(Fraction, every[(slice(None), *place)].tolist()))
            assert value == pytest.approx(float(exact), rel=1e-15, abs=1e-18 * np.abs(every).max())


@pytest.mark.parametrize("cuts", [[20], [5, 5], [0, 30, 30]])
def test_shares_of_processes_change_no_bit(cuts):
    rng = np.random.default_rng(1)
    blocks = [block(rng) for _ in range(30)]
    shares = [blocks[a:b] for a, b in zip([0, *cuts], [*cuts, 30], strict=True)]
    expected = total_of(blocks, ALONE)
    for found in together(len(shares), lambda comm: total_of(shares[comm.rank], comm)):
        assert_equal(found, expected)


def test_plain_sums_of_processes_are_those_of_theirs():
    rng = np.random.default_rng(2)
    shares = [[block(rng) for _ in range(5)] for _ in range(3)]
    own = [leaves(total_of(share, ALONE)) for share in shares]
    for found in together(3, lambda comm: total_of(shares[comm.rank], comm), exact=False):
        for name, values in leaves(found).items():
            np.testing.assert_allclose(values, sum(one[name] for one in own), rtol=1e-12)


@pytest.mark.parametrize("exact", [True, False])
def test_what_only_some_processes_have_names_for_is_known_to_all(exact):
    rng = np.random.default_rng(3)
    shares = [[], [block(rng, "a")], [block(rng, "b")]]
    found = together(3, lambda comm: total_of(shares[comm.rank], comm), exact)
    for one in found:
        assert_equal(one, found[0])
        assert one.inner.named.keys() == {"a", "b"}
    np.testing.assert_array_equal(found[0].inner.named["a"], shares[1][0].inner.named["a"])


def test_one_name_of_two_shapes_is_refused():
    def program(comm):
        total = StatisticsSum(empty(), comm)
        inner = Inner(np.zeros((2, 3)), {"mine": np.zeros(2 + comm.rank)})
        total.add(Statistics(np.zeros(()), inner))
        total.total()

    with pytest.raises(ValueError, match=r"statistics 'mine' must have one shape; got \("):
        together(2, program)
