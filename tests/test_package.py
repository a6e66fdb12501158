"""What is true of the package as a whole."""

import subprocess
import sys
from pathlib import Path

import evoem


def test_type_checkers_are_told_that_there_are_types():
    assert (Path(evoem.__file__).parent / "py.typed").is_file()


def test_importing_it_loads_no_numerical_package():
    script = "import sys, evoem; print({'numpy', 'numba', 'sklearn'} & sys.modules.keys())"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "set()\n"
