"""Limits of time and memory, and what a run will take of both.

A run has learnt from some patches, whose states it keeps. Those of the others, of a large image,
are searched for with the learnt parameters when the image is finished. If time is short, that takes
fewer E-steps; then fewer patches take part; and then there are fewer nonlocal passes, and at last
none.
"""

import math
import os
import time
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evoem import states
from evoem.images import nonlocal_bayes, patch_model
from evoem.images.canonical_arrays import Canonical
from evoem.images.image_models import much_is_missing
from evoem.images.patch_model import PatchModel
from evoem.images.patches import Grid
from evoem.images.settings import PATCHES_PER_SUBSPACE, Settings
from evoem.validation import Mask

# What an image takes beside its patches: copies in several types, sums of patches and of weights.
BYTES_PER_VALUE = 100
# What memory is kept for; there are up to nine.
PATTERNS_PER_SUBSPACE = 4
# Where the machine does not tell what it has.
MODEST_MEMORY = 8 << 30
# E-steps for states of patches that were not learnt from, if time is short.
FEWEST_SEARCH_STEPS = 3
# Share of the patches by which is measured how long reconstruction takes, up to a block of them.
MEASURED_SHARE = 1 / 16
# Share of a limited time that is kept for finishing the image, if it takes that long.
MOST_RESERVED = 0.8
# Patches that are learnt from, of a large image in a limited time, for each second of a thread.
PATCHES_PER_SECOND = 1000
INCOMPLETE_PATCHES_PER_SECOND = 500
FEWEST_LATENTS_IN_TIME = 256


# ---------------------------------------------------------------------------------------- memory


