"""Pictures of few photons, and pictures that look like them."""

import numpy as np
import pytest

from evoem.images.noise_counts import are_few_photons
from evoem.images.noise_estimation import estimate

y, x = np.mgrid[0:120, 0:128]
SCENE = 0.3 + 0.3 * np.sin(x / 5.0) * (y > 50) + 0.4 * (x + y > 150)  # 0 … 1, with an edge


def counts(mean, seed=0):
    return np.random.default_rng(seed).poisson(mean * SCENE / SCENE.mean()).astype(float)


def ratio(picture):
    """(a − b)² over a + b of neighbours, by loops."""
    squares = sums = 0.0
    rows, columns = picture.shape
    for i in range(rows):
        for j in range(columns):
            for k, m in ((i + 1, j), (i, j + 1)):
                if k < rows and m < columns:
                    squares += (picture[i, j] - picture[k, m]) ** 2
                    sums += picture[i, j] + picture[k, m]
    return squares / sums


@pytest.mark.parametrize("mean", [0.03, 0.1, 0.5])
@pytest.mark.parametrize("seed", range(3))
def test_photons_have_a_variance_like_their_mean(mean, seed):
    picture = counts(mean, seed)
    assert ratio(picture) == pytest.approx(1, abs=0.15)
    assert are_few_photons(picture[..., None] / 8, np.ones((*picture.shape, 1), bool), 1 / 8)


def test_the_ratio_decides():
    """Pairs of equal neighbours make it smaller, and larger steps larger."""
    picture = counts(0.1)
    everywhere = np.ones((*picture.shape, 1), bool)
    for other in (np.kron(picture, np.ones((1, 2))), np.where(picture == 1, 2, picture)):
        seen = np.ones((*other.shape, 1), bool)
        assert abs(ratio(other) - 1) > 0.2
        assert not are_few_photons(other[..., None], seen, 1.0)
    assert not are_few_photons(np.minimum(picture, 1)[..., None], everywhere, 1.0)  # two levels
    assert not are_few_photons(picture[..., None], everywhere, 0.0)
    assert not are_few_photons(10 * picture[..., None], everywhere, 1.0)  # not few


def test_values_that_are_missing_are_not_looked_at():
    picture = counts(0.1)[..., None]
    observed = np.random.default_rng(1).random(picture.shape) > 0.2
    assert are_few_photons(np.where(observed, picture, 99.0), observed, 1.0)


@pytest.mark.parametrize("mean", [0.02, 0.05, 0.2])
def test_the_noise_of_few_photons_is_told_in_any_unit(mean):
    noise, outliers = estimate(40 * counts(mean)[..., None] + 7)
    assert noise.kind == "poisson-gaussian"
    assert noise.gain == pytest.approx(40, rel=0.1)
    assert noise.offset == pytest.approx(7, abs=1)
    assert not outliers.any()


def test_drawings_and_labels_are_no_photons():
    drawing = np.zeros((128, 128))
    drawing[20:100:10] = 1
    drawing[:, 40:44] = 2
    labels = np.kron(np.random.default_rng(0).integers(0, 3, (16, 16)), np.ones((8, 8)))
    dots = np.zeros((128, 128))
    dots[::9, ::7] = 200.0
    dots[3, 3] = 1.0
    for picture in (drawing, labels, dots):
        assert not estimate(picture[..., None])[0].told
