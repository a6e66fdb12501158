"""Progress for `verbose=True`: a bar, or a line now and then."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from evoem.images.learning import Progress

SECONDS_BETWEEN_LINES = 5.0


@contextmanager
def shown(options: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The options, with a callback that shows progress and calls the one that is given."""
    comm = options["comm"]
    if not options["verbose"] or (comm is not None and comm.rank > 0):
        yield options
        return
    try:
        from tqdm.auto import tqdm
    except ImportError:
        show: Lines | Bar = Lines()
    else:
        show = Bar(tqdm)
    given = options["callback"]

    def told(progress: Progress) -> Any:
        show(progress)
        return None if given is None else given(progress)

    try:
        yield options | {"callback": told}
    finally:
        show.close()


class Bar:
    """A bar of tqdm, a new length for each stage."""

    def __init__(self, tqdm: Callable[..., Any]) -> None:
        self._bar = tqdm(total=1, desc="starting", unit="it")

    def __call__(self, progress: Progress) -> None:
        name = progress.stage
        if name != self._bar.desc.removesuffix(": ") or progress.iteration < self._bar.n:
            self._bar.reset(total=progress.max_iter)
            self._bar.set_description(name, refresh=False)
        self._bar.set_postfix(
            noise=f"{progress.noise_level:.4g}", bound=f"{progress.free_energy:.2f}", refresh=False
        )
        self._bar.update(progress.iteration - self._bar.n)
        if progress.iteration == progress.max_iter:
            self._bar.refresh()

    def close(self) -> None:
        """Leave the bar as it is."""
        self._bar.close()


class Lines:
    """A line on standard error now and then, and after the last iteration of a stage."""

    def __init__(self) -> None:
        self._written = -float("inf")

    def __call__(self, progress: Progress) -> None:
        name, now = progress.stage, time.monotonic()
        if now - self._written < SECONDS_BETWEEN_LINES and progress.iteration < progress.max_iter:
            return
        self._written = now
        sys.stderr.write(
            f"{name}: {progress.iteration}/{progress.max_iter}, noise {progress.noise_level:.4g}, "
            f"bound {progress.free_energy:.2f}\n"
        )
        sys.stderr.flush()

    def close(self) -> None:
        """There is nothing to close."""
