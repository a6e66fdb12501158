"""The options of `restore`, each declared once.

Signatures and documentation of `restore`, `denoise` and `inpaint`, the command line, the checks of
what is given and the names in presets are made from `Options`. Nothing heavy is imported, so that
`evoem --help` answers at once.
"""

import inspect
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, NamedTuple, TypedDict, TypeVar, get_args, get_origin

MODELS = ("subspaces", "es3c", "ebsc")
PRESETS = ("fast", "balanced", "best", "paper")
STARTS = ("coarse", "mean")
MERGES = ("mean", "centre", "variance")
SLABS = ("diagonal", "full", "fixed")
UPDATES = ("monotone", "printed", "authors")
SELECTS = ("heldout",)
NOISES = ("auto", "gaussian", "poisson-gaussian", "correlated")
LARGEST_SEED = 2**32 - 1
MOST_NONLOCAL_PASSES = 3

Function = TypeVar("Function", bound=Callable[..., Any])


class Setting(NamedTuple):
    """What is known about an option besides its type."""

    doc: str
    default: Any = None
    least: int | None = None
    most: int | None = None
    choices: tuple[str, ...] = ()
    preset: bool = False  # whether a preset decides unless it is given


class Options(TypedDict, total=False):
    """What `restore`, `denoise` and `inpaint` have in common."""

    channel_axis: Annotated[
        int | None, Setting("Where the channels are. They are restored together.")
    ]
    alpha: Annotated[
        bool, Setting("The last of four channels is kept as it is and not learnt from.", True)
    ]
    model: Annotated[
        str | None,
        Setting(
            "Spike-and-slab sparse coding with several patterns a latent, with one, as in the "
            'paper, or binary sparse coding. By default "es3c" for the preset "paper", else '
            '"subspaces".',
            choices=MODELS,
        ),
    ]
    noise: Annotated[
        Any,
        Setting(
            "What is known of the noise: auto tells from the image whether it grows with the "
            "signal, whether neighbours or channels are correlated, and which values are outliers; "
            "gaussian takes it to be white; poisson-gaussian takes neighbours to be independent; "
            "correlated is found as by auto; or an evoem.Noise. By default auto, or gaussian with "
            'the preset "paper".',
        ),
    ]
    noise_variance: Annotated[
        Any,
        Setting(
            "The variance of the noise of each pixel, or of each value of a channel, where it is "
            "known; infinite or NaN where there is no measurement. Noise is not looked for then."
        ),
    ]
    missing_value: Annotated[
        float | Sequence[float] | None,
        Setting(
            "A value that stands for missing, such as -9999, or several, such as 0 and 255 for "
            "salt and pepper. NaN always does."
        ),
    ]
    preset: Annotated[
        str,
        Setting(
            "Values for all options from patch_size to merge; each can be given on its own. Those "
            "of the paper are as printed, and not fitted to the image.",
            "balanced",
            choices=PRESETS,
        ),
    ]
    patch_size: Annotated[
        int | Sequence[int] | None,
        Setting(
            "Width of the square patches. That of a preset shrinks for small images. Several, of "
            "which the best is chosen, with select.",
            least=1,
            preset=True,
        ),
    ]
    n_latents: Annotated[
        int | Sequence[int] | None,
        Setting(
            "Size of the dictionary. That of a preset shrinks for small images. Several, of which "
            "the best is chosen, with select.",
            least=1,
            preset=True,
        ),
    ]
    rank: Annotated[
        int | None,
        Setting("Directions that a latent of subspaces has, at most.", least=1, preset=True),
    ]
    n_states: Annotated[int | None, Setting("States kept per patch.", least=1, preset=True)]
    n_parents: Annotated[int | None, Setting("States that have children.", least=1, preset=True)]
    n_children: Annotated[int | None, Setting("Children of each parent.", least=1, preset=True)]
    n_generations: Annotated[
        int | None, Setting("Generations per iteration.", least=1, preset=True)
    ]
    n_parts: Annotated[int | None, Setting("Mini-batches per iteration.", least=1, preset=True)]
    parents: Annotated[
        str | None, Setting("How parents are chosen: fit, random or best.", preset=True)
    ]
    mutation: Annotated[
        str | None, Setting("How children differ: uniform, sparse or guided.", preset=True)
    ]
    crossover: Annotated[
        bool | None,
        Setting(
            "Whether every pair of parents is crossed before children differ; n_children is then "
            "not used.",
            preset=True,
        ),
    ]
    slab: Annotated[
        str | None,
        Setting(
            "Covariance of the amplitudes of es3c: learnt as a diagonal or a full matrix, or held "
            "fixed at one, and their means too. By default diagonal, full with the preset "
            '"paper", and fixed where something is missing.',
            choices=SLABS,
            preset=True,
        ),
    ]
    updates: Annotated[
        str | None,
        Setting(
            "M-steps of es3c and ebsc: those that never lower the bound, which is the default, "
            "those that the paper prints, or those of its authors' programs, with their start.",
            choices=UPDATES,
            preset=True,
        ),
    ]
    start: Annotated[
        str | None,
        Setting(
            "What learning starts from: patches of a coarse image, which a small model makes in "
            "seconds, or the mean of the data with noise, as in the paper (for subspaces, "
            "clusters of the damaged patches).",
            choices=STARTS,
            preset=True,
        ),
    ]
    max_iter: Annotated[int | None, Setting("Largest number of iterations.", least=1, preset=True)]
    nonlocal_passes: Annotated[
        int | None,
        Setting(
            "Passes of nonlocal Bayes over the image that the model restored: 3 by default, or 0 "
            'with the preset "paper"; 0 turns them off. They need patches that overlap by half.',
            least=0,
            most=MOST_NONLOCAL_PASSES,
            preset=True,
        ),
    ]
    merge: Annotated[
        str | None,
        Setting(
            "How overlapping patches are averaged: all alike, by distance to the patch's centre, "
            "or by the inverse of their posterior variance; the last by default, or the centre "
            'where something is missing, or the mean with the preset "paper".',
            choices=MERGES,
            preset=True,
        ),
    ]
    tol: Annotated[
        float,
        Setting(
            "Stop when the bound rises by less than this per iteration, in nats per patch. 0 "
            "does not.",
            0.0,
            least=0,
        ),
    ]
    time_limit: Annotated[
        float | None,
        Setting(
            "Seconds after which the result must be there, as far as can be foreseen.", least=0
        ),
    ]
    stride: Annotated[
        int | None,
        Setting(
            "Steps between patches; by default 1, or up to a third of a patch for images of "
            "millions of pixels.",
            least=1,
        ),
    ]
    memory: Annotated[
        int | None,
        Setting(
            "Bytes that may be taken, up to some hundred millions of the program's own; by default "
            "half of what the machine has. If patches and their states do not fit, or are very "
            "many, the model learns from a random choice of patches, and the image is restored "
            "block by block.",
            least=1,
        ),
    ]
    select: Annotated[
        str | None,
        Setting(
            "Choose the number of iterations, up to max_iter, by how well a random fiftieth of the "
            "observed values is predicted from the others, and learn again from all of them.",
            choices=SELECTS,
        ),
    ]
    restarts: Annotated[
        int, Setting("Seeds that select chooses from: seed and those that follow.", 1, least=1)
    ]
    seed: Annotated[
        int, Setting("Everything random follows from it.", 0, least=0, most=LARGEST_SEED)
    ]
    n_jobs: Annotated[
        int | None,
        Setting("Threads; -1 for all processors. The result does not depend on it.", -1),
    ]
    checkpoint: Annotated[
        str | Path | None,
        Setting(
            "File that the run is kept in, so that it can go on where it was stopped. It must not "
            "exist yet unless resume is given."
        ),
    ]
    every: Annotated[
        float,
        Setting(
            "Seconds between checkpoints, at least; there is one at the end in any case.",
            60.0,
            least=0,
        ),
    ]
    resume: Annotated[
        bool,
        Setting(
            "Go on from the checkpoint if it exists: the result is that of a run that was never "
            "stopped, to the bit. Image and options must be the same, but for n_jobs, verbose, "
            "callback and every.",
            False,
        ),
    ]
    comm: Annotated[
        Any,
        Setting(
            "Other processes, such as evoem.distributed.world(): all are given the same image, "
            "which may be mapped into memory, and the same options. Each reads its own rows and "
            "returns those of the image that one process alone would return, to the bit."
        ),
    ]
    verbose: Annotated[
        bool,
        Setting(
            "Show how far it is: a progress bar where tqdm is installed, else lines on standard "
            "error.",
            False,
        ),
    ]
    callback: Annotated[
        Callable[..., Any] | None,
        Setting(
            "Called with a Progress after each iteration; returning True ends the run. An "
            "interrupt (Ctrl-C) does so too: what was learnt up to then is used."
        ),
    ]


