"""Ctrl-C where nothing is half done."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from evoem.runtime import interrupts
from evoem.runtime.launchers import SIZES
from evoem.runtime.threads import in_threads, split


def interrupt():
    signal.raise_signal(signal.SIGINT)


def test_the_first_interrupt_waits_for_a_place_where_it_may_be_raised():
    with interrupts.noted() as noted:
        interrupt()
        interrupts.check()  # nobody here knows what to do about it
        assert noted.waiting
        with pytest.raises(KeyboardInterrupt), interrupts.raised():
            interrupts.check()
        assert not noted.waiting
        with interrupts.raised():
            interrupts.check()  # once is enough
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_the_second_interrupt_does_not_wait():
    with interrupts.noted() as noted:
        interrupt()
        with pytest.raises(KeyboardInterrupt):
            interrupt()
        assert noted.number == 2
    with pytest.raises(KeyboardInterrupt):
        interrupt()


def test_where_something_may_be_cut_short_the_second_interrupt_waits_too():
    with interrupts.noted() as noted, interrupts.patient(), interrupts.raised(2):
        interrupt()
        interrupts.check()
        interrupt()
        with pytest.raises(KeyboardInterrupt):
            interrupts.check()
        assert interrupts.number() == 2
        with pytest.raises(KeyboardInterrupt):
            interrupt()
        assert noted.number == 3


def test_interrupts_that_wait_are_acknowledged_at_once():
    said = []
    with interrupts.noted(said.append), interrupts.patient():
        interrupt()
        assert said == [1]
        interrupt()
        assert said == [1, 2]


def test_termination_is_an_interrupt_where_a_program_asks_for_it():
    with interrupts.terminable() as termination:
        with interrupts.noted() as noted:
            signal.raise_signal(signal.SIGTERM)
            assert noted.waiting
        assert termination.came
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_program_that_is_leaving_stays_for_what_it_has_to_lose():
    signals = [signal.SIGINT, signal.SIGTERM]
    usual = [signal.getsignal(one) for one in signals]
    try:
        with interrupts.leaving():
            assert [signal.getsignal(one) for one in signals] != usual
            with interrupts.staying():
                with pytest.raises(KeyboardInterrupt):
                    interrupt()
                with interrupts.terminable() as termination, pytest.raises(KeyboardInterrupt):
                    signal.raise_signal(signal.SIGTERM)
                assert termination.came
            assert [signal.getsignal(one) for one in signals] == [signal.SIG_DFL] * 2
    finally:
        for one, before in zip(signals, usual, strict=True):
            signal.signal(one, before)


def test_who_is_not_leaving_need_not_stay():
    with interrupts.staying(), pytest.raises(KeyboardInterrupt):
        interrupt()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_whoever_notes_them_first_notes_them_all():
    with interrupts.noted() as outer:
        with interrupts.noted() as inner:
            assert inner is outer
        interrupt()
        assert outer.waiting


def test_interrupts_that_others_handle_are_left_to_them():
    came = []
    usual = signal.signal(signal.SIGINT, lambda number, frame: came.append(number))
    try:
        with interrupts.noted() as noted:
            interrupt()
    finally:
        signal.signal(signal.SIGINT, usual)
    assert (len(came), noted.number) == (1, 0)


def test_other_threads_leave_the_handler_alone():
    seen = []

    def work():
        with interrupts.noted():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [signal.default_int_handler]


@pytest.mark.parametrize("n_jobs", [1, 2, 5])
def test_parts_of_the_work_are_done_whole(n_jobs):
    main = threading.get_ident()
    begun, done = [], []

    def work(part):
        begun.append(part.start)
        if threading.get_ident() != main:
            time.sleep(0.001)  # it is the main thread that notices
        elif not noted.number:
            interrupt()
        done.append(part.start)

    with interrupts.noted() as noted, pytest.raises(KeyboardInterrupt), interrupts.raised():
        in_threads(work, split(100_000, 1), n_jobs)
    assert sorted(begun) == sorted(done)
    assert len(done) < 100_000


@pytest.mark.parametrize(("launched", "code"), [("1", 143), ("2", -signal.SIGTERM)])
def test_one_of_several_processes_dies_by_the_signal_for_its_launcher_to_see(launched, code):
    program = (
        "import os, signal\n"
        "from evoem.runtime import interrupts\n"
        "with interrupts.leaving():\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
    )
    environment = {name: value for name, value in os.environ.items() if name not in SIZES}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment | {"PMI_SIZE": launched}, capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip
    assert done.returncode == code
    assert done.stderr == f"{interrupts.SENTENCE}\n"


@pytest.mark.parametrize("if_learnt", [False, True])
def test_a_result_of_nothing_may_be_unwanted(if_learnt):
    interrupts.give_up()  # nobody notes any
    with interrupts.noted(if_learnt=if_learnt):
        interrupts.give_up()  # none came
        interrupt()
        if if_learnt:
            with pytest.raises(KeyboardInterrupt):
                interrupts.give_up()
        else:
            interrupts.give_up()
