import numpy as np
import pytest
from noisy_pictures import autoregressive, compressed
from PIL import Image, ImageDraw
from scipy import ndimage

from evoem.images.noise_compression import zeros
from evoem.images.noise_estimation import estimate

skimage_data = pytest.importorskip("skimage.data")
restoration = pytest.importorskip("skimage.restoration")
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


@pytest.fixture(scope="module")
def through_optics(scene):
    """The scene as optics show it: of sharper edges, corners of pixels are details of their own."""
    return ndimage.gaussian_filter(scene, (0.7, 0.7, 0))


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


def test_noise_of_photographs_that_falls_again_where_it_is_bright_does_not_follow_a_gain(scene):
    rng = np.random.default_rng(3)
    variance = 10 + 60 * np.sin(np.pi * scene / 255)
    noisy = scene + np.sqrt(variance) * autoregressive(scene.shape, 0.5, rng)
    noise, _ = estimate(noisy)
    assert noise.kind == "correlated gaussian"
    assert noise.read_variance == pytest.approx(variance.mean(), rel=0.15)


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


@pytest.mark.parametrize("sign", [1, -1])
def test_hot_and_dead_pixels_are_found_beside_texture_too(camera, sign):
    rng = np.random.default_rng(0)
    wrong = rng.random(camera.shape) < 0.01
    size = sign * rng.uniform(100, 250, camera.shape)
    _, found = estimate(camera + 5 * rng.standard_normal(camera.shape) + size * wrong)
    assert (found & wrong).sum() >= 0.99 * found.sum()
    assert (found & wrong).sum() >= 0.95 * wrong.sum()


def test_tracks_of_cosmic_rays_are_found_whole(through_optics):
    rng = np.random.default_rng(0)
    wrong = rng.random(through_optics.shape) < 0.001  # where tracks cross, some are missed
    wrong = ndimage.binary_dilation(wrong, np.eye(3)[..., None])
    size = rng.uniform(100, 250, through_optics.shape)
    _, found = estimate(
        through_optics + 5 * rng.standard_normal(through_optics.shape) + size * wrong
    )
    assert (found & wrong).sum() >= 0.99 * found.sum()
    assert (found & wrong).sum() >= 0.95 * wrong.sum()


def test_noise_and_outliers_of_a_large_picture_are_found(through_optics):
    rng = np.random.default_rng(0)
    large = np.tile(through_optics, (9, 4, 1))
    noisy = large + 5 * rng.standard_normal(large.shape)
    wrong = rng.random(large.shape) < 0.01
    noisy[wrong] += rng.choice([-1, 1], wrong.sum()) * rng.uniform(150, 300, wrong.sum())
    noise, found = estimate(noisy)
    assert (found & wrong).sum() >= 0.99 * found.sum()
    assert (found & wrong).sum() >= 0.95 * wrong.sum()
    assert noise.read_variance == pytest.approx(25, rel=0.1)


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


