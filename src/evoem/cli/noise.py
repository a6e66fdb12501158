"""`evoem noise`."""

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from evoem.cli.app import INPUT, AcceptTruncated, Axes, Force, MaxPixels, app, one_sentence
from evoem.cli.inputs import read_masks
from evoem.cli.outputs import check_paths, writing
from evoem.runtime.atomic_files import Write, write_together
from evoem.runtime.input_files import MOST_PIXELS
from evoem.runtime.silence import silent_libraries


@app.command()
def noise(
    input: Annotated[Path, Argument(help=INPUT, show_default=False)],
    json: Annotated[Path | None, Option(help="JSON file for the result.")] = None,
    plot: Annotated[
        Path | None,
        Option(help="File for a plot of the result; needs matplotlib."),
    ] = None,
    axes: Axes = None,
    max_pixels: MaxPixels = MOST_PIXELS,
    accept_truncated: AcceptTruncated = False,
    force: Force = False,
) -> None:
    """Identify the noise of an image, using nothing but that image."""
    with one_sentence():
        from evoem.images import files, noise_estimation, noise_plot, noise_stage
        from evoem.images.stacks import Stack

        outputs_of = [path for path in (json, plot) if path is not None]
        check_paths(outputs_of, [files.located(input).file], force)
        if plot is not None:
            noise_plot.check_suffix(plot.suffix)
        with silent_libraries():
            picture = files.read(
                input, max_pixels=max_pixels, accept_truncated=accept_truncated, axes=axes
            )
        axis = -1 if picture.colour else None
        pixels = picture.pixels if picture.stack else picture.pixels[None]
        nothing = [None] * len(pixels)
        stack = Stack(pixels, read_masks(None, picture, max_pixels), axis, False, nothing)
        first = next(iter(stack.slices()))
        seen = noise_stage.to_be_told_from(first)
        found, _ = noise_estimation.estimate(seen.pixels(seen.values), seen.observed)
        outputs: dict[Path, Write] = {}
        if json is not None:
            outputs[json] = writing((found.to_json() + "\n").encode())
        if plot is not None:
            outputs[plot] = writing(noise_plot.drawn(found, plot.suffix))
        write_together(outputs, force=force)
        typer.echo(found.describe())
        for note in (*picture.notes, *first.notes):
            typer.echo(note)