def machine_memory() -> int:
    """Bytes of memory this machine has, or a modest guess."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not on this platform
        return MODEST_MEMORY


def bytes_per_patch(settings: Settings, n_pixels: int, masked: bool) -> int:
    """Memory of a patch, its mask and its states with their log-joints."""
    state = 8 * states.n_words(settings["n_latents"]) + 8
    return n_pixels * (4 + masked) + int(settings["n_states"]) * state + 8


def bytes_of_statistics(settings: Settings, n_pixels: int, by_feature: bool) -> int:
    """A guess at what subspaces need beside patches: second moments of pairs of patterns, of all
    for all pixels or of those of a latent for each.

    Of each mini-batch, of two blocks that are worked on, and their sum.
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
    """Number of patches that fit into so many bytes, beside the image and statistics."""
    masked = canonical.observed is not None or grid.margin > 0
    others = BYTES_PER_VALUE * canonical.values.size + bytes_of_statistics(
        settings, grid.n_pixels, much_is_missing(canonical)
    )
    reserved = min(memory // 2, others)
    return (memory - reserved) // bytes_per_patch(settings, grid.n_pixels, masked)


def enough_in_memory(canonical: Canonical, grid: Grid, settings: Settings, memory: int) -> int:
    """The same, refused if there are fewer than latents."""
    n_patches = patches_in_memory(canonical, grid, settings, memory)
    if n_patches < settings["n_latents"]:
        raise ValueError(
            f"memory must hold {settings['n_latents']} patches of these settings; got {memory} "
            f"bytes, enough for {n_patches}."
        )
    return n_patches


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
        """A clock for what is done next, which may take this share of what is left."""
        if self.limit is None:
            return self
        seconds = self.seconds
        return self._replace(limit=seconds + share * (self.limit - seconds))


def patches_in_time(seconds: float, settings: Settings, given: Settings, observed: Mask) -> int:
    """Patches to learn from in so many seconds of a thread, as far as can be guessed.

    No fewer than a dictionary needs that has the size of the preset, or that was given.
    """
    rate = PATCHES_PER_SECOND if observed is None else INCOMPLETE_PATCHES_PER_SECOND
    fewest = PATCHES_PER_SUBSPACE * max(given.get("n_latents", 0), FEWEST_LATENTS_IN_TIME)
    return int(min(settings["n_learnt"], max(seconds * rate, fewest)))


class Finish(NamedTuple):
    """How an image is finished once its model has learnt."""

    search_steps: int  # E-steps for states of patches that were not learnt from
    nonlocal_passes: int
    thinning: int = 1  # of so many rows and columns of those patches, one takes part

    @property
    def hurried(self) -> "Finish":
        """The same with less search."""
        return self._replace(search_steps=FEWEST_SEARCH_STEPS)


def others(grid: Grid, learnt: NDArray[np.int64], thinning: int) -> NDArray[np.int64]:
    """Numbers of patches that were not learnt from and take part."""
    rows, columns = (
        (np.arange(len(starts)) % thinning == 0) | (np.arange(len(starts)) == len(starts) - 1)
        for starts in (grid.tops, grid.lefts)
    )
    chosen = np.outer(rows, columns).ravel()
    chosen[learnt] = False
    return np.flatnonzero(chosen)


def finishes(best: Finish, widest_thinning: int) -> Iterator[Finish]:
    """From the best to the quickest."""
    for nonlocal_passes in range(best.nonlocal_passes, -1, -1):
        for thinning in range(1, widest_thinning + 1):
            for search_steps in range(best.search_steps, FEWEST_SEARCH_STEPS - 1, -1):
                yield Finish(search_steps, nonlocal_passes, thinning)


class Costs(NamedTuple):
    """Measured seconds."""

    search_step: float  # of an E-step of a patch
    patch: float  # to reconstruct and merge one with states
    block: float  # and what a block of them takes beside
    nonlocal_passes: tuple[float, ...]  # of each pass over the whole image

    def seconds(self, finish: Finish, n_learnt: int, n_others: int) -> float:
        """How long it takes from the last iteration to the image."""
        n_patches = n_learnt + n_others
        n_blocks = -(-n_patches // patch_model.PATCHES_AT_ONCE)
        searching = n_others * finish.search_steps * self.search_step
        passes = self.nonlocal_passes[len(self.nonlocal_passes) - finish.nonlocal_passes :]
        return searching + n_patches * self.patch + n_blocks * self.block + sum(passes)


class Forecast(NamedTuple):
    """How long it will take to finish the image of a model, by what was measured with it."""

    costs: Costs
    grid: Grid
    learnt: NDArray[np.int64]  # numbers of the patches that it learns from

    def seconds(self, finish: Finish) -> float:
        """From the last iteration to the end."""
        n_others = len(others(self.grid, self.learnt, finish.thinning))
        return self.costs.seconds(finish, len(self.learnt), n_others)

    @property
    def widest_thinning(self) -> int:
        """For patches that overlap by half."""
        return max(1, min(self.grid.patch) // (2 * self.grid.widest_step))

    def reserved(self, best: Finish, allowed: float) -> float:
        """Seconds of those allowed that are left for finishing the image.

        Nonlocal passes gain more than further iterations do.
        """
        quickest = best.hurried._replace(thinning=self.widest_thinning)
        quick, slow = self.seconds(quickest), self.seconds(best)
        return max(min(slow, allowed / 2), min(quick, MOST_RESERVED * allowed))

    def best_within(self, best: Finish, seconds: float) -> Finish:
        """The best finish in that time, or the quickest there is."""
        chosen = best
        for chosen in finishes(best, self.widest_thinning):
            if self.seconds(chosen) <= seconds:
                break
        return chosen


def forecast(model: PatchModel, nonlocal_passes: int) -> Forecast:
    """Measure how long it takes to search for states, to reconstruct and in nonlocal passes."""
    spent = []
    n_learnt = len(model.patches.data)
    n_measured = min(patch_model.PATCHES_AT_ONCE, math.ceil(MEASURED_SHARE * n_learnt))
    for size in (1, 1, n_measured):  # something is compiled or derived at first
        block, kept = model.patches.part(slice(0, size)), model.state.states[:size]
        started = time.perf_counter()
        model.reconstruct(block, kept)
        between = time.perf_counter()
        model.infer(block, 1, kept)
        spent.append((between - started, time.perf_counter() - between))
    (block_alone, step_alone), (reconstructed, searched) = spent[-2:]
    passes: tuple[float, ...] = ()
    if nonlocal_passes:
        canonical = model.source.canonical
        for _ in range(2):
            passes = nonlocal_bayes.seconds(canonical, nonlocal_passes, model.search.n_jobs)
    costs = Costs(
        max(searched - step_alone, 0.0) / n_measured,
        max(reconstructed - block_alone, 0.0) / n_measured,
        block_alone,
        passes,
    )
    return Forecast(costs, model.source.grid, model.patches.numbers)
