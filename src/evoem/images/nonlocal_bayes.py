"""Nonlocal Bayes: similar patches of a restored image say more about each other than a dictionary.

A dictionary has what is common all over an image. Around a patch there is more to know: an edge of
just this bend, a texture of just this width. So the patches of the restored image around it that
are most similar to it get a Gaussian of their own, with their mean and covariance, and given that
Gaussian each of them is estimated anew from what was observed of it (Lebrun, Buades and Morel, "A
nonlocal Bayesian image denoising algorithm", 2013, who had no dictionary).

With K similar patches x_k, of mean m, and Z = (x_k - m) / √K, row by row,

    x = m + Zᵀ z + e,    z ~ N(0, 1),    e ~ N(0, ε 1),    y = x + noise of variance σ²,

so that z has the posterior N(A⁻¹ Z (y - m), (σ² + ε) A⁻¹) with A = Z Zᵀ + (σ² + ε) 1, over what was
observed. If fewer values than K were, Zᵀ A⁻¹ Z (y - m) = Zᵀ Z B⁻¹ (y - m) is had for less, where
B = Zᵀ Z + (σ² + ε) 1 over these.
"""

import math
import time
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from evoem.images import patches
from evoem.images.canonical_arrays import Canonical
from evoem.images.merging import UNSEEN, Merged, weighting
from evoem.images.patches import Grid
from evoem.runtime.compile import inlined, kernel
from evoem.runtime.threads import in_threads, split

# Widths of the patches of each pass in turn, of a grey image: first much is seen of each, which
# averages most, then details are, and then both.
WIDTHS = (12, 6, 8)
# Patches that share a Gaussian: more where something is missing, of which each says less. And how
# far from the first of them they may lie, in pixels.
N_SIMILAR = 24
N_SIMILAR_INCOMPLETE = 32
SEARCH_RADIUS = 24
# ε, what similar patches do not have in common, in products of the standard deviations of image and
# noise: it grows with the contrast, and restored patches have lost more of it in more noise.
RESIDUAL = 0.007
# Share of the given image in the guide of the first pass. It keeps what merging lost. Later on it
# would but add noise.
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


class PatchShape(NamedTuple):
    """That of a patch, and how many start in a row of the image."""

    height: int
    width: int
    channels: int
    n_lefts: int


class Noise(NamedTuple):
    """Variances of what a Gaussian of similar patches does not explain."""

    variance: float  # σ²
    residual: float  # ε


class Sums(NamedTuple):
    """Weighted sums of estimated patches, from a row of the image on."""

    total: NDArray[np.float64]  # (rows, columns × channels)
    weight: NDArray[np.float64]
    first_row: int


class Scratch(NamedTuple):
    """Arrays to work in, for K similar patches of D values."""

    Z: NDArray[np.float64]  # (K, D)
    U: NDArray[np.float64]  # (K, D): of complete patches, which may be all
    U_incomplete: NDArray[np.float64]
    covariance: NDArray[np.float64]  # (D, D)
    y: NDArray[np.float64]  # (D,), as all that follow
    seen: NDArray[np.float64]
    centre: NDArray[np.float64]
    mean: NDArray[np.float64]
    variance: NDArray[np.float64]
    variance_incomplete: NDArray[np.float64]


def scratch(n_similar: int, n_pixels: int) -> Scratch:
    """Arrays for groups of patches."""
    group, pixels = (n_similar, n_pixels), n_pixels
    shapes = (group, group, group, (pixels, pixels), *[pixels] * 6)
    return Scratch._make(np.empty(shape) for shape in shapes)


def possible(grid: Grid) -> bool:
    """Whether restored patches overlap by half: one that lies alone would but confirm itself."""
    return 2 * grid.widest_step <= min(grid.patch)


