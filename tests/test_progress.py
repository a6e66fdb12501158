"""What is said of a running restoration."""

from evoem import progress
from evoem.images.learning import Progress

RUNNING = Progress(3, 9, -1.5, 25.0, 4.0, 17, 1000.0, 6.0, 12.0, None, "learning", None, 90.2)


def test_a_line_says_where_a_run_stands():
    assert progress.line(RUNNING, 1) == (
        "iteration 3/9, 0:00:12 left, noise 25, bound -1.50, active 4.0, replaced 17, "
        "1000 patches/s"
    )
    early = RUNNING._replace(stage="coarse start")
    assert progress.line(early, 1).startswith("coarse start 3/9, noise 25, ")
    assert progress.line(RUNNING, 3).startswith("3 slices, iteration 3/9, 0:00:12 left, ")


def test_an_interrupt_is_answered_with_what_is_still_done():
    assert "stopping at the next safe point" in progress.stopping(1, None)
    assert "in at most about 0:01:31; interrupt again" in progress.stopping(1, RUNNING)
    assert "skipping the nonlocal step" in progress.stopping(2, RUNNING)
