"""What one process alone says to itself is what several would say that are all like it."""

import numpy as np
import pytest
from process_threads import together

from evoem.runtime.communicator import ALONE, agreed, any_of, check_alike


def everything(comm):
    buffer, peaks = np.array([1.5, -2.0]), np.array([3, -1])
    comm.add(buffer)
    comm.largest(peaks)
    return [
        buffer / comm.size,
        peaks,
        comm.collect("rows")[0],
        comm.exchange(["mine"] * comm.size)[0],
        agreed(comm, 7),
        any_of(comm, False, True),
    ]


def test_alone_every_call_means_what_it_means_among_several():
    for found in together(3, everything):
        for mine, other in zip(found, everything(ALONE), strict=True):
            np.testing.assert_array_equal(mine, other)
    assert ALONE.gather("rows") == ["rows"]


def test_the_first_process_has_the_say_where_clocks_differ():
    assert together(3, lambda comm: agreed(comm, 10.0 + comm.rank)) == [10.0] * 3


def test_each_question_is_answered_by_all():
    found = together(3, lambda comm: any_of(comm, comm.rank == 2, False, True))
    assert found == [[True, False, True]] * 3


def test_alone_an_end_of_all_is_an_end():
    with pytest.raises(SystemExit, match="no more rows"):
        ALONE.abort("no more rows")


def test_settings_that_differ_are_refused_in_all_processes():
    def different(comm):
        check_alike(comm, n_parts=2, max_iter=[3, 3, 4][comm.rank])

    with pytest.raises(
        ValueError, match=r"^max_iter must be the same in all processes; got 3 and 4\.$"
    ):
        together(3, different)
    together(3, lambda comm: check_alike(comm, n_parts=2))
    check_alike(ALONE, n_parts=2)
