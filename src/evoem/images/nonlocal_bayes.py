"""Look around: what patches of a restored image say that are like each other.

A dictionary has what is common all over an image. Around a place there is more to know: an edge of
just this bend, a texture of just this width. So the patches of the restored image around it that
are most like the one there get a Gaussian of their own, with their mean and covariance, and what
was observed of each of them is then seen in its light (Lebrun, Buades and Morel, "A nonlocal
Bayesian image denoising algorithm", 2013, who had no dictionary).

With K like patches x_k, of mean m, and Z = (x_k - m) / √K, row by row,

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
from evoem.images.merging import UNSEEN, weighing
from evoem.runtime.compile import inlined, kernel
from evoem.runtime.threads import in_threads, split

# Widths of the patches of each look in turn, of a grey image: first much is seen of each, which
# averages most, then details are, and then both.
WIDTHS = (12, 6, 8)
# Patches that are seen together: more where something is missing, of which each says less. And how
# far from the first of them they may lie, in pixels.
LIKE = 24
LIKE_INCOMPLETE = 32
REACH = 24
# ε, what like patches do not have in common, in products of the standard deviations of image and
# noise: it grows with the contrast, and restored patches have lost more of it in more noise.
UNLIKE = 0.007
# Rows of places that a thread looks at before what it saw is added up.
ROWS_AT_ONCE = 4


class Seen(NamedTuple):
    """Images of the same shape, (rows, columns, channels)."""

    given: NDArray[np.float32]
    observed: NDArray[np.bool_]  # of what was given
    restored: NDArray[np.float32]
    compared: NDArray[np.float32]  # by this one patches are like each other
    known: NDArray[np.bool_]  # of what was restored


def looks(shape: tuple[int, int, int], n_looks: int) -> list[patches.Grid]:
    """Places around which like patches are looked for, in the last so many looks at an image.

    Patches of colour are smaller, for about as many values. They overlap by half: what each place
    says is about many patches.
    """
    last = WIDTHS[len(WIDTHS) - n_looks :]
    widths = [max(round(width / math.sqrt(shape[2])), 1) for width in last]
    return [patches.grid(shape, width, max(width // 2, 1)) for width in widths]


def offsets(reach: int) -> NDArray[np.int64]:
    """Ways from a place to those around it, the shortest first: fewer are then found in vain."""
    steps = np.arange(-reach, reach + 1)
    ways = np.stack(np.meshgrid(steps, steps, indexing="ij"), axis=-1).reshape(-1, 2)
    return ways[np.argsort((ways**2).sum(1), kind="stable")]


@kernel
def find_like(image, usable, top, height, width, channels, ways, lefts, found, counts):
    """For each of some left columns, the patches around the one there, those most like it first.

    `image` (rows, columns × channels); `usable` are places of patches that are known; `found`
    (len(lefts), n_like) gets their numbers, row by row of places.
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
        for n in range(len(lefts)):
            x = lefts[n]
            if x < first or x >= last:
                continue
            distance = sums[x]
            if distance < distances[n, n_like - 1] and usable[other, x + aside]:
                place = min(counts[n], n_like - 1)
                while place > 0 and distances[n, place - 1] > distance:
                    distances[n, place] = distances[n, place - 1]
                    found[n, place] = found[n, place - 1]
                    place -= 1
                distances[n, place] = distance
                found[n, place] = other * n_lefts + x + aside
                counts[n] = min(counts[n] + 1, n_like)


@kernel
def centre(like, mean):
    """Patches become Z, in place."""
    K, D = like.shape
    mean[:] = 0.0
    for k in range(K):
        for d in range(D):
            mean[d] += like[k, d]
    for d in range(D):
        mean[d] /= K
    scale = 1.0 / np.sqrt(K)
    for k in range(K):
        for d in range(D):
            like[k, d] = (like[k, d] - mean[d]) * scale


@kernel
def factorise(Z, seen, noise_variance, unlike, U, variance):
    """U = L⁻¹ Z, where A = L Lᵀ over what was seen, and the variance of a patch seen so."""
    K, D = Z.shape
    total = noise_variance + unlike
    left = noise_variance / total
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
            variance[d] = left * left * total * variance[d] + unlike * left
        else:
            variance[d] = total * variance[d] + unlike


