"""Give damaged files and odd arguments to the program and the library, case after case.

    python tests/fuzz/campaign.py 20000 [--seed 0]

Each case has limits of time and memory. Each kind of failure is told once, with its traceback; the
files of its first case are kept in the folder given with `--keep`.
"""

import argparse
import collections
import inspect
import logging
import shutil
import sys
import tempfile
import time
import traceback
from pathlib import Path

import hypothesis
import numpy as np
from fuzz_cases import any_case, warm_up
from limits import TookTooLong, TookTooMuch, guard, limited


def described(case):
    """What a case was made of."""
    known = inspect.getclosurevars(case).nonlocals
    with np.printoptions(threshold=20):
        return ", ".join(f"{name}={value!r:.500}" for name, value in known.items())


def ended(case, folder):
    """How a case ended, within the limits."""
    with limited():
        return "refused" if case(folder) else "done"


class Campaign:
    """How cases ended."""

    def __init__(self, keep):
        self.ends = collections.Counter()
        self.failures = {}
        self.repeated = 0
        self._keep = keep

    def try_case(self, kind, case):
        """Run a case in a folder of its own; again if it took much memory, see `limits`."""
        with tempfile.TemporaryDirectory() as folder:
            try:
                try:
                    end = ended(case, Path(folder))
                except TookTooMuch as error:
                    print(f"{kind}, case {self.ends.total()} with {described(case)}: {error}")
                    with tempfile.TemporaryDirectory() as other:
                        end = ended(case, Path(other))
                    self.repeated += 1
            except (Exception, TookTooLong, TookTooMuch) as error:
                end = "FAILED"
                self._note(kind, case, error, folder)
        self.ends[kind, end] += 1

    def _note(self, kind, case, error, folder):
        cause = error.__cause__ or error
        last = traceback.extract_tb(cause.__traceback__)[-1]
        where = (type(cause).__name__, Path(last.filename).name, last.lineno)
        if where in self.failures:
            return
        text = "".join(traceback.format_exception(error))[-6000:]
        told = f"{kind}, case {self.ends.total()} with {described(case)}:\n{text}"
        self.failures[where] = told
        print(f"\nFAILED, {told}", flush=True)
        if self._keep is not None:
            shutil.copytree(folder, self._keep / f"{len(self.failures)}")

    def tell(self):
        """How many cases ended how, and the failures."""
        for (kind, end), number in sorted(self.ends.items()):
            print(f"{number:6} {kind}: {end}")
        print(f"{self.ends.total():6} cases")
        print(f"{self.repeated:6} of them repeated, as they seemed to take too much memory")
        print(f"{len(self.failures):6} kinds of failures")


def main():
    """Run so many cases, and fail if any did."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("n_cases", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so many")
    parser.add_argument("--keep", type=Path, help="folder for files of failures")
    chosen = parser.parse_args()
    logging.getLogger("evoem").addHandler(logging.NullHandler())
    with tempfile.TemporaryDirectory() as folder:
        warm_up(Path(folder))
    guard()
    campaign, started = Campaign(chosen.keep), time.monotonic()

    @hypothesis.seed(chosen.seed)
    @hypothesis.settings(
        max_examples=chosen.n_cases, deadline=None, database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )  # fmt: skip
    @hypothesis.given(any_case())
    def each(drawn):
        if time.monotonic() - started < chosen.seconds:
            campaign.try_case(*drawn)

    each()
    campaign.tell()
    sys.exit(bool(campaign.failures))


if __name__ == "__main__":
    main()
