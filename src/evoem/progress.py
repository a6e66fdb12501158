"""Restore slice after slice, and show on the screen how far it is."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
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

Show = Callable[[int, Progress], None]

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
    with interrupts.noted() as noted, shown(len(slices), quiet) as show:
        try:
            for number, one in enumerate(slices):
                callback = None if show is None else partial(show, number)
                own = options | {"time_limit": shares.next(), "callback": callback}
                result = restore_canonical(one, keep_observed, own, time.perf_counter())
                if result.ended == "interrupted" and not len(result.free_energies):
                    raise KeyboardInterrupt  # nothing was learnt
                results.append(result)
                if result.ended == "interrupted" or noted.waiting:
                    break
        except KeyboardInterrupt:
            if not results or noted.number > 1:
                raise
    return results


@contextmanager
def shown(n_slices: int, quiet: bool) -> Iterator[Show | None]:
    """Show progress on standard error: a live line on a terminal, else a line now and then."""
    if quiet:
        yield None
    elif sys.stderr.isatty():
        console = Console(stderr=True)
        with Live(Text("starting"), console=console, auto_refresh=False, transient=True) as live:

            def refresh(number: int, progress: Progress) -> None:
                text = Text(line(progress, number, n_slices), no_wrap=True, overflow="ellipsis")
                live.update(text, refresh=True)

            yield refresh
    else:
        last = time.monotonic()

        def write(number: int, progress: Progress) -> None:
            nonlocal last
            if time.monotonic() - last >= SECONDS_BETWEEN_LINES:
                last = time.monotonic()
                sys.stderr.write(line(progress, number, n_slices) + "\n")
                sys.stderr.flush()

        yield write


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
