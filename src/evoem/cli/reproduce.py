"""`evoem reproduce`."""

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from evoem.cli.app import Quiet, app, one_sentence


@app.command()
def reproduce(
    name: Annotated[
        str | None, Argument(help="Experiment; leave it out to list them.", show_default=False)
    ] = None,
    quick: Annotated[
        bool, Option("--quick", help="A reduced version that takes minutes (default).")
    ] = False,
    full: Annotated[bool, Option("--full", help="The whole experiment of the paper.")] = False,
    only: Annotated[list[str] | None, Option(help="Run only this row; may be repeated.")] = None,
    updates: Annotated[
        str | None, Option(help="M-steps instead of the recipe's: monotone, printed or authors.")
    ] = None,
    images: Annotated[Path | None, Option(help="Folder with the paper's images.")] = None,
    out: Annotated[
        Path | None, Option("--out", "-o", help="Folder for the report; by default reproduce-NAME.")
    ] = None,
    seed: Annotated[int, Option(min=0, help="Seed of all random numbers.")] = 0,
    n_jobs: Annotated[int, Option(help="Threads; -1 for all processors.")] = -1,
    quiet: Quiet = False,
) -> None:
    """Repeat an experiment of the paper and compare the numbers; needs matplotlib.

    Run the command again to go on: finished parts are not repeated.
    """
    with one_sentence():
        from evoem.reproduction import command

        if quick and full:
            raise ValueError("quick must not be given with full; got both.")
        if name is None:
            typer.echo(command.listing())
            return
        command.reproduce(
            name,
            size="full" if full else "quick",
            only=only or (),
            updates=updates,
            images=images,
            out=out,
            seed=seed,
            n_jobs=n_jobs,
            tell=(lambda line: None) if quiet else typer.echo,
        )
