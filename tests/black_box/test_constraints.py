"""Transforms between constrained parameters and free ones."""

import numpy as np
import pytest

from evoem.black_box.constraints import TRANSFORMS


@pytest.mark.parametrize("name", TRANSFORMS)
def test_gradients_of_constrained_parameters_are_slopes(name):
    transform = TRANSFORMS[name]
    free = np.random.default_rng(0).normal(scale=2, size=(3, 4))
    slopes = np.random.default_rng(1).normal(size=free.shape)

    def objective(free):
        return np.vdot(slopes, transform.constrained(free) ** 2)

    values = transform.constrained(free)
    found = transform.gradient(values, 2 * slopes * values)
    h = 1e-6
    for place in np.ndindex(free.shape):
        up, down = free.copy(), free.copy()
        up[place] += h
        down[place] -= h
        slope = (objective(up) - objective(down)) / (2 * h)
        assert found[place] == pytest.approx(slope, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("positive", [1e-9, 1.0, 1e9]),
        ("unit", [1e-8, 0.3, 1 - 1e-8]),
        ("simplex", [[0.2, 0.3, 0.5], [1e-8, 1e-8, 1 - 2e-8]]),
    ],
)
def test_constrained_values_come_back_from_free_ones(name, values):
    transform = TRANSFORMS[name]
    values = np.array(values)
    np.testing.assert_allclose(transform.constrained(transform.free(values)), values, rtol=1e-6)


@pytest.mark.parametrize("name", TRANSFORMS)
def test_free_values_of_any_size_stay_within_the_constraint(name):
    transform = TRANSFORMS[name]
    for scale in (1.0, 1e3, 1e8):
        values = transform.constrained(scale * np.array([[-3.0, 0.0, 1.0, 2.0]]))
        assert np.isfinite(values).all()
        assert transform.holds(values)
        assert np.isfinite(transform.free(values)).all()


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("positive", [0.0, 1.0]),
        ("unit", [-0.1, 0.5]),
        ("unit", [0.5, 1.1]),
        ("simplex", [0.5, 0.6]),
        ("simplex", [-0.5, 1.5]),
        ("simplex", 1.0),
    ],
)
def test_values_outside_of_a_constraint_are_noticed(name, values):
    assert not TRANSFORMS[name].holds(np.array(values))
