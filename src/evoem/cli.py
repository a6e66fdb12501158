"""The command line: `evoem denoise`, `evoem inpaint` and `evoem demo`.

Numerical packages are imported where they are needed, so that `evoem --help` answers at once.
"""

import inspect
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from functools import wraps
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

import evoem
from evoem.images.options import NOISES, OPTIONS
from evoem.runtime import interrupts
from evoem.runtime.atomic_files import check_place, write_whole

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]
    from evoem.images.files import Picture
    from evoem.images.noise_model import Noise
    from evoem.images.restore import Restoration
    from evoem.report import Scores

UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
DEMO_SIDE = 256
DEMO_NOISE = 25.0

# Options of `restore` that the command line knows from the picture, or has its own for.
UNASKED = ("channel_axis", "alpha", "callback")
# Those that are written in another way than Python has them.
WRITTEN = {
    "patch_size": list[int] | None,
    "n_latents": list[int] | None,
    "memory": str | None,
    "noise": str,
    "noise_variance": str | None,
}
HINTS = {
    "patch_size": " May be given repeatedly.",
    "n_latents": " May be given repeatedly.",
    "memory": " Such as 500M or 4G.",
    "noise": " Here the JSON file of one.",
    "noise_variance": " A TIFF or NPY file of the picture's size.",
}

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)

Force = Annotated[bool, Option("--force", help="Replace existing files.")]
Quiet = Annotated[bool, Option("--quiet", help="Say nothing but errors.")]


@dataclass(kw_only=True)
class Job:
    """What denoise and inpaint are both told, and the options of `restore`."""

    input: Annotated[Path, Argument(help="PNG, JPEG, TIFF or NPY file.", show_default=False)]
    output: Annotated[Path, Option("--output", "-o", help="File for the restored picture.")]
    reference: Annotated[Path | None, Option(help="Clean picture, to compare with.")] = None
    uncertainty: Annotated[Path | None, Option(help="File for standard deviations.")] = None
    json: Annotated[Path | None, Option(help="File for settings and results.")] = None
    force: Force = False
    quiet: Quiet = False
    options: dict[str, Any]


def asked(name: str) -> inspect.Parameter:
    """An option of `restore` as one of the command line."""
    kind, setting = OPTIONS[name]
    words = f"One of {', '.join(setting.choices)}. " if setting.choices else ""
    told = Option(help=words + setting.doc + HINTS.get(name, ""))
    annotation: Any = Annotated[WRITTEN.get(name, kind), told]
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=setting.default, annotation=annotation
    )


def with_parameters(
    command: Callable[..., None], parameters: Sequence[inspect.Parameter]
) -> Callable[..., None]:
    """Give a command another signature, for Typer."""
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {entry.name: entry.annotation for entry in parameters}
    return command


def with_options(*names: str, **defaults: Any) -> Callable[..., Callable[..., None]]:
    """Give a command some options of `restore` besides its own, some with another default."""
    options = [asked(name) for name in names]
    options += [asked(name).replace(default=default) for name, default in defaults.items()]

    def with_these(command: Callable[..., None]) -> Callable[..., None]:
        *own, _ = inspect.signature(command).parameters.values()
        return with_parameters(command, [*own, *options])

    return with_these


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

    return with_parameters(filled, [*own.values(), *shared.values(), *options])


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


@app.command()
@with_job
def denoise(*, job: Job) -> None:
    """Remove the noise of a picture. Its level need not be known. NaN is filled in."""
    with one_sentence():
        run("denoise", job, None, keep_observed=False)


@app.command()
@with_job
def inpaint(
    *,
    job: Job,
    mask: Annotated[
        Path | None,
        Option(help="Picture that is bright, or not zero, where pixels are missing, besides NaN."),
    ] = None,
    keep_observed: Annotated[
        bool,
        Option(
            "--keep-observed/--no-keep-observed",
            " /--denoise",
            help="Leave the other pixels as they are; --denoise does not.",
        ),
    ] = True,
) -> None:
    """Fill in missing pixels of a picture: those of a mask, and NaN."""
    with one_sentence():
        run("inpaint", job, mask, keep_observed)


