"""Gabor functions are found where there are some."""

import numpy as np
import pytest

from evoem.reproduction import gabor


def wave(shape, centre, frequency, widths, phase, amplitude=1.0):
    """By the textbook: a rotated plane wave under a Gaussian."""
    out = np.empty(shape)
    angle = np.arctan2(frequency[0], frequency[1])
    for row in range(shape[0]):
        for column in range(shape[1]):
            y, x = row - centre[0], column - centre[1]
            along = x * np.cos(angle) + y * np.sin(angle)
            beside = -x * np.sin(angle) + y * np.cos(angle)
            envelope = np.exp(-(along**2) / (2 * widths[0] ** 2) - beside**2 / (2 * widths[1] ** 2))
            cycles = frequency[0] * y + frequency[1] * x
            out[row, column] = amplitude * envelope * np.cos(2 * np.pi * cycles + phase)
    return out


CASES = [
    ((12, 12), (5.0, 6.5), (0.15, 0.1), (2.0, 2.5), 0.3),
    ((16, 16), (8.0, 4.0), (-0.2, 0.12), (2.5, 4.0), 2.0),
    ((10, 10), (4.5, 4.5), (0.0, 0.2), (3.0, 2.0), -1.0),
    ((12, 12), (3.0, 8.0), (0.3, 0.0), (1.5, 3.0), 1.5),
]


@pytest.mark.parametrize("case", CASES)
def test_a_gabor_function_is_found_again(case):
    _, centre, frequency, widths, _ = case
    found = gabor.fit(-7.0 * wave(*case))
    assert found.explained > 0.999
    assert found.centre == pytest.approx(centre, abs=0.05)
    assert found.widths == pytest.approx(widths, abs=0.05)
    sign = np.sign(np.dot(found.frequency, frequency))  # a wave has no direction
    assert tuple(sign * np.array(found.frequency)) == pytest.approx(frequency, abs=0.005)


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_the_share_explained_is_what_noise_leaves(share):
    clean = wave((16, 16), (8, 7), (0.12, 0.1), (3, 3), 0.5)
    noise = np.random.default_rng(0).normal(size=clean.shape)
    noise *= np.sqrt(share / (1 - share)) * clean.std() / noise.std()
    assert gabor.fit(clean + noise).explained == pytest.approx(1 - share, abs=0.1)


def test_noise_is_no_gabor_function():
    rng = np.random.default_rng(1)
    found = [gabor.fit(rng.normal(size=(12, 12))).explained for _ in range(5)]
    assert max(found) < 0.5
    assert min(found) > 0


def test_a_blob_and_a_grating_are_limits():
    y, x = np.mgrid[:12, :12]
    assert gabor.fit(np.exp(-((y - 5) ** 2 + (x - 6) ** 2) / 8)).explained > 0.99
    assert gabor.fit(np.cos(0.9 * y + 0.4 * x)).explained > 0.99


def test_a_flat_field_is_explained_by_nothing():
    assert gabor.fit(np.full((8, 8), 3.0)).explained == 0
