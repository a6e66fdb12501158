"""Sums of second moments of the patterns of `subspaces`, by pairs of latents.

A pair has its block in one place, rather than in many rows of a large matrix, most of which would
not be in the processor's cache.
"""

import numpy as np
from numpy.typing import NDArray

from evoem.runtime.compile import inlined, kernel


def place_blocks(groups: NDArray[np.int64]) -> NDArray[np.int64]:
    """(G, G): where the block of each pair of latents a ≤ b starts; rows belong to b."""
    sizes = np.diff(groups)
    entries = np.triu(np.outer(sizes, sizes))
    ends: NDArray[np.int64] = np.cumsum(entries).reshape(entries.shape)
    return ends - entries


@inlined
def add_second(groups, latents, k, weight, u, uncertain, covariance, blocks, sums):
    """Add the second moments of a state, or the products of its means alone if not `uncertain`."""
    row = 0
    for x in range(k):
        b = latents[x]
        height = groups[b + 1] - groups[b]
        column = 0
        for y in range(x + 1):
            a = latents[y]
            width = groups[a + 1] - groups[a]
            place = blocks[a, b]
            of_a = u[column : column + width]
            for i in range(height):
                line = sums[place : place + width]
                place += width
                scaled = weight * u[row + i]
                n = width if y < x else i + 1
                for j in range(n):
                    line[j] += scaled * of_a[j]
                if uncertain:
                    own = covariance[row + i, column : column + width]
                    for j in range(n):
                        line[j] += weight * own[j]
            column += width
        row += height


@inlined
def add_outer(first, second, weight, sums, place):
    """Add the products of all pairs of numbers."""
    for i in range(len(first)):
        line = sums[place : place + len(second)]
        place += len(second)
        scaled = weight * first[i]
        for j in range(len(second)):
            line[j] += scaled * second[j]


@kernel
def add_covariances(groups, pivots, pairs, together, blocks, sums):
    """Add M⁻¹ of states of one and two latents as often as they were met in complete rows."""
    places, maps, _ = pairs
    G = len(groups) - 1
    for a in range(G):
        alone = together[a, a]
        width = groups[a + 1] - groups[a]
        for b in range(a + 1, G):
            weight = together[a, b]
            if weight == 0.0:
                continue
            alone += weight
            height = groups[b + 1] - groups[b]
            for i in range(height):
                start = places[a, b] + i * (width + height)
                of_a = maps[start : start + width]  # Aᵀ A, see `Pairs`
                of_b = maps[start + width : start + width + height]
                add_outer(of_a, of_a, weight, sums, blocks[a, a])
                add_outer(of_b, of_a, weight, sums, blocks[a, b])
                add_outer(of_b, of_b, weight, sums, blocks[b, b])
        for i in range(width):
            sums[blocks[a, a] + i * width + i] += alone * pivots[groups[a] + i]


@kernel
def rotate_moments(groups, back, blocks, sums):
    """Second moments from rotated patterns to those of the parameters, in place: B_b S B_aᵀ for
    each pair of latents."""
    G, room = len(groups) - 1, back.shape[1]
    block, half = np.empty((2, room, room))
    for b in range(G):
        height = groups[b + 1] - groups[b]
        of_b = back[groups[b] : groups[b + 1]]
        for a in range(b + 1):
            width, place = groups[a + 1] - groups[a], blocks[a, b]
            of_a = back[groups[a] : groups[a + 1]]
            for i in range(height):
                for j in range(width):
                    low, high = (j, i) if a == b and j > i else (i, j)
                    block[i, j] = sums[place + low * width + high]
            for i in range(height):
                for j in range(width):
                    half[i, j] = 0.0
                for p in range(height):
                    for j in range(width):
                        half[i, j] += of_b[i, p] * block[p, j]
            for i in range(height):
                for j in range(width):
                    total = 0.0
                    for p in range(width):
                        total += half[i, p] * of_a[j, p]
                    sums[place + i * width + j] = total


@kernel
def _spread(groups, blocks, sums, second):
    G = len(groups) - 1
    for b in range(G):
        for a in range(b + 1):
            width, place = groups[a + 1] - groups[a], blocks[a, b]
            for h in range(groups[b], groups[b + 1]):
                line = sums[place : place + width]
                for j in range(min(width, h + 1 - groups[a])):
                    second[h, groups[a] + j] = line[j]
                place += width


def spread(groups: NDArray[np.int64], sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sums by pairs of latents as the lower triangle of a matrix."""
    second = np.zeros((groups[-1], groups[-1]))
    _spread(groups, place_blocks(groups), sums, second)
    return second
