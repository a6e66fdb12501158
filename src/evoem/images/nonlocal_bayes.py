"""Nonlocal Bayes: similar patches of a restored image say more about each other than a dictionary.

A dictionary has what is common all over an image. The surroundings of a patch tell more: there are
edges of just this curvature, textures of just this width. So the most similar patches of the
restored image around a patch get a Gaussian of their own, with their mean and covariance. Under
that Gaussian each of them is estimated again from its observed values (Lebrun, Buades and Morel, "A
nonlocal Bayesian image denoising algorithm", 2013, who had no dictionary).

With K similar patches x_k, of mean m, and Z = (x_k - m) / √K, row by row,

    x = m + Zᵀ z + e,    z ~ N(0, 1),    e ~ N(0, ε 1),    y = x + noise of variance σ²,

so z has the posterior N(A⁻¹ Z (y - m), (σ² + ε) A⁻¹) with A = Z Zᵀ + (σ² + ε) 1, over observed
values. If there are fewer than K of these, Zᵀ A⁻¹ Z (y - m) = Zᵀ Z B⁻¹ (y - m) costs less, where
B = Zᵀ Z + (σ² + ε) 1 over observed values.

Photon noise has a different variance in each value, which is computed from the restored image, pass
by pass. In similar patches it is about the same. So each of their values is divided by the root of
the mean variance there, and all of the above holds. Averages are then taken of values, not of their
square roots, which matters where photons are few.
"""

import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from evoem.images import bands, patches
from evoem.images.bands import Band
from evoem.images.canonical_arrays import Canonical
from evoem.images.merging import UNSEEN, Merged, weighting
from evoem.images.noise_map import VarianceMap
from evoem.images.noise_transform import NoiseTransform
from evoem.images.patches import Grid
from evoem.models.subspace.small_systems import System, cholesky, solve_back
from evoem.runtime import interrupts
from evoem.runtime.compile import kernel, part_of_kernel
from evoem.runtime.threads import in_threads

# Widths of the patches of each pass in turn, of a grey image: first much is seen of each, which
# averages most, then details are, and then both.
WIDTHS = (12, 6, 8)
# The same where each value has noise of its own: there the merged image is rough, and a narrow pass
# first finds more that is similar.
WIDTHS_OF_OWN_VARIANCES = (4, 12, 6)
# Patches that share a Gaussian: more where something is missing, of which each says less. And how
# far from the first of them they may lie, in pixels.
N_SIMILAR = 24
N_SIMILAR_INCOMPLETE = 32
SEARCH_RADIUS = 24
# ε, what similar patches do not have in common, in products of the standard deviations of image and
# noise: it grows with the contrast, and restored patches have lost more of it in more noise.
RESIDUAL = 0.007
# Share of the given image in the guide of the first pass. It keeps what merging lost. Later on it
# would only add noise.
GIVEN_SHARE = 0.2
# Rows of the grid that a thread works on before its sums are added up.
ROWS_AT_ONCE = 4


class Images(NamedTuple):
    """Images of the same shape, (rows, columns, channels), or flat, (rows, columns × channels)."""

    given: NDArray[np.float32]
    observed: NDArray[np.bool_]  # of what was given
    restored: NDArray[np.float32]
    guide: NDArray[np.float32]  # by this one patches are similar
    known: NDArray[np.bool_]  # of what was restored
    # Variance of each value's noise, in units of σ²; empty if all have the same.
    variances: NDArray[np.float32] = np.empty((0, 0, 0), np.float32)


class PatchShape(NamedTuple):
    """The shape of a patch, and how many patches start in a row of the image."""

    height: int
    width: int
    channels: int
    n_lefts: int


class Noise(NamedTuple):
    """Variances that a Gaussian of similar patches does not explain."""

    variance: float  # σ²
    residual: float  # ε


class Sums(NamedTuple):
    """Weighted sums of estimated patches, from some row of the image on."""

    total: NDArray[np.float64]  # (rows, columns × channels)
    weight: NDArray[np.float64]
    first_row: int


