"""Inner products of the patterns of `subspaces` over what was observed of a row."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evoem.models.subspace.small_systems import TILE, gather, inner_product, products_in_tile
from evoem.runtime.compile import inlined


class ObservedGram(NamedTuple):
    """Inner products of patterns over what was observed of a row, by pairs of latents.

    The states of a row share their latents, so a block is kept until the next row.
    """

    packed: NDArray[np.floating]  # (C, D): patterns of latents that were met, where observed
    slots: NDArray[np.int64]  # (G,): latents are numbered as they are met, -1 before
    met: NDArray[np.int64]  # (G,): these
    places: NDArray[np.int64]  # (G, G): where blocks start, by slots, the later first; -1 if not
    blocks: NDArray[np.floating]
    sizes: NDArray[np.int64]  # number of values observed, of latents met, of entries of `blocks`
    observed: NDArray[np.int64]  # (D,): which values these are


@inlined
def forget_row(known, observed, r):
    """Start with what was observed of another row."""
    for u in range(known.sizes[1]):
        known.slots[known.met[u]] = -1
    n_seen = 0
    for d in range(observed.shape[1]):
        if observed[r, d]:
            known.observed[n_seen] = d
            n_seen += 1
    known.sizes[0], known.sizes[1], known.sizes[2] = n_seen, 0, 0


@inlined
def meet(known, V, groups, g):
    """Number a latent and pack its patterns."""
    slot = known.sizes[1]
    known.slots[g], known.met[slot] = slot, g
    known.sizes[1] += 1
    for u in range(slot + 1):
        known.places[slot, u] = -1
    for h in range(groups[g], groups[g + 1]):
        for d in range(known.sizes[0]):
            known.packed[h, d] = V[h, known.observed[d]]


@inlined
def fill_block(known, groups, a, b, place):
    """Inner products of the patterns of two latents."""
    packed, blocks, length = known.packed, known.blocks, known.sizes[0]
    first, last, begin, end = groups[a], groups[a + 1], groups[b], groups[b + 1]
    width = end - begin
    for i in range(first, last, TILE):
        for j in range(begin, end, TILE):
            at = place + (i - first) * width + j - begin
            if i + TILE <= last and j + TILE <= end:
                x, y, z = products_in_tile(packed, i, j, length)
                blocks[at], blocks[at + 1], blocks[at + 2] = x
                at += width
                blocks[at], blocks[at + 1], blocks[at + 2] = y
                at += width
                blocks[at], blocks[at + 1], blocks[at + 2] = z
            else:
                for p in range(min(TILE, last - i)):
                    for q in range(min(TILE, end - j)):
                        value = inner_product(packed, i + p, j + q, length)
                        blocks[at + p * width + q] = value


@inlined
def gather_observed(known, V, groups, latents, k, out):
    """The lower triangle of the Gram matrix, over what was observed, of the patterns of a state."""
    for i in range(k):
        if known.slots[latents[i]] < 0:
            meet(known, V, groups, latents[i])
    row = 0
    for i in range(k):
        a = latents[i]
        height = groups[a + 1] - groups[a]
        column = 0
        for j in range(i + 1):
            b = latents[j]
            width = groups[b + 1] - groups[b]
            turned = known.slots[a] < known.slots[b]
            late, early = (b, a) if turned else (a, b)
            place = known.places[known.slots[late], known.slots[early]]
            if place < 0:
                place = known.sizes[2]
                known.places[known.slots[late], known.slots[early]] = place
                known.sizes[2] += height * width
                fill_block(known, groups, late, early, place)
            block = known.blocks[place : place + height * width]
            for x in range(height):
                if turned:
                    for y in range(width):
                        out[row + x, column + y] = block[y * height + x]
                else:
                    for y in range(width):
                        out[row + x, column + y] = block[x * width + y]
            column += width
        row += height


def no_products_yet(V: NDArray[np.floating], groups: NDArray[np.int64]) -> ObservedGram:
    """Room for the inner products of one row at a time."""
    (C, D), G = V.shape, len(groups) - 1
    sizes = np.diff(groups)
    return ObservedGram(
        np.empty((C, D), V.dtype),
        np.full(G, -1),
        np.empty(G, np.int64),
        np.empty((G, G), np.int64),
        np.empty((C * C + int(sizes @ sizes)) // 2, V.dtype),
        np.zeros(3, np.int64),
        np.empty(D, np.int64),
    )


@inlined
def fill_system(
    complete_row, observed, known, V, gram, groups, latents, k, active, n, row, eta, local,
):  # fmt: skip
    """η and the Gram matrix of a state; how many of its first rows are diagonal."""
    for i in range(n):
        eta[i] = row[active[i]]
    if complete_row:
        gather(gram, active, n, local)
        return groups[latents[0] + 1] - groups[latents[0]] if k > 0 else 0
    if observed is not None:
        gather_observed(known, V, groups, latents, k, local)
    return 0
