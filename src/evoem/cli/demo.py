"""`evoem demo`."""

from pathlib import Path
from typing import Annotated, Any

from typer import Option

from evoem.cli.app import Force, Quiet, app, one_sentence
from evoem.cli.options import with_options
from evoem.cli.outputs import check_paths, finish

DEMO_SIDE = 256
DEMO_NOISE = 25.0


@app.command()
@with_options("max_iter", "seed", "n_jobs", preset="fast")
def demo(
    output: Annotated[
        Path,
        Option("--output", "-o", help="File for the clean, noisy and restored image side by side."),
    ] = Path("evoem-demo.png"),
    force: Force = False,
    quiet: Quiet = False,
    **given: Any,
) -> None:
    """Add noise to a photograph and remove it again; needs scikit-image."""
    with one_sentence():
        demonstrate(DEMO_SIDE, output, force, quiet, given)


def demonstrate(side: int, output: Path, force: bool, quiet: bool, given: dict[str, Any]) -> None:
    """Restore a photograph of this many rows and columns, and write it beside the noisy one."""
    try:
        from skimage import data
    except ImportError:
        raise ValueError("demo needs scikit-image: pip install 'evoem[demo]'.") from None
    import numpy as np

    from evoem import progress, report
    from evoem.images import canonical_arrays, degrade, files
    from evoem.images.settings import checked
    from evoem.screen import Screen

    options = checked("demo", given)
    photograph = data.camera()
    step = len(photograph) // side
    blocks = photograph.reshape(side, step, side, step)
    clean = files.Picture(blocks.mean((1, 3)), None, False, False, {})
    noisy = clean._replace(pixels=degrade.add_noise(clean.pixels, DEMO_NOISE, options["seed"]))
    board = clean._replace(pixels=np.zeros((side, 3 * side), np.uint8))
    check_paths([output], [], force)
    files.check_format(output, board)
    slices = [canonical_arrays.read(noisy.pixels, None, None, False)]
    screen = Screen(quiet)
    with screen.shown():
        results = progress.restore_slices(slices, False, options, screen)
    restored = clean._replace(pixels=results[0].image)
    row = np.concatenate([clean.pixels, noisy.pixels, restored.pixels], axis=1)
    board = board._replace(pixels=np.clip(np.rint(row), 0, 255).astype(np.uint8))
    found = report.scores(clean, noisy, restored, 255.0)
    files.write(output, board, force=force)
    finish(output, results, report.notes(results, 1), 1, found, quiet)
