"""Look around: what patches of a restored image say that are like each other.

A dictionary has what is common all over an image. Around a place there is more to know: an edge of
just this bend, a texture of just this width. So each patch gets a Gaussian of its own, with the
mean and the covariance of those patches of the restored image around it that are most like it, and
what was observed of the patch is then seen in its light (Lebrun, Buades and Morel, "A nonlocal
Bayesian image denoising algorithm", 2013, who had no dictionary).

With K like patches x_k, of mean m, and Z = (x_k - m) / √K, row by row,

    x = m + Zᵀ z + e,    z ~ N(0, 1),    e ~ N(0, ε 1),    y = x + noise of variance σ²,

so that z has the posterior N(A⁻¹ Z (y - m), (σ² + ε) A⁻¹) with A = Z Zᵀ + (σ² + ε) 1, over what was
observed.
"""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from evoem import em
from evoem.compile import kernel
from evoem.images import patches

# Width of a patch, how many are like it, and how far from it they may lie, in pixels.
WIDTH = 8
LIKE = 20
REACH = 24
# ε, what like patches do not have in common, in products of the standard deviations of image and
# noise: it grows with the contrast, and restored patches have lost more of it in more noise.
UNLIKE = 0.007
# Places looked at before what they say is merged.
PLACES_AT_ONCE = 8192


class Seen(NamedTuple):
    """Images of the same shape, (rows, columns, channels)."""

    given: NDArray[np.float32]
    observed: NDArray[np.bool_]  # of what was given
    restored: NDArray[np.float32]
    compared: NDArray[np.float32]  # by this one patches are like each other
    known: NDArray[np.bool_]  # of what was restored


def offsets(reach: int) -> NDArray[np.int64]:
    """Ways from a place to those around it, the shortest first: fewer are then found in vain."""
    steps = np.arange(-reach, reach + 1)
    ways = np.stack(np.meshgrid(steps, steps, indexing="ij"), axis=-1).reshape(-1, 2)
    return ways[np.argsort((ways**2).sum(1), kind="stable")]


@kernel
def find_like(image, usable, top, height, width, channels, ways, found, counts):
    """For each left column, the patches around the one there, those most like it first.

    `image` (rows, columns × channels); `usable` are places of patches that are known; `found`
    (n_lefts, n_like) gets their numbers, row by row of places.
    """
    n_tops, n_lefts = usable.shape
    n_like = found.shape[1]
    squares = np.empty(image.shape[1], image.dtype)
    sums = np.empty(n_lefts, image.dtype)
    distances = np.full(found.shape, np.inf, image.dtype)
    counts[:] = 0
    for way in range(len(ways)):
        other, aside = top + ways[way, 0], ways[way, 1]
        first, last = max(0, -aside), min(n_lefts, n_lefts - aside)
        if other < 0 or other >= n_tops or last <= first:
            continue
        # By columns of a patch's height: patches beside each other share all but one.
        begin, length = first * channels, (last - first + width - 1) * channels
        squares[:length] = 0.0
        for u in range(height):
            here = image[top + u, begin:]
            there = image[other + u, begin + aside * channels :]
            for x in range(length):
                difference = here[x] - there[x]
                squares[x] += difference * difference
        sums[first:last] = 0.0
        for v in range(width * channels):
            for x in range(last - first):
                sums[first + x] += squares[x * channels + v]
        for x in range(first, last):
            distance = sums[x]
            if distance < distances[x, n_like - 1] and usable[other, x + aside]:
                place = min(counts[x], n_like - 1)
                while place > 0 and distances[x, place - 1] > distance:
                    distances[x, place] = distances[x, place - 1]
                    found[x, place] = found[x, place - 1]
                    place -= 1
                distances[x, place] = distance
                found[x, place] = other * n_lefts + x + aside
                counts[x] = min(counts[x] + 1, n_like)