class Scratch(NamedTuple):
    """Scratch memory for K similar patches of D values."""

    Z: NDArray[np.float64]  # (K, D)
    U: NDArray[np.float64]  # (K, D): of complete patches, which may be all
    U_incomplete: NDArray[np.float64]
    covariance: NDArray[np.float64]  # (D, D)
    y: NDArray[np.float64]  # (D,), as all that follow
    seen: NDArray[np.float64]
    centre: NDArray[np.float64]
    unit: NDArray[np.float64]
    mean: NDArray[np.float64]
    variance: NDArray[np.float64]
    variance_incomplete: NDArray[np.float64]


def scratch(n_similar: int, n_pixels: int) -> Scratch:
    """Arrays for groups of patches."""
    group, pixels = (n_similar, n_pixels), n_pixels
    shapes = (group, group, group, (pixels, pixels), *[pixels] * 7)
    return Scratch._make(np.empty(shape) for shape in shapes)


def possible(grid: Grid) -> bool:
    """Whether restored patches overlap by half: one that lies alone would only confirm itself."""
    return 2 * grid.widest_step <= min(grid.patch)


def widths_for(canonical: Canonical) -> tuple[int, ...]:
    """Widths of the patches of each pass over an image."""
    return WIDTHS if own_variances(canonical) is None else WIDTHS_OF_OWN_VARIANCES


def own_variances(canonical: Canonical) -> NoiseTransform | VarianceMap | None:
    """The transform that knows the variances of independent noise, if they differ."""
    transform = canonical.transform
    return None if transform is None or transform.correlated else transform


