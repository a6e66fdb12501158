"""Threads over parts of the work."""

import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from threadpoolctl import threadpool_info, threadpool_limits

from evoem import BinarySparseCoding
from evoem.runtime.threads import blocks, both, crew, in_threads, one_blas_thread, split


@pytest.mark.parametrize("n_jobs", [1, 2, 5])
def test_results_are_taken_in_the_order_of_the_parts_whoever_is_done_first(n_jobs):
    waits = np.random.default_rng(0).permutation(24) / 5000
    taken = []

    def work(part):
        time.sleep(waits[part.start])
        return part.start

    in_threads(work, split(24, 1), n_jobs, taken.append)
    assert taken == list(range(24))


def test_results_are_taken_one_at_a_time():
    inside, most = 0, 0

    def take(result):
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        time.sleep(0.001)
        inside -= 1

    in_threads(lambda part: part, split(30, 1), 5, take)
    assert most == 1


def test_as_many_threads_work_as_are_asked_for_and_no_more():
    together = threading.Barrier(3, timeout=600)  # passed only if three wait at the same time
    seen = set()

    def work(part):
        seen.add(threading.get_ident())
        together.wait()

    in_threads(work, split(12, 1), 3)
    assert len(seen) == 3
    assert threading.get_ident() in seen


def test_more_threads_than_parts_do_each_part_once():
    done = []
    in_threads(lambda part: done.append(part.start), split(2, 1), 8)
    assert sorted(done) == [0, 1]


def test_no_more_threads_start_than_there_are_parts():
    together = threading.Barrier(3, timeout=600)  # so that none is free for another part
    before, started = threading.active_count(), []

    def work(part):
        together.wait()
        started.append(threading.active_count() - before)

    in_threads(work, split(3, 1), 5000)
    assert max(started) == 2


@pytest.mark.parametrize("n_jobs", [1, 2, 5])
@pytest.mark.parametrize("error", [ValueError("wrong"), KeyboardInterrupt()])
def test_an_error_is_raised_and_leaves_the_other_parts_undone(n_jobs, error):
    done = []

    def work(part):
        if part.start == 3:
            raise error
        time.sleep(0.001)
        done.append(part.start)

    with pytest.raises(type(error)):
        in_threads(work, split(100_000, 1), n_jobs)
    assert len(done) < 100_000


@pytest.mark.parametrize("n_jobs", [1, 2, 5])
def test_an_error_while_results_are_taken_is_raised(n_jobs):
    def take(result):
        if result.start == 2:
            raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong"):
        in_threads(lambda part: part, split(50, 1), n_jobs, take)


@pytest.mark.parametrize("n_jobs", [1, 2, 5])
def test_two_functions_run_side_by_side_if_two_threads_are_crew(n_jobs):
    def own_thread():
        return threading.get_ident()

    with crew(n_jobs):
        first, second = both(own_thread, own_thread)
    assert second == threading.get_ident()
    assert (first == second) == (n_jobs == 1)
    assert both(own_thread, own_thread) == (second, second)  # the crew is gone


@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize("wrong", [0, 1])
def test_an_error_of_either_function_is_raised(n_jobs, wrong):
    def fail():
        raise ValueError("wrong")

    functions = [lambda: 1, lambda: 2]
    functions[wrong] = fail
    with crew(n_jobs), pytest.raises(ValueError, match="wrong"):
        both(*functions)


@pytest.mark.parametrize("which", [0, 1])
def test_threads_that_are_busy_already_get_no_others(which):
    functions = [lambda: None, lambda: None]
    functions[which] = lambda: both(threading.get_ident, threading.get_ident)
    with crew(4):
        inner = both(*functions)[which]
    assert len(set(inner)) == 1


def test_a_crew_is_kept_for_all_that_is_done_with_it():
    seen = set()
    together = threading.Barrier(2, timeout=600)

    def work(part):
        seen.add(threading.get_ident())
        together.wait()

    with crew(2):
        for _ in range(5):
            in_threads(work, split(2, 1), 2)
            both(together.wait, lambda: work(None))
    assert len(seen) == 2


def test_a_crew_that_is_too_small_is_not_the_one_that_works():
    together = threading.Barrier(3, timeout=600)  # passed only if three wait at the same time
    places = []
    with crew(2):
        in_threads(lambda part: together.wait(), split(3, 1), 3, places.append)
    assert sorted(places) == [0, 1, 2]


def test_nothing_goes_on_behind_an_error_of_this_thread():
    done = []

    def slow():
        time.sleep(0.05)
        done.append(True)

    def fail():
        raise ValueError("wrong")

    with crew(2):
        with pytest.raises(ValueError, match="wrong"):
            both(slow, fail)
        assert done


@given(st.integers(0, 10_000), st.integers(1, 300_000), st.integers(0, 2**28))
@settings(deadline=None)
def test_blocks_are_consecutive_and_large_enough_for_their_statistics(first, n_rows, n_bytes):
    found = blocks(slice(first, first + n_rows), n_bytes)
    assert [block.start for block in found] == [first, *(block.stop for block in found[:-1])]
    assert found[-1].stop == first + n_rows
    sizes = np.array([block.stop - block.start for block in found])
    least = max(64, n_bytes // 2**15)
    assert (sizes[:-1] >= least).all()
    assert sizes[-1] > 0
    assert (np.diff(sizes) <= 0).all()
    assert sizes[0] <= max(least, 2048, n_bytes // 2**10)
    if n_rows > 100 * least:  # the last of four threads waits for a small part of the work
        assert len(sizes) > (24 if n_bytes < 2**16 else 12)
        assert sizes[-1] <= 0.01 * n_rows


def blas_threads():
    return [
        library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"
    ]


def test_blas_has_its_threads_back_when_the_last_who_wanted_one_is_done():
    entered, first_is_done = threading.Event(), threading.Event()

    def first():
        with one_blas_thread():
            entered.wait(600)

    def second():
        with one_blas_thread():
            entered.set()
            first_is_done.wait(600)

    with threadpool_limits(3, user_api="blas"):
        before = blas_threads()
        one, other = (threading.Thread(target=target) for target in (first, second))
        one.start()
        other.start()
        one.join()
        assert blas_threads() == [1] * len(before)
        first_is_done.set()
        other.join()
        assert blas_threads() == before


def test_fits_in_several_threads_leave_blas_as_it_was():
    X = np.random.default_rng(0).normal(size=(60, 4))

    def fit():
        BinarySparseCoding(3, n_states=4, max_iter=10, tol=0).fit(X)

    with threadpool_limits(2, user_api="blas"):
        before = blas_threads()
        threads = [threading.Thread(target=fit) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert blas_threads() == before