@pytest.mark.parametrize("pedestal", [0, 8])
def test_noise_beside_wide_areas_of_one_value_is_told(scene, pedestal):
    """As of a detector that clips what is dark, or a picture that was cut out."""
    rng = np.random.default_rng(0)
    dark = np.maximum(scene - 130, 0)
    clipped = np.maximum(4 * rng.poisson(dark / 4) - pedestal, 0)
    blocks = clipped.reshape(SIZE // 8, 8, SIZE // 8, 8)
    assert (np.ptp(blocks, axis=(1, 3)) == 0).mean() > 0.3
    noise, _ = estimate(clipped)
    assert noise.gain == pytest.approx(4, rel=0.1 if pedestal == 0 else 0.2)
    levels = np.array([40.0, 80.0])
    np.testing.assert_allclose(noise.variance(levels - pedestal), 4 * levels, rtol=0.15)


def test_text_on_a_screen_has_no_noise():
    picture = Image.new("L", (400, 300), 255)
    for row in range(12):
        ImageDraw.Draw(picture).text((10, 10 + 20 * row), "No noise is here 0123456789", fill=20)
    for size in ((400, 300), (600, 450)):  # the latter with smooth edges
        values = np.asarray(picture.resize(size, Image.Resampling.LANCZOS)).astype(float)
        assert not estimate(values[..., None])[0].told


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


@pytest.mark.parametrize("deviation", [0, 10])
def test_noise_that_jpeg_took_away_is_not_told(camera, deviation):
    noisy = camera + deviation * np.random.default_rng(0).standard_normal(camera.shape)
    noise, _ = estimate(compressed(noisy, 40))
    assert not noise.told
    assert "JPEG" in noise.notes[0]


def test_noise_that_jpeg_left_is_told_with_a_note(camera):
    noisy = camera + 20 * np.random.default_rng(0).standard_normal(camera.shape)
    noise, _ = estimate(compressed(noisy, 90))
    assert noise.told
    assert noise.notes == ("JPEG compression: this is the noise that remains",)
    assert noise.compressed
    assert not zeros(noisy, 1.0).compressed


@pytest.mark.parametrize("method", ["tv", "nlm", "median"])
@pytest.mark.parametrize("name", ["chelsea", "camera"])
def test_pictures_that_were_denoised_already_make_no_warnings(method, name):
    picture = np.atleast_3d(getattr(skimage_data, name)()[:SIZE, :SIZE].astype(float))
    noisy = picture + 20 * np.random.default_rng(0).standard_normal(picture.shape)
    denoised = {
        "tv": lambda: restoration.denoise_tv_chambolle(noisy, weight=40, channel_axis=-1),
        "nlm": lambda: restoration.denoise_nl_means(noisy, h=16, sigma=20, channel_axis=-1),
        "median": lambda: ndimage.median_filter(noisy, (3, 3, 1)),
    }[method]().reshape(picture.shape)
    noise, _ = estimate(denoised)  # warnings are errors
    assert noise.variance(denoised).mean() < 100  # far less than there was


@pytest.mark.parametrize("levels", [4, 8])
def test_values_of_few_levels_are_no_outliers(camera, levels):
    """Next to no noise is left by rounding where the picture is flat, and whole steps elsewhere."""
    noisy = camera + 10 * np.random.default_rng(0).standard_normal(camera.shape)
    _, outliers = estimate(np.round(np.clip(noisy, 0, 255) / 255 * (levels - 1)))
    assert outliers.mean() < 1e-3


@pytest.mark.parametrize("scale", [1e-310, 1e-200, 1e200, 1e305])
def test_pictures_whose_variance_is_no_number_say_so(camera, scale):
    noisy = camera + 10 * np.random.default_rng(0).standard_normal(camera.shape)
    noise, outliers = estimate(scale * noisy)
    assert not noise.told
    assert "variance" in noise.notes[0]
    assert not outliers.any()


def test_nothing_observed_says_so():
    noise, _ = estimate(np.zeros((64, 64, 1)), np.zeros((64, 64, 1), bool))
    assert not noise.told


@pytest.mark.parametrize("name", ["gravel", "grass", "immunohistochemistry"])
@pytest.mark.parametrize("deviation", [10, 40])
def test_white_noise_on_texture_is_called_that(name, deviation):
    picture = np.atleast_3d(getattr(skimage_data, name)()[:SIZE, :SIZE].astype(float))
    noisy = picture + deviation * np.random.default_rng(0).standard_normal(picture.shape)
    assert estimate(noisy)[0].kind == "gaussian"


def test_channels_that_are_correlated_each_in_its_own_way_are_told_apart(scene):
    """Red and blue of a mosaic reach further than green."""
    rng = np.random.default_rng(0)
    wide, narrow, shared = (
        autoregressive(scene.shape, rho, rng)[..., 0] for rho in (0.7, 0.3, 0.5)
    )
    noises = [(own + shared) / np.sqrt(2) for own in (wide, narrow)]
    noise, _ = estimate(scene + 10 * np.stack(noises, axis=2))
    cross = noise.cross_correlation
    middle = cross.shape[2] // 2
    np.testing.assert_allclose(np.diag(cross[:, :, middle, middle + 1]), [0.6, 0.4], atol=0.05)
    assert cross[0, 1, middle, middle] == pytest.approx(0.5, abs=0.05)
    assert cross[0, 1, middle, middle + 1] == pytest.approx(0.25, abs=0.05)
    np.testing.assert_allclose(noise.channel_correlation, cross[:, :, middle, middle])


def test_texture_everywhere_is_not_called_correlated_noise():
    gravel = skimage_data.gravel()[:SIZE, :SIZE].astype(float)[..., None]
    noise, _ = estimate(gravel + 10 * np.random.default_rng(0).standard_normal(gravel.shape))
    assert noise.correlation is None
    assert "texture everywhere: correlation could not be estimated" in noise.notes
