"""Help that fits a screen: the options everybody needs, and with --help-all the others."""

from typing import Annotated, Any

import typer
from typer import Option
from typer.core import TyperCommand

ADVANCED = "Advanced"


class Command(TyperCommand):
    """A command whose help leaves out advanced options, unless all are asked for."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        left_out: list[Any] = []
        if not ctx.meta.get(ADVANCED):
            left_out = [one for one in self.params if panel_of(one) == ADVANCED]
        for one in left_out:
            one.hidden = True  # only here: shells complete them too
        try:
            super().format_help(ctx, formatter)
        finally:
            for one in left_out:
                one.hidden = False


def panel_of(parameter: Any) -> str | None:
    """Under which title an option is listed."""
    return getattr(parameter, "rich_help_panel", None)


def show_all(ctx: typer.Context, wanted: bool) -> None:
    """Answer --help-all."""
    if wanted:
        ctx.meta[ADVANCED] = True
        typer.echo(ctx.get_help())
        raise typer.Exit


HelpAll = Annotated[
    bool,
    Option("--help-all", callback=show_all, is_eager=True, help="Show all options, and exit."),
]
