"""How long Ctrl-C waits before it is acknowledged: until compiled code that is running returns.

    python benchmarks/interrupts.py house.png
    python benchmarks/interrupts.py house.png --preset paper --iterations 2

Signals are sent at random moments of a restoration. Python handles them in its main thread between
two steps of its own, so the delay is that of the code that this thread is in. Real time is longer
than processor time of the main thread where other programs run.
"""

import argparse
import os
import signal
import threading
import time
from pathlib import Path

import numpy as np

from evoem import restore
from evoem.images import files

NOISE = 25.0
MEAN_PAUSE = 0.2  # seconds between signals


def main():
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("picture", type=Path)
    parser.add_argument("--preset", default="balanced")
    parser.add_argument("--iterations", type=int)
    parser.add_argument("--n-jobs", type=int, default=-1)
    given = parser.parse_args()
    clean = files.read(given.picture).pixels
    rng = np.random.default_rng(0)
    noisy = clean + NOISE * rng.normal(size=clean.shape)
    own_clock = time.pthread_getcpuclockid(threading.main_thread().ident)
    delays, sent, handled, over = [], [], threading.Event(), threading.Event()

    def handle(number, frame):
        delays.append((time.perf_counter() - sent[0], time.thread_time() - sent[1]))
        handled.set()

    def send():
        while not over.wait(rng.exponential(MEAN_PAUSE)):
            handled.clear()
            sent[:] = time.perf_counter(), time.clock_gettime(own_clock)
            os.kill(os.getpid(), signal.SIGINT)
            handled.wait()

    signal.signal(signal.SIGINT, handle)  # it is then nobody else's business
    sender = threading.Thread(target=send, daemon=True)
    sender.start()
    restore(noisy, preset=given.preset, max_iter=given.iterations, n_jobs=given.n_jobs)
    over.set()
    for what, of in zip(("real time", "processor time"), np.transpose(delays), strict=True):
        median, most, largest = np.quantile(of, [0.5, 0.99, 1.0])
        print(f"{what}: {len(of)} signals, median {median:.3f} s, "
              f"99 % within {most:.3f} s, all within {largest:.3f} s")  # fmt: skip


if __name__ == "__main__":
    main()
