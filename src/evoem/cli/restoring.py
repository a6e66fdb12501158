"""`evoem denoise` and `evoem inpaint`."""

import inspect
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from evoem.cli.app import INPUT, AcceptTruncated, Axes, Force, MaxPixels, app, one_sentence
from evoem.cli.help import ADVANCED, Command, HelpAll
from evoem.cli.inputs import MaskFile, read_masks, read_reference, read_variances
from evoem.cli.options import UNASKED, asked, noise_file, restore_options, with_parameters
from evoem.cli.outputs import check_checkpoint, check_paths, deviation_picture, finish, writing
from evoem.images.options import OPTIONS
from evoem.runtime import interrupts, stages
from evoem.runtime.atomic_files import Write, write_together
from evoem.runtime.input_files import MOST_PIXELS
from evoem.runtime.silence import silent_libraries

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]
    from evoem.images.files import Picture
    from evoem.runtime.communicator import Communicator
    from evoem.runtime.compile_ahead import Compilers
    from evoem.screen import Screen


NOTHING_MISSING = (
    "mask must mark missing pixels unless the image has NaN; got neither: paint the damage white "
    "on a black image of the same size and pass it with --mask, or let --propose-mask draw one."
)


@dataclass(kw_only=True)
class Job:
    """What denoise and inpaint are both told, and the options of `restore`."""

    input: Annotated[Path, Argument(help=INPUT, show_default=False)]
    output: Annotated[
        Path | None,
        Option("--output", "-o", help="File for the restored image.", show_default=False),
    ] = None
    uncertainty: Annotated[Path | None, Option(help="File for the standard deviations.")] = None
    reference: Annotated[
        Path | None, Option(rich_help_panel=ADVANCED, help="Clean image to compare with.")
    ] = None
    json: Annotated[
        Path | None, Option(rich_help_panel=ADVANCED, help="JSON file for settings and results.")
    ] = None
    report: Annotated[
        Path | None,
        Option(
            rich_help_panel=ADVANCED,
            help="File for an HTML report; of a stack, it shows up to eight slices.",
        ),
    ] = None
    axes: Axes = None
    max_pixels: MaxPixels = MOST_PIXELS
    accept_truncated: AcceptTruncated = False
    force: Force = False
    quiet: Annotated[
        bool, Option("--quiet", rich_help_panel=ADVANCED, help="Print errors only.")
    ] = False
    help_all: HelpAll = False
    options: dict[str, Any]


# What everybody needs, in this order; then come the others.
EVERYBODYS = (
    "input output preset mask mask_grow propose_mask time_limit noise uncertainty force help_all"
)
FIRST = {name: number for number, name in enumerate(EVERYBODYS.split())}


