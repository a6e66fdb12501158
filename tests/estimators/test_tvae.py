"""A variational autoencoder whose binary latents are evolved."""

import math
import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch
from scipy.special import logsumexp
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.estimator_checks import parametrize_with_checks

from evoem import TVAE, BinarySparseCoding, NoisyOr

SIDE = 4
EVOLUTION = {"n_states": 20, "n_parents": 5, "n_children": 4}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@parametrize_with_checks([TVAE(n_latents=3, hidden=(4,), max_iter=3)])
def test_scikit_learn_s_own_checks(estimator, check):
    check(estimator)


class CorrelatedBars:
    """Pictures of one row and one column each: bars of a direction exclude each other.

    Where they cross they do not add, so no sum of independent parts makes such pictures.
    """

    def __init__(self, observable):
        rows = np.eye(SIDE, dtype=bool)[:, None, :, None]
        columns = np.eye(SIDE, dtype=bool)[None, :, None, :]
        self.pictures = (rows | columns).reshape(SIDE**2, SIDE**2)
        self.gaussian = observable == "gaussian"

    def sample(self, n, rng):
        chosen = self.pictures[rng.integers(0, len(self.pictures), n)]
        if self.gaussian:
            return 3.0 * chosen + rng.normal(size=chosen.shape)
        return (rng.random(chosen.shape) < np.where(chosen, 0.9, 0.05)) * 1.0

    def log_likelihood(self, X):
        """Of the truth, exactly: per row."""
        x = X[:, None]
        if self.gaussian:
            each = -0.5 * ((x - 3.0 * self.pictures) ** 2 + math.log(2 * math.pi))
        else:
            on = np.where(self.pictures, 0.9, 0.05)
            each = x * np.log(on) + (1 - x) * np.log(1 - on)
        return float((logsumexp(each.sum(-1), axis=1) - math.log(len(self.pictures))).mean())


@pytest.mark.parametrize(
    ("observable", "linear"), [("gaussian", BinarySparseCoding), ("bernoulli", NoisyOr)]
)
def test_it_learns_bars_that_exclude_each_other(observable, linear):
    truth = CorrelatedBars(observable)
    rng = np.random.default_rng(0)
    X, unseen = truth.sample(1000, rng), truth.sample(500, rng)
    settings = {"n_latents": 8, **EVOLUTION, "tol": 0, "random_state": 0}
    model = TVAE(**settings, hidden=(32,), observable=observable, max_iter=35).fit(X)
    other = linear(**settings, max_iter=100).fit(X)
    likelihood = truth.log_likelihood(unseen)
    assert likelihood - model.score(unseen) < 1.0
    assert model.score(unseen) > other.score(unseen) + 0.5
    assert model.activation_probs_.min() > 0.01


def picture(rng, side=64):
    """Smooth shading, and edges in all directions."""
    y, x = np.mgrid[:side, :side] / side
    found = 80 + 60 * np.sin(3 * x + 2 * y)
    for angle, left, top, step in zip(
        rng.uniform(0, 2 * np.pi, 8), *rng.uniform(0.2, 0.8, (2, 8)), rng.uniform(-50, 50, 8),
        strict=True,
    ):  # fmt: skip
        found += step * (np.cos(angle) * (x - left) + np.sin(angle) * (y - top) > 0)
    return found


def psnr(estimate, clean):
    return 10 * np.log10(255**2 / np.mean((estimate - clean) ** 2))


def test_it_denoises_patches_better_than_a_linear_decoder():
    rng = np.random.default_rng(0)
    clean = picture(rng)
    noisy = clean + 25 * rng.normal(size=clean.shape)
    corners = rng.integers(0, len(clean) - 5, (1500, 2))
    of_clean, X = (
        np.stack([image[r : r + 6, c : c + 6].ravel() for r, c in corners])
        for image in (clean, noisy)
    )
    settings = {"n_latents": 16, **EVOLUTION, "tol": 0, "random_state": 0}
    model = TVAE(**settings, hidden=(32,), learning_rate=0.005, max_iter=16).fit(X)
    linear = BinarySparseCoding(**settings, max_iter=60).fit(X)
    gain = psnr(model.reconstruct(X), of_clean) - psnr(linear.reconstruct(X), of_clean)
    assert gain > 0.2


def quick(**options):
    return TVAE(
        **{"n_latents": 4, "hidden": (8,), "n_states": 8, "n_parents": 4, "n_children": 2}
        | {"batch_size": 50, "max_iter": 6, "tol": 0, "random_state": 0}
        | options
    )


def bars(observable="gaussian", n=150, seed=0):
    return CorrelatedBars(observable).sample(n, np.random.default_rng(seed))


@pytest.mark.parametrize("observable", ["gaussian", "bernoulli"])
def test_the_bound_never_falls_on_the_full_batch(observable):
    model = quick(batch_size=None, max_iter=30, observable=observable).fit(bars(observable))
    assert (np.diff(model.free_energies_) > -1e-9).all()
    assert model.free_energy_ > model.free_energies_[0] + 0.5


def test_the_joint_is_that_of_the_model():
    X = bars(n=30)
    model = quick(n_states="all").fit(X)
    decoder = model.params_
    states = np.indices((2,) * 4).reshape(4, -1).T * 1.0
    pi = 1 / (1 + np.exp(-decoder.prior_logits.detach().numpy()))
    prior = np.where(states, pi, 1 - pi).prod(1)
    means = decoder(torch.from_numpy(states)).detach().numpy()
    variance = model.noise_variance_
    density = np.exp(-((X[:, None] - means) ** 2).sum(-1) / (2 * variance))
    expected = np.log(density @ prior) - 8 * np.log(2 * np.pi * variance)
    np.testing.assert_allclose(model.score_samples(X), expected)


