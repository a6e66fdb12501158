"""Threads that are asked for, where processes share a machine."""

import pytest
from process_threads import together

from evoem.runtime.cores import threads_of


@pytest.mark.parametrize(("n_jobs", "expected"), [(None, 1), (1, 1), (7, 7)])
def test_a_number_is_taken_as_it_is_by_every_process(n_jobs, expected):
    assert threads_of(n_jobs) == expected
    assert together(3, lambda comm: threads_of(n_jobs, comm)) == [expected] * 3


def test_all_cores_are_shared_by_the_processes_that_are_bound_to_the_same_ones():
    everything = threads_of(-1)
    assert together(2, lambda comm: threads_of(-1, comm)) == [max(1, everything // 2)] * 2
    assert together(99, lambda comm: threads_of(-1, comm)) == [1] * 99


def test_processes_elsewhere_take_no_threads_away():
    class Elsewhere:
        size = 2

        def collect(self, item):
            return [item, ("another machine", item[1])]

    assert threads_of(-1, Elsewhere()) == threads_of(-1)
