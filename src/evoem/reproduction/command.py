"""The work of `evoem reproduce`."""

from collections.abc import Callable, Sequence
from pathlib import Path

from joblib import effective_n_jobs

from evoem import distributed, validation
from evoem.images.options import UPDATES
from evoem.reproduction import recipes
from evoem.reproduction.kinds import EXPERIMENTS
from evoem.reproduction.run import reproduce as run


def listing() -> str:
    """The experiments, each with what it shows.

    >>> print(listing().splitlines()[0])
    bars: Recovery of generating parameters (subsec:verification, ...
    """
    lines = []
    for name in recipes.NAMES:
        told = recipes.data(name)
        lines += [f"{name}: {told['title']} ({told['where']})", f"    {told['shows']}"]
    return "\n".join(lines)


def reproduce(
    name: str,
    *,
    size: str,
    only: Sequence[str],
    updates: str | None,
    images: Path | None,
    out: Path | None,
    seed: int,
    n_jobs: int,
    tell: Callable[[str], None],
) -> None:
    """Run an experiment, and say where its report is."""
    recipe = recipes.load(name, size)
    if only:
        recipe = recipe.only(only)
    if updates is not None:
        validation.choice("updates", updates, UPDATES)
        recipe = recipe.with_updates(updates)
    validation.jobs(n_jobs)
    folder, comm = out or Path(f"reproduce-{name}"), distributed.launched()
    if recipe.reduced and comm.rank == 0:
        tell(f"Reduced: {recipe.reduced}")
    run(
        recipe,
        EXPERIMENTS[recipes.data(name)["kind"]],
        folder,
        seed=seed,
        images=images,
        n_jobs=effective_n_jobs(n_jobs),
        tell=tell,
        comm=comm,
    )
    if comm.rank == 0:
        tell(f"{folder / 'report.html'}")
