"""The command line as a program: `evoem` and `python -m evoem`."""

import sys
import warnings

from evoem.runtime import interrupts


def main() -> None:
    """Run the command line."""
    with interrupts.leaving():
        from evoem.cli import app

        if not sys.warnoptions:
            warnings.simplefilter("ignore")  # what matters is said in a sentence or a note
        app(prog_name="evoem")


if __name__ == "__main__":
    main()
