"""Clusters that subspaces start from."""

import numpy as np
import pytest
from scipy.linalg import subspace_angles
from subspace_problems import (
    MODEL,
    planted,
)

from evoem.models import SubspaceModel
from evoem.models.subspace import model as subspace_model
from evoem.models.subspace.start import Clusters, cluster


def patterns(params, g):
    return params.components[params.groups[g] : params.groups[g + 1]]


def test_clusters_of_noise_have_no_directions():
    rng = np.random.default_rng(14)
    _, X, kinds, means, _ = planted(900, rng, noise=0.5, rank=0)
    params = SubspaceModel(3).from_clusters(X, Clusters(means, kinds))
    np.testing.assert_array_equal(params.groups, [0, 1, 2, 3])
    for g in range(3):
        np.testing.assert_allclose(params.components[g], X[kinds == g].mean(0))
    assert float(params.noise_variance) == pytest.approx(0.25, rel=0.15)


@pytest.mark.parametrize("rank", [0, 1, 2, 4])
def test_directions_of_clusters_are_found_up_to_the_rank(rank):
    """Two are there: more are not taken, and of fewer the widest."""
    rng = np.random.default_rng(15)
    _, X, kinds, means, directions = planted(900, rng)
    params = SubspaceModel(rank).from_clusters(X, Clusters(means, kinds))
    taken = min(rank, 2)
    np.testing.assert_array_equal(np.diff(params.groups), 1 + taken)
    assert float(params.noise_variance) == pytest.approx(0.01, rel=0.15)
    for g in range(3):
        mean, *found = patterns(params, g)
        np.testing.assert_allclose(mean, X[kinds == g].mean(0))
        if not taken:
            continue
        assert np.rad2deg(subspace_angles(directions[g].T, np.array(found).T)).max() < 2
        widest = np.linalg.svd(directions[g])[1][:taken]
        np.testing.assert_allclose(np.linalg.norm(found, axis=1), widest, rtol=0.2)
    first = params.groups[:-1]
    np.testing.assert_array_equal(np.flatnonzero(params.slab_means), first)
    np.testing.assert_array_equal(params.slab_means[first], 1.0)


def test_a_weak_direction_is_taken_if_enough_rows_bear_it():
    rng = np.random.default_rng(16)
    X = rng.normal(size=(200, 8)) * np.sqrt([1.5, 1, 1, 1, 1, 1, 1, 1])
    X -= X.mean(0)
    clusters = Clusters(np.zeros((1, 8)), np.zeros(200, np.int64))
    widest = np.linalg.eigvalsh(X.T @ X / 200)[-1]
    gain = 0.5 * (widest - 1 - np.log(widest))  # nats a row: the other side is 2 × 8 parameters
    assert 200 * gain < 16 < 2000 * gain
    few = SubspaceModel(1).from_clusters(X, clusters, noise_variance=1.0)
    clusters = clusters._replace(labels=np.zeros(2000, np.int64))
    many = SubspaceModel(1).from_clusters(np.tile(X, (10, 1)), clusters, noise_variance=1.0)
    assert list(few.groups) == [0, 1]
    assert list(many.groups) == [0, 2]
    assert np.abs(many.components[1]).argmax() == 0


@pytest.mark.parametrize("seed", range(3))
def test_few_examples_do_not_make_directions_of_noise(seed, monkeypatch):
    """Clusters are found among some rows, but directions are those of all."""
    monkeypatch.setattr(subspace_model, "EXAMPLES", 50)
    X = np.random.default_rng(seed).normal(size=(20_000, 8)).astype(np.float32)
    params = SubspaceModel(4).initialize(X, None, 1, np.random.default_rng(0))
    assert len(params.components) == 1  # the mean


def test_with_fewer_rows_than_clusters_rows_are_the_centres():
    rows = np.random.default_rng(17).normal(size=(3, 4))
    centres, labels = cluster(rows, 5, seed=0)
    np.testing.assert_array_equal(centres, rows[[0, 1, 2, 0, 1]])
    np.testing.assert_array_equal(labels, [0, 1, 2])
    params = MODEL.from_clusters(rows, Clusters(centres, labels))
    np.testing.assert_array_equal(params.components, centres)  # empty clusters stay where they are
    assert float(params.noise_variance) > 0
    assert (params.activation_probs > 0).all()


def test_clusters_follow_from_the_seed():
    X = np.random.default_rng(18).normal(size=(300, 5))
    first, again, other = cluster(X, 6, 1), cluster(X, 6, 1), cluster(X, 6, 2)
    np.testing.assert_array_equal(first.centres, again.centres)
    np.testing.assert_array_equal(first.labels, again.labels)
    assert not np.array_equal(first.labels, other.labels)
    first, again, other = (
        MODEL.initialize(X, None, 6, np.random.default_rng(s)) for s in (1, 1, 2)
    )
    np.testing.assert_array_equal(first.components, again.components)
    assert not np.array_equal(first.components[0], other.components[0])
