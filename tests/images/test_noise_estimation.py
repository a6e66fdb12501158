import numpy as np
import pytest
from scipy import ndimage, signal

from evoem.images.noise_clipping import clipped_law
from evoem.images.noise_correlation import kernel, power_of_lags, solve_lags
from evoem.images.noise_estimation import estimate
from evoem.images.noise_outliers import find_outliers

skimage_data = pytest.importorskip("skimage.data")
SIZE = 256


@pytest.fixture(scope="module")
def camera():
    return skimage_data.camera()[:SIZE, 100 : 100 + SIZE].astype(float)[..., None]


@pytest.fixture(scope="module")
def scene():
    """Flat patches and shaded discs of all brightnesses, without noise of their own."""
    rng = np.random.default_rng(5)
    y, x = np.mgrid[:SIZE, :SIZE]
    picture = 40 + 0.3 * x
    for _ in range(40):
        centre, radius = rng.uniform(0, SIZE, 2), rng.uniform(10, 40)
        inside = (y - centre[0]) ** 2 + (x - centre[1]) ** 2 < radius**2
        picture[inside] = rng.uniform(10, 240)
    return picture[..., None]


def autoregressive(shape, rho, rng):
    noise = rng.standard_normal((shape[0] + 50, shape[1] + 50, *shape[2:]))
    for axis in (0, 1):
        noise = signal.lfilter([np.sqrt(1 - rho**2)], [1, -rho], noise, axis=axis)
    return noise[50:, 50:]


def middle_of(correlation):
    rows, columns = correlation.shape
    return rows // 2, columns // 2


@pytest.mark.parametrize("deviation", [5, 20, 60])
@pytest.mark.parametrize("seed", range(3))
def test_white_noise_is_called_that_and_its_variance_is_found(camera, deviation, seed):
    rng = np.random.default_rng(seed)
    noise, _ = estimate(camera + deviation * rng.standard_normal(camera.shape))
    assert noise.kind == "gaussian"
    assert noise.clipped == (None, None)
    assert noise.read_variance == pytest.approx(deviation**2, rel=0.1)
    assert noise.notes == ()


@pytest.mark.parametrize("gain", [0.2, 2, 50])
def test_gain_and_variance_of_photon_noise_are_found(camera, gain):
    rng = np.random.default_rng(0)
    noisy = gain * rng.poisson(camera / gain) + 10 + rng.standard_normal(camera.shape)
    noise, outliers = estimate(noisy)
    assert noise.kind == "poisson-gaussian"
    assert noise.gain == pytest.approx(gain, rel=0.1)
    levels = np.array([60, 120, 200])
    np.testing.assert_allclose(noise.variance(levels), gain * (levels - 10) + 1, rtol=0.1)
    assert outliers.mean() < 1e-3


def test_clipping_is_found_and_does_not_lessen_the_variance(scene):
    rng = np.random.default_rng(1)
    noisy = np.clip(np.round(scene + 25 * rng.standard_normal(scene.shape)), 0, 255)
    noise, _ = estimate(noisy)
    assert noise.clipped == (0, 255)
    assert noise.read_variance == pytest.approx(625, rel=0.1)
    assert noise.gain == 0


@pytest.mark.parametrize("rho", [0.3, 0.6])
def test_correlation_of_neighbours_is_found(camera, rho):
    noisy = camera + 15 * autoregressive(camera.shape, rho, np.random.default_rng(0))
    noise, _ = estimate(noisy)
    assert noise.kind == "correlated gaussian"
    row, column = middle_of(noise.correlation)
    assert noise.correlation[row + 1, column] == pytest.approx(rho, abs=0.05)
    assert noise.correlation[row, column - 1] == pytest.approx(rho, abs=0.05)
    assert noise.correlation[row + 1, column + 1] == pytest.approx(rho**2, abs=0.05)
    assert noise.read_variance == pytest.approx(225, rel=0.15)


def test_correlation_of_channels_is_found():
    truth = np.array([[1, 0.5, 0.3], [0.5, 1, 0.6], [0.3, 0.6, 1]])
    picture = skimage_data.astronaut()[:SIZE, :SIZE].astype(float)
    rng = np.random.default_rng(0)
    white = rng.standard_normal(picture.shape) @ np.linalg.cholesky(truth).T
    noise, _ = estimate(picture + 15 * white)
    assert noise.correlation is None
    np.testing.assert_allclose(noise.channel_correlation, truth, atol=0.05)
    np.testing.assert_allclose(noise.read_variance, 225, rtol=0.1)


def test_correlation_and_dependence_on_the_signal_are_found_together(scene):
    rng = np.random.default_rng(2)
    unit = autoregressive(scene.shape, 0.5, rng)
    noise, _ = estimate(scene + np.sqrt(2 * scene) * unit)
    assert noise.kind == "correlated poisson-gaussian"
    assert noise.gain == pytest.approx(2, rel=0.15)
    row, column = middle_of(noise.correlation)
    assert noise.correlation[row, column + 1] == pytest.approx(0.5, abs=0.05)


def test_salt_and_pepper_are_found_and_nothing_else(scene):
    rng = np.random.default_rng(0)
    noisy = scene + 5 * rng.standard_normal(scene.shape)
    wrong = rng.random(scene.shape) < 0.01
    noisy[wrong] = np.where(rng.random(wrong.sum()) < 0.5, 0, 255)
    visible = wrong & (np.abs(noisy - scene) > 40)
    noise, found = estimate(np.clip(np.round(noisy), 0, 255))
    assert (found & wrong).sum() >= 0.99 * found.sum()
    assert (found & visible).sum() >= 0.95 * visible.sum()
    assert noise.outliers == found.mean()
    assert noise.read_variance == pytest.approx(25, rel=0.1)


