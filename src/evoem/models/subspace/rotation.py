"""Rotate the patterns of each latent so that they are orthogonal.

Amplitudes of unit variance can be rotated freely, and with V_g V_gᵀ = diag λ_g the system of a
state of one latent is diagonal. Eigenvectors of V_g V_gᵀ leave inner products of the order of the
rounding error of its largest eigenvalue. Where slabs are narrow about their means these are
multiplied by large t. Where that might matter, patterns are rotated further, pair by pair:
one-sided Jacobi rotations leave inner products that are small relative to the patterns themselves.
"""

import numpy as np
from numpy.typing import NDArray

from evoem.models.subspace.shrinkage_prior import patterns_by_width

# Nats by which a log-joint may be off because patterns are not quite orthogonal.
HEARD_OF = 1e-6
# Rotations of all pairs, at most: those that remain after eigenvectors take two or three.
SWEEPS = 12
# Cosines between patterns below this are rounding.
COSINE = 4 * np.finfo(float).eps


def rotate(
    groups: NDArray[np.int64],
    V: NDArray[np.float64],
    shift: NDArray[np.float64],
    spread: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Rotate V and t in place. (C, largest rank): row i has √ψ times the rotation of pattern i."""
    back = np.zeros((len(V), int(np.diff(groups).max())))
    for own in patterns_by_width(groups):
        blocks, width = V[own], own.shape[1]
        _, vectors = np.linalg.eigh(blocks @ blocks.transpose(0, 2, 1))
        turned = vectors.transpose(0, 2, 1) @ blocks
        means = np.einsum("gpi,gp->gi", vectors, shift[own])
        rough = not_orthogonal(turned, means)
        if rough.any():
            parts = turned[rough], means[rough], vectors[rough]
            rotate_pairs(*parts)
            turned[rough], means[rough], vectors[rough] = parts
        V[own], shift[own] = turned, means
        back[own.ravel(), :width] = (spread[own][:, :, None] * vectors).reshape(-1, width)
    return back


def not_orthogonal(V: NDArray[np.float64], t: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Latents (G, q, D) whose inner products are too large to ignore."""
    products = np.abs(V @ V.transpose(0, 2, 1))
    products *= 1.0 - np.eye(V.shape[1])
    amounts = 1.0 + np.abs(t)
    return np.asarray((products * amounts[:, :, None] * amounts[:, None]).sum((1, 2)) > HEARD_OF)


def rotate_pairs(
    V: NDArray[np.float64], t: NDArray[np.float64], vectors: NDArray[np.float64]
) -> None:
    """Rotate pairs of patterns, in place, until they are orthogonal up to rounding."""
    for _ in range(SWEEPS):
        settled = True
        for i in range(V.shape[1]):
            for j in range(i):
                a, b = np.square(V[:, i]).sum(1), np.square(V[:, j]).sum(1)
                product = np.einsum("gd,gd->g", V[:, i], V[:, j])
                limit = COSINE * np.sqrt(a) * np.sqrt(b)
                wrong = np.abs(product) > limit
                if not wrong.any():
                    continue
                settled = False
                ratio = (b - a) / np.where(wrong, 2 * product, 1.0)
                tangent = np.where(
                    wrong, np.copysign(1.0, ratio) / (np.abs(ratio) + np.hypot(1.0, ratio)), 0.0
                )
                cosine = 1 / np.hypot(1.0, tangent)
                sine = cosine * tangent
                for rows in (V, t[:, :, None], vectors.transpose(0, 2, 1)):
                    first, second = rows[:, i].copy(), rows[:, j].copy()
                    rows[:, i] = cosine[:, None] * first - sine[:, None] * second
                    rows[:, j] = sine[:, None] * first + cosine[:, None] * second
        if settled:
            return
