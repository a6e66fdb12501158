"""The display of a running command: stages by name, each with a bar, a clock, and time left.

On a terminal a thread draws four times a second, so that the clock goes on whatever else is done:
compiled code lets go of the interpreter's lock, and what compiles does so in other processes.
Elsewhere plain lines come now and then.
"""

import math
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import NamedTuple

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from evoem.runtime import stages

# In the order in which a run comes to them; compilation goes on beside them.
COMPILING = "compiling"
STAGES = ("reading", "noise", COMPILING, "selecting", "coarse start", "learning", "restoring",
          "nonlocal step", "writing")  # fmt: skip
# Stages that a run may not have are only listed once it has come to them.
IF_REACHED = (COMPILING, "selecting", "coarse start", "nonlocal step")
SECONDS_BETWEEN_LINES = 10.0
DRAWN_PER_SECOND = 4
WIDTH_OF_BAR = 24

Clock = Callable[[], float]


class Reached(NamedTuple):
    """How far a stage is."""

    done: int
    total: int  # 0 if it is not known
    since: float


class Screen:
    """Progress on standard error: drawn on a terminal, else a line now and then."""

    def __init__(self, quiet: bool, time_limit: float | None = None, clock: Clock = time.monotonic):
        self.quiet = quiet
        self.n_slices, self.slice = 1, 0
        self.compiled: Callable[[], tuple[int, int]] = lambda: (0, 0)
        self._time_limit = time_limit
        self._clock = clock
        self._started = clock()
        self._reached: dict[str, Reached] = {}
        self._stage = ""
        self._details = ""  # of the model
        self._ends: float | None = None  # by the clock, as far as can be foreseen
        self._message = ""
        self._is_drawn = False
        self._last_line = self._started

    # --------------------------------------------------------------------------- what is told

    def reach(self, stage: str, done: int, total: int) -> None:
        """Take that a run is in a stage."""
        since = self._reached[stage].since if stage in self._reached and done else self._clock()
        self._reached[stage] = Reached(done, total, since)
        self._stage = stage

    def begin_slice(self, number: int) -> None:
        """Take that the next of several slices has begun: its stages are all to come."""
        self.slice = number
        self._reached = {
            name: self._reached[name] for name in ("reading",) if name in self._reached
        }

    def foresee(self, seconds_left: float | None, details: str, line: str = "") -> None:
        """Take how long it will be until the end, and what there is to be said of the model.

        The line says all, where nothing is drawn.
        """
        self._ends = None if seconds_left is None else self._clock() + seconds_left
        self._details = details
        if not self._is_drawn:
            self.write_line(line or details)

    def say(self, message: str) -> None:
        """Show a sentence at once, from a handler of signals too."""
        self._message = message
        if self.quiet or self._is_drawn:
            return
        with suppress(RuntimeError):  # the signal came while this very stream was written to
            sys.stderr.write(message + "\n")
            sys.stderr.flush()

    # -------------------------------------------------------------------------- what is shown

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Show all this meanwhile."""
        with stages.watched(self.reach):
            if self.quiet:
                yield
            elif sys.stderr.isatty():
                with self._drawn():
                    yield
            else:
                with self._written():
                    yield

    @contextmanager
    def _drawn(self) -> Iterator[None]:
        self._is_drawn = True
        try:
            with Live(
                get_renderable=self.picture,
                console=Console(stderr=True),
                refresh_per_second=DRAWN_PER_SECOND,
                transient=True,
                redirect_stdout=False,  # it may go elsewhere
            ):
                yield
        finally:
            self._is_drawn = False
            if self._message:
                sys.stderr.write(self._message + "\n")

    @contextmanager
    def _written(self) -> Iterator[None]:
        ended = threading.Event()

        def write() -> None:
            while not ended.wait(max(SECONDS_BETWEEN_LINES / 10, 0.05)):
                if self._stage:
                    self.write_line(self.line())

        thread = threading.Thread(target=write, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def write_line(self, line: str) -> None:
        """Write a line, unless one was written just before."""
        if self.quiet or self._clock() - self._last_line < SECONDS_BETWEEN_LINES:
            return
        self._last_line = self._clock()
        sys.stderr.write(line + "\n")
        sys.stderr.flush()

    # ------------------------------------------------------------------------------- in words

    def seconds_left(self) -> float | None:
        """Until the end, at most by the limit; None if nothing is known yet."""
        now = self._clock()
        known = [] if self._ends is None else [self._ends - now]
        stage = self._reached.get(self._stage)
        is_finishing = self._stage in ("restoring", "nonlocal step")
        if known and stage is not None and is_finishing and 0 < stage.done < stage.total:
            pace = (now - stage.since) / stage.done  # its own, if the forecast was too good
            known = [max(known[0], pace * (stage.total - stage.done))]
        if self._time_limit is not None:
            limit = self._time_limit - (now - self._started)
            known = [min([limit, *known])]
        return max(known[0], 0.0) if known else None

    def times(self) -> str:
        """How long it has taken, and how long it will."""
        left, so_far = self.seconds_left(), self._clock() - self._started
        said = f"{_minutes(so_far)} so far"
        if self._time_limit is not None and so_far > self._time_limit:
            return f"{said}, {_minutes(so_far - self._time_limit)} more than the time limit"
        if left is None:
            return f"{said}, time left unknown until learning begins"
        at_most = self._ends is None
        return f"{said}, {'at most' if at_most else 'about'} {_minutes(math.ceil(left))} left"

    def line(self) -> str:
        """All in one line."""
        stage = self._reached.get(self._stage)
        parts = [f"slice {self.slice + 1}/{self.n_slices}"] if self.n_slices > 1 else []
        count = f" {stage.done}/{stage.total}" if stage is not None and stage.total else ""
        parts.append(f"{self._stage}{count}")
        done, total = self.compiled()
        if done < total:
            parts.append(_compiling(done, total))
        return ", ".join([*parts, self.times()])

    def picture(self) -> RenderableType:
        """All stages, one below the other."""
        table = Table.grid(padding=(0, 1))
        done, total = self.compiled()
        for name in STAGES:
            reached = self._reached.get(name)
            if name == COMPILING and total:
                reached = Reached(done, total, self._started)
            if reached is None and name in IF_REACHED:
                continue
            is_over = reached is not None and name != self._stage
            if name == COMPILING:
                is_over = done == total
            mark = "✓" if is_over else "" if reached is None else "•"
            label = f"{name} (first time on this machine)" if name == COMPILING else name
            bar: RenderableType = ""
            count = ""
            if reached is not None and reached.total and not is_over:
                bar = ProgressBar(reached.total, reached.done, width=WIDTH_OF_BAR)
                count = f"{reached.done} of {reached.total}"
            table.add_row(mark, label, bar, count)
        slices = f"slice {self.slice + 1} of {self.n_slices}, " if self.n_slices > 1 else ""
        below = [Text(slices + self.times(), no_wrap=True, overflow="ellipsis")]
        if self._details:
            below.append(Text(self._details, style="dim", no_wrap=True, overflow="ellipsis"))
        if self._message:
            below.append(Text(self._message, style="bold"))
        return Group(table, *below)


def _compiling(done: int, total: int) -> str:
    return f"compiling {done}/{total} (first time on this machine)"


def _minutes(seconds: float) -> str:
    return str(timedelta(seconds=int(seconds)))
