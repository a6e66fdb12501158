"""What is shown of a running command."""

import io
import sys
import time

import pytest
from rich.console import Console

from evoem import screen
from evoem.runtime import stages
from evoem.screen import Screen


@pytest.fixture
def clock():
    return Ticking()


class Ticking:
    """A clock that is set by hand."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def drawn(shown):
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(shown.picture())
    return console.export_text()


def marks(shown):
    return {line[2:].split("  ")[0].strip(): line[0] for line in drawn(shown).splitlines()}


def test_stages_to_come_are_listed_with_those_that_are_over(clock):
    shown = Screen(False, clock=clock)
    shown.reach("reading", 0, 0)
    assert marks(shown)["reading"] == "•"
    assert {"noise", "learning", "restoring", "writing"} < marks(shown).keys()
    assert "coarse start" not in marks(shown)  # a run may have none
    shown.reach("noise", 0, 0)
    shown.reach("coarse start", 1, 3)
    assert marks(shown)["reading"] == marks(shown)["noise"] == "✓"
    assert "1 of 3" in drawn(shown)
    shown.reach("learning", 0, 6)
    assert "1 of 3" not in drawn(shown)
    assert "0 of 6" in drawn(shown)


def test_compilation_goes_on_beside(clock):
    shown = Screen(False, clock=clock)
    shown.reach("coarse start", 1, 3)
    assert "first time" not in drawn(shown)
    shown.compiled = lambda: (12, 40)
    assert "compiling (first time on this machine)" in drawn(shown)
    assert "12 of 40" in drawn(shown)
    assert "compiling 12/40 (first time on this machine)" in shown.line()
    shown.compiled = lambda: (40, 40)
    assert "40 of 40" not in drawn(shown)
    assert "compiling" not in shown.line()


def test_the_clock_goes_on_and_time_left_counts_down(clock):
    shown = Screen(False, clock=clock)
    assert shown.times() == "0:00:00 so far, time left unknown until learning begins"
    clock.now += 5
    shown.foresee(90.0, "noise 25")
    assert shown.times() == "0:00:05 so far, about 0:01:30 left"
    clock.now += 60
    assert shown.times() == "0:01:05 so far, about 0:00:30 left"
    clock.now += 60
    assert shown.times() == "0:02:05 so far, about 0:00:00 left"
    assert "noise 25" in drawn(shown)


def test_a_time_limit_is_known_from_the_start_and_bounds_what_is_foreseen(clock):
    shown = Screen(False, time_limit=120.0, clock=clock)
    clock.now += 20
    assert shown.times() == "0:00:20 so far, at most 0:01:40 left"
    shown.foresee(500.0, "")
    assert shown.times() == "0:00:20 so far, about 0:01:40 left"
    shown.foresee(30.0, "")
    assert shown.times() == "0:00:20 so far, about 0:00:30 left"
    clock.now += 140
    assert shown.times() == "0:02:40 so far, 0:00:40 more than the time limit"


def test_a_stage_that_is_slower_than_foreseen_is_believed(clock):
    shown = Screen(False, clock=clock)
    shown.foresee(10.0, "")
    shown.reach("restoring", 0, 100)
    clock.now += 10
    shown.reach("restoring", 20, 100)
    assert shown.seconds_left() == pytest.approx(40.0)


def test_slices_are_counted(clock):
    shown = Screen(False, clock=clock)
    shown.n_slices = 4
    shown.reach("reading", 0, 0)
    shown.reach("learning", 1, 6)
    assert shown.line().startswith("slice 1/4, learning 1/6, ")
    shown.begin_slice(1)
    assert shown.slice == 1
    assert "slice 2 of 4" in drawn(shown)
    assert marks(shown)["learning"] != "✓"
    assert marks(shown)["reading"] == "✓"


def test_a_terminal_is_drawn_on_while_nothing_is_told(capfd, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    shown = Screen(False)
    with shown.shown():
        stages.begin("learning", 7)(2)
        shown.say("Interrupted: ending.")
        seen = ""
        while "0:00:01 so far" not in seen:
            time.sleep(0.05)
            seen += capfd.readouterr().err
    assert "2 of 7" in seen
    assert "Interrupted: ending." in seen
    assert capfd.readouterr().err.endswith("Interrupted: ending.\n")


def test_without_a_terminal_a_line_comes_now_and_then(capfd, clock):
    shown = Screen(False, clock=clock)
    for second in (1.0, 9.0, 10.0, 12.0, 21.0):
        clock.now = 100.0 + second
        shown.foresee(10.0, f"iteration {second:g}")
    shown.say("Interrupted: ending.")
    lines = ["iteration 10", "iteration 21", "Interrupted: ending."]
    assert capfd.readouterr().err.splitlines() == lines


def test_without_a_terminal_lines_come_while_nothing_is_told(capfd, monkeypatch):
    monkeypatch.setattr(screen, "SECONDS_BETWEEN_LINES", 0.0)
    shown = Screen(False)
    with shown.shown():
        stages.begin("reading")
        seen, latest = "", time.monotonic() + 60
        while "reading, 0:00:0" not in seen and time.monotonic() < latest:
            time.sleep(0.01)
            seen += capfd.readouterr().err
    assert "reading, 0:00:0" in seen


def test_quiet_says_nothing(capfd, clock):
    shown = Screen(True, clock=clock)
    with shown.shown():
        stages.begin("learning", 3)(1)
        clock.now += 100
        shown.foresee(1.0, "noise 25")
        shown.say("Interrupted: ending.")
    assert capfd.readouterr() == ("", "")
