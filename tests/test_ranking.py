"""The best few of many values."""

import numpy as np
import pytest
import reference
from hypothesis import given
from hypothesis import strategies as st

from evoem.ranking import NONE, highest, kth_largest, rank_inactive
from evoem.states import Genomes, pack


@pytest.mark.parametrize("n_latents", [3, 16, 17, 70, 130])
@pytest.mark.parametrize("n_best", [1, 2, 20])
def test_the_best_scores_of_inactive_latents_are_found_in_their_order(n_latents, n_best):
    rng = np.random.default_rng(n_latents)
    dense = rng.random((20, 3, n_latents)) < rng.choice([0.1, 0.5, 1.0], (20, 3, 1))
    scores = rng.standard_normal(dense.shape).astype(np.float32)
    genomes = Genomes(pack(dense), np.full(20, 3))
    wanted = np.full((20, 3, n_best), NONE)
    expected = reference.ranked(scores, dense)[:, :, :n_best]
    wanted[:, :, : expected.shape[2]] = expected
    np.testing.assert_array_equal(rank_inactive(scores, genomes, n_best), wanted)


@pytest.mark.parametrize("n_rows", [1, 5])
@pytest.mark.parametrize("n_best", [1, 3, 20])
def test_the_highest_values_of_each_row_are_found(n_rows, n_best):
    values = np.random.default_rng(n_best).permutation(20 * n_rows).reshape(n_rows, 20)
    places = highest(values, n_best)
    for row, own in zip(values, places, strict=True):
        assert len(set(own)) == n_best
        assert sorted(row[own]) == sorted(row)[-n_best:]


@given(st.lists(st.floats(allow_nan=False), min_size=1, max_size=40), st.data())
def test_the_kth_largest_is_that_of_the_sorted_values(values, data):
    k = data.draw(st.integers(1, len(values)))
    again = np.concatenate([values, [np.inf]])  # beyond those that count
    assert kth_largest.py_func(again, len(values), k) == sorted(values, reverse=True)[k - 1]
