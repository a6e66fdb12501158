"""The bars test: data, matching, and the bound of the truth."""

from itertools import permutations

import numpy as np
import pytest
import reference

from evoem.models.spike_slab.update import SpikeSlabParams
from evoem.reproduction import bars
from evoem.reproduction.bars import KINDS
from evoem.reproduction.bars_reliability import ranks

LOG_JOINTS = {
    "noisy-or": reference.noisy_or_log_joint,
    "bsc": reference.binary_log_joint,
    "sssc": reference.spike_slab_log_joint,
}


def test_bars_are_rows_and_columns():
    pictures = bars.patterns().reshape(10, 5, 5)
    assert pictures.sum() == 50
    for i in range(5):
        assert pictures[i, i].all()
        assert pictures[5 + i, :, i].all()


def best_sum(true, learnt):
    sizes = np.abs(np.corrcoef(true, learnt)[: len(true), len(true) :])
    pairs = permutations(range(len(learnt)), len(true))
    return max(sum(sizes[i, j] for i, j in enumerate(chosen)) for chosen in pairs)


@pytest.mark.parametrize("seed", range(5))
def test_components_are_matched_so_that_correlations_are_best_in_sum(seed):
    rng = np.random.default_rng(seed)
    true, learnt = bars.patterns()[:5], rng.normal(size=(7, 25))
    found = bars.match(true, learnt)
    assert len(set(found.partners)) == 5
    assert np.abs(found.correlations).sum() == pytest.approx(best_sum(true, learnt))
    for bar, partner, value in zip(true, found.partners, found.correlations, strict=True):
        assert value == pytest.approx(np.corrcoef(bar, learnt[partner])[0, 1])


def test_bars_are_found_whatever_their_order_sign_and_size():
    rng = np.random.default_rng(0)
    true = bars.patterns()
    order = rng.permutation(10)
    learnt = true[order] * rng.choice([-3.0, 0.5], size=(10, 1)) + 0.1
    found = bars.match(true, learnt)
    assert found.n_found == 10
    np.testing.assert_array_equal(order[found.partners], np.arange(10))
    learnt[found.partners[3]] = 1.0  # constant: it is no bar
    assert bars.match(true, learnt).n_found == 9
    learnt[found.partners[4]] = rng.normal(size=25)
    assert bars.match(true, learnt).n_found == 8


def test_amplitudes_do_not_depend_on_the_scale_of_the_slab():
    rng = np.random.default_rng(0)
    truth = bars.true_spike_slab(rng)
    assert bars.amplitudes(truth, np.arange(10)) == pytest.approx((5.0, 0.0))
    scale = rng.uniform(0.5, 2.0, 10)
    for psi in (scale**2, np.diag(scale**2)):
        same = SpikeSlabParams(
            truth.components / scale[:, None], truth.activation_probs, np.array(1.0),
            np.zeros(10), psi,
        )  # fmt: skip
        assert bars.amplitudes(same, np.arange(10)) == pytest.approx((5.0, 0.0))
    moved = same._replace(slab_means=scale, slab_covariance=3 * scale**2)
    assert bars.amplitudes(moved, np.arange(10)) == pytest.approx((10.0, 0.0))
    assert bars.amplitudes(bars.true_noisy_or(rng), np.arange(10)) == pytest.approx((0.8, 0.1))


@pytest.mark.parametrize("name", KINDS)
def test_the_bound_of_the_truth_is_its_log_likelihood(name):
    data = bars.generate(KINDS[name], 3, seed=1)
    states, seen = reference.all_states(10), np.ones(25, bool)
    expected = np.mean(
        [
            np.logaddexp.reduce([LOG_JOINTS[name](data.truth, x, seen, s) for s in states])
            for x in data.X
        ]
    )
    assert bars.true_bound(KINDS[name], data) == pytest.approx(expected, rel=1e-9)


def test_data_belong_to_a_seed():
    one, same, other = (bars.generate(KINDS["bsc"], 20, seed) for seed in (3, 3, 4))
    np.testing.assert_array_equal(one.X, same.X)
    assert (one.X != other.X).any()


def test_combinations_are_ranked_by_their_bounds():
    assert ranks({"a": -3.0, "b": -1.0, "c": -2.0}) == ["b", "c", "a"]