@kernel
def condition(y, seen, middle, U, noise_variance, unlike, mean):
    """Mean of a patch given what was observed of it, and the mean and U of those like it."""
    K, D = U.shape
    rest = np.empty(D)
    for d in range(D):
        rest[d] = (y[d] - middle[d]) * seen[d]
        mean[d] = middle[d]
    for k in range(K):
        amount = 0.0
        for d in range(D):
            amount += U[k, d] * rest[d]
        for d in range(D):
            mean[d] += U[k, d] * amount
    kept = unlike / (noise_variance + unlike)
    for d in range(D):
        mean[d] += kept * (y[d] - mean[d]) * seen[d]


@inlined
def solve_positive(A, n, x):
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
def condition_on_part(y, seen, middle, Z, covariance, noise_variance, unlike, mean):
    """The same mean where something is missing, for which a factor serves no other patch.

    `covariance` is Zᵀ Z, needed if fewer values were seen than there are like patches.
    """
    K, D = Z.shape
    total = noise_variance + unlike
    places, rest = np.empty(D, np.int64), np.empty(D)
    n_seen = 0
    for d in range(D):
        mean[d] = middle[d]
        if seen[d]:
            places[n_seen] = d
            rest[n_seen] = y[d] - middle[d]
            n_seen += 1
    A = np.empty((K, K))
    if n_seen < K:
        for i in range(n_seen):
            for j in range(i + 1):
                A[i, j] = covariance[places[i], places[j]]
            A[i, i] += total
        solve_positive(A, n_seen, rest)
        for i in range(n_seen):
            for d in range(D):
                mean[d] += covariance[places[i], d] * rest[i]
    else:
        part, amounts = np.empty((K, n_seen)), np.zeros(K)
        for k in range(K):
            for i in range(n_seen):
                part[k, i] = Z[k, places[i]]
                amounts[k] += part[k, i] * rest[i]
            for j in range(k + 1):
                product = 0.0
                for i in range(n_seen):
                    product += part[k, i] * part[j, i]
                A[k, j] = product
            A[k, k] += total
        solve_positive(A, K, amounts)
        for k in range(K):
            for d in range(D):
                mean[d] += Z[k, d] * amounts[k]
    kept = unlike / total
    for d in range(D):
        mean[d] += kept * (y[d] - mean[d]) * seen[d]


@kernel
def _gather(image, top, begin, height, span, patch):
    """Values of the patch whose rows start here."""
    for u in range(height):
        for v in range(span):
            patch[u * span + v] = image[top + u, begin + v]


@kernel
def see_together(images, shape, found, noise, weighing, first_row, total, weight):
    """Add patches that are like each other, as they are in the light of all of them, to sums.

    `shape` is the number of left columns, and height, width and channels of a patch; `found` are
    numbers of patches, row by row of places. `total` and `weight` begin with a row of the image.
    """
    given, observed, restored = images
    n_lefts, height, width, channels = shape
    window, by_variance, floor = weighing
    span = width * channels
    K, D = len(found), height * width * channels
    Z, whole, part = np.empty((K, D)), np.empty((K, D)), np.empty((K, D))
    covariance = np.empty((0, 0))
    y, seen, middle, mean = np.empty(D), np.empty(D), np.empty(D), np.empty(D)
    variance_of_whole, variance_of_part = np.empty(D), np.empty(D)
    for k in range(K):
        row, column = found[k] // n_lefts, found[k] % n_lefts
        _gather(restored, row, column * channels, height, span, Z[k])
    centre(Z, middle)
    whole_is_known = False
    for k in range(K):
        row, begin = found[k] // n_lefts, found[k] % n_lefts * channels
        _gather(given, row, begin, height, span, y)
        _gather(observed, row, begin, height, span, seen)
        n_seen = seen.sum()
        U, variance = part, variance_of_part
        if n_seen < D and not by_variance:
            if n_seen < K and len(covariance) == 0:
                covariance = np.empty((D, D))
                covariance_of(Z, covariance)
            condition_on_part(y, seen, middle, Z, covariance, *noise, mean)
        else:
            # Of complete patches, which may be all, once.
            if n_seen == D:
                U, variance = whole, variance_of_whole
            if n_seen < D or not whole_is_known:
                factorise(Z, seen, *noise, U, variance)
                whole_is_known = whole_is_known or n_seen == D
            condition(y, seen, middle, U, *noise, mean)
        trust = 1.0 if n_seen > 0 else UNSEEN
        for u in range(height):
            for v in range(span):
                d = u * span + v
                share = trust * window[d]
                if by_variance:
                    share /= variance[d] + floor
                total[row - first_row + u, begin + v] += share * mean[d]
                weight[row - first_row + u, begin + v] += share


