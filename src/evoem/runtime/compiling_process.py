"""A process that compiles kernels into the cache, one after the other, for another process.

It reads them from its standard input, a line each, and answers each with a line: empty, or what
went wrong. It ends when there are no more lines, so it does not outlive the other process for long.
"""

import gc
import signal
import sys

from evoem.runtime.signatures import signature_of


def answer(line: str) -> str:
    """Compile a kernel; what went wrong, if anything did."""
    try:
        kernel, arguments = signature_of(line)
        kernel.compile(arguments)
    except Exception as error:  # told to who asked
        return " ".join(f"{type(error).__name__}: {error}".split())
    return ""


def main() -> None:
    """Compile what is asked for."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever asks for code decides
    gc.disable()  # takes a tenth of the time, and there is little to be freed
    for line in sys.stdin:
        sys.stdout.write(answer(line.strip()) + "\n")
        sys.stdout.flush()
