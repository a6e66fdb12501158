"""PSNR by hand; SSIM against the formulas of its paper and against scikit-image."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from skimage.metrics import structural_similarity

from evoem.images.quality import peak_of, psnr, ssim

repeatable = settings(deadline=None, derandomize=True, max_examples=40)


def image_pair(shape, seed=0, noise=20.0, peak=255.0):
    """A smooth image, and itself with noise."""
    rng = np.random.default_rng(seed)
    slopes = rng.uniform(0.1, 0.6, len(shape))
    phase = sum(
        slope * np.arange(n).reshape(-1, *[1] * (len(shape) - 1 - axis))
        for axis, (slope, n) in enumerate(zip(slopes, shape, strict=True))
    )
    clean = 0.5 * peak * (1 + np.sin(phase))
    return clean, clean + rng.normal(0, noise * peak / 255, shape)


# ------------------------------------------------------------------------------------------ PSNR


def test_psnr_by_hand():
    reference = np.array([[0.0, 100.0], [200.0, 255.0]])
    image = np.array([[1.0, 102.0], [197.0, 255.0]])  # mean square of 1, 2, 3, 0: 3.5
    assert psnr(reference, image) == pytest.approx(10 * np.log10(65025 / 3.5), rel=1e-14)
    assert psnr(np.zeros((3, 3)), np.ones((3, 3)), peak=10) == 20
    assert psnr(np.zeros((2, 2, 3)), np.full((2, 2, 3), 0.1), peak=1.0) == pytest.approx(20)


def test_equal_images_have_infinite_psnr():
    assert psnr(np.eye(4), np.eye(4)) == np.inf


def test_unsigned_integers_do_not_wrap_around():
    black, white = np.zeros((12, 12), np.uint8), np.full((12, 12), 255, np.uint8)
    assert psnr(black, white) == 0
    assert psnr(white, black) == 0
    luminance = 0.01**2 / (1 + 0.01**2)  # there is no structure
    assert ssim(black, white) == pytest.approx(luminance)
    assert ssim(white, black) == pytest.approx(luminance)


def test_twenty_decibels_are_a_tenth_of_the_error():
    clean, noisy = image_pair((15, 16, 3))
    closer = clean + (noisy - clean) / 10
    assert psnr(clean, closer) - psnr(clean, noisy) == pytest.approx(20)


# ------------------------------------------------------------------------------------------ SSIM


def slow_ssim(x, y, peak):
    """Wang et al. (2004), eq. 13 to 17: a loop over all places of the window."""
    c1, c2 = (0.01 * peak) ** 2, (0.03 * peak) ** 2
    offsets = np.arange(-5, 6)
    w = np.exp(-(offsets[:, None] ** 2 + offsets**2) / (2 * 1.5**2))
    w /= w.sum()
    values = []
    for i in range(x.shape[0] - 10):
        for j in range(x.shape[1] - 10):
            a, b = x[i : i + 11, j : j + 11], y[i : i + 11, j : j + 11]
            mean_a, mean_b = (w * a).sum(), (w * b).sum()
            var_a, var_b = (w * (a - mean_a) ** 2).sum(), (w * (b - mean_b) ** 2).sum()
            cov = (w * (a - mean_a) * (b - mean_b)).sum()
            values.append(
                (2 * mean_a * mean_b + c1)
                * (2 * cov + c2)
                / ((mean_a**2 + mean_b**2 + c1) * (var_a + var_b + c2))
            )
    return np.mean(values)


sizes = st.tuples(st.integers(11, 30), st.integers(11, 30))


@repeatable
@given(sizes, st.sampled_from([1.0, 255.0]), st.floats(0, 100), st.integers(0, 1000))
def test_ssim_is_that_of_the_paper(size, peak, noise, seed):
    clean, noisy = image_pair(size, seed, noise, peak)
    assert ssim(clean, noisy, peak) == pytest.approx(slow_ssim(clean, noisy, peak), abs=1e-10)


@repeatable
@given(
    sizes,
    st.sampled_from([None, 0, 1, 2, -1]),
    st.sampled_from([1.0, 255.0]),
    st.floats(0, 100),
    st.integers(0, 1000),
)
def test_ssim_is_that_of_scikit_image(size, channel_axis, peak, noise, seed):
    clean, noisy = image_pair((*size, 3), seed, noise, peak)
    if channel_axis is None:
        clean, noisy = clean[..., 0], noisy[..., 0]
    else:
        clean, noisy = np.moveaxis(clean, -1, channel_axis), np.moveaxis(noisy, -1, channel_axis)
    expected = structural_similarity(
        clean,
        noisy,
        gaussian_weights=True,
        sigma=1.5,
        use_sample_covariance=False,
        data_range=peak,
        channel_axis=channel_axis,
    )
    assert ssim(clean, noisy, peak, channel_axis) == pytest.approx(expected, abs=1e-9)


def test_ssim_of_colours_is_the_mean_of_the_channels():
    clean, noisy = image_pair((14, 20, 3))
    noisy[..., 1] = clean[..., 1]
    each = [ssim(clean[..., c], noisy[..., c]) for c in range(3)]
    assert each[1] == pytest.approx(1, abs=1e-12)
    assert each[0] < 0.99
    assert ssim(clean, noisy, channel_axis=-1) == pytest.approx(np.mean(each), abs=1e-14)


def test_ssim_falls_with_noise_and_takes_images_in_either_order():
    pairs = [image_pair((32, 32), noise=noise) for noise in (0, 10, 30, 90)]
    values = [ssim(clean, noisy) for clean, noisy in pairs]
    assert values[0] == pytest.approx(1, abs=1e-12)
    assert (np.diff(values) < -0.01).all()
    assert values == pytest.approx([ssim(noisy, clean) for clean, noisy in pairs], abs=1e-14)


# ---------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize("measure", [psnr, ssim])
def test_shapes_that_differ_are_both_named(measure):
    with pytest.raises(ValueError, match=r"of reference, \(20, 20\); got \(20, 1\)\."):
        measure(np.ones((20, 20)), np.ones((20, 1)))


@pytest.mark.parametrize("measure", [psnr, ssim])
@pytest.mark.parametrize("peak", [0, -1, float("nan")])
def test_a_peak_that_is_not_positive_is_refused(measure, peak):
    with pytest.raises(ValueError, match=f"peak must be positive; got {peak}"):
        measure(np.ones((20, 20)), np.ones((20, 20)), peak)


@pytest.mark.parametrize(
    ("shape", "channel_axis", "message"),
    [
        ((10, 40), None, r"at least 11 rows and columns; got the shape \(10, 40\)\."),
        ((40, 10, 3), -1, r"at least 11 rows and columns; got the shape \(40, 10, 3\)\."),
        ((40, 40, 3), None, r"got the shape \(40, 40, 3\) and channel_axis None\."),
        ((40, 40), 0, r"got the shape \(40, 40\) and channel_axis 0\."),
        ((40, 40, 3), 3, "channel_axis must be an integer between -3 and 2; got 3"),
    ],
)
def test_ssim_refuses_images_that_its_window_does_not_fit(shape, channel_axis, message):
    with pytest.raises(ValueError, match=message):
        ssim(np.ones(shape), np.ones(shape), channel_axis=channel_axis)


def test_the_smallest_image_for_ssim_is_one_window():
    clean, noisy = image_pair((11, 11))
    assert ssim(clean, noisy) == pytest.approx(slow_ssim(clean, noisy, 255), abs=1e-12)


@pytest.mark.parametrize(
    ("dtype", "expected"), [("uint8", 255.0), ("uint16", 65535.0), ("float32", 9.0)]
)
def test_the_largest_value_is_that_of_the_type_or_the_range(dtype, expected):
    assert peak_of(np.arange(10).astype(dtype)) == expected
