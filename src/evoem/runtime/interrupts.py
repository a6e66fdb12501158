"""Ctrl-C where nothing is half done.

Python raises a KeyboardInterrupt wherever the main thread happens to be, between taking a lock and
making sure that it is given back, say: a run may then never end. While interrupts are `noted`, the
first one waits for a place that says it may be `raised` there; the second one does not wait.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any


class Interrupts:
    """What came while interrupts were noted."""

    def __init__(self) -> None:
        self.number = 0
        self.waiting = False  # for a place to be raised at

    def note(self, number: int, frame: Any) -> None:
        """Handle the signal."""
        self.number += 1
        if self.number > 1:
            signal.default_int_handler(number, frame)
        self.waiting = True


_NOTED: ContextVar[Interrupts | None] = ContextVar("noted", default=None)
_MAY_RAISE = ContextVar("may_raise", default=False)


@contextmanager
def noted() -> Iterator[Interrupts]:
    """Note interrupts, unless that is done already, or they are somebody else's business."""
    outer = _NOTED.get()
    if outer is not None:
        yield outer
        return
    own = Interrupts()
    usual = signal.getsignal(signal.SIGINT)
    in_main_thread = threading.current_thread() is threading.main_thread()
    if not in_main_thread or usual is not signal.default_int_handler:
        yield own
        return
    before = _NOTED.set(own)
    signal.signal(signal.SIGINT, own.note)
    try:
        yield own
    finally:
        signal.signal(signal.SIGINT, usual)
        _NOTED.reset(before)


@contextmanager
def raised() -> Iterator[None]:
    """What is done here knows what to do about interrupts, see `check`."""
    before = _MAY_RAISE.set(True)
    try:
        yield
    finally:
        _MAY_RAISE.reset(before)


def check() -> None:
    """A place where nothing is half done: raise an interrupt that waits, if it may be raised."""
    noted = _NOTED.get()
    if noted is not None and noted.waiting and _MAY_RAISE.get():
        noted.waiting = False
        raise KeyboardInterrupt