def test_threads_and_pickling_change_nothing_nor_does_it_touch_torch_s_own_generator():
    X = bars(n=300)
    before = torch.get_rng_state()
    model = quick(batch_size=150).fit(X)
    assert torch.equal(torch.get_rng_state(), before)
    again = quick(batch_size=150, n_jobs=2).fit(X)
    np.testing.assert_array_equal(model.free_energies_, again.free_energies_)
    np.testing.assert_array_equal(model.reconstruct(X), again.reconstruct(X))
    copied = pickle.loads(pickle.dumps(model))
    new = bars(n=20, seed=1)
    np.testing.assert_array_equal(copied.transform(new), model.transform(new))
    for one, other in zip(copied.sample(5), model.sample(5), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_warm_start_is_a_run_that_never_stopped():
    X = bars()
    once = quick().fit(X)
    twice = quick(max_iter=3, warm_start=True).fit(X).fit(X)
    np.testing.assert_array_equal(twice.free_energies_, once.free_energies_)
    with pytest.raises(ValueError, match=r"hidden must stay \(8,\) with warm_start=True; got \(9,"):
        twice.set_params(hidden=(9,)).fit(X)


@pytest.mark.parametrize("observable", ["gaussian", "bernoulli"])
def test_missing_values_are_filled_in_better_than_by_the_mean(observable):
    full = bars(observable, n=400)
    holes = np.random.default_rng(1).random(full.shape) < 0.2
    X = np.where(holes, np.nan, full)
    X[:, 3] = np.where(np.arange(len(X)) > 1, X[:, 3], np.nan)
    model = quick(n_latents=6, hidden=(16,), max_iter=25, observable=observable).fit(X)
    filled = model.reconstruct(X)
    by_mean = np.broadcast_to(np.nanmean(X, 0), X.shape)
    error, error_of_mean = (np.mean((e - full)[holes] ** 2) for e in (filled, by_mean))
    assert error < 0.85 * error_of_mean
    assert np.isfinite(model.reconstruct(np.full((1, full.shape[1]), np.nan))).all()


def test_samples_look_like_the_model():
    X, states = quick(observable="bernoulli").fit(bars("bernoulli")).sample(50)
    assert set(np.unique(X)) <= {0.0, 1.0}
    assert (X.shape, states.shape, states.dtype) == ((50, 16), (50, 4), bool)
    X, _ = quick(max_iter=20).fit(bars()).sample(2000)
    np.testing.assert_allclose(X.mean(0), bars(n=2000).mean(0), atol=0.5)


def test_single_precision_data_stays_single():
    model = quick().fit(bars().astype(np.float32))
    assert {parameter.dtype for parameter in model.params_.parameters()} == {torch.float32}
    assert model.reconstruct(bars().astype(np.float32)).dtype == np.float32
    assert model.free_energy_ == pytest.approx(quick().fit(bars()).free_energy_, abs=0.05)


def test_no_hidden_layer_is_a_linear_decoder():
    decoder = quick(hidden=()).fit(bars()).params_
    one, two = (torch.eye(4, dtype=torch.float64)[i] for i in (0, 1))
    together = decoder(one + two) + decoder(torch.zeros(4, dtype=torch.float64))
    torch.testing.assert_close(together, decoder(one) + decoder(two))


def test_data_without_noise_does_not_break_it():
    X = 100.0 * CorrelatedBars("gaussian").pictures[np.arange(60) % 3]
    model = quick(max_iter=60, learning_rate=0.1).fit(X)
    assert model.noise_variance_ > 0
    assert np.isfinite(model.free_energies_).all()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"hidden": 8}, "hidden must be a sequence of integers; got 8."),
        ({"hidden": (8, 0)}, r"hidden\[1\] must be an integer at least 1; got 0."),
        ({"hidden": (2.5,)}, r"hidden\[0\] must be an integer at least 1; got 2.5."),
        ({"observable": "poisson"}, "observable must be one of 'gaussian', 'bernoulli'; got"),
        ({"learning_rate": -1}, "learning_rate must be a number between 0 and 1; got -1."),
        ({"learning_rate": math.nan}, "learning_rate must be a number between 0 and 1; got nan."),
        ({"n_latents": 0}, "n_latents must be an integer at least 1; got 0."),
        ({"batch_size": 0}, "batch_size must be an integer at least 1; got 0."),
        ({"observable": "bernoulli"}, r"X must hold only 0, 1 and NaN \(or set observable to"),
    ],
)
def test_a_bad_parameter_gets_one_sentence(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        quick(**options).fit(bars())


def test_it_says_when_it_has_not_converged_and_is_cloned_by_its_own_parameters():
    with pytest.warns(ConvergenceWarning, match="TVAE did not converge in max_iter=2 iterations"):
        quick(max_iter=2, tol=1e-4).fit(bars())
    assert clone(quick()).get_params()["hidden"] == (8,)
    assert "log_joint" not in quick().get_params()


def test_it_is_there_without_pytorch_and_says_what_is_missing():
    script = """
import sys

class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            raise ImportError(name)

sys.meta_path.insert(0, NoTorch())
import numpy as np
import evoem, evoem.models
try:
    evoem.TVAE(n_latents=2).fit(np.eye(4))
except evoem.errors.MissingExtra as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    assert done.stdout.startswith("PyTorch must be installed for this: pip install 'evoem[torch]'")