@app.command()
@with_options("max_iter", "seed", "n_jobs", preset="fast")
def demo(
    output: Annotated[
        Path, Option("--output", "-o", help="File for clean, noisy and restored side by side.")
    ] = Path("evoem-demo.png"),
    force: Force = False,
    quiet: Quiet = False,
    **given: Any,
) -> None:
    """Add noise to a photograph and remove it again. Needs scikit-image."""
    with one_sentence():
        try:
            from skimage import data
        except ImportError:
            raise ValueError("demo needs scikit-image: pip install 'evoem[demo]'.") from None
        import numpy as np

        from evoem import progress, report
        from evoem.images import canonical_arrays, degrade, files
        from evoem.images.settings import checked

        options = checked("demo", given)
        photograph = data.camera()
        step = len(photograph) // DEMO_SIDE
        blocks = photograph.reshape(DEMO_SIDE, step, DEMO_SIDE, step)
        clean = files.Picture(blocks.mean((1, 3)), None, False, False, {})
        noisy = clean._replace(pixels=degrade.add_noise(clean.pixels, DEMO_NOISE, options["seed"]))
        board = clean._replace(pixels=np.zeros((DEMO_SIDE, 3 * DEMO_SIDE), np.uint8))
        files.check_output(output, force=force, picture=board)
        slices = [canonical_arrays.read(noisy.pixels, None, None, False)]
        results = progress.restore_slices(slices, False, options, quiet=quiet)
        restored = clean._replace(pixels=results[0].image)
        row = np.concatenate([clean.pixels, noisy.pixels, restored.pixels], axis=1)
        board = board._replace(pixels=np.clip(np.rint(row), 0, 255).astype(np.uint8))
        files.write(output, board, force=force)
        finish(output, results, 1, report.scores(clean, noisy, restored, 255.0), quiet)


@app.command()
def noise(
    input: Annotated[Path, Argument(help="PNG, JPEG, TIFF or NPY file.", show_default=False)],
    json: Annotated[Path | None, Option(help="File for what was found.")] = None,
    plot: Annotated[
        Path | None, Option(help="File for a plot of variance against signal. Needs matplotlib.")
    ] = None,
    force: Force = False,
) -> None:
    """Say what noise a picture has, from nothing but that picture."""
    with one_sentence():
        from evoem.images import files, noise_estimation
        from evoem.images.stacks import Stack

        for path in (json, plot):
            if path is not None:
                check_place(path, force=force)
        picture = files.read(input)
        axis = -1 if picture.colour else None
        pixels = picture.pixels if picture.stack else picture.pixels[None]
        nothing = [None] * len(pixels)
        first = next(iter(Stack(pixels, nothing, axis, False, nothing).slices()))
        found, _ = noise_estimation.estimate(first.pixels(first.values), first.observed)
        if json is not None:
            text = found.to_json() + "\n"
            write_whole(json, lambda file: file.write(text.encode()), force=force)
        if plot is not None:
            write_whole(plot, lambda file: plot_noise(found, file, plot.suffix), force=force)
        typer.echo(found.describe())


