"""Standard deviations mean what they say, on data drawn from the model itself."""

import numpy as np
import pytest

from evoem import SpikeSlabCoding, em, inference, restore
from evoem.images.quality import psnr
from evoem.models import SpikeSlabModel
from evoem.models.spike_slab.update import SpikeSlabParams

# Shares of normal errors within one and two standard deviations, and how far off they may be:
# posteriors are mixtures, with more in the middle and in the tails than a normal distribution.
WITHIN = {1: (0.683, 0.1), 2: (0.954, 0.03)}


def drawn(n_latents, n_features, n_rows, seed):
    """Parameters, noisy rows and what they were before the noise."""
    rng = np.random.default_rng(seed)
    params = SpikeSlabParams(
        rng.normal(0, 40, (n_latents, n_features)),
        np.full(n_latents, 0.25),
        np.array(20.0**2),
        rng.uniform(0.5, 1.0, n_latents),
        rng.uniform(0.1, 0.5, n_latents),
    )
    model = SpikeSlabModel()
    quiet = params._replace(noise_variance=np.array(1e-12))
    clean, _ = model.sample(quiet, n_rows, rng)
    return params, clean + rng.normal(0, 20, clean.shape), clean


def assert_calibrated(error, std, tolerance=0.06):
    """Squared errors are as large as said on average, and intervals cover what they should."""
    assert (np.square(error / std)).mean() == pytest.approx(1.0, abs=tolerance)
    for multiple, (share, off) in WITHIN.items():
        assert (np.abs(error) <= multiple * std).mean() == pytest.approx(share, abs=off)


@pytest.mark.parametrize("missing", [0.0, 0.4])
@pytest.mark.parametrize("seed", [1, 2])
def test_intervals_of_rows_cover_the_truth_with_the_true_parameters(missing, seed):
    params, X, clean = drawn(6, 9, 8000, seed)
    observed = None
    if missing:
        observed = np.random.default_rng(seed).random(X.shape) >= missing
        X = np.where(observed, X, 0.0)
    model = SpikeSlabModel()
    data = em.Data(X, observed)
    found = inference.infer(model, data, params, em.Evolution(), n_states=64)
    parts = inference.estimate(model.reconstruct, model, data, params, found.states)
    mean, variance = (np.concatenate(part) for part in zip(*parts, strict=True))
    assert_calibrated(mean - clean, np.sqrt(variance))


def test_intervals_of_rows_cover_the_truth_after_learning():
    _, X, clean = drawn(6, 9, 3000, 3)
    estimator = SpikeSlabCoding(n_latents=6, n_states="all", tol=1e-3, random_state=0).fit(X)
    mean, std = estimator.reconstruct(X, return_std=True)
    assert_calibrated(mean - clean, std, tolerance=0.1)


def tiled(rows, width, n_across):
    """An image whose patches, side by side, are these rows."""
    n_down = len(rows) // n_across
    blocks = rows.reshape(n_down, n_across, width, width)
    return blocks.transpose(0, 2, 1, 3).reshape(n_down * width, n_across * width)


def test_intervals_of_an_image_cover_the_truth_where_patches_do_not_overlap():
    _, X, clean = drawn(6, 16, 1600, 4)
    image, truth = tiled(X, 4, 40), tiled(clean, 4, 40)
    # From the mean: a coarse start takes the image's mean off: every state then has latents.
    result = restore(
        image, patch_size=4, stride=4, n_latents=6, n_states=64, n_parts=1, max_iter=60, n_jobs=1,
        start="mean",
    )  # fmt: skip
    assert psnr(truth, result.image) > psnr(truth, image) + 1.5
    assert_calibrated(result.image - truth, result.std, tolerance=0.15)


def test_intervals_of_overlapping_patches_are_wide_enough():
    y, x = np.mgrid[0:48, 0:48]
    truth = 100 + 60 * np.sin(x / 3.0) * (y > 24) + 40 * (x + y > 60)
    image = truth + np.random.default_rng(0).normal(0, 20, truth.shape)
    result = restore(image, preset="fast", n_jobs=1)
    error = np.abs(result.image - truth)
    for multiple, (share, off) in WITHIN.items():
        assert (error <= multiple * result.std).mean() > share - off
