"""What all commands share: the program, options of several of them, and how they fail."""

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
Quiet = Annotated[bool, Option("--quiet", help="Say nothing but errors.")]
INPUT = "PNG, JPEG, TIFF, NPY, or a file of an instrument; file.h5:/path of a part of it."
Axes = Annotated[
    str | None,
    Option(
        rich_help_panel=ADVANCED,
        help="Axes of the file's array, such as ZCYX: C or S are channels, others slices.",
    ),
]
MaxPixels = Annotated[
    int,
    Option(
        rich_help_panel=ADVANCED,
        help="Refuse files of more pixels, counted in each slice and channel.",
    ),
]
AcceptTruncated = Annotated[
    bool,
    Option(
        "--accept-truncated",
        rich_help_panel=ADVANCED,
        help="Take what is there of a PNG or JPEG that ends early; the rest is missing.",
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
    """Denoise or inpaint one picture from nothing but that picture."""


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
            typer.echo("evoem: memory ran out; give --memory less, for example 1G.", err=True)
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
