"""The program that serves the page."""

import os
import subprocess
import sys
from contextlib import contextmanager


@contextmanager
def page(folder, *options):
    """The running program and the address of its page; its temporary files lie in the folder."""
    command = [sys.executable, "-m", "evoem", "ui", "--no-browser", *options]
    program = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(folder)},
    )
    try:
        yield program, program.stdout.readline().strip()
    finally:
        program.kill()
        program.communicate()