def pass_grids(shape: tuple[int, int, int], n_passes: int) -> list[Grid]:
    """Patches whose similar ones are looked for, in the last so many passes over an image.

    Patches of colour are smaller, for about as many values. They overlap by half: each stands for
    many that are similar.
    """
    last = WIDTHS[len(WIDTHS) - n_passes :]
    widths = [max(round(width / math.sqrt(shape[2])), 1) for width in last]
    return [patches.regular_grid(shape, width, max(width // 2, 1)) for width in widths]


def offsets_within(radius: int) -> NDArray[np.int64]:
    """From a patch to those around it, the shortest first: fewer are then found in vain."""
    steps = np.arange(-radius, radius + 1)
    offsets = np.stack(np.meshgrid(steps, steps, indexing="ij"), axis=-1).reshape(-1, 2)
    return offsets[np.argsort((offsets**2).sum(1), kind="stable")]


@kernel
def find_similar(guide, usable, top, shape, offsets, lefts, found, counts):
    """For each of some left columns, patches around the one there, those most similar first.

    `guide` is flat; `usable` says of which patches, by top row and left column, all is known;
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


@kernel
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


@kernel
def cholesky_whiten(Z, seen, noise, U, variance):
    """U = L⁻¹ Z, where A = L Lᵀ over what was seen, and the variance of a patch seen so."""
    K, D = Z.shape
    total = noise.variance + noise.residual
    left = noise.variance / total
    L = np.empty((K, K))
    variance[:] = 0.0
    for k in range(K):
        for d in range(D):
            U[k, d] = Z[k, d] * seen[d]
        for j in range(k + 1):
            product = 0.0
            for d in range(D):
                product += U[k, d] * Z[j, d]
            L[k, j] = product
        L[k, k] += total
        for d in range(D):
            U[k, d] = Z[k, d]
        for j in range(k):
            for i in range(j):
                L[k, j] -= L[k, i] * L[j, i]
            L[k, j] /= L[j, j]
            L[k, k] -= L[k, j] * L[k, j]
            for d in range(D):
                U[k, d] -= L[k, j] * U[j, d]
        L[k, k] = np.sqrt(L[k, k])
        for d in range(D):
            U[k, d] /= L[k, k]
            variance[d] += U[k, d] * U[k, d]
    for d in range(D):
        if seen[d]:
            variance[d] = left * left * total * variance[d] + noise.residual * left
        else:
            variance[d] = total * variance[d] + noise.residual


@kernel
def posterior_mean(y, seen, centre, U, noise, mean):
    """Mean of a patch given what was observed of it, and the mean and U of those similar to it."""
    K, D = U.shape
    rest = np.empty(D)
    for d in range(D):
        rest[d] = (y[d] - centre[d]) * seen[d]
        mean[d] = centre[d]
    for k in range(K):
        amount = 0.0
        for d in range(D):
            amount += U[k, d] * rest[d]
        for d in range(D):
            mean[d] += U[k, d] * amount
    kept = noise.residual / (noise.variance + noise.residual)
    for d in range(D):
        mean[d] += kept * (y[d] - mean[d]) * seen[d]


@inlined
def cholesky_solve(A, n, x):
    """A⁻¹ x over x, of which there are n; of A the lower triangle is used, and overwritten."""
    for i in range(n):
        pivot, own = A[i, i], x[i]
        for j in range(i):
            product = 0.0
            for p in range(j):
                product += A[i, p] * A[j, p]
            value = (A[i, j] - product) * A[j, j]
            A[i, j] = value
            pivot -= value * value
            own -= value * x[j]
        A[i, i] = 1.0 / np.sqrt(pivot)  # of the factor's diagonal one over it
        x[i] = own * A[i, i]
    for i in range(n - 1, -1, -1):
        own = x[i] * A[i, i]
        x[i] = own
        for j in range(i):
            x[j] -= A[i, j] * own


@kernel
def covariance_of(Z, covariance):
    """Zᵀ Z."""
    K, D = Z.shape
    covariance[:] = 0.0
    for k in range(K):
        for c in range(D):
            for d in range(D):
                covariance[c, d] += Z[k, c] * Z[k, d]


@kernel
def posterior_mean_of_incomplete(y, seen, centre, Z, covariance, noise, mean):
    """The same mean where something is missing, for which a factor serves no other patch.

    `covariance` is Zᵀ Z, needed if fewer values were seen than there are similar patches.
    """
    K, D = Z.shape
    total = noise.variance + noise.residual
    numbers, rest = np.empty(D, np.int64), np.empty(D)
    n_seen = 0
    for d in range(D):
        mean[d] = centre[d]
        if seen[d]:
            numbers[n_seen] = d
            rest[n_seen] = y[d] - centre[d]
            n_seen += 1
    A = np.empty((K, K))
    if n_seen < K:
        for i in range(n_seen):
            for j in range(i + 1):
                A[i, j] = covariance[numbers[i], numbers[j]]
            A[i, i] += total
        cholesky_solve(A, n_seen, rest)
        for i in range(n_seen):
            for d in range(D):
                mean[d] += covariance[numbers[i], d] * rest[i]
    else:
        part, amounts = np.empty((K, n_seen)), np.zeros(K)
        for k in range(K):
            for i in range(n_seen):
                part[k, i] = Z[k, numbers[i]]
                amounts[k] += part[k, i] * rest[i]
            for j in range(k + 1):
                product = 0.0
                for i in range(n_seen):
                    product += part[k, i] * part[j, i]
                A[k, j] = product
            A[k, k] += total
        cholesky_solve(A, K, amounts)
        for k in range(K):
            for d in range(D):
                mean[d] += Z[k, d] * amounts[k]
    kept = noise.residual / total
    for d in range(D):
        mean[d] += kept * (y[d] - mean[d]) * seen[d]


@kernel
def _gather(image, top, begin, height, span, patch):
    """Values of the patch whose rows start here."""
    for u in range(height):
        for v in range(span):
            patch[u * span + v] = image[top + u, begin + v]


@kernel
def estimate_group(images, shape, found, noise, weighting, scratch, sums):
    """Estimate patches that are similar to each other, and add them to sums.

    `images` are flat; `found` are numbers of patches, row by row.
    """
    height, width, channels, n_lefts = shape
    span = width * channels
    K, D = len(found), height * span
    Z, y, seen = scratch.Z[:K], scratch.y, scratch.seen
    centre, mean = scratch.centre, scratch.mean
    for k in range(K):
        row, column = found[k] // n_lefts, found[k] % n_lefts
        _gather(images.restored, row, column * channels, height, span, Z[k])
    centre_patches(Z, centre)
    factor_is_known, covariance_is_known = False, False
    for k in range(K):
        row, begin = found[k] // n_lefts, found[k] % n_lefts * channels
        _gather(images.given, row, begin, height, span, y)
        _gather(images.observed, row, begin, height, span, seen)
        n_seen = seen.sum()
        U, variance = scratch.U_incomplete[:K], scratch.variance_incomplete
        if n_seen < D and not weighting.by_variance:
            if n_seen < K and not covariance_is_known:
                covariance_of(Z, scratch.covariance)
                covariance_is_known = True
            posterior_mean_of_incomplete(y, seen, centre, Z, scratch.covariance, noise, mean)
        else:
            # Of complete patches once.
            if n_seen == D:
                U, variance = scratch.U[:K], scratch.variance
            if n_seen < D or not factor_is_known:
                cholesky_whiten(Z, seen, noise, U, variance)
                factor_is_known = factor_is_known or n_seen == D
            posterior_mean(y, seen, centre, U, noise, mean)
        trust = 1.0 if n_seen > 0 else UNSEEN
        for u in range(height):
            for v in range(span):
                d = u * span + v
                share = trust * weighting.window[d]
                if weighting.by_variance:
                    share /= variance[d] + weighting.floor
                sums.total[row - sums.first_row + u, begin + v] += share * mean[d]
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
    images: Images, grid: Grid, merge: str, noise_variance: float, n_jobs: int
) -> NDArray[np.float64]:
    """The image by the groups of these patches, merged; NaN where there are none.

    Only patches of which all is known are similar to others.
    """
    height, width = grid.patch
    rows, columns, channels = grid.shape
    contrast = float(images.restored.std(where=images.known))
    noise = Noise(noise_variance, RESIDUAL * contrast * noise_variance**0.5)
    usable = np.asarray(sliding_window_view(images.known.all(2), grid.patch).all((2, 3)))
    flat = Images._make(np.ascontiguousarray(image).reshape(rows, -1) for image in images)
    offsets, weights = offsets_within(SEARCH_RADIUS), weighting(grid, merge, noise_variance)
    n_similar = N_SIMILAR if images.observed.all() else N_SIMILAR_INCOMPLETE
    shape = PatchShape(height, width, channels, usable.shape[1])

    def estimate(part: slice) -> Sums:
        tops = grid.tops[part]
        first = max(0, int(tops[0]) - SEARCH_RADIUS)
        last = min(rows, int(tops[-1]) + SEARCH_RADIUS + height)
        total, weight = np.zeros((2, last - first, columns * channels))
        sums = Sums(total, weight, first)
        own = scratch(n_similar, grid.n_pixels)
        _estimate_rows(
            flat, usable, tops, grid.lefts, shape, offsets, noise, weights, own, sums
        )  # fmt: skip
        return sums

    canvas = patches.Canvas(grid)

    def add(sums: Sums) -> None:
        inside = slice(sums.first_row, sums.first_row + len(sums.total))
        canvas.total[inside] += sums.total.reshape(-1, columns, channels)
        canvas.weight[inside] += sums.weight.reshape(-1, columns, channels)

    in_threads(estimate, split(len(grid.tops), ROWS_AT_ONCE), n_jobs, add)
    return canvas.mean()


def refine(
    canonical: Canonical,
    merged: Merged,
    merge: str,
    noise_variance: float,
    *,
    keep_observed: bool,
    n_passes: int,
    n_jobs: int,
) -> Merged:
    """A merged image after so many passes.

    With `keep_observed`, what was observed is taken to be without noise. Standard deviations stay
    as they are: similar patches are so by their errors too, and would be far too sure.
    """
    given, observed = canonical.values, _observed(canonical)
    known = merged.near & np.isfinite(merged.mean)  # all that was observed is
    mean, share = np.where(known, merged.mean, 0.0), GIVEN_SHARE
    for grid in pass_grids(given.shape, n_passes):
        restored = np.where(observed & keep_observed, given, mean)
        guide = restored + np.where(observed, share * (given - restored), 0.0)
        images = Images(
            given, observed, restored.astype(np.float32), guide.astype(np.float32), known
        )
        found = one_pass(images, grid, merge, noise_variance, n_jobs)
        mean, share = np.where(np.isnan(found), mean, found), 0.0
    return merged._replace(mean=np.where(known, mean, merged.mean))


def seconds(canonical: Canonical, n_passes: int, n_jobs: int) -> tuple[float, ...]:
    """How long each pass over an image will take, by a few rows of its grid in the middle."""
    spent = []
    image, observed = canonical.values, _observed(canonical)
    for grid in pass_grids(image.shape, n_passes):
        n_tops = len(grid.tops)
        some = grid.tops[(n_tops - 1) // 2 :][:ROWS_AT_ONCE]
        # As far around as they reach.
        rows = slice(max(0, some[0] - SEARCH_RADIUS), some[-1] + grid.patch[0] + SEARCH_RADIUS)
        part = image[rows]
        images = Images(part, observed[rows], part, part, np.ones(part.shape, np.bool_))
        own = grid._replace(shape=part.shape, tops=some - rows.start)
        started = time.perf_counter()
        one_pass(images, own, "variance", 1.0, 1)
        spent.append((time.perf_counter() - started) * n_tops / len(some) / n_jobs)
    return tuple(spent)


def _observed(canonical: Canonical) -> NDArray[np.bool_]:
    if canonical.observed is None:
        return np.ones(canonical.values.shape, np.bool_)
    return canonical.observed
