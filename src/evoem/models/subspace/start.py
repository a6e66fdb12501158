"""Clusters of rows: where subspace coding starts from, and dictionaries of sketches."""

import warnings
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

# Steps of k-means.
STEPS = 8


class Clusters(NamedTuple):
    """Centres, and to which of them each row belongs."""

    centres: NDArray[np.float64]
    labels: NDArray[np.int64]


def cluster(rows: NDArray[np.floating], number: int, seed: int) -> Clusters:
    """So many clusters of rows, some of them empty if there are not so many rows."""
    if number >= len(rows):
        centres = np.resize(rows, (number, rows.shape[1])).astype(np.float64)
        return Clusters(centres, np.arange(len(rows)))
    from sklearn.cluster import KMeans  # late: the core needs no scikit-learn
    from sklearn.exceptions import ConvergenceWarning

    with threadpool_limits(1), warnings.catch_warnings():  # sums depend on the number of threads
        warnings.simplefilter("ignore", ConvergenceWarning)  # rows may be equal
        found = KMeans(number, init="random", n_init=1, max_iter=STEPS, random_state=seed).fit(rows)
    return Clusters(found.cluster_centers_.astype(np.float64), found.labels_.astype(np.int64))


def nearest(rows: NDArray[np.floating], centres: NDArray[np.float64]) -> Clusters:
    """Clusters of all rows by given centres."""
    from sklearn.metrics import pairwise_distances_argmin

    with threadpool_limits(1):
        labels = pairwise_distances_argmin(rows, centres.astype(rows.dtype))
    return Clusters(centres, labels)


class Directions(NamedTuple):
    """How the rows of each cluster differ from their mean."""

    counts: NDArray[np.int64]  # (G,)
    means: NDArray[np.float64]  # (G, D)
    variances: NDArray[np.float64]  # (G, D): along the principal directions, largest first
    vectors: NDArray[np.float64]  # (G, D, D): these, one a row


def principal_directions(rows: NDArray[np.floating], clusters: Clusters) -> Directions:
    """Principal directions of each cluster of rows; empty ones stay at their centres."""
    n_clusters, n_features = clusters.centres.shape
    counts = np.bincount(clusters.labels, minlength=n_clusters)
    means = clusters.centres.copy()
    variances = np.zeros((n_clusters, n_features))
    vectors = np.zeros((n_clusters, n_features, n_features))
    order = np.argsort(clusters.labels, kind="stable")
    ends = np.cumsum(counts)
    with threadpool_limits(1):
        for g in range(n_clusters):
            own = rows[order[ends[g] - counts[g] : ends[g]]].astype(np.float64)
            if len(own) == 0:
                continue
            means[g] = own.mean(0)
            own -= means[g]
            found, columns = np.linalg.eigh(own.T @ own / len(own))
            variances[g] = np.maximum(found[::-1], 0.0)
            vectors[g] = columns.T[::-1]
    return Directions(counts, means, variances, vectors)