def with_job(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of a `Job` besides its own."""
    own = dict(inspect.signature(command).parameters)
    del own["job"]
    shared = dict(inspect.signature(Job).parameters)
    del shared["options"]
    options = [asked(name) for name in OPTIONS if name not in UNASKED]

    @wraps(command)
    def filled(**given: Any) -> None:
        mine = {name: given.pop(name) for name in own}
        job = {name: given.pop(name) for name in shared}
        command(job=Job(options=given, **job), **mine)

    listed = [*own.values(), *shared.values(), *options]
    return with_parameters(filled, sorted(listed, key=lambda one: FIRST.get(one.name, len(FIRST))))


DENOISE_EXAMPLES = """
Examples:

  evoem denoise noisy.png -o clean.png

  evoem denoise large.jpg -o clean.jpg --preset fast --time-limit 120

  evoem denoise cells.tif -o clean.tif --uncertainty std.tif
"""
INPAINT_EXAMPLES = """
Examples:

  evoem inpaint scratched.png --propose-mask scratches.png

  evoem inpaint scratched.png --mask scratches.png --mask-grow 1 -o whole.png

  evoem inpaint pepper.png --mask-value 0,255 -o clean.png
"""


@app.command(cls=Command, epilog=DENOISE_EXAMPLES)
@with_job
def denoise(*, job: Job) -> None:
    """Remove noise of unknown kind and strength from an image, and fill in NaN."""
    with one_sentence():
        run("denoise", job, None, keep_observed=False)


@app.command(cls=Command, epilog=INPAINT_EXAMPLES)
@with_job
def inpaint(
    *,
    job: Job,
    mask: Annotated[
        Path | None,
        Option(help="Image that is bright, or not zero, where pixels are missing."),
    ] = None,
    mask_grow: Annotated[
        int,
        Option(min=0, metavar="PIXELS", help="Widen the mask by this many pixels."),
    ] = 0,
    propose_mask: Annotated[
        Path | None,
        Option(help="Only write a mask of likely damage, for you to correct."),
    ] = None,
    mask_threshold: Annotated[
        float | None,
        Option(
            rich_help_panel=ADVANCED,
            help="Mask values above this are missing; by default, in a mask with more than two "
            "values, those of at least half of the largest.",
        ),
    ] = None,
    keep_observed: Annotated[
        bool,
        Option(
            "--keep-observed/--no-keep-observed",
            " /--denoise",
            rich_help_panel=ADVANCED,
            help="Leave the other pixels unchanged; --denoise removes their noise.",
        ),
    ] = True,
) -> None:
    """Fill in missing pixels of an image: NaN, and those that a mask marks."""
    with one_sentence():
        if propose_mask is not None:
            propose(job, propose_mask)
            return
        given = None if mask is None else MaskFile(mask, mask_threshold, mask_grow)
        run("inpaint", job, given, keep_observed)


def propose(job: Job, path: Path) -> None:
    """Write a mask of what looks like damage."""
    import numpy as np

    from evoem.images import files, masks

    if job.output is not None:
        raise ValueError(
            f"propose-mask must be given without -o: correct {path}, then pass it with --mask."
        )
    check_paths([path], [files.located(job.input).file], job.force)
    with silent_libraries():
        picture = files.read(
            job.input,
            max_pixels=job.max_pixels,
            accept_truncated=job.accept_truncated,
            axes=job.axes,
        )
    if picture.stack:
        raise ValueError(f"{job.input} must be a single image for propose-mask; got a stack.")
    values, missing = picture.pixels.astype(np.float64), picture.missing
    if not picture.colour:
        values, missing = values[..., None], None if missing is None else missing[..., None]
    missing = np.isnan(values) | (False if missing is None else missing)
    found = masks.proposed(values, missing if missing.any() else None)
    drawn = files.Picture((255 * found).astype(np.uint8), None, False, False, {})
    files.write(path, drawn, force=job.force)
    if not job.quiet:
        typer.echo(
            f"{path}: {np.count_nonzero(found):,} of {found.size:,} pixels differ from their "
            "surroundings. Correct the mask in a paint program: white pixels will be filled in."
        )


@contextmanager
def together(comm: "Communicator", checkpoint: str | None) -> Iterator[None]:
    """Whatever ends this process ends the others too; the first one has the say."""
    try:
        yield
    except typer.Exit:  # they all do
        raise
    except (Exception, KeyboardInterrupt) as error:
        if comm.size == 1:
            raise
        said, code = str(error) or type(error).__name__, 1
        if isinstance(error, KeyboardInterrupt):
            said, code = interrupts.UNWRITTEN, interrupts.exit_code()
        kept = checkpoint is not None and Path(checkpoint).exists()
        more = f" To continue, resume from {checkpoint}: --resume." if kept else ""
        comm.abort(f"{said}{more}", code)


def run(command: str, job: Job, mask: MaskFile | None, keep_observed: bool) -> None:
    """Do the job, alone or together with the processes that a launcher started."""
    output_of(job)
    from evoem import distributed

    comm = distributed.launched()
    checkpoint = job.options["checkpoint"]
    with together(comm, None if checkpoint is None else str(checkpoint)):
        from evoem.images.settings import checked
        from evoem.runtime.compile_ahead import compilers
        from evoem.runtime.cores import threads_of
        from evoem.screen import Screen

        written = restore_options(job.options)
        options = checked(command, written) | {"comm": comm}
        # Processes that share the work compile it as it comes.
        n_processes = threads_of(options["n_jobs"]) if comm.size == 1 else 0
        screen = Screen(job.quiet or comm.rank > 0, options["time_limit"])
        with screen.shown(), compilers(n_processes) as ahead:
            screen.compiled = lambda: ahead.count
            tell = run_in(ahead, screen, command, job, written, options, mask, keep_observed)
        tell()


def run_in(
    ahead: "Compilers",
    screen: "Screen",
    command: str,
    job: Job,
    written: dict[str, Any],
    options: dict[str, Any],
    mask: MaskFile | None,
    keep_observed: bool,
) -> Callable[[], None]:
    """Read, check, restore and write, while what is needed is compiled; what tells of it."""
    import numpy as np

    from evoem import progress, report
    from evoem.images import bands, files, html_report, kernels_ahead
    from evoem.images.image_models import default_model
    from evoem.images.stacks import Stack

    stages.begin("reading")
    comm, model = options["comm"], options["model"] or default_model(options["preset"])
    variance_file = job.options["noise_variance"]
    mask_path = None if mask is None else mask.path
    inputs = [job.input, mask_path, job.reference, variance_file, noise_file(job.options)]
    read = [files.located(path).file for path in inputs if path is not None]
    check_paths(outputs_of(job), read, job.force)
    check_checkpoint(options["checkpoint"], outputs_of(job))
    ahead.want(kernels_ahead.needed(model, *kernels_ahead.EXPECTED[command]))
    limit, notes = job.max_pixels, list[str]()
    with silent_libraries():
        picture = files.read(
            job.input,
            max_pixels=limit,
            accept_truncated=job.accept_truncated,
            axes=job.axes,
            rows=None if comm.size == 1 else lambda n_rows: bands.even(n_rows, comm).rows,
        )
        masks = read_masks(mask, picture, limit, notes.append)
        # What the file says of its noise is taken unless something else is said of it.
        own = written["noise"] is None and written["preset"] != "paper"
        variances = read_variances(variance_file, picture, limit, own)
        clean = (
            None
            if job.reference is None
            else read_reference(job.reference, picture, limit, job.axes)
        )
    check_formats(job, picture)
    axis = -1 if picture.colour else None
    pixels = picture.pixels if picture.stack else picture.pixels[None]
    stack = Stack(pixels, masks, axis, False, variances, options["missing_value"], comm)
    slices = list(stack.slices())
    if keep_observed and all(one.observed is None for one in slices):
        raise ValueError(NOTHING_MISSING)
    if not screen.quiet:
        if comm.size > 1 and options["checkpoint"] is not None:  # who kills one tells nothing
            kept = f"The run of {comm.size} processes is kept in {options['checkpoint']}"
            typer.echo(f"{kept}: --resume goes on with it, whatever ends it.", err=True)
        for note in notes:
            typer.echo(note, err=True)
    for kind in {kernels_ahead.kind_of(one) for one in slices}:
        ahead.want(kernels_ahead.needed(model, kind))

    results = progress.restore_slices(slices, keep_observed, options, screen)
    results = [result.gathered() for result in results]
    if comm.rank > 0:  # the first one writes
        if report.was_interrupted(results, len(pixels)):
            raise typer.Exit(interrupts.EXIT_INTERRUPTED)
        return lambda: None
    stages.begin("writing")
    shape = picture.pixels.shape
    values = stacked([*(one.image for one in results), *pixels[len(results) :]])
    still_true = picture.noise_variance if keep_observed else None
    restored = picture._replace(pixels=values.reshape(shape), noise_variance=still_true)
    output = output_of(job)
    outputs: dict[Path, Write] = {files.located(output).file: files.writer(output, restored)}
    if job.uncertainty is not None:
        unknown = np.full(pixels.shape[1:], np.nan)
        std = [one.std for one in results] + [unknown] * (len(pixels) - len(results))
        deviations = deviation_picture(job.uncertainty, picture, stacked(std).reshape(shape))
        outputs[files.located(job.uncertainty).file] = files.writer(job.uncertainty, deviations)
    found = {} if clean is None else report.scores(clean, picture, restored)
    if job.json is not None:
        paths = {
            "input": job.input,
            "output": job.output,
            "mask": mask_path,
            "reference": job.reference,
        }
        known = {"keep_observed": keep_observed, "alpha": False, "channel_axis": axis}
        of_all = {"time_limit": options["time_limit"]}  # of a stack, not of its first slice
        content = {
            "command": command,
            **{name: None if path is None else str(path) for name, path in paths.items()},
            "settings": written | known | results[0].settings | of_all,
        }
        content |= report.record(results, picture, found)
        text = json.dumps(content, indent=2, allow_nan=False) + "\n"
        outputs[job.json] = writing(text.encode())
    of_files = [*notes, *picture.notes]
    if job.report is not None:
        about = html_report.About(job.input.name, of_files, found)
        outputs[job.report] = writing(html_report.page_of(results, about).encode())
    write_together(outputs, force=job.force)
    notes = [*of_files, *report.notes(results, len(pixels))]
    kept = options["checkpoint"]
    # Nothing is kept yet if two interrupts came before there was anything.
    if kept and Path(kept).exists() and report.was_interrupted(results, len(pixels)):
        notes.append(f"The run is kept in {kept}: --resume --force goes on with it.")
    return partial(finish, output, results, notes, len(pixels), found, job.quiet)


def output_of(job: Job) -> Path:
    """Where the restored picture goes."""
    if job.output is None:
        raise typer.BadParameter("it must be given.", param_hint="'--output' / '-o'")
    return job.output


def stacked(slices: "Sequence[Array]") -> "Array":
    """Slices along a new first axis; a single one is not copied."""
    import numpy as np

    return slices[0][None] if len(slices) == 1 else np.stack(slices)


def outputs_of(job: Job) -> list[Path]:
    """All files that are to be written."""
    from evoem.images import files

    pictures = (job.output, job.uncertainty)
    paths = [files.located(path).file for path in pictures if path is not None]
    return [*paths, *(path for path in (job.json, job.report) if path is not None)]


def check_formats(job: Job, picture: "Picture") -> None:
    """Refuse formats that could not hold the results."""
    import numpy as np

    from evoem.images import files

    files.check_format(output_of(job), picture)
    if job.uncertainty is not None:
        zeros = np.zeros(picture.pixels.shape, np.float32)
        files.check_format(job.uncertainty, deviation_picture(job.uncertainty, picture, zeros))
