"""Limits of time and memory, and predictions of what a run will take.

A model learns from some patches and keeps their states. In a large image there are other patches:
their states are searched for, with the learnt parameters, when the image is finished. If time is
short, the search takes fewer E-steps; then fewer patches are used; then there are fewer nonlocal
passes, down to none.
"""

import math
import platform
import time
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evoem import states
from evoem.images import bands, nonlocal_bayes
from evoem.images.bands import PatchRows
from evoem.images.canonical_arrays import Canonical
from evoem.images.image_models import much_is_missing
from evoem.images.patch_model import PatchModel
from evoem.images.patches import Grid
from evoem.images.settings import PATCHES_PER_SUBSPACE, Settings
from evoem.runtime.communicator import Communicator
from evoem.runtime.memory import available_memory

# What an image takes beside its patches: copies in several types, sums of patches and of weights.
BYTES_PER_VALUE = 140
# Of what is available, what may be tried if too much is asked for.
SHARES_TO_TRY = (0.75, 0.5, 0.25, 0.125, 1 / 16)
# What memory is kept for; there are up to nine.
PATTERNS_PER_SUBSPACE = 4
# What the program takes with its libraries and compiled code, before any image.
BYTES_OF_PROGRAM = 430 << 20
# E-steps for states of patches that were not learnt from, if time is short.
FEWEST_SEARCH_STEPS = 3
# And if even that, of patches that hardly overlap, takes longer than there is time for.
LEAST_SEARCH_STEPS = 1
# Share of the patches by which is measured how long reconstruction takes, up to a block of them.
MEASURED_SHARE = 1 / 16
# Share of a limited time that is kept for finishing the image, if it takes that long.
MOST_RESERVED = 0.8
# Patches that are learnt from, of a large image in a limited time, for each second of a thread.
PATCHES_PER_SECOND = 1000
INCOMPLETE_PATCHES_PER_SECOND = 500
# To look for noise and to start takes about so many seconds of a thread for each value.
SECONDS_PER_VALUE = 1.1e-6
# The dictionary grows with the patches that are learnt from, and so does the time that restoring
# takes: for each of the patches that cover an image, by this share of that for learning.
SHARE_TO_COVER = 2.4e-6
FEWEST_LATENTS_IN_TIME = 256


# ---------------------------------------------------------------------------------------- memory


def bytes_per_patch(settings: Settings, n_pixels: int, masked: bool) -> int:
    """Memory of a patch, its mask and its states with their log-joints."""
    state = 8 * states.n_words(settings["n_latents"]) + 8
    return n_pixels * (4 + masked) + int(settings["n_states"]) * state + 8


def memory_of_all(given: int | None, comm: Communicator) -> int:
    """Bytes for all processes together, given those for each.

    By default half of the memory of each machine, shared by the processes on it.
    """
    here = comm.collect(platform.node())
    each = given or available_memory() // 2 // here.count(platform.node())
    return comm.size * min(comm.collect(each))


def bytes_of_statistics(settings: Settings, n_pixels: int, by_feature: bool) -> int:
    """An estimate of what the statistics of subspaces take: second moments of all pairs of
    patterns, or, for each pixel, of the pairs within each latent.

    There is one set for each mini-batch, two for the blocks being processed, and one for their sum.
    """
    rank = settings.get("rank", 0)
    if not rank:
        return 0
    if by_feature:  # subspaces then mostly have as many patterns as they may
        n_patterns = (rank + 1) * settings["n_latents"]
        second = n_pixels * (rank + 2) // 2
    else:
        n_patterns = PATTERNS_PER_SUBSPACE * settings["n_latents"]
        second = n_patterns // 2
    return int(8 * n_patterns * (second + n_pixels) * (settings["n_parts"] + 3))


