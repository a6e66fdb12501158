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
        int | None, Setting("Axis of the channels, which are restored together.")
    ]
    alpha: Annotated[
        bool, Setting("Keep the last of four channels as it is, and do not learn from it.", True)
    ]
    model: Annotated[
        str | None,
        Setting(
            "Spike-and-slab sparse coding with several patterns per latent (subspaces) or with "
            'one, as in the paper (es3c), or binary sparse coding (ebsc). By default "es3c" with '
            'the preset "paper", else "subspaces".',
            choices=MODELS,
        ),
    ]
    noise: Annotated[
        Any,
        Setting(
            "Which noise to expect: auto finds out from the image whether it grows with the "
            "signal, whether it is correlated between neighbours or channels, and which values are "
            "outliers; gaussian expects white noise; poisson-gaussian expects neighbours to be "
            "independent; correlated is the same as auto; or an evoem.Noise. By default auto, or "
            'gaussian with the preset "paper".',
        ),
    ]
    noise_variance: Annotated[
        Any,
        Setting(
            "The variance of the noise of each pixel, or of each value of a channel, if it is "
            "known; infinite or NaN where there is no measurement. The noise is then not "
            "estimated."
        ),
    ]
    missing_value: Annotated[
        float | Sequence[float] | None,
        Setting(
            "A value that means missing, such as -9999, or several, such as 0 and 255 for "
            "salt-and-pepper noise. NaN always does."
        ),
    ]
    preset: Annotated[
        str,
        Setting(
            "Defaults for all options from patch_size to merge; each can still be set on its own. "
            "Those of the paper are as published, and not adapted to the image.",
            "balanced",
            choices=PRESETS,
        ),
    ]
    patch_size: Annotated[
        int | Sequence[int] | None,
        Setting(
            "Width of the square patches; presets take a smaller one for small images. With "
            "select, several widths to choose from.",
            least=1,
            preset=True,
        ),
    ]
    n_latents: Annotated[
        int | Sequence[int] | None,
        Setting(
            "Size of the dictionary; presets take a smaller one for small images. With select, "
            "several sizes to choose from.",
            least=1,
            preset=True,
        ),
    ]
    rank: Annotated[
        int | None,
        Setting("Largest number of directions per latent, for subspaces.", least=1, preset=True),
    ]
    n_states: Annotated[int | None, Setting("States kept per patch.", least=1, preset=True)]
    n_parents: Annotated[
        int | None, Setting("States that have children, in each generation.", least=1, preset=True)
    ]
    n_children: Annotated[int | None, Setting("Children of each parent.", least=1, preset=True)]
    n_generations: Annotated[
        int | None, Setting("Generations per iteration.", least=1, preset=True)
    ]
    n_parts: Annotated[int | None, Setting("Mini-batches per iteration.", least=1, preset=True)]
    parents: Annotated[
        str | None, Setting("How parents are selected: fit, random or best.", preset=True)
    ]
    mutation: Annotated[
        str | None, Setting("How children are mutated: uniform, sparse or guided.", preset=True)
    ]
    crossover: Annotated[
        bool | None,
        Setting(
            "Whether all pairs of parents are crossed before mutation; n_children is then ignored.",
            preset=True,
        ),
    ]
    slab: Annotated[
        str | None,
        Setting(
            "Covariance of the amplitudes of es3c: learnt as a diagonal or a full matrix, or "
            "fixed at one together with their means. By default diagonal, full with the preset "
            '"paper", and fixed where something is missing.',
            choices=SLABS,
            preset=True,
        ),
    ]
    updates: Annotated[
        str | None,
        Setting(
            "M-steps of es3c and ebsc: those that never lower the bound, which is the default, "
            "those printed in the paper, or those of its authors' programs, which also start "
            "differently.",
            choices=UPDATES,
            preset=True,
        ),
    ]
    start: Annotated[
        str | None,
        Setting(
            "What learning starts from: patches of a coarse image, which a small model makes in "
            "seconds, or the mean of the data plus noise, as in the paper (for subspaces, "
            "clusters of the damaged patches).",
            choices=STARTS,
            preset=True,
        ),
    ]
    max_iter: Annotated[int | None, Setting("Largest number of iterations.", least=1, preset=True)]
    nonlocal_passes: Annotated[
        int | None,
        Setting(
            "Passes of nonlocal Bayes over the image that the model has restored: 3 by default, 0 "
            'with the preset "paper"; 0 turns them off. They need patches that overlap by half.',
            least=0,
            most=MOST_NONLOCAL_PASSES,
            preset=True,
        ),
    ]
    merge: Annotated[
        str | None,
        Setting(
            "How overlapping patches are averaged: all with the same weight, by distance to the "
            "centre of the patch, or by the inverse of their posterior variance. By default "
            'variance, centre where something is missing, and mean with the preset "paper".',
            choices=MERGES,
            preset=True,
        ),
    ]
    tol: Annotated[
        float,
        Setting(
            "Stop when the bound rises by less than this per iteration, in nats per patch; 0 "
            "never stops early.",
            0.0,
            least=0,
        ),
    ]
    time_limit: Annotated[
        float | None,
        Setting(
            "Seconds within which the result should be there, as far as that can be predicted.",
            least=0,
        ),
    ]
    stride: Annotated[
        int | None,
        Setting(
            "Distance between neighbouring patches; by default 1, or up to a third of a patch for "
            "images of millions of pixels.",
            least=1,
        ),
    ]
    memory: Annotated[
        int | None,
        Setting(
            "Bytes that the run may take, not counting some hundred megabytes for the program "
            "itself; by default half of the machine's memory. If patches and their states do not "
            "fit, or are very many, the model learns from a random selection of patches, and the "
            "image is restored block by block.",
            least=1,
        ),
    ]
    select: Annotated[
        str | None,
        Setting(
            "Choose the number of iterations, up to max_iter, by how well a random fiftieth of "
            "the observed values is predicted from the others, and then learn again from all of "
            "them.",
            choices=SELECTS,
        ),
    ]
    restarts: Annotated[
        int,
        Setting(
            "Number of seeds that select chooses from: seed and those that follow.", 1, least=1
        ),
    ]
    seed: Annotated[int, Setting("Seed of all random numbers.", 0, least=0, most=LARGEST_SEED)]
    n_jobs: Annotated[
        int | None,
        Setting("Threads; -1 uses all processors. The result does not depend on it.", -1),
    ]
    checkpoint: Annotated[
        str | Path | None,
        Setting(
            "File that the run is saved to, so that it can be resumed. It must not exist yet "
            "unless resume is given."
        ),
    ]
    every: Annotated[
        float,
        Setting(
            "Seconds between checkpoints, at least; one is always written at the end.",
            60.0,
            least=0,
        ),
    ]
    resume: Annotated[
        bool,
        Setting(
            "Resume from the checkpoint if it exists: the result is that of an uninterrupted run, "
            "to the bit. Image and options must be the same, except for n_jobs, verbose, callback "
            "and every.",
            False,
        ),
    ]
    comm: Annotated[
        Any,
        Setting(
            "Other processes, such as evoem.distributed.world(). All are given the same image, "
            "which may be memory-mapped, and the same options. Each reads and returns only its "
            "own rows, which are those of the result of a single process, to the bit."
        ),
    ]
    verbose: Annotated[
        bool,
        Setting(
            "Show progress: a bar if tqdm is installed, else lines on standard error.",
            False,
        ),
    ]
    callback: Annotated[
        Callable[..., Any] | None,
        Setting(
            "Called with an evoem.Progress after each iteration; returning True ends the run. An "
            "interrupt (Ctrl-C) ends it too: what has been learnt up to then is used."
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