def test_lines_are_no_outliers_and_single_values_are():
    picture = np.random.default_rng(0).standard_normal((60, 60))
    picture[30, 10:50] += 20
    picture[10, 10] += 20
    picture[50, 20] -= 20
    found = find_outliers(picture, np.ones((60, 60), bool), np.ones_like, 0.0)
    assert set(zip(*np.nonzero(found), strict=True)) >= {(10, 10), (50, 20)}
    assert found[30, 15:45].sum() == 0
    assert found.sum() <= 8


def test_scale_and_offset_of_a_picture_change_nothing_else(camera):
    noisy = camera + np.random.default_rng(0).poisson(camera)
    noise, outliers = estimate(noisy)
    other, same_outliers = estimate(noisy * 8 - 1024)
    np.testing.assert_array_equal(outliers, same_outliers)
    assert noise.scaled(128, 1 / 8).gain == pytest.approx(other.gain, rel=1e-9)
    means = np.array([50.0, 300])
    np.testing.assert_allclose(other.variance(means * 8 - 1024), 64 * noise.variance(means))


def test_values_that_are_missing_are_not_looked_at(camera):
    rng = np.random.default_rng(0)
    noisy = camera + 10 * rng.standard_normal(camera.shape)
    observed = np.ones(camera.shape, bool)
    observed[50:120, 60:200] = False
    observed &= rng.random(camera.shape) > 0.01
    noise, outliers = estimate(noisy, observed)
    elsewhere, same_outliers = estimate(np.where(observed, noisy, np.nan), observed)
    assert noise == elsewhere
    np.testing.assert_array_equal(outliers, same_outliers)
    assert not outliers[~observed].any()
    assert noise.read_variance == pytest.approx(100, rel=0.1)


def _poor_pictures():
    rng = np.random.default_rng(0)
    smooth = ndimage.gaussian_filter(rng.standard_normal((128, 128)), 6)
    yield "one value", np.full((64, 64), 7.0)
    yield "two values", np.kron(rng.integers(0, 2, (16, 16)), np.ones((8, 8)))
    yield "screenshot", np.pad(np.kron(rng.integers(0, 9, (8, 8)), np.ones((8, 8))), 32)
    yield "smooth", smooth
    yield "smooth and rounded", np.round(1000 * smooth)
    yield "gradient", np.add.outer(np.arange(128.0), np.arange(128.0))
    yield "mostly zero", rng.poisson(0.01, (128, 128)).astype(float)
    yield "one pixel", np.ones((1, 1))
    yield "small", rng.standard_normal((12, 40))


@pytest.mark.parametrize(("name", "picture"), list(_poor_pictures()))
def test_pictures_without_noise_to_be_found_say_so(name, picture):
    noise, outliers = estimate(picture[..., None])  # warnings are errors
    assert not noise.told
    assert len(noise.notes) == 1
    assert outliers.shape == (*picture.shape, 1)


def test_nothing_observed_says_so():
    noise, _ = estimate(np.zeros((64, 64, 1)), np.zeros((64, 64, 1), bool))
    assert not noise.told


def test_texture_everywhere_is_not_called_correlated_noise():
    gravel = skimage_data.gravel()[:SIZE, :SIZE].astype(float)[..., None]
    noise, _ = estimate(gravel + 10 * np.random.default_rng(0).standard_normal(gravel.shape))
    assert noise.correlation is None
    assert "texture everywhere: correlation could not be told" in noise.notes


def test_powers_of_lags_are_those_of_coefficients():
    correlation = np.outer([1, 0.5, 0.2], [1, 0.3, 0.1])
    rows = np.array([0.2, 0.5, 1, 0.5, 0.2])
    columns = np.array([0.1, 0.3, 1, 0.3, 0.1])

    def covariance(along):
        lags = np.abs(np.subtract.outer(np.arange(8), np.arange(8)))
        return np.where(lags <= 2, along[np.minimum(lags, 2) + 2], 0)

    from scipy.fft import dct

    basis = dct(np.eye(8), axis=0, norm="ortho")
    expected = np.outer(
        np.diag(basis @ covariance(rows) @ basis.T), np.diag(basis @ covariance(columns) @ basis.T)
    )
    power = np.einsum("ijab,ab->ij", power_of_lags(8, 2), correlation)
    np.testing.assert_allclose(power, expected)
    np.testing.assert_allclose(solve_lags(power, 2, 2), correlation, atol=1e-9)


def test_kernel_leaves_out_lags_that_are_negligible():
    correlation = np.zeros((4, 4))
    correlation[:2, :2] = [[1, 0.5], [0.4, 0.2]]
    np.testing.assert_array_equal(
        kernel(correlation), [[0.2, 0.4, 0.2], [0.5, 1, 0.5], [0.2, 0.4, 0.2]]
    )


def test_moments_of_clipped_values_are_those_of_samples():
    before, after, variance, left = clipped_law(1.0, 4.0, 1e-6, (0.0, 20.0), (0.0, 20.0))
    rng = np.random.default_rng(0)
    for mean in (0.5, 8.0, 19.0):
        at = np.abs(before - mean).argmin()
        values = before[at] + np.sqrt(variance[at]) * rng.standard_normal(400_000)
        values = values.clip(0, 20)
        assert variance[at] == pytest.approx(before[at] + 4)
        assert after[at] == pytest.approx(values.mean(), abs=0.02)
        assert left[at] == pytest.approx(values.var(), rel=0.02)
