"""The options of `restore` as options of the command line."""

import inspect
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

from typer import Option

from evoem.cli.help import ADVANCED
from evoem.images.options import OPTIONS

UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600}
MOST_BYTES = (1 << 63) - 1  # no machine has more
# Options of `restore` that the command line knows from the picture, or has its own for.
UNASKED = ("channel_axis", "alpha", "comm", "verbose", "callback")
# Those that are written in another way than Python has them.
WRITTEN = {
    "patch_size": list[int] | None,
    "n_latents": list[int] | None,
    "memory": str | None,
    "noise": str | None,
    "noise_variance": str | None,
    "missing_value": str | None,
    "checkpoint": Path | None,
    "every": str,
}
WRITTEN_DEFAULTS = {"every": "60s"}
HINTS = {
    "patch_size": " May be given repeatedly.",
    "n_latents": " May be given repeatedly.",
    "memory": " For example 500M or 4G.",
    "noise_variance": " A TIFF or NPY file with the size of the image.",
    "missing_value": " On the command line, separated by commas: 0,255.",
    "every": " For example 90s, 10m or 1h.",
    "resume": " Add --force to replace the output of the stopped run.",
}
# What everybody needs, in fewer words; the others are listed under a title of their own.
BRIEF = {
    "preset": "fast (a third of the time), balanced, best (over twice the time), paper (hours).",
    "time_limit": "Finish within this many seconds, at whatever quality.",
    "noise": "auto, gaussian, poisson-gaussian, correlated, or a file from evoem noise --json.",
}
MORE_NAMES = {"missing_value": ("--missing-value", "--mask-value")}


def asked(name: str) -> inspect.Parameter:
    """An option of `restore` as one of the command line."""
    kind, setting = OPTIONS[name]
    words = f"One of {', '.join(setting.choices)}. " if setting.choices else ""
    told = Option(
        *MORE_NAMES.get(name, ()),
        help=BRIEF.get(name) or words + setting.doc + HINTS.get(name, ""),
        rich_help_panel=None if name in BRIEF else ADVANCED,
        autocompletion=(lambda: setting.choices) if setting.choices else None,
    )
    annotation: Any = Annotated[WRITTEN.get(name, kind), told]
    default = WRITTEN_DEFAULTS.get(name, setting.default)
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
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


def restore_options(written: dict[str, Any]) -> dict[str, Any]:
    """Options as `restore` takes them."""
    options = dict(written)
    for name in ("patch_size", "n_latents"):
        if options[name] is not None and len(options[name]) == 1:
            (options[name],) = options[name]
    if options["memory"] is not None:
        options["memory"] = n_bytes(options["memory"])
    if options["missing_value"] is not None:
        options["missing_value"] = numbers("missing_value", options["missing_value"])
    options["every"] = n_seconds(options["every"])
    if options["checkpoint"] is not None:
        options["checkpoint"] = str(options["checkpoint"])
    path = noise_file(written)
    if path is not None:
        from evoem.images.noise_model import Noise

        options["noise"] = Noise.load(path)
    return options


def noise_file(written: dict[str, Any]) -> Path | None:
    """The file that says what noise there is, if one is given."""
    given = written["noise"]
    return Path(given) if given is not None and given.lower().endswith(".json") else None


def numbers(name: str, listed: str) -> float | list[float]:
    """One number or several.

    >>> numbers("missing_value", "-9999"), numbers("missing_value", "0,255")
    (-9999.0, [0.0, 255.0])
    """
    try:
        found = [float(one) for one in listed.split(",")]
    except ValueError:
        raise ValueError(f"{name} must be numbers, such as 0,255; got {listed!r}.") from None
    return found[0] if len(found) == 1 else found


def n_bytes(size: str) -> int:
    """A number of bytes, of K, M or G.

    >>> n_bytes("4G") == 4 * n_bytes("1024m")
    True
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMG]?)B?", size.strip().upper())
    if match is None:
        raise ValueError(f"memory must be a number of bytes, such as 500M or 4G; got {size!r}.")
    return min(int(Decimal(match[1]) * UNITS[match[2]]), MOST_BYTES)


def n_seconds(time: str) -> float:
    """A time in seconds, minutes or hours.

    >>> n_seconds("90s") == n_seconds("1.5m") == 90
    True
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", time.strip().lower())
    if match is None:
        raise ValueError(f"every must be a time, such as 90s, 10m or 1h; got {time!r}.")
    return float(Decimal(match[1]) * SECONDS[match[2]])