def plot_noise(found: "Noise", file: IO[bytes], suffix: str) -> None:
    """Variance against signal, as measured and as the law has it."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ValueError("plot needs matplotlib: pip install 'evoem[plot]'.") from None
    figure = Figure(figsize=(5, 4), layout="constrained")
    axes = figure.subplots()
    axes.set(xlabel="signal", ylabel="variance of the noise", title=found.describe()[:60])
    if found.curve_signal is not None and found.curve_variance is not None:
        for signal, variance in zip(found.curve_signal, found.curve_variance, strict=True):
            axes.plot(signal, variance, ".")
    figure.savefig(file, format=suffix.lstrip(".") or "png")


@contextmanager
def one_sentence() -> Iterator[None]:
    """Say what went wrong in one sentence, and leave with the exit code for it."""
    with interrupts.leaving():
        import evoem.images.restore  # noqa: F401
    with interrupts.terminable() as termination:
        try:
            yield
        except ValueError as error:
            typer.echo(f"evoem: {error}", err=True)
            raise typer.Exit(1) from error
        except MemoryError as error:
            typer.echo("evoem: memory ran out; give --memory less, for example 1G.", err=True)
            raise typer.Exit(1) from error
        except KeyboardInterrupt as error:
            typer.echo(interrupts.SENTENCE, err=True)
            raise typer.Exit(interrupts.EXIT_INTERRUPTED) from error
        finally:
            if termination.came:
                raise typer.Exit(interrupts.EXIT_TERMINATED)


def run(command: str, job: Job, mask: Path | None, keep_observed: bool) -> None:
    """Read, check, restore, write and tell."""
    import numpy as np

    from evoem import progress, report
    from evoem.images import files
    from evoem.images.settings import checked
    from evoem.images.stacks import Stack

    written = restore_options(job.options)
    options = checked(command, written)
    picture = files.read(job.input)
    check_outputs(job, picture)
    axis = -1 if picture.colour else None
    pixels = picture.pixels if picture.stack else picture.pixels[None]
    variances = read_variances(job.options["noise_variance"], picture)
    stack = Stack(pixels, read_masks(mask, picture), axis, alpha=False, noise_variances=variances)
    slices = list(stack.slices())
    if keep_observed and all(one.observed is None for one in slices):
        raise ValueError("mask must mark missing pixels unless the picture has NaN; got neither.")
    reference = None if job.reference is None else read_reference(job.reference, picture)

    results = progress.restore_slices(slices, keep_observed, options, quiet=job.quiet)
    values, std = pixels.copy(), np.full(pixels.shape, np.nan, np.float32)
    for number, result in enumerate(results):
        values[number], std[number] = result.image, result.std
    shape = picture.pixels.shape
    restored = picture._replace(pixels=values.reshape(shape))
    files.write(job.output, restored, force=job.force)
    if job.uncertainty is not None:
        deviations = deviation_picture(job.uncertainty, picture, std.reshape(shape))
        files.write(job.uncertainty, deviations, force=job.force)
    found = {} if reference is None else report.scores(reference, picture, restored)
    if job.json is not None:
        paths = {"input": job.input, "output": job.output, "mask": mask, "reference": job.reference}
        known = {"keep_observed": keep_observed, "alpha": False, "channel_axis": axis}
        limit = {"time_limit": options["time_limit"]}  # of a stack, not of its first slice
        about = {
            "command": command,
            **{name: None if path is None else str(path) for name, path in paths.items()},
            "settings": written | known | results[0].settings | limit,
        }
        write_json(job.json, about | report.record(results, picture, found), job.force)
    finish(job.output, results, len(pixels), found, job.quiet)


def restore_options(written: dict[str, Any]) -> dict[str, Any]:
    """Options as `restore` takes them."""
    options = dict(written)
    for name in ("patch_size", "n_latents"):
        if options[name] is not None and len(options[name]) == 1:
            (options[name],) = options[name]
    if options["memory"] is not None:
        options["memory"] = n_bytes(options["memory"])
    if options["noise"] not in NOISES and Path(options["noise"]).suffix.lower() == ".json":
        from evoem.images.noise_model import Noise

        options["noise"] = Noise.load(options["noise"])
    return options


def n_bytes(size: str) -> int:
    """A number of bytes, of K, M or G.

    >>> n_bytes("4G") == 4 * n_bytes("1024m")
    True
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMG]?)B?", size.strip().upper())
    if match is None:
        raise ValueError(f"memory must be a number of bytes, or of K, M or G; got {size!r}.")
    return int(Decimal(match[1]) * UNITS[match[2]])


