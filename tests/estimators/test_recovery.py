"""The bars test: known parameters are found again, up to what the model leaves open."""

import runpy
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from evoem.reproduction import bars

EXAMPLES = Path(__file__).parents[2] / "examples"
example = SimpleNamespace(**runpy.run_path(str(EXAMPLES / "bars.py")))

SEEDS = range(3)
# Noisy-OR is caught in local optima the most often.
STARTS = {"noisy-OR": 8, "binary sparse coding": 5, "spike-and-slab coding": 3}


@pytest.fixture(scope="module", params=[(s, seed) for s in example.SETUPS for seed in SEEDS],
                ids=lambda p: f"{p[0].name}-{p[1]}")  # fmt: skip
def recovery(request):
    setup, seed = request.param
    data = bars.generate(setup.kind, 800, seed)
    run = example.learn(setup, data.X, seed=seed, starts=STARTS[setup.name], iterations=120)
    return SimpleNamespace(setup=setup, data=data, truth=data.truth, learnt=run.estimator)


def test_every_bar_is_found(recovery):
    found = bars.match(recovery.truth.components, recovery.learnt.components_)
    assert found.n_found == bars.N_BARS


def test_the_bound_comes_up_to_that_of_the_true_parameters(recovery):
    likelihood = bars.true_bound(recovery.setup.kind, recovery.data)
    assert recovery.learnt.free_energy_ > likelihood - 0.5


def test_activation_probabilities_are_near_the_true_ones(recovery):
    assert recovery.learnt.activation_probs_.mean() == pytest.approx(0.2, rel=0.1)


def test_the_noise_variance_is_within_a_tenth(recovery):
    if recovery.setup.name == "noisy-OR":
        assert not hasattr(recovery.learnt, "noise_variance_")
        return
    assert recovery.learnt.noise_variance_ == pytest.approx(1.0, rel=0.1)


def test_amplitudes_are_near_the_true_ones(recovery):
    found = bars.match(recovery.truth.components, recovery.learnt.components_)
    partners, correlations = found.partners, found.correlations
    components = recovery.learnt.components_[partners]
    on = bars.patterns().astype(bool)
    if recovery.setup.name == "noisy-OR":
        assert components[on].mean() == pytest.approx(0.8, abs=0.05)
        assert components[~on].mean() == pytest.approx(0.1, abs=0.03)
        return
    if recovery.setup.name == "spike-and-slab coding":
        components = components * np.sign(correlations)[:, None]  # a symmetric slab has no sign
    np.testing.assert_allclose(
        components[on].reshape(bars.N_BARS, -1).mean(1),
        recovery.truth.components[on].reshape(bars.N_BARS, -1).mean(1),
        rtol=0.2,
    )
    assert np.abs(components[~on]).mean() < 0.2


def test_bars_are_matched_one_to_one():
    patterns = bars.patterns()
    assert bars.match(patterns, -3 * patterns[::-1] + 1).n_found == bars.N_BARS
    twice = patterns.copy()
    twice[1] = twice[0]
    assert bars.match(patterns, twice).n_found == bars.N_BARS - 1