class Declared(NamedTuple):
    """An option as it is declared above."""

    type: Any
    setting: Setting

    @property
    def kinds(self) -> tuple[type, ...]:
        """Types that a value may have."""
        return get_args(self.type) or (self.type,)

    @property
    def several(self) -> bool:
        """Whether more than one value may be given."""
        return any(get_origin(kind) is Sequence for kind in self.kinds)

    @property
    def selectable(self) -> bool:
        """Whether several values are to select from."""
        return self.several and self.setting.preset

    @property
    def may_be_none(self) -> bool:
        """Whether None stands for a value that is found for the image at hand."""
        return NoneType in self.kinds


OPTIONS = {
    name: Declared(*get_args(annotation)) for name, annotation in Options.__annotations__.items()
}


def known(function: str, given: dict[str, Any]) -> dict[str, Any]:
    """All options by their names, those not given with their defaults."""
    for name in given:
        if name not in OPTIONS:
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}")
    return {name: option.setting.default for name, option in OPTIONS.items()} | given


def with_options(function: Function) -> Function:
    """Write the options into the signature and the documentation of a function that takes them."""
    signature = inspect.signature(function)
    own = [entry for entry in signature.parameters.values() if entry.kind is not entry.VAR_KEYWORD]
    options = [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=setting.default, annotation=annotation
        )
        for name, (annotation, setting) in OPTIONS.items()
    ]
    function.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[*own, *options]
    )
    described = "\n".join(_described(name, option) for name, option in OPTIONS.items())
    described = textwrap.indent(described, "    ").lstrip()
    function.__doc__ = (function.__doc__ or "").replace("{options}", described)
    return function


def _described(name: str, option: Declared) -> str:
    """An entry of a numpydoc section."""
    setting = option.setting
    kinds = " or ".join(kind.__name__ for kind in option.kinds if kind is not NoneType)
    if setting.choices:
        kinds = f"{{{', '.join(map(repr, setting.choices))}}}"
    rest = "optional" if setting.default is None else f"default={setting.default!r}"
    text = textwrap.fill(setting.doc, 92, initial_indent="    ", subsequent_indent="    ")
    return f"{name} : {kinds}, {rest}\n{text}"