@kernel
def condition(y, seen, like, noise_variance, unlike, mean, variance):
    """Mean and variance of a patch given what was observed of it, and patches that are like it.

    `like` (n_like, n_pixels) is overwritten.
    """
    K, D = like.shape
    total = noise_variance + unlike
    mean[:] = 0.0
    for k in range(K):
        for d in range(D):
            mean[d] += like[k, d]
    scale = 1.0 / np.sqrt(K)
    for d in range(D):
        mean[d] /= K
    for k in range(K):
        for d in range(D):
            like[k, d] = (like[k, d] - mean[d]) * scale
    L = np.empty((K, K))
    b = np.empty(K)
    rest = np.empty(D)
    for d in range(D):
        rest[d] = (y[d] - mean[d]) * seen[d]
    for k in range(K):
        for j in range(k + 1):
            product = 0.0
            for d in range(D):
                product += like[k, d] * like[j, d] * seen[d]
            L[k, j] = product
        L[k, k] += total
        product = 0.0
        for d in range(D):
            product += like[k, d] * rest[d]
        b[k] = product
    # A = L Lᵀ; b and the rows of Z are divided by L on the way.
    variance[:] = 0.0
    for k in range(K):
        for j in range(k):
            for i in range(j):
                L[k, j] -= L[k, i] * L[j, i]
            L[k, j] /= L[j, j]
            L[k, k] -= L[k, j] * L[k, j]
            b[k] -= L[k, j] * b[j]
            for d in range(D):
                like[k, d] -= L[k, j] * like[j, d]
        L[k, k] = np.sqrt(L[k, k])
        b[k] /= L[k, k]
        for d in range(D):
            like[k, d] /= L[k, k]
            mean[d] += like[k, d] * b[k]
            variance[d] += like[k, d] * like[k, d]
    for d in range(D):
        if seen[d]:
            mean[d] += unlike / total * (y[d] - mean[d])
            left = noise_variance / total
            variance[d] = left * left * total * variance[d] + unlike * left
        else:
            variance[d] = total * variance[d] + unlike


@kernel
def _gather(image, top, begin, height, span, patch):
    """Values of the patch whose rows start here."""
    for u in range(height):
        for v in range(span):
            patch[u * span + v] = image[top + u, begin + v]


@kernel
def _look(images, at, like_at, noise, means, variances):
    given, observed, restored = images
    top, lefts, height, width, channels = at
    found, counts = like_at
    noise_variance, unlike = noise
    span, n_lefts = width * channels, len(counts)
    D = height * span
    like, y, seen = np.empty((found.shape[1], D)), np.empty(D), np.empty(D)
    for n in range(len(lefts)):
        left = lefts[n]
        _gather(given, top, left * channels, height, span, y)
        _gather(observed, top, left * channels, height, span, seen)
        for k in range(counts[left]):
            row, column = found[left, k] // n_lefts, found[left, k] % n_lefts
            _gather(restored, row, column * channels, height, span, like[k])
        condition(y, seen, like[: counts[left]], noise_variance, unlike, means[n], variances[n])


def estimates(
    seen: Seen, places: patches.Grid, noise_variance: float, n_jobs: int
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]]:
    """Numbers of patches, some at a time, with their means and variances.

    Only of patches of which all is known: nothing can be like the others.
    """
    height, width = places.patch
    channels = places.shape[2]
    spread = float(seen.restored.std(where=seen.known))
    unlike = UNLIKE * spread * noise_variance**0.5
    usable = np.asarray(sliding_window_view(seen.known.all(2), places.patch).all((2, 3)))
    given, observed, restored, compared, _ = (
        np.ascontiguousarray(image).reshape(len(image), -1) for image in seen
    )
    n_lefts = usable.shape[1]
    ways = offsets(REACH)

    def look(number: int) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
        top = places.tops[number]
        found, counts = np.empty((n_lefts, LIKE), np.int64), np.empty(n_lefts, np.int64)
        find_like(compared, usable, top, height, width, channels, ways, found, counts)
        (columns,) = np.nonzero(usable[top, places.lefts])
        means, variances = np.empty((2, len(columns), places.n_pixels))
        _look(
            (given, observed, restored),
            (top, places.lefts[columns], height, width, channels),
            (found, counts),
            (noise_variance, unlike),
            means,
            variances,
        )
        return number * len(places.lefts) + columns, means, variances

    at_once = max(1, PLACES_AT_ONCE // len(places.lefts))
    with ThreadPoolExecutor(n_jobs) as pool:
        for part in em.split(len(places.tops), at_once):
            rows = pool.map(look, range(part.start, part.stop))
            numbers, means, variances = (np.concatenate(each) for each in zip(*rows, strict=True))
            yield numbers, means, variances


def seconds(shape: tuple[int, int, int], stride: int, n_jobs: int) -> float:
    """How long all places of an image of this shape will take, by one row of them."""
    places = patches.grid(shape, WIDTH, stride)
    # As far from the edges as others are.
    rows = min(shape[0], places.patch[0] + 2 * REACH)
    image = np.random.default_rng(0).random((rows, *shape[1:]), np.float32)
    known = np.ones(image.shape, np.bool_)
    middle = np.array([(rows - places.patch[0]) // 2])
    one = places._replace(shape=image.shape, tops=middle)
    started = time.perf_counter()
    for _ in estimates(Seen(image, known, image, image, known), one, 1.0, 1):
        pass
    return (time.perf_counter() - started) * len(places.tops) / n_jobs
