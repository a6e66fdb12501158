"""The command line as `python -m evoem`."""

from evoem.cli import app

app(prog_name="evoem")
