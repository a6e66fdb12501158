"""Outputs of commands, and their closing report."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from evoem.runtime import interrupts
from evoem.runtime.atomic_files import Write, check_place

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]
    from evoem.images.files import Picture
    from evoem.images.restore import Restoration
    from evoem.report import Scores


def writing(content: bytes) -> Write:
    """What writes this."""
    return lambda file: file.write(content)


def check_paths(outputs: Sequence[Path], inputs: Sequence[Path], force: bool) -> None:
    """Refuse what could not or must not be written, before the work is done."""
    targets = [os.path.realpath(path) for path in outputs]
    for number, target in enumerate(targets):
        if target in targets[:number]:
            raise ValueError(f"{outputs[number]} must be the path of one output; got it for two.")
    from evoem.images import files

    for path in outputs:
        check_place(path, force=force, inputs=inputs, may_replace=files.may_replace(path))


def check_checkpoint(checkpoint: str | None, outputs: Sequence[Path]) -> None:
    """Refuse a checkpoint that an output would replace."""
    if checkpoint is not None and os.path.realpath(checkpoint) in map(os.path.realpath, outputs):
        raise ValueError(f"{checkpoint} must not be an output: it is the checkpoint.")


def deviation_picture(path: Path, picture: "Picture", std: "Array") -> "Picture":
    """Standard deviations as floats, of 32 bits if these are enough, or as 8-bit grey up to the
    largest where floats cannot be.
    """
    import numpy as np

    from evoem.images.files.picture import of_deviations

    if path.suffix.lower() in (".png", ".jpg", ".jpeg"):
        std = np.rint(std * (255 / (std.max() or 1))).astype(np.uint8)
    elif not std.max() > np.finfo(np.float32).max:
        std = std.astype(np.float32)
    metadata = of_deviations(picture.metadata)
    return picture._replace(pixels=std, alpha=None, metadata=metadata)


def finish(
    output: Path,
    results: Sequence["Restoration"],
    notes: Sequence[str],
    n_slices: int,
    found: "Scores",
    quiet: bool,
) -> None:
    """Say what came of it, and leave with the exit code for it."""
    from evoem import report

    if not quiet:
        typer.echo(f"{output}: {report.summary(results, found)}")
        for note in notes:
            typer.echo(note)
    if report.was_interrupted(results, n_slices):
        raise typer.Exit(interrupts.EXIT_INTERRUPTED)
