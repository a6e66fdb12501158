"""Clusters of rows, from which subspace coding and coarse dictionaries start."""

import warnings
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.vq import kmeans2, vq

from evoem.models.all_rows import AllRows
from evoem.runtime.sums import exact_sum
from evoem.runtime.threads import one_blas_thread

# Steps of k-means.
STEPS = 10


class Clusters(NamedTuple):
    """Centres, and the centre that each row belongs to."""

    centres: NDArray[np.float64]
    labels: NDArray[np.int64]


def cluster(rows: NDArray[np.floating], number: int, seed: int) -> Clusters:
    """Clusters of rows, some of them empty if there are fewer rows than clusters."""
    if number >= len(rows):
        centres = np.resize(rows, (number, rows.shape[1])).astype(np.float64)
        return Clusters(centres, np.arange(len(rows)))
    first = rows[np.random.default_rng(seed).choice(len(rows), number, replace=False)]
    with one_blas_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of clusters without rows, as of equal ones
        centres, labels = kmeans2(rows, first, iter=STEPS, minit="matrix")
    return Clusters(centres.astype(np.float64), labels.astype(np.int64))


def nearest(rows: AllRows, centres: NDArray[np.float64]) -> Clusters:
    """Clusters of this process's rows by given centres."""
    labels = np.empty(len(rows.X), np.int64)
    with one_blas_thread():
        for block in rows.blocks():
            labels[block] = vq(rows.X[block], centres.astype(rows.X.dtype), check_finite=False)[0]
    return Clusters(centres, labels)


def farthest(rows: AllRows, means: NDArray[np.float64], labels: NDArray[np.int64]) -> float:
    """The largest squared distance of a row from the mean of its cluster."""
    found = np.zeros(1)
    for block in rows.blocks():
        away = np.square(rows.X[block].astype(np.float64) - means[labels[block]]).sum(1)
        found[0] = max(found[0], away.max(initial=0.0))
    rows.comm.largest(found)
    return float(found[0])


class Directions(NamedTuple):
    """Directions in which the rows of each cluster differ from their mean."""

    counts: NDArray[np.int64]  # (G,)
    means: NDArray[np.float64]  # (G, D)
    variances: NDArray[np.float64]  # (G, D): along the principal directions, largest first
    vectors: NDArray[np.float64]  # (G, D, D): these, one a row


def principal_directions(rows: AllRows, clusters: Clusters) -> Directions:
    """Principal directions of each cluster of all rows; empty ones stay at their centres."""
    n_clusters, n_features = clusters.centres.shape
    counts = np.bincount(clusters.labels, minlength=n_clusters)
    rows.comm.add(counts)
    means = clusters.centres.copy()
    variances = np.zeros((n_clusters, n_features))
    vectors = np.zeros((n_clusters, n_features, n_features))
    ends = [block.stop for block in rows.blocks()]
    order = np.argsort(clusters.labels, kind="stable")
    members = np.split(order, np.cumsum(np.bincount(clusters.labels, minlength=n_clusters))[:-1])

    def blocks(g: int) -> Iterator[NDArray[np.float64]]:
        for some in np.split(members[g], np.searchsorted(members[g], ends)):
            if len(some):
                yield rows.X[some].astype(np.float64)

    with one_blas_thread():
        for g in range(n_clusters):
            if counts[g] == 0:
                continue
            means[g] = exact_sum((own.sum(0) for own in blocks(g)), means[g], rows.comm) / counts[g]
            away = (own - means[g] for own in blocks(g))
            square = exact_sum((own.T @ own for own in away), vectors[g], rows.comm)
            found, columns = np.linalg.eigh(square / counts[g])
            variances[g] = np.maximum(found[::-1], 0.0)
            vectors[g] = columns.T[::-1]
    return Directions(counts, means, variances, vectors)