def pass_grids(
    shape: tuple[int, int, int], n_passes: int, widths: tuple[int, ...] = WIDTHS
) -> list[Grid]:
    """The grids of reference patches, for the last `n_passes` passes over an image.

    Colour patches are smaller, with about as many values as grey ones. They overlap by half, which
    is enough since each stands for many similar ones.
    """
    last = widths[len(widths) - n_passes :]
    own = [max(round(width / math.sqrt(shape[2])), 1) for width in last]
    return [patches.regular_grid(shape, width, max(width // 2, 1)) for width in own]


def offsets_within(radius: int) -> NDArray[np.int64]:
    """Offsets from a patch to those around it, the nearest, and mostly the most similar, first."""
    steps = np.arange(-radius, radius + 1)
    offsets = np.stack(np.meshgrid(steps, steps, indexing="ij"), axis=-1).reshape(-1, 2)
    return offsets[np.argsort((offsets**2).sum(1), kind="stable")]


@part_of_kernel
def find_similar(guide, usable, top, shape, offsets, lefts, found, counts):
    """For each of some left columns, the patches around the one there, the most similar first.

    `guide` is flat; `usable` tells, by top row and left column, which patches are fully known;
    `found` (len(lefts), n_similar) gets their numbers, row by row.
    """
    height, width, channels, _ = shape
    n_tops, n_lefts = usable.shape
    n_similar = found.shape[1]
    squares = np.empty(guide.shape[1], guide.dtype)
    sums = np.empty(n_lefts, guide.dtype)
    distances = np.full(found.shape, np.inf, guide.dtype)
    counts[:] = 0
    for offset in range(len(offsets)):
        other, aside = top + offsets[offset, 0], offsets[offset, 1]
        first, last = max(0, -aside), min(n_lefts, n_lefts - aside)
        if other < 0 or other >= n_tops or last <= first:
            continue
        # By columns of a patch's height: patches beside each other share all but one.
        begin, length = first * channels, (last - first + width - 1) * channels
        squares[:length] = 0.0
        for u in range(height):
            here = guide[top + u, begin:]
            there = guide[other + u, begin + aside * channels :]
            for x in range(length):
                difference = here[x] - there[x]
                squares[x] += difference * difference
        sums[first:last] = 0.0
        for v in range(width * channels):
            for x in range(last - first):
                sums[first + x] += squares[x * channels + v]
        for n in range(len(lefts)):
            x = lefts[n]
            if x < first or x >= last:
                continue
            distance = sums[x]
            if distance < distances[n, n_similar - 1] and usable[other, x + aside]:
                rank = min(counts[n], n_similar - 1)
                while rank > 0 and distances[n, rank - 1] > distance:
                    distances[n, rank] = distances[n, rank - 1]
                    found[n, rank] = found[n, rank - 1]
                    rank -= 1
                distances[n, rank] = distance
                found[n, rank] = other * n_lefts + x + aside
                counts[n] = min(counts[n] + 1, n_similar)


@part_of_kernel
def centre_patches(group, mean):
    """Patches become Z, in place."""
    K, D = group.shape
    mean[:] = 0.0
    for k in range(K):
        for d in range(D):
            mean[d] += group[k, d]
    for d in range(D):
        mean[d] /= K
    scale = 1.0 / np.sqrt(K)
    for k in range(K):
        for d in range(D):
            group[k, d] = (group[k, d] - mean[d]) * scale


@part_of_kernel
def divide_by_deviations(images, shape, found, Z, unit):
    """Z in units of the noise's deviation at each value of similar patches, which `unit` gets."""
    height, width, channels, n_lefts = shape
    span = width * channels
    K, D = Z.shape
    unit[:] = 0.0
    for k in range(K):
        row, begin = found[k] // n_lefts, found[k] % n_lefts * channels
        for u in range(height):
            for v in range(span):
                unit[u * span + v] += images.variances[row + u, begin + v]
    for d in range(D):
        unit[d] = np.sqrt(unit[d] / K)
    for k in range(K):
        for d in range(D):
            Z[k, d] /= unit[d]


@part_of_kernel
def cholesky_whiten(Z, seen, noise, U, variance):
    """U = L⁻¹ Z, where A = L Lᵀ over observed values, and the variance of a patch observed so."""
    K, D = Z.shape
    total = noise.variance + noise.residual
    left = noise.variance / total
    local, eta, inverse = np.empty((K, K)), np.zeros(K), np.empty(K)
    for k in range(K):
        for d in range(D):
            U[k, d] = Z[k, d] * seen[d]
        for j in range(k + 1):
            product = 0.0
            for d in range(D):
                product += U[k, d] * Z[j, d]
            local[k, j] = product / total
    cholesky(K, 0, System(local, local, eta, inverse, eta))  # of A / total
    scale = 1.0 / np.sqrt(total)
    variance[:] = 0.0
    for k in range(K):
        for d in range(D):
            U[k, d] = Z[k, d] * scale
        for j in range(k):
            for d in range(D):
                U[k, d] -= local[k, j] * U[j, d]
        for d in range(D):
            U[k, d] *= inverse[k]
            variance[d] += U[k, d] * U[k, d]
    for d in range(D):
        if seen[d]:
            variance[d] = left * left * total * variance[d] + noise.residual * left
        else:
            variance[d] = total * variance[d] + noise.residual


@part_of_kernel
def posterior_mean(y, seen, U, noise, mean):
    """Mean of a patch given its observed values, and U of those similar to it.

    From both their mean has been subtracted.
    """
    K, D = U.shape
    mean[:] = 0.0
    for k in range(K):
        amount = 0.0
        for d in range(D):
            amount += U[k, d] * y[d] * seen[d]
        for d in range(D):
            mean[d] += U[k, d] * amount
    kept = noise.residual / (noise.variance + noise.residual)
    for d in range(D):
        mean[d] += kept * (y[d] - mean[d]) * seen[d]


@part_of_kernel
def covariance_of(Z, covariance):
    """Zᵀ Z."""
    K, D = Z.shape
    covariance[:] = 0.0
    for k in range(K):
        for c in range(D):
            for d in range(D):
                covariance[c, d] += Z[k, c] * Z[k, d]


@part_of_kernel
def posterior_mean_of_incomplete(y, seen, Z, covariance, noise, mean):
    """The same mean for a patch with missing values, whose factor no other patch can use.

    `covariance` is Zᵀ Z, needed if there are fewer observed values than similar patches.
    """
    K, D = Z.shape
    total = noise.variance + noise.residual
    numbers, rest = np.empty(D, np.int64), np.empty(D)
    n_seen = 0
    mean[:] = 0.0
    for d in range(D):
        if seen[d]:
            numbers[n_seen] = d
            rest[n_seen] = y[d]
            n_seen += 1
    local, eta, inverse = np.empty((K, K)), np.zeros(K), np.empty(K)
    system = System(local, local, eta, inverse, eta)
    if n_seen < K:
        for i in range(n_seen):
            for j in range(i + 1):
                local[i, j] = covariance[numbers[i], numbers[j]] / total
            eta[i] = rest[i] / total
        cholesky(n_seen, 0, system)
        solve_back(n_seen, 0, system)
        for i in range(n_seen):
            for d in range(D):
                mean[d] += covariance[numbers[i], d] * eta[i]
    else:
        part = np.empty((K, n_seen))
        for k in range(K):
            for i in range(n_seen):
                part[k, i] = Z[k, numbers[i]]
                eta[k] += part[k, i] * rest[i] / total
            for j in range(k + 1):
                product = 0.0
                for i in range(n_seen):
                    product += part[k, i] * part[j, i]
                local[k, j] = product / total
        cholesky(K, 0, system)
        solve_back(K, 0, system)
        for k in range(K):
            for d in range(D):
                mean[d] += Z[k, d] * eta[k]
    kept = noise.residual / total
    for d in range(D):
        mean[d] += kept * (y[d] - mean[d]) * seen[d]


@part_of_kernel
def _gather(image, top, begin, height, span, patch):
    """Values of the patch whose rows start at these places."""
    for u in range(height):
        for v in range(span):
            patch[u * span + v] = image[top + u, begin + v]


@part_of_kernel
def estimate_group(images, shape, found, noise, weighting, scratch, sums):
    """Estimate patches that are similar to each other, and add them to sums.

    `images` are flat; `found` are numbers of patches, row by row.
    """
    height, width, channels, n_lefts = shape
    span = width * channels
    K, D = len(found), height * span
    Z, y, seen = scratch.Z[:K], scratch.y, scratch.seen
    centre, unit, mean = scratch.centre, scratch.unit, scratch.mean
    for k in range(K):
        row, column = found[k] // n_lefts, found[k] % n_lefts
        _gather(images.restored, row, column * channels, height, span, Z[k])
    centre_patches(Z, centre)
    unit[:] = 1.0
    if images.variances.size:
        divide_by_deviations(images, shape, found, Z, unit)
    factor_is_known, covariance_is_known = False, False
    for k in range(K):
        row, begin = found[k] // n_lefts, found[k] % n_lefts * channels
        _gather(images.given, row, begin, height, span, y)
        _gather(images.observed, row, begin, height, span, seen)
        for d in range(D):
            y[d] = (y[d] - centre[d]) / unit[d]
        n_seen = seen.sum()
        U, variance = scratch.U_incomplete[:K], scratch.variance_incomplete
        if n_seen < D and not weighting.by_variance:
            if n_seen < K and not covariance_is_known:
                covariance_of(Z, scratch.covariance)
                covariance_is_known = True
            posterior_mean_of_incomplete(y, seen, Z, scratch.covariance, noise, mean)
        else:
            # Of complete patches once.
            if n_seen == D:
                U, variance = scratch.U[:K], scratch.variance
            if n_seen < D or not factor_is_known:
                cholesky_whiten(Z, seen, noise, U, variance)
                factor_is_known = factor_is_known or n_seen == D
            posterior_mean(y, seen, U, noise, mean)
        trust = 1.0 if n_seen > 0 else UNSEEN
        for u in range(height):
            for v in range(span):
                d = u * span + v
                share = trust * weighting.window[d]
                if weighting.by_variance:
                    share /= (variance[d] + weighting.floor) * unit[d] ** 2
                value = centre[d] + unit[d] * mean[d]
                sums.total[row - sums.first_row + u, begin + v] += share * value
                sums.weight[row - sums.first_row + u, begin + v] += share


@kernel
def _estimate_rows(images, usable, tops, lefts, shape, offsets, noise, weighting, scratch, sums):
    """All groups of some rows of a grid."""
    n_similar = len(scratch.Z)
    found, counts = np.empty((len(lefts), n_similar), np.int64), np.empty(len(lefts), np.int64)
    for t in range(len(tops)):
        find_similar(images.guide, usable, tops[t], shape, offsets, lefts, found, counts)
        for n in range(len(lefts)):
            if usable[tops[t], lefts[n]]:
                similar = found[n, : counts[n]]
                estimate_group(images, shape, similar, noise, weighting, scratch, sums)


def one_pass(
    images: Images,
    grid: Grid,
    merge: str,
    noise_variance: float,
    n_jobs: int,
    band: Band | None = None,
    advance: Callable[[int], None] = lambda n_parts: None,
) -> NDArray[np.float64]:
    """The image merged from the groups of these patches; NaN where there are none.

    Each process has the rows of its band, of the images and of the result. Only patches that are
    fully known can be similar to others.
    """
    band = bands.whole(grid.shape[0]) if band is None else band
    patch_rows = bands.patch_rows(grid, band, ROWS_AT_ONCE)
    height, width = grid.patch
    columns, channels = grid.shape[1:]
    in_noise_units = images.guide if images.variances.size else images.restored
    contrast = band.deviation(in_noise_units, images.known)
    noise = Noise(noise_variance, RESIDUAL * contrast * noise_variance**0.5)
    incomplete, varied = band.any(not images.observed.all(), images.variances.size > 0)
    near = patch_rows.pixels(SEARCH_RADIUS, SEARCH_RADIUS)
    mine = near[band.comm.rank]
    around = Images._make(
        image if name == "variances" and not varied else band.fetch(image, near)
        for name, image in images._asdict().items()
    )
    n_lefts = columns - width + 1
    usable = np.zeros((max(mine.stop - mine.start - height + 1, 0), n_lefts), np.bool_)
    if len(usable):
        usable[:] = sliding_window_view(around.known.all(2), grid.patch).all((2, 3))
    flat = Images._make(
        np.ascontiguousarray(image).reshape(len(image), image.shape[1] * channels)
        for image in around
    )
    offsets, weights = offsets_within(SEARCH_RADIUS), weighting(grid, merge, noise_variance)
    n_similar = N_SIMILAR_INCOMPLETE if incomplete else N_SIMILAR
    shape = PatchShape(height, width, channels, n_lefts)

    def estimate(part: slice) -> Sums:
        tops = grid.tops[part] - mine.start
        first = max(0, int(tops[0]) - SEARCH_RADIUS)
        last = min(mine.stop - mine.start, int(tops[-1]) + SEARCH_RADIUS + height)
        total, weight = np.zeros((2, last - first, columns * channels))
        sums = Sums(total, weight, first)
        own = scratch(n_similar, grid.n_pixels)
        _estimate_rows(
            flat, usable, tops, grid.lefts, shape, offsets, noise, weights, own, sums
        )  # fmt: skip
        return sums

    canvas = patches.Canvas(grid, mine)

    def add(sums: Sums) -> None:
        canvas.totals.add_rows(mine.start + sums.first_row, sums.total)
        canvas.weights.add_rows(mine.start + sums.first_row, sums.weight)
        advance(1)

    in_threads(estimate, list(patch_rows.groups()), n_jobs, add)
    patch_rows.add([canvas.totals, canvas.weights])
    return canvas.mean()


class Notes(Protocol):
    """Where passes that are done are noted, see `journal`: an import of it would compile anew."""

    @property
    def is_kept(self) -> bool:
        """Whether notes are."""

    def recall(self, name: str) -> Any:
        """What was noted, or None."""

    def note(self, name: str, value: Any) -> None:
        """Note what is done."""

    def keep(self) -> None:
        """Keep it in a file if it is time to."""


def refine(
    canonical: Canonical,
    merged: Merged,
    merge: str,
    noise_variance: float,
    *,
    keep_observed: bool,
    n_passes: int,
    n_jobs: int,
    journal: Notes | None = None,
    begin: Callable[[str, int], Callable[[int], None]] = lambda name, total: lambda n_parts: None,
) -> Merged:
    """A merged image after `n_passes` passes; those that the journal has noted are not repeated.

    With `keep_observed`, observed values are taken to be free of noise. Standard deviations do not
    change: patches are similar partly by their errors, and would be far too certain.
    """
    given, observed, transform = canonical.values, _observed(canonical), own_variances(canonical)
    band = canonical.band
    known = merged.near & np.isfinite(merged.mean)  # all that was observed is
    known_passes = None if journal is None else journal.recall("passes")
    n_done, mean = 0, np.where(known, merged.mean, 0.0)
    if known_passes is not None:
        n_done, mean = known_passes[0], known_passes[1][band.rows]
    grids = pass_grids(canonical.shape, n_passes, widths_for(canonical))
    advance = begin("nonlocal step", sum(-(-len(grid.tops) // ROWS_AT_ONCE) for grid in grids))
    for number, grid in enumerate(grids):
        if number < n_done:
            advance(-(-len(grid.tops) // ROWS_AT_ONCE))
            continue
        restored = np.where(observed & keep_observed, given, mean)
        share = GIVEN_SHARE if number == 0 else 0.0
        guide = restored + np.where(observed, share * (given - restored), 0.0)
        images = Images(
            given, observed, restored.astype(np.float32), guide.astype(np.float32), known
        )
        interrupts.agree(band.comm)
        if transform is None:
            found = one_pass(images, grid, merge, noise_variance, n_jobs, band, advance)
        else:
            own = canonical.pixels(mean)
            # Single precision is for what lies around it.
            middle = band.mean(own)
            images = in_own_units(images, canonical.own_values, own, middle, transform)
            variance = noise_variance * canonical.scale**2
            found = one_pass(images, grid, merge, variance, n_jobs, band, advance) + middle
            found = (transform.expected(found) - canonical.offset) / canonical.scale
        mean = np.where(np.isnan(found), mean, found)
        if journal is not None and journal.is_kept:
            journal.note("passes", (number + 1, band.at_first(mean)))
            journal.keep()
    return merged._replace(mean=np.where(known, mean, merged.mean))


def in_own_units(
    images: Images,
    given: NDArray[np.float64],
    restored: NDArray[np.float64],
    middle: float,
    transform: NoiseTransform | VarianceMap,
) -> Images:
    """Images in the image's own units, with the variances of its noise; compared as before."""
    return images._replace(
        given=(given - middle).astype(np.float32),
        restored=(restored - middle).astype(np.float32),
        variances=transform.variances(restored).astype(np.float32),
    )


def seconds(canonical: Canonical, n_passes: int, n_jobs: int) -> tuple[float, ...]:
    """Predicted seconds of each pass over an image, from a few rows of its grid."""
    spent = []
    for grid in pass_grids(canonical.shape, n_passes, widths_for(canonical)):
        images, some = sample(canonical, grid)
        if not len(some.tops):
            spent.append(0.0)
            continue
        started = time.perf_counter()
        one_pass(images, some, "variance", 1.0, 1)
        share = len(some.tops) / len(grid.tops)
        spent.append((time.perf_counter() - started) / share / n_jobs)
    return tuple(spent)


def sample(canonical: Canonical, grid: Grid) -> tuple[Images, Grid]:
    """A few rows of a grid, in the middle of what this process has of an image, and as much of it
    around as they reach. Of a few rows of pixels there are none."""
    mine = canonical.band.rows
    tops = grid.tops - mine.start
    tops = tops[(tops >= 0) & (tops <= len(canonical.values) - grid.patch[0])]
    tops = tops[(len(tops) - 1) // 2 :][:ROWS_AT_ONCE]
    rows = slice(0, 0)
    if len(tops):
        first = max(0, int(tops[0]) - SEARCH_RADIUS)
        rows = slice(first, int(tops[-1]) + grid.patch[0] + SEARCH_RADIUS)
    part, observed = canonical.values[rows], _observed(canonical)[rows]
    images = Images(part, observed, part, part, np.ones(part.shape, np.bool_))
    return images, grid._replace(shape=part.shape, tops=tops - rows.start)


def _observed(canonical: Canonical) -> NDArray[np.bool_]:
    if canonical.observed is None:
        return np.ones(canonical.values.shape, np.bool_)
    return canonical.observed
