"""Clipping is told by values that pile up, and its effect on noise is that on samples."""

import numpy as np
import pytest

from evoem.images.noise_clipping import (
    clipped_law,
    clipping_levels,
    of_photons,
    on_levels,
    rounding_step,
)

rng = np.random.default_rng(0)


@pytest.mark.parametrize("offset", [0.0, -3.3])
@pytest.mark.parametrize("step", [1.0, 0.25, 257.0, 1e-3])
def test_the_distance_of_levels_is_found_though_not_all_are_taken(step, offset):
    values = offset + step * rng.choice([0, 1, 2, 5, 9, 20], 1000)
    assert rounding_step(values) == pytest.approx(step, rel=1e-6)


@pytest.mark.parametrize(
    "values",
    [
        np.full(100, 7.0),
        rng.standard_normal(1000),
        rng.choice([0.0, 1.0, 2.5, np.pi], 1000),  # levels, but no multiples of one step
    ],
)
def test_values_that_were_not_rounded_have_no_step(values):
    assert rounding_step(values) == 0


def test_levels_are_the_same_to_the_last_bit_in_other_units():
    levels = np.random.default_rng(1).integers(0, 200, 4000)
    levels[:2] = 0, 199
    units = np.float64(np.float32(0.004 * levels - 3.0))
    values = (units - units.min()) / np.ptp(units)
    assert (values != levels / 199).any()
    np.testing.assert_array_equal(on_levels(values, rounding_step(values)), levels / 199)


def test_values_that_lie_on_no_levels_stay_as_they_are():
    values = np.random.default_rng(2).random(100)
    np.testing.assert_array_equal(on_levels(values, 0.0), values)
    np.testing.assert_array_equal(on_levels(values, 0.1), values)


def test_levels_as_far_apart_as_the_gain_are_photons():
    assert of_photons(0.1, 0.11)
    assert not of_photons(0.1, 0.05)
    assert not of_photons(1 / 255, 1 / 255)  # so may those of eight bits be


@pytest.mark.parametrize("step", [0.0, 1.0])
@pytest.mark.parametrize(("low", "high"), [(None, None), (0, None), (None, 100), (0, 100)])
def test_ends_are_clipping_levels_where_values_pile_up(step, low, high):
    values = np.linspace(-1, 101, 40_000) + 5 * rng.standard_normal(40_000)
    values = np.clip(values, low, high)
    if step:
        values = np.round(values / step) * step
    assert clipping_levels(values, 5.0, step, gain=0.0) == (low, high)


def test_many_places_without_a_photon_are_not_clipped():
    values = 0.1 * rng.poisson(0.3, 20_000)
    assert clipping_levels(values, 0.2, 0.1, gain=0.1) == (None, None)
    nothing_beside = np.where(rng.random(20_000) < 0.5, 0.0, rng.uniform(50, 100, 20_000))
    assert clipping_levels(nothing_beside, 1.0, 0.0, gain=0.0)[0] is None


@pytest.mark.parametrize("levels", [(0.0, 20.0), (0.0, None), (None, 20.0)])
def test_moments_of_clipped_values_are_those_of_samples(levels):
    before, after, variance, left = clipped_law(1.0, 4.0, 1e-6, levels, (0.0, 20.0))
    for mean in (0.5, 8.0, 19.0):
        at = np.abs(before - mean).argmin()
        values = before[at] + np.sqrt(variance[at]) * rng.standard_normal(400_000)
        values = values.clip(*levels)
        assert variance[at] == pytest.approx(before[at] + 4)
        assert after[at] == pytest.approx(values.mean(), abs=0.02)
        assert left[at] == pytest.approx(values.var(), rel=0.02)


def test_moments_of_few_photons_are_those_of_samples():
    gain, offset, levels = 2.0, 3.0, (3.0, 12.0)
    law = clipped_law(gain, -gain * offset, 1e-6, levels, (3.0, 12.0))
    for photons in (0.3, 1.5, 4.0):
        at = np.abs(law[0] - (offset + gain * photons)).argmin()
        before, after, variance, left = (column[at] for column in law)
        values = offset + gain * rng.poisson((before - offset) / gain, 400_000)
        assert variance == pytest.approx(gain * (before - offset))
        values = values.clip(*levels)
        assert after == pytest.approx(values.mean(), abs=0.03)
        assert left == pytest.approx(values.var(), rel=0.02)


def test_without_levels_nothing_is_lost():
    before, after, variance, left = clipped_law(0.5, 100.0, 1.0, (None, None), (0.0, 50.0))
    np.testing.assert_array_equal(before, after)
    np.testing.assert_array_equal(variance, left)
