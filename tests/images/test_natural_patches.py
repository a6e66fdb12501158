"""Preprocessing of natural patches, against slow twins."""

import numpy as np
import pytest
from scipy import ndimage

from evoem.images.natural_patches import (
    binary_patches,
    clamp_brightest,
    random_patches,
    unit_range,
    whitened_patches,
    zca,
)


def texture(size=60, seed=0):
    noise = np.random.default_rng(seed).normal(size=(size, size))
    return 100 + 400 * ndimage.gaussian_filter(noise, 2)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.02, 0.3])
def test_the_brightest_pixels_are_as_bright_as_the_rest(share):
    image = texture()
    found = clamp_brightest(image, share)
    n_bright = round(share * image.size)
    ordered = sorted(image.ravel())
    brightest = ordered[len(ordered) - 1 - n_bright]
    expected = np.array([[min(value, brightest) for value in row] for row in image])
    np.testing.assert_array_equal(found, expected)
    assert (found != image).sum() == n_bright


@pytest.mark.parametrize(
    ("share", "sentence"),
    [(1.0, r"share must leave some pixels as they are; got 1\.0\."), (-0.1, "share must be a num")],
)
def test_shares_that_leave_nothing_are_refused(share, sentence):
    with pytest.raises(ValueError, match=f"^{sentence}"):
        clamp_brightest(np.ones((3, 3)), share)


def test_patches_are_squares_of_the_image_from_everywhere():
    image = np.arange(63.0).reshape(7, 9)
    found = random_patches(image, 3, 4000, np.random.default_rng(0)).reshape(-1, 3, 3)
    counts = np.zeros((5, 7), int)
    for patch in found:
        top, left = divmod(int(patch[0, 0]), 9)
        np.testing.assert_array_equal(patch, image[top : top + 3, left : left + 3])
        counts[top, left] += 1
    expected = 4000 / counts.size
    assert abs(counts - expected).max() < 5 * np.sqrt(expected)


@pytest.mark.parametrize(
    ("image", "size", "number", "sentence"),
    [
        (np.ones((4, 4, 3)), 2, 5, r"image must be 2-D; got 3 dimensions\."),
        (np.ones((4, 6)), 5, 5, r"patch_size must be an integer between 1 and 4 "),
        (np.ones((4, 6)), 2, 0, r"n_patches must be an integer at least 1; got 0\."),
    ],
)
def test_what_has_no_patches_is_refused(image, size, number, sentence):
    with pytest.raises(ValueError, match=f"^{sentence}"):
        random_patches(image, size, number, np.random.default_rng(0))


def test_each_patch_has_its_own_range():
    X = np.random.default_rng(0).normal(size=(20, 9))
    X[3] = 2.0
    for row, found in zip(X, unit_range(X), strict=True):
        for value, scaled in zip(row, found, strict=True):
            spread = max(row) - min(row)
            assert scaled == pytest.approx((value - min(row)) / spread if spread else 0.0)


def test_binary_pixels_are_on_as_often_as_they_are_bright():
    image = np.array([[0.0, 1.0, 3.0], [4.0, 2.0, 0.0], [1.0, 1.0, 2.0]])  # one patch of size 3
    X = binary_patches(image, 3, 20_000, clamp=0.0)
    assert set(np.unique(X)) == {0.0, 1.0}
    chances = image.ravel() / 4
    deviations = np.sqrt(chances * (1 - chances) / len(X))
    assert (abs(X.mean(0) - chances) <= 5 * deviations).all()
    clamped = binary_patches(image, 3, 2000, clamp=1 / 9)  # 4 becomes 3
    assert clamped.mean(0)[[2, 3]] == pytest.approx([1.0, 1.0])


def slow_zca(X, retained):
    """Direction by direction."""
    covariance = sum(np.outer(x, x) for x in X - X.mean(0)) / len(X)
    values, vectors = np.linalg.eigh(covariance)
    matrix, held = np.zeros_like(covariance), 0.0
    for i in np.argsort(-values):
        if held >= retained * values.sum() * (1 - 1e-9):
            break
        matrix += np.outer(vectors[:, i], vectors[:, i]) / np.sqrt(values[i])
        held += values[i]
    return (X - X.mean(0)) @ matrix


@pytest.mark.parametrize("retained", [0.5, 0.95, 1.0])
def test_whitening_keeps_the_directions_of_most_variance(retained):
    X = random_patches(texture(), 4, 300, np.random.default_rng(0))
    whitening = zca(X, retained)
    np.testing.assert_allclose(whitening(X), slow_zca(X, retained), atol=1e-6)
    np.testing.assert_allclose(whitening.matrix, whitening.matrix.T, atol=1e-12)
    eigenvalues = np.linalg.eigvalsh(np.cov(whitening(X).T, bias=True))
    kept = eigenvalues > 0.5
    np.testing.assert_allclose(eigenvalues[kept], 1.0, rtol=1e-6)
    np.testing.assert_allclose(eigenvalues[~kept], 0.0, atol=1e-6)
    assert kept.all() == (retained == 1.0)


def test_patches_without_structure_are_left_out():
    image = texture()
    image[:, 30:] = 100.0  # a flat half

    def deviations(least_structure):
        X, whitening = whitened_patches(
            image, 5, 400, clamp=0.0, least_structure=least_structure, retained=1.0
        )
        assert X.shape == (400, 25)
        return (X @ np.linalg.inv(whitening.matrix) + whitening.mean).std(1)  # as they were drawn

    assert deviations(0.2).min() >= 0.2 * image.std() * (1 - 1e-6)
    assert (deviations(0.0) < 1e-6).mean() > 0.3


def test_an_image_without_structure_is_refused():
    image = np.zeros((40, 40))
    image[0, 0] = 1.0
    with pytest.raises(ValueError, match=r"^least_structure must leave a hundredth of the patches"):
        whitened_patches(image, 4, 100, clamp=0.0, least_structure=5.0)
