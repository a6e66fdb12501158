"""The command line: one file per command, but denoise and inpaint share one.

Numerical packages are imported where they are needed, so that `evoem --help` answers at once.
"""

# The help lists commands in this order.
# isort: off
from evoem.cli.app import app
from evoem.cli import restoring
from evoem.cli import noise
from evoem.cli import demo
from evoem.cli import reproduce
from evoem.cli import ui
from evoem.cli import warmup

__all__ = ["app", "demo", "noise", "reproduce", "restoring", "ui", "warmup"]
