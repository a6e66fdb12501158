"""`evoem ui`."""

from typing import Annotated

import typer
from typer import Option

from evoem.cli.app import MaxPixels, app, one_sentence
from evoem.runtime.input_files import MOST_PIXELS


@app.command()
def ui(
    port: Annotated[int, Option(min=0, max=65535, help="Port; 0 chooses a free one.")] = 0,
    browser: Annotated[
        bool, Option("--browser/--no-browser", help="Open the page in a browser.")
    ] = True,
    max_pixels: MaxPixels = MOST_PIXELS,
) -> None:
    """Restore images on a page in your browser; needs starlette and uvicorn.

    Nothing leaves the computer, and nothing is kept when the page is closed with Ctrl-C.
    """
    with one_sentence():
        try:
            from evoem.ui.server import serve
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] not in ("starlette", "uvicorn", "anyio"):
                raise
            raise ValueError("ui needs starlette and uvicorn: pip install 'evoem[ui]'.") from None

        def tell(address: str) -> None:
            typer.echo(f"{address}\nCtrl-C closes the page; nothing is kept then.")

        try:
            serve(port, max_pixels, tell=tell, open_browser=browser)
        except KeyboardInterrupt:  # this is how it is closed
            typer.echo("Closed.")