def check_outputs(job: Job, picture: "Picture") -> None:
    """Refuse what could not be written, before the work is done."""
    import numpy as np

    from evoem.images import files

    paths = [path for path in (job.output, job.uncertainty, job.json) if path is not None]
    targets = [os.path.realpath(path) for path in paths]
    for number, target in enumerate(targets):
        if target in targets[:number]:
            raise ValueError(f"{paths[number]} must be the path of one output; got it for two.")
    if os.path.realpath(job.input) in targets and not job.force:
        raise ValueError(f"{job.input} must not be input and output unless force is given.")
    given = {os.path.realpath(path) for path in (job.input, job.reference) if path is not None}
    for path in paths[1:]:
        if os.path.realpath(path) in given:
            raise ValueError(f"{path} must not be written over: it is read.")
    files.check_output(job.output, force=job.force, picture=picture)
    if job.uncertainty is not None:
        zeros = np.zeros(picture.pixels.shape, np.float32)
        deviations = deviation_picture(job.uncertainty, picture, zeros)
        files.check_output(job.uncertainty, force=job.force, picture=deviations)
    if job.json is not None:
        check_place(job.json, force=job.force)


def read_masks(path: Path | None, picture: "Picture") -> list["Array | None"]:
    """What is missing of each slice, besides NaN."""
    from evoem.images import files
    from evoem.images.stacks import of_slices

    shape = picture.pixels.shape
    if path is None:
        return [None] * (len(picture.pixels) if picture.stack else 1)
    if not picture.stack:
        return [files.read_mask(path, shape)]
    mask = files.read(path)
    shape = shape[: mask.pixels.ndim] if mask.stack else shape[1:]
    return of_slices(files.read_mask(path, shape), picture.pixels, -1 if picture.colour else None)


def read_variances(path: str | None, picture: "Picture") -> list["Array | None"]:
    """The variances of the noise of each slice, if they are given."""
    from evoem.images import files
    from evoem.images.stacks import of_slices

    given = None if path is None else files.read(Path(path)).pixels
    if not picture.stack:
        return [given]
    return of_slices(given, picture.pixels, -1 if picture.colour else None)


def read_reference(path: Path, picture: "Picture") -> "Picture":
    """The clean picture."""
    from evoem import report
    from evoem.images import files

    reference = files.read(path)
    if reference.pixels.shape != picture.pixels.shape:
        raise ValueError(
            f"reference {path} must have the shape of the picture, {picture.pixels.shape}; "
            f"got {reference.pixels.shape}."
        )
    if not report.peak(reference) > 0:
        raise ValueError(f"reference {path} must have a range of values; got none, or NaN.")
    return reference


def deviation_picture(path: Path, picture: "Picture", std: "Array") -> "Picture":
    """Standard deviations as floats, or as 8-bit grey up to the largest where floats cannot be."""
    import numpy as np

    if path.suffix.lower() in (".png", ".jpg", ".jpeg"):
        std = np.rint(std * (255 / (std.max() or 1))).astype(np.uint8)
    return picture._replace(pixels=std, alpha=None, metadata={})


def write_json(path: Path, content: dict[str, Any], force: bool) -> None:
    """Write the whole of it, or nothing."""
    text = json.dumps(content, indent=2, allow_nan=False) + "\n"
    write_whole(path, lambda file: file.write(text.encode()), force=force)


def finish(
    output: Path, results: Sequence["Restoration"], n_slices: int, found: "Scores", quiet: bool
) -> None:
    """Say what came of it, and leave with the exit code for it."""
    from evoem import report

    if not quiet:
        typer.echo(f"{output}: {report.summary(results, found)}")
        for note in report.notes(results, n_slices):
            typer.echo(note)
    if report.was_interrupted(results, n_slices):
        raise typer.Exit(interrupts.EXIT_INTERRUPTED)