def patches_in_memory(canonical: Canonical, grid: Grid, settings: Settings, memory: int) -> int:
    """Number of patches that fit into `memory` bytes, besides the image and statistics."""
    reserved = min(memory // 2, bytes_beside_patches(canonical, grid, settings))
    return (memory - reserved) // _bytes_of_one(canonical, grid, settings)


def bytes_beside_patches(canonical: Canonical, grid: Grid, settings: Settings) -> int:
    """Memory of the image and of statistics."""
    return BYTES_PER_VALUE * math.prod(canonical.shape) + bytes_of_statistics(
        settings, grid.n_pixels, much_is_missing(canonical)
    )


def _bytes_of_one(canonical: Canonical, grid: Grid, settings: Settings) -> int:
    masked = canonical.observed is not None or grid.margin > 0
    return bytes_per_patch(settings, grid.n_pixels, masked)


def enough_in_memory(canonical: Canonical, grid: Grid, settings: Settings, memory: int) -> int:
    """The same; an error if there are fewer patches than latents."""
    n_patches = patches_in_memory(canonical, grid, settings, memory)
    if n_patches < settings["n_latents"]:
        raise ValueError(
            f"memory must hold {settings['n_latents']} patches of these settings; got {memory} "
            f"bytes, enough for {n_patches}."
        )
    return n_patches


def needed(canonical: Canonical, grid: Grid, settings: Settings, memory: int) -> int:
    """Bytes that a run takes in total, if patches may use what is left of `memory`."""
    fitting = patches_in_memory(canonical, grid, settings, memory)
    n_patches = min(grid.n_patches, settings["n_learnt"], fitting)
    of_patches = int(n_patches) * _bytes_of_one(canonical, grid, settings)
    return BYTES_OF_PROGRAM + bytes_beside_patches(canonical, grid, settings) + of_patches


def check_available(
    canonical: Canonical, grid: Grid, settings: Settings, memory: int, available: int
) -> None:
    """Refuse a run that would be killed for taking too much memory, and say what would help."""
    wanted = needed(canonical, grid, settings, memory)
    if wanted <= available:
        return
    said = f"image needs {_gigabytes(wanted)}, {_gigabytes(available)} available"
    for share in SHARES_TO_TRY:
        less = int(share * available) >> 20 << 20
        enough = patches_in_memory(canonical, grid, settings, less) >= settings["n_latents"]
        if enough and needed(canonical, grid, settings, less) <= available:
            raise ValueError(f"{said}: try --memory {less >> 20}M, in Python memory={less}.")
    raise ValueError(f"{said}: restore it in parts.")


def _gigabytes(n_bytes: int) -> str:
    return f"{n_bytes / (1 << 30):.1f} GB"


# ------------------------------------------------------------------------------------------ time


class Clock(NamedTuple):
    """When a run started and how long it may take."""

    started: float
    limit: float | None

    @property
    def seconds(self) -> float:
        """Since the start."""
        return time.perf_counter() - self.started

    def left(self) -> float:
        """Until the limit."""
        return np.inf if self.limit is None else self.limit - self.seconds

    def part(self, share: float) -> "Clock":
        """A clock for the next part of the run, with this share of the time that is left."""
        if self.limit is None:
            return self
        seconds = self.seconds
        return self._replace(limit=seconds + share * (self.limit - seconds))


UNLIMITED = Clock(0.0, None)


def patches_in_time(
    seconds: float, settings: Settings, given: Settings, canonical: Canonical
) -> int:
    """A guess at the number of patches that a thread can learn from, with time left for the rest.

    At least as many as a dictionary of the given size, or of a preset, needs.
    """
    complete = canonical.observed is None
    rate: float = PATCHES_PER_SECOND if complete else INCOMPLETE_PATCHES_PER_SECOND
    rows, columns, channels = canonical.shape
    seconds -= SECONDS_PER_VALUE * rows * columns * channels
    rate /= 1 + SHARE_TO_COVER * rows * columns / settings["patch_size"] ** 2
    fewest = PATCHES_PER_SUBSPACE * max(given.get("n_latents", 0), FEWEST_LATENTS_IN_TIME)
    return int(min(settings["n_learnt"], max(seconds * rate, fewest)))


class Finish(NamedTuple):
    """How an image is finished once its model has learnt."""

    search_steps: int  # E-steps for states of patches that were not learnt from
    nonlocal_passes: int
    thinning: int = 1  # only every n-th row and column of those patches is used

    @property
    def quickest_search(self) -> "Finish":
        """The same with the fewest E-steps."""
        return self._replace(search_steps=FEWEST_SEARCH_STEPS)


def thinned(grid: Grid, thinning: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which rows and columns of patches are used, besides patches that were learnt from."""
    rows, columns = (
        (np.arange(len(starts)) % thinning == 0) | (np.arange(len(starts)) == len(starts) - 1)
        for starts in (grid.tops, grid.lefts)
    )
    return rows, columns


def unlearnt(
    patch_rows: PatchRows, learnt: NDArray[np.int64], thinning: int
) -> Iterator[NDArray[np.int64]]:
    """Numbers of patches of this process that are used but not learnt from, some at a time."""
    grid, ordered = patch_rows.grid, np.sort(learnt)
    rows, columns = thinned(grid, thinning)
    for numbers in patch_rows.numbers():
        row, column = np.divmod(numbers, len(grid.lefts))
        chosen = rows[row] & columns[column]
        ends = np.searchsorted(ordered, [numbers[0], numbers[-1] + 1])
        chosen[ordered[slice(*ends)] - numbers[0]] = False
        if chosen.any():
            yield numbers[chosen]


def n_unlearnt(grid: Grid, learnt: NDArray[np.int64], thinning: int) -> int:
    """Number of these patches in all processes."""
    rows, columns = thinned(grid, thinning)
    row, column = np.divmod(learnt, len(grid.lefts))
    known = np.count_nonzero(rows[row] & columns[column])
    return int(np.count_nonzero(rows) * np.count_nonzero(columns) - known)


def finishes(best: Finish, widest_thinning: int, touching: int = 1) -> Iterator[Finish]:
    """From the best to the quickest: patches overlap by half, unless there is no time for it."""
    for nonlocal_passes in range(best.nonlocal_passes, -1, -1):
        for thinning in range(1, widest_thinning + 1):
            for search_steps in range(best.search_steps, FEWEST_SEARCH_STEPS - 1, -1):
                yield Finish(search_steps, nonlocal_passes, thinning)
    for thinning in range(widest_thinning + 1, touching + 1):
        yield Finish(FEWEST_SEARCH_STEPS, 0, thinning)
    if touching > widest_thinning:
        for search_steps in range(FEWEST_SEARCH_STEPS - 1, LEAST_SEARCH_STEPS - 1, -1):
            yield Finish(search_steps, 0, touching)


class Costs(NamedTuple):
    """Measured seconds."""

    search_step: float  # of an E-step of a patch
    patch: float  # to reconstruct and merge one with states
    block: float  # in addition for each block of them
    nonlocal_passes: tuple[float, ...] = ()  # of each pass over the whole image

    def seconds(self, finish: Finish, n_learnt: int, n_unlearnt: int) -> float:
        """Time from the last iteration to the image."""
        n_patches = n_learnt + n_unlearnt
        n_blocks = -(-n_patches // bands.PATCHES_AT_ONCE)
        searching = n_unlearnt * finish.search_steps * self.search_step
        passes = self.nonlocal_passes[len(self.nonlocal_passes) - finish.nonlocal_passes :]
        return searching + n_patches * self.patch + n_blocks * self.block + sum(passes)


class Forecast(NamedTuple):
    """A prediction of the time to finish the image of a model, from measurements with it."""

    costs: Costs
    grid: Grid
    learnt: NDArray[np.int64]  # numbers of the patches that it learns from
    n_images: int = 1  # that are to be finished

    def seconds(self, finish: Finish) -> float:
        """Time from the last iteration to the end."""
        number = n_unlearnt(self.grid, self.learnt, finish.thinning)
        return self.n_images * self.costs.seconds(finish, len(self.learnt), number)

    @property
    def widest_thinning(self) -> int:
        """The largest thinning with which patches overlap by half."""
        return max(1, min(self.grid.patch) // (2 * self.grid.widest_step))

    def reserved(self, best: Finish, allowed: float) -> float:
        """Seconds, of those allowed, to reserve for finishing the image.

        Nonlocal passes gain more than further iterations do.
        """
        quickest = best.quickest_search._replace(thinning=self.widest_thinning)
        quick, slow = self.seconds(quickest), self.seconds(best)
        return max(min(slow, allowed / 2), min(quick, MOST_RESERVED * allowed))

    def best_within(self, best: Finish, seconds: float) -> Finish:
        """The best finish within that time, or the quickest."""
        chosen = best
        for chosen in finishes(best, self.widest_thinning, self.grid.touching):
            if self.seconds(chosen) <= seconds:
                break
        return chosen


def forecast(model: PatchModel, nonlocal_passes: int) -> Forecast:
    """Measure the time of searching for states, reconstruction and nonlocal passes."""
    costs = costs_of(model, model.source.canonical, nonlocal_passes)
    return Forecast(costs, model.source.grid, model.numbers)


def forecast_of_slices(
    canonical: Canonical, grid: Grid, n_images: int, model: PatchModel, nonlocal_passes: int
) -> Forecast:
    """The same for images like this one, whose patches have no states yet."""
    costs = costs_of(model, canonical, nonlocal_passes)
    return Forecast(costs, grid, np.empty(0, np.int64), n_images)


def costs_of(model: PatchModel, canonical: Canonical, nonlocal_passes: int) -> Costs:
    """What was measured with a model, and with nonlocal passes over an image."""
    passes: tuple[float, ...] = ()
    if nonlocal_passes:
        for _ in range(2):  # something is compiled at first
            passes = nonlocal_bayes.seconds(canonical, nonlocal_passes, model.search.n_jobs)
    return measured(model)._replace(nonlocal_passes=passes)


def measured(model: PatchModel) -> Costs:
    """Measure how long a model takes to search for states and to reconstruct."""
    spent = []
    n_learnt = len(model.patches.data)
    if not n_learnt:
        return Costs(0.0, 0.0, 0.0)
    n_measured = min(bands.PATCHES_AT_ONCE, math.ceil(MEASURED_SHARE * n_learnt))
    for size in (1, 1, n_measured):  # something is compiled or derived at first
        block, kept = model.patches.part(slice(0, size)), model.state.states[:size]
        started = time.perf_counter()
        model.reconstruct(block, kept)
        between = time.perf_counter()
        model.infer(block, 1, kept)
        spent.append((between - started, time.perf_counter() - between))
    (block_alone, step_alone), (reconstructed, searched) = spent[-2:]
    return Costs(
        max(searched - step_alone, 0.0) / n_measured,
        max(reconstructed - block_alone, 0.0) / n_measured,
        block_alone,
    )
