"""Variance against signal, from blocks that are cut, chosen and measured one by one."""

import numpy as np
import pytest
from scipy import ndimage, stats

from evoem.images.noise_blocks import (
    MOST_CLIPPED,
    Line,
    bernstein,
    binned,
    cosines,
    cut_blocks,
    effective_freedom,
    fit_bend,
    fit_line,
    measure_curve,
    split_frequencies,
)

SIDE, STEP = 8, 4
WHITE = np.ones((SIDE, SIDE))


def rng(seed=0):
    return np.random.default_rng(seed)


def test_blocks_are_those_without_a_missing_value_with_few_clipped_and_several_values():
    channel = rng().standard_normal((40, 36))
    observed = rng(1).random(channel.shape) > 0.005
    clipped = ndimage.gaussian_filter(rng(2).standard_normal(channel.shape), 3) > 0.05
    channel[20:32, 8:30] = 7.0
    found = cut_blocks(channel, observed, clipped, SIDE, STEP)
    basis, means, usable = cosines(SIDE), [], []
    for row in range(0, 40 - SIDE + 1, STEP):
        for column in range(0, 36 - SIDE + 1, STEP):
            here = np.s_[row : row + SIDE, column : column + SIDE]
            usable.append(
                observed[here].all()
                and clipped[here].mean() <= MOST_CLIPPED
                and np.ptp(channel[here]) > 0
            )
            if usable[-1]:
                number = len(means)
                means.append(channel[here].mean())
                np.testing.assert_allclose(
                    basis.T @ found.coefficients[number] @ basis, channel[here], atol=1e-12
                )
    assert 0 < sum(usable) < len(usable) - 10
    np.testing.assert_array_equal(found.usable.ravel(), usable)
    np.testing.assert_allclose(found.mean, means, atol=1e-12)


def test_variance_is_not_measured_where_blocks_are_chosen():
    for spectrum in (WHITE, np.outer(0.7 ** np.arange(SIDE), 0.7 ** np.arange(SIDE))):
        measured, choosing = split_frequencies(spectrum)
        assert not (measured & choosing).any()
        assert not measured[0, 0]
        assert not choosing[0, 0]  # the mean, which is no noise
        assert (measured | choosing).sum() == SIDE**2 - 1
    frequency = np.add.outer(np.arange(SIDE), np.arange(SIDE))
    measured, choosing = split_frequencies(WHITE)
    assert frequency[measured].min() >= frequency[choosing].max()


@pytest.mark.parametrize("freedom", [10, 28])
def test_medians_of_bins_are_the_variance_of_noise_whatever_a_few_textured_blocks_have(freedom):
    signal = rng().uniform(0, 100, 12_000)
    variance = 3 + 0.5 * signal
    power = variance * rng(1).chisquare(freedom, len(signal)) / freedom
    power[rng(2).random(len(signal)) < 0.02] *= 1000
    means, found, counts = binned(signal, power, freedom)
    assert counts.sum() == len(signal)
    assert (np.diff(means) > 0).all()
    np.testing.assert_allclose(found, 3 + 0.5 * means, rtol=0.15)
    assert np.mean(found / (3 + 0.5 * means)) == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize("freedom", [9, 28, 60])
def test_degrees_of_freedom_are_told_by_quartiles(freedom):
    power = rng(freedom).chisquare(freedom, 50_000) / freedom
    assert effective_freedom(power, 36) == pytest.approx(min(freedom, 36), rel=0.15)
    assert effective_freedom(power, 400) >= 100  # a quarter of them at least


@pytest.mark.parametrize("degree", [0, 1, 2, 3])
def test_polynomials_of_bernstein_are_positive_and_add_up_to_one(degree):
    place = np.linspace(0, 1, 11)
    found = bernstein(place, degree)
    np.testing.assert_allclose(
        found, stats.binom.pmf(np.arange(degree + 1), degree, place[:, None])
    )


CURVES = {"flat": (0.0, 4.0), "photons": (0.5, 1.0), "falling": (-0.03, 5.0)}


