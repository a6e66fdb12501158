"""Restore a picture or a stack, and report progress."""

import math
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from evoem.images.canonical_arrays import Canonical
from evoem.images.journal import journal_of
from evoem.images.learning import Progress
from evoem.images.restore import Restoration, restore_all, several
from evoem.runtime import interrupts
from evoem.screen import Screen


def restore_slices(
    slices: Sequence[Canonical], keep_observed: bool, options: dict[str, Any], screen: Screen
) -> list[Restoration]:
    """Restore an image, or slices together; fewer come back if interrupted, but at least one.

    An interrupt while a model learns finishes all slices with what was learnt. One that comes later
    leaves the others as they are; it is raised if no slice is done, or if nothing was learnt.
    """
    journal = journal_of(slices, keep_observed, options)
    results: list[Restoration] = []
    screen.n_slices = len(slices)
    last: list[Progress] = []

    def show(progress: Progress) -> None:
        last[:] = [progress]
        # Before the model learns, most of the work is still to come.
        left = progress.seconds_left if progress.stage == "learning" else None
        screen.foresee(left, details(progress), line(progress, len(slices)))

    def acknowledge(number: int) -> None:
        screen.say(stopping(number, last[0] if last else None))

    own = options | {"callback": None if screen.quiet else show}
    started = time.perf_counter()
    with interrupts.noted(acknowledge, several=several(options), if_learnt=True) as noted:
        try:
            for result in restore_all(slices, keep_observed, own, started, journal):
                results.append(result)
                while_learning = results[0].ended == "interrupted"
                if noted.number > while_learning:
                    break
                if len(results) < len(slices):
                    screen.begin_slice(len(results))
        except KeyboardInterrupt:
            if not results or noted.number > 1:
                raise
    journal.keep(at_once=True)
    return results


def stopping(number: int, last: Progress | None) -> str:
    """What is still done after an interrupt, given what was told last."""
    if number > 1:
        return (
            "Interrupted again: skipping the nonlocal step; interrupt once more to quit without a "
            "result."
        )
    if last is None:
        return "Interrupted: stopping at the next safe point; interrupt once more to quit at once."
    at_most = timedelta(seconds=math.ceil(last.seconds_to_stop))
    return (
        f"Interrupted: finishing the picture from what was learnt, in at most about {at_most}; "
        "interrupt again while patches are merged to skip the nonlocal step."
    )


def line(progress: Progress, n_slices: int) -> str:
    """Where a run stands, what matters most first: narrow terminals cut the end off."""
    learning = progress.stage == "learning"  # before that, most of the work is still to come
    parts = [
        f"{'iteration' if learning else progress.stage} {progress.iteration}/{progress.max_iter}",
        *([f"{timedelta(seconds=round(progress.seconds_left))} left"] if learning else []),
        details(progress),
    ]
    if n_slices > 1:
        parts.insert(0, f"{n_slices} slices")
    return ", ".join(parts)


def details(progress: Progress) -> str:
    """What there is to be said of the model."""
    parts = [
        f"noise {progress.noise_level:.4g}",
        f"bound {progress.free_energy:.2f}",
        f"active {progress.active:.1f}",
        f"replaced {progress.states_replaced}",
        f"{progress.patches_per_second:.0f} patches/s",
    ]
    return ", ".join(parts) + progress.of_others