@kernel
def _look(images, compared, usable, tops, lefts, patch, ways, n_like, noise, weighing, sums):
    height, width, channels = patch
    total, weight, first_row = sums
    n_lefts = usable.shape[1]
    found, counts = np.empty((len(lefts), n_like), np.int64), np.empty(len(lefts), np.int64)
    for t in range(len(tops)):
        find_like(compared, usable, tops[t], height, width, channels, ways, lefts, found, counts)
        for n in range(len(lefts)):
            if usable[tops[t], lefts[n]]:
                see_together(
                    images, (n_lefts, height, width, channels), found[n, : counts[n]], noise,
                    weighing, first_row, total, weight,
                )  # fmt: skip


def look(
    seen: Seen, places: patches.Grid, merge: str, noise_variance: float, n_jobs: int
) -> NDArray[np.float64]:
    """The image as patches say that are like each other, at these places; NaN where none lie.

    Only patches of which all is known are like others.
    """
    height, width = places.patch
    rows, columns, channels = places.shape
    unlike = UNLIKE * float(seen.restored.std(where=seen.known)) * noise_variance**0.5
    usable = np.asarray(sliding_window_view(seen.known.all(2), places.patch).all((2, 3)))
    given, observed, restored, compared, _ = (
        np.ascontiguousarray(image).reshape(rows, -1) for image in seen
    )
    ways, weights = offsets(REACH), weighing(places, merge, noise_variance)
    n_like = LIKE if seen.observed.all() else LIKE_INCOMPLETE

    def look_at(part: slice) -> tuple[int, NDArray[np.float64]]:
        tops = places.tops[part]
        first = max(0, int(tops[0]) - REACH)
        last = min(rows, int(tops[-1]) + REACH + height)
        sums = np.zeros((2, last - first, columns * channels))
        _look(
            (given, observed, restored), compared, usable, tops, places.lefts,
            (height, width, channels), ways, n_like, (noise_variance, unlike), weights,
            (sums[0], sums[1], first),
        )  # fmt: skip
        return first, sums

    canvas = patches.Canvas(places)

    def add(part: tuple[int, NDArray[np.float64]]) -> None:
        first, sums = part
        total, weight = sums.reshape(2, -1, columns, channels)
        canvas.total[first : first + len(total)] += total
        canvas.weight[first : first + len(weight)] += weight

    in_threads(look_at, split(len(places.tops), ROWS_AT_ONCE), n_jobs, add)
    return canvas.mean()


def seconds(
    image: NDArray[np.float32], observed: NDArray[np.bool_], n_jobs: int
) -> tuple[float, ...]:
    """How long each look at an image will take, by a few rows of places in its middle."""
    spent = []
    known = np.ones(image.shape, np.bool_)
    for places in looks(image.shape, len(WIDTHS)):
        n_tops = len(places.tops)
        some = places.tops[(n_tops - 1) // 2 :][:ROWS_AT_ONCE]
        # As far around as they see.
        part = slice(max(0, some[0] - REACH), some[-1] + places.patch[0] + REACH)
        seen = Seen(image[part], observed[part], image[part], image[part], known[part])
        there = places._replace(shape=seen.given.shape, tops=some - part.start)
        started = time.perf_counter()
        look(seen, there, "variance", 1.0, 1)
        spent.append((time.perf_counter() - started) * n_tops / len(some) / n_jobs)
    return tuple(spent)