@pytest.mark.parametrize("name", CURVES)
def test_a_line_goes_through_a_curve_in_spite_of_some_wrong_bins(name):
    gain, intercept = CURVES[name]
    signal = np.linspace(2, 100, 30)
    variance = gain * signal + intercept
    variance[[4, 17]] *= 3  # texture
    line = fit_line(signal, variance, np.full(30, 50), 28, 1e-6, (None, None))
    expected = gain * signal + intercept
    np.testing.assert_allclose(line(signal), expected, rtol=0.05)
    assert abs(line.gain - gain) < 3 * line.gain_error
    flat = fit_line(signal, variance, np.full(30, 50), 28, 1e-6, (None, None), slope=False)
    assert flat.gain == 0
    assert expected.min() < flat.intercept < expected.max() or gain == 0


def test_a_line_is_that_before_clipping():
    """Means and variances of samples that were clipped lead back to those of the noise."""
    truth, levels = (0.4, 30.0), (0.0, 100.0)
    before = np.linspace(2, 98, 40)
    noise = np.sqrt(np.maximum(truth[0] * before + truth[1], 1))[:, None]
    values = np.clip(before[:, None] + noise * rng().standard_normal((40, 40_000)), *levels)
    signal, variance = values.mean(1), values.var(1)
    line = fit_line(signal, variance, np.full(40, 1000), 28, 1e-3, levels)
    assert line.gain == pytest.approx(truth[0], rel=0.1)
    assert line.intercept == pytest.approx(truth[1], rel=0.1)
    np.testing.assert_allclose(line(signal), variance, rtol=0.15)
    back, full = line.before_clipping(signal, variance)
    np.testing.assert_allclose(back, before, atol=2)
    np.testing.assert_allclose(full, noise[:, 0] ** 2, rtol=0.15)


def test_without_levels_a_line_is_itself_and_never_below_the_least():
    line = Line(1.0, -10.0, 0.1, least=2.0)
    np.testing.assert_array_equal(line(np.array([0.0, 11.0, 12.0, 20.0])), [2, 2, 2, 10])


def test_a_parabola_bends_where_a_line_cannot():
    signal = np.linspace(0, 200, 30)
    variance = 1 + 0.002 * signal * (200 - signal)
    bend = fit_bend(signal, variance, np.full(30, 80), 28, 1e-6)
    np.testing.assert_allclose(bend(signal), variance, rtol=0.01)
    np.testing.assert_allclose(bend(np.array([-50, 300])), variance[[0, -1]], rtol=0.01)
    assert not bend.rises
    assert fit_bend(signal, 1 + signal, np.full(30, 80), 28, 1e-6).rises


@pytest.mark.parametrize(("gain", "intercept"), [(0.0, 25.0), (0.5, 4.0)])
def test_flat_blocks_tell_the_variance_of_noise_beside_texture(gain, intercept):
    signal = np.kron(rng().uniform(20, 200, (10, 10)), np.ones((32, 32)))
    textured = rng(1).random((10, 10)) < 0.4
    texture = 30 * ndimage.gaussian_filter(rng(2).standard_normal(signal.shape), 1.5)
    mean = signal + np.kron(textured, np.ones((32, 32))) * texture * 5
    noise = np.sqrt(np.maximum(gain * mean + intercept, 1)) * rng(3).standard_normal(mean.shape)
    everywhere = np.ones(mean.shape, bool)
    blocks = cut_blocks(mean + noise, everywhere, ~everywhere)
    curve = measure_curve(blocks, WHITE, 1e-6, (None, None))
    levels = np.array([40.0, 100.0, 180.0])
    np.testing.assert_allclose(curve.line(levels), gain * levels + intercept, rtol=0.12)
    doubled = curve.times(2.0)
    np.testing.assert_allclose(doubled.line(levels), 2 * curve.line(levels))
    np.testing.assert_allclose(doubled.bend(levels), 2 * curve.bend(levels))
    np.testing.assert_allclose(doubled.variance, 2 * curve.variance)
    assert doubled.level == 2 * curve.level
