"""The kernels that a restoration needs, so that they can be compiled ahead.

`kernels_ahead.txt` has them in the order in which they are needed, those first that take longest
to compile. `make kernels` writes it anew, after kernels or their arguments changed; what it lacks
is compiled when it is needed, and takes longer.
"""

from collections.abc import Iterable
from functools import cache
from pathlib import Path

from evoem.images.canonical_arrays import Canonical
from evoem.images.image_models import IMAGE_MODELS, much_is_missing

LIST = Path(__file__).with_name("kernels_ahead.txt")
# What is missing of an image decides which kernels it needs.
COMPLETE, INCOMPLETE, MOSTLY_MISSING = KINDS = ("complete", "incomplete", "mostly-missing")
# What a picture is likely to be before it has been read.
EXPECTED = {"denoise": (COMPLETE,), "inpaint": (INCOMPLETE, MOSTLY_MISSING)}


def kind_of(canonical: Canonical) -> str:
    """Which kernels an image needs."""
    if canonical.observed is None:
        return COMPLETE
    return MOSTLY_MISSING if much_is_missing(canonical) else INCOMPLETE


@cache
def entries() -> tuple[tuple[frozenset[str], str], ...]:
    """Each kernel with what it is needed for: model:kind."""
    found = []
    for line in LIST.read_text().splitlines():
        if line and not line.startswith("#"):
            cases, kernel = line.split(" ", 1)
            found.append((frozenset(cases.split(",")), kernel))
    return tuple(found)


def needed(model: str, *kinds: str) -> list[str]:
    """Kernels that images need, of whichever of these kinds they are."""
    wanted = {f"{model}:{kind}" for kind in kinds}
    return [kernel for cases, kernel in entries() if wanted <= cases]


def needed_for_all(models: Iterable[str] = IMAGE_MODELS) -> list[str]:
    """Kernels of these models for images of every kind."""
    wanted = {f"{model}:{kind}" for model in models for kind in KINDS}
    return [kernel for cases, kernel in entries() if cases & wanted]
