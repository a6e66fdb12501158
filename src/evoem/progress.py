"""Restore slice after slice, and show on the screen how far it is."""

import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

from evoem.images.canonical_arrays import Canonical
from evoem.images.learning import Progress
from evoem.images.restore import Restoration, restore_canonical
from evoem.images.stacks import TimeShares
from evoem.runtime import interrupts

SECONDS_BETWEEN_LINES = 10.0


def restore_slices(
    slices: Sequence[Canonical], keep_observed: bool, options: dict[str, Any], *, quiet: bool
) -> list[Restoration]:
    """Restore each slice on its own; fewer come back if interrupted, but at least one.

    The time limit is for all slices. An interrupt that the learning does not turn into a result is
    raised if no slice is done, or if it is the second one.
    """
    shares = TimeShares(options["time_limit"], len(slices))
    results: list[Restoration] = []
    screen = Screen(len(slices), quiet)
    with screen.shown() as show, interrupts.noted(screen.acknowledge) as noted:
        try:
            for number, one in enumerate(slices):
                callback = None if show is None else partial(show, number)
                own = options | {"time_limit": shares.next(), "callback": callback}
                result = restore_canonical(one, keep_observed, own, time.perf_counter())
                if result.ended == "interrupted" and not len(result.free_energies):
                    raise KeyboardInterrupt  # nothing was learnt
                results.append(result)
                if result.ended == "interrupted" or noted.number:
                    break
        except KeyboardInterrupt:
            if not results or noted.number > 1:
                raise
    return results


class Screen:
    """Progress on standard error: a live line on a terminal, else a line now and then."""

    def __init__(self, n_slices: int, quiet: bool) -> None:
        self._n_slices = n_slices
        self._quiet = quiet
        self._last: Progress | None = None

    @contextmanager
    def shown(self) -> Iterator[Callable[[int, Progress], None] | None]:
        """Where progress is to be told, unless nobody wants to know."""
        if self._quiet:
            yield None
        elif sys.stderr.isatty():
            console = Console(stderr=True)
            options: dict[str, Any] = {"auto_refresh": False, "transient": True}
            with Live(Text("starting"), console=console, **options) as live:

                def refresh(number: int, progress: Progress) -> None:
                    self._last = progress
                    told = line(progress, number, self._n_slices)
                    live.update(Text(told, no_wrap=True, overflow="ellipsis"), refresh=True)

                yield refresh
        else:
            last = time.monotonic()

            def write(number: int, progress: Progress) -> None:
                nonlocal last
                self._last = progress
                if time.monotonic() - last >= SECONDS_BETWEEN_LINES:
                    last = time.monotonic()
                    sys.stderr.write(line(progress, number, self._n_slices) + "\n")
                    sys.stderr.flush()

            yield write

    def acknowledge(self, number: int) -> None:
        """Say that an interrupt came, and what is still done."""
        if self._quiet:
            return
        with suppress(RuntimeError):  # the signal came while this very stream was written to
            sys.stderr.write(stopping(number, self._last) + "\n")
            sys.stderr.flush()


def stopping(number: int, last: Progress | None) -> str:
    """What is still done after an interrupt, given what was told last."""
    if number > 1:
        return "Interrupted again: leaving out the nonlocal step; once more writes nothing."
    if last is None:
        return "Interrupted: ending as soon as nothing is half done; once more ends at once."
    at_most = timedelta(seconds=math.ceil(last.seconds_to_stop))
    return (
        f"Interrupted: finishing the picture from what was learnt, in at most about {at_most}; "
        "once more while patches are merged leaves out the nonlocal step."
    )


def line(progress: Progress, number: int, n_slices: int) -> str:
    """Where a run stands, what matters most first: narrow terminals cut the end off."""
    left = progress.seconds_left
    left += (n_slices - number - 1) * (progress.seconds + progress.seconds_left)
    learning = progress.stage == "learning"  # before that, most of the work is still to come
    parts = [
        f"{'iteration' if learning else progress.stage} {progress.iteration}/{progress.max_iter}",
        *([f"{timedelta(seconds=round(left))} left"] if learning else []),
        f"noise {progress.noise_level:.4g}",
        f"bound {progress.free_energy:.2f}",
        f"active {progress.active:.1f}",
        f"replaced {progress.states_replaced}",
        f"{progress.patches_per_second:.0f} patches/s",
    ]
    if n_slices > 1:
        parts.insert(0, f"slice {number + 1}/{n_slices}")
    return ", ".join(parts)
