"""Handle Ctrl-C and SIGTERM only where nothing is half done.

Python raises a KeyboardInterrupt wherever the main thread happens to be, between taking a lock and
making sure that it is given back, say: a run may then never end. While interrupts are `noted`, the
first one waits for a place that says it may be `raised` there; the second one does not wait, unless
there is something that it may cut short, see `patient`. One after that never does.

SIGTERM is left alone unless a program asks for it to be an interrupt too, see `terminable`.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from evoem.runtime import launchers

if TYPE_CHECKING:
    from evoem.runtime.communicator import Communicator

EXIT_INTERRUPTED = 130  # 128 and the number of the signal, as shells have it
EXIT_TERMINATED = 143
LEAVING = [signal.SIGINT, signal.SIGTERM]
UNWRITTEN = "interrupted before everything was written."
SENTENCE = f"evoem: {UNWRITTEN}"


class Interrupts:
    """What came while interrupts were noted."""

    def __init__(
        self,
        acknowledge: Callable[[int], None] | None = None,
        several: bool = False,
        if_learnt: bool = False,
    ) -> None:
        self.number = 0
        self.came = 0  # to this process, of which others need not know yet, if there are several
        self.several = several
        self.if_learnt = if_learnt
        self.waiting = False  # for a place to be raised at
        self.patience = 1  # how many may wait
        self._acknowledge = acknowledge

    def note(self, number: int, frame: Any) -> None:
        """Handle the signal."""
        termination = _TERMINATION.get()
        if number == signal.SIGTERM and termination is not None:
            termination.came = True
        self.came += 1
        if self.several:
            if self._acknowledge is not None:
                self._acknowledge(self.came)
            return
        self.number += 1
        if self.number > self.patience:
            raise KeyboardInterrupt
        self.waiting = True
        if self._acknowledge is not None:
            self._acknowledge(self.number)


class Termination:
    """Whether SIGTERM came."""

    def __init__(self) -> None:
        self.came = False

    def note(self, number: int, frame: Any) -> None:
        """Handle the signal where somebody looks for it now and then."""
        self.came = True

    def interrupt(self, number: int, frame: Any) -> None:
        """Handle the signal."""
        self.came = True
        raise KeyboardInterrupt


_NOTED: ContextVar[Interrupts | None] = ContextVar("noted", default=None)
_TERMINATION: ContextVar[Termination | None] = ContextVar("termination", default=None)
_MAY_RAISE = ContextVar("may_raise", default=0)  # from which interrupt on; 0: none


@contextmanager
def noted(
    acknowledge: Callable[[int], None] | None = None,
    *,
    several: bool = False,
    if_learnt: bool = False,
) -> Iterator[Interrupts]:
    """Note interrupts, unless that is done already, or they are somebody else's business.

    `acknowledge` is called at once with the number of an interrupt that waits. Of `several`
    processes all must do the same: there interrupts count from where they `agree`. A result is
    wanted in any case, or only `if_learnt`, see `give_up`.
    """
    outer = _NOTED.get()
    if outer is not None:
        yield outer
        return
    own = Interrupts(acknowledge, several, if_learnt)
    if not _in_main_thread() or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield own
        return
    signals = [signal.SIGINT, *([signal.SIGTERM] if _TERMINATION.get() is not None else [])]
    before = _NOTED.set(own)
    try:
        with _handled(signals, own.note):
            yield own
    finally:
        _NOTED.reset(before)


@contextmanager
def raised(first: int = 1) -> Iterator[None]:
    """What is done here knows what to do about interrupts, from this one on; see `check`."""
    before = _MAY_RAISE.set(first)
    try:
        yield
    finally:
        _MAY_RAISE.reset(before)


@contextmanager
def patient() -> Iterator[None]:
    """The second interrupt waits here as well: something may be cut short."""
    noted = _NOTED.get()
    if noted is None:
        yield
        return
    before, noted.patience = noted.patience, 2
    try:
        yield
    finally:
        noted.patience = before


def agree(comm: "Communicator") -> None:
    """Let all processes know of interrupts that came to any of them."""
    if comm.size == 1:
        return
    noted = _NOTED.get()
    came = max(comm.collect(0 if noted is None else noted.came))
    if noted is not None and came > noted.number:
        noted.number, noted.waiting = came, True


def number() -> int:
    """How many interrupts were noted so far."""
    noted = _NOTED.get()
    return 0 if noted is None else noted.number


def check() -> None:
    """A place where nothing is half done: raise an interrupt that waits, if it may be raised."""
    noted, first = _NOTED.get(), _MAY_RAISE.get()
    if noted is not None and noted.waiting and 0 < first <= noted.number:
        noted.waiting = False
        raise KeyboardInterrupt


def give_up() -> None:
    """Where an interrupt came before anything was learnt: raise it if no result is wanted then."""
    noted = _NOTED.get()
    if noted is not None and noted.number and noted.if_learnt:
        raise KeyboardInterrupt


@contextmanager
def terminable() -> Iterator[Termination]:
    """Let SIGTERM be an interrupt, unless it is somebody else's business."""
    own = Termination()
    if not _in_main_thread() or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield own
        return
    before = _TERMINATION.set(own)
    try:
        with _handled([signal.SIGTERM], own.interrupt):
            yield own
    finally:
        _TERMINATION.reset(before)


def exit_code() -> int:
    """That of a program which was interrupted."""
    termination = _TERMINATION.get()
    return EXIT_TERMINATED if termination is not None and termination.came else EXIT_INTERRUPTED


@contextmanager
def termination_noted() -> Iterator[Termination]:
    """Note SIGTERM, and go on, unless it is somebody else's business."""
    own = Termination()
    if not _in_main_thread() or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield own
        return
    with _handled([signal.SIGTERM], own.note):
        yield own


def _leave(number: int, frame: Any) -> None:
    os.write(2, f"{SENTENCE}\n".encode())
    if launchers.told_size() > 1:  # of a process that just ends others would not hear
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(EXIT_TERMINATED if number == signal.SIGTERM else EXIT_INTERRUPTED)


def _handlers() -> list[Any]:
    return [signal.getsignal(one) for one in LEAVING]


@contextmanager
def leaving() -> Iterator[None]:
    """Leave the program at once, with a sentence, while nothing is to be lost.

    Packages that are just being imported make other errors of a KeyboardInterrupt, and so do those
    that read a command line.
    """
    if not _in_main_thread() or _handlers() != [signal.default_int_handler, signal.SIG_DFL]:
        yield
        return
    with _handled(LEAVING, _leave):
        yield


@contextmanager
def staying() -> Iterator[None]:
    """The part of a program that is `leaving` in which there is something to lose.

    Behind it all is said and done: whoever interrupts then ends the program without a word.
    """
    if not _in_main_thread() or _handlers() != [_leave, _leave]:
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        yield
    finally:
        for one in LEAVING:
            signal.signal(one, signal.SIG_DFL)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


@contextmanager
def _handled(signals: list[signal.Signals], handler: Callable[[int, Any], None]) -> Iterator[None]:
    usual = {one: signal.signal(one, handler) for one in signals}
    try:
        yield
    finally:
        for one, before in usual.items():
            signal.signal(one, before)
