"""The command line as a program: `evoem` and `python -m evoem`."""

from evoem.runtime import interrupts


def main() -> None:
    """Run the command line."""
    with interrupts.leaving():
        from evoem.cli import app
    app(prog_name="evoem")


if __name__ == "__main__":
    main()
