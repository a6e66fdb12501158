"""Common parts of the commands: the program, shared options, and how errors are reported."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from typer import Option

import evoem
from evoem.cli.help import ADVANCED
from evoem.runtime import interrupts

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)
Force = Annotated[bool, Option("--force", help="Replace existing files.")]
Quiet = Annotated[bool, Option("--quiet", help="Print errors only.")]
INPUT = "PNG, JPEG, TIFF, NPY, or an instrument's format; file.h5:/path for a part of a file."
Axes = Annotated[
    str | None,
    Option(
        rich_help_panel=ADVANCED,
        help="Axes of the array, such as ZCYX: Y and X the image, C or S channels, others slices.",
    ),
]
MaxPixels = Annotated[
    int,
    Option(
        rich_help_panel=ADVANCED,
        help="Refuse files with more pixels per slice and channel.",
    ),
]
AcceptTruncated = Annotated[
    bool,
    Option(
        "--accept-truncated",
        rich_help_panel=ADVANCED,
        help="Read the complete rows of a truncated PNG or JPEG; the rest is missing.",
    ),
]


def show_version(wanted: bool) -> None:
    """Answer --version."""
    if wanted:
        typer.echo(f"evoem {evoem.__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, Option("--version", callback=show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Denoise or inpaint an image, using nothing but that image."""


@contextmanager
def one_sentence() -> Iterator[None]:
    """Say what went wrong in one sentence, and leave with the exit code for it."""
    with interrupts.leaving():
        import evoem.images.restore  # noqa: F401
    with interrupts.staying(), interrupts.terminable() as termination:
        try:
            yield
        except ValueError as error:
            typer.echo(f"evoem: {error}", err=True)
            raise typer.Exit(1) from error
        except MemoryError as error:
            typer.echo("evoem: out of memory; try a smaller --memory, such as 1G.", err=True)
            raise typer.Exit(1) from error
        except BrokenPipeError:  # nobody listens any more, which Typer knows
            raise
        except OSError as error:  # such as standard output on a full disk
            place = "" if error.filename is None else f" for {error.filename}"
            typer.echo(f"evoem: the system did not go along{place}: {error.strerror}.", err=True)
            raise typer.Exit(1) from error
        except KeyboardInterrupt as error:
            typer.echo(interrupts.SENTENCE, err=True)
            raise typer.Exit(interrupts.EXIT_INTERRUPTED) from error
        finally:
            if termination.came:
                raise typer.Exit(interrupts.EXIT_TERMINATED)
