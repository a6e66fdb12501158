"""What a case may take: processor time, time and memory, measured for each.

Memory is what the process has grown by. Kernels that were compiled count, and pages of libraries
that the system had taken away and are read again, but only once: so a case may be repeated.
"""

import faulthandler
import resource
import signal
from contextlib import contextmanager
from pathlib import Path

PROCESSOR_SECONDS = 60
SECONDS = 1500  # on a busy machine a case may wait for long
MEGABYTES = 256
# What a kernel that is compiled in the process takes is not the case's own: see `warm_up`.
SLACK = 1.1
GUARD = 8 << 30


class TookTooLong(BaseException):
    """No `except Exception` of the package may catch it."""


class TookTooMuch(BaseException):
    """The same for memory."""


def guard():
    """Let nothing take the machine's memory, and nothing hang for ever."""
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    here = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (here + GUARD, most))
    for kind in (signal.SIGALRM, signal.SIGPROF):
        signal.signal(kind, _too_long)


def _too_long(number, frame):
    raise TookTooLong(f"{signal.Signals(number).name} in {frame}")


def _status(name):
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) << 10
    raise ValueError(name)


@contextmanager
def limited():
    """Time and memory for one case."""
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    before = _status("VmRSS")
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    signal.setitimer(signal.ITIMER_PROF, PROCESSOR_SECONDS)
    faulthandler.dump_traceback_later(2 * SECONDS, exit=True)  # a hang that no signal ends
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.setitimer(signal.ITIMER_PROF, 0)
        faulthandler.cancel_dump_traceback_later()
    taken = (_status("VmHWM") - before) / (1 << 20)
    if taken > SLACK * MEGABYTES:
        raise TookTooMuch(f"{taken:.0f} MB instead of {MEGABYTES}")
