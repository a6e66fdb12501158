"""M-steps of the slab, and the convention of its scale."""

import numpy as np
import pytest
import reference
from posteriors import collect_statistics, packed_all
from problems import make_problem, random_covariance

from evoem.models.base import log_joint
from evoem.models.spike_slab.update import positive_definite, unit_second_moments


def test_the_scale_convention_changes_nothing_but_the_scale():
    for name in ("spike_slab_diagonal", "spike_slab_full"):
        problem = make_problem(name, missing=0.3, seed=18)
        scaled = unit_second_moments(problem.params)
        second = np.diag(reference.full_covariance(scaled)) + scaled.slab_means**2
        np.testing.assert_allclose(second, 1.0, rtol=1e-12)
        for s in reference.all_states(4):
            args = problem.X[1], problem.observed[1], s
            expected = log_joint(problem.model, problem.params, *args)
            assert log_joint(problem.model, scaled, *args) == pytest.approx(expected, rel=1e-10)


def test_low_eigenvalues_are_raised_to_the_floor_and_the_others_kept():
    rng = np.random.default_rng(0)
    units = rng.uniform(0.5, 2.0, 6)
    matrix = random_covariance(6, rng) - 2.0 * np.eye(6)
    values, vectors = np.linalg.eigh(matrix / np.outer(units, units))
    assert values[0] < 0 < values[-1]
    wanted = (vectors * np.maximum(values, 0.1)) @ vectors.T * np.outer(units, units)
    np.testing.assert_allclose(positive_definite(matrix, units, 0.1), wanted, atol=1e-5)
    good = random_covariance(6, rng)
    np.testing.assert_array_equal(positive_definite(good, np.ones(6), 1e-5), 0.5 * (good + good.T))


def test_spike_slab_printed_updates_are_appendix_d():
    for name in ("spike_slab_diagonal", "spike_slab_full"):
        problem = make_problem(name, N=200, seed=11, updates="printed")
        dense, kept = packed_all(problem)
        params, N, D = problem.params, *problem.X.shape
        total = [0.0] * 6
        for x in problem.X:
            mask = np.ones(D, bool)
            weights, _ = reference.posterior(problem.log_joint, params, x, mask, dense)
            a, m1, m2 = reference.row_moments(
                problem.log_joint, reference.spike_slab_moments, params, x, mask, dense
            )
            ss = np.einsum("m,mg,mh->gh", weights, dense, dense)
            terms = a, m1, m2, ss, np.outer(m1, x), np.outer(m1, m1)
            total = [t + term for t, term in zip(total, terms, strict=True)]
        a, m1, m2, ss, cross, outer = total
        W = np.linalg.solve(m2, cross)
        noise = ((problem.X**2).sum() - np.trace(W.T @ outer @ W)) / (N * D)
        mu = m1 / a
        psi = m2 / ss - np.outer(mu, mu)
        if name == "spike_slab_diagonal":
            psi = np.diag(np.diag(psi))
        units = np.sqrt(np.diag(psi) + mu**2)
        units = np.outer(units, units)
        values, vectors = np.linalg.eigh(psi / units)  # the ratio can leave the cone
        psi = (vectors * np.maximum(values, 1e-4)) @ vectors.T * units
        scale = np.sqrt(np.diag(psi) + mu**2)
        new = problem.model.update(params, collect_statistics(problem, kept))
        new = problem.model.canonical(new)
        assert float(new.noise_variance) == pytest.approx(noise, rel=1e-7)
        np.testing.assert_allclose(new.slab_means, mu / scale, rtol=1e-7)
        np.testing.assert_allclose(new.components, W * scale[:, None], rtol=1e-6)
        expected = psi / np.outer(scale, scale)
        np.testing.assert_allclose(reference.full_covariance(new), expected, atol=1e-7)


def test_spike_slab_updates_of_the_authors_programs():
    """Ψ by the matrix inverse of Σ⟨s sᵀ⟩, with ⟨s⟩⟨s⊙z⟩ᵀ of each row in the middle."""
    problem = make_problem("spike_slab_full", N=200, seed=11, updates="authors")
    dense, kept = packed_all(problem)
    params, mask = problem.params, np.ones(problem.X.shape[1], bool)
    total = [0.0] * 4
    for x in problem.X:
        weights, _ = reference.posterior(problem.log_joint, params, x, mask, dense)
        a, m1, m2 = reference.row_moments(
            problem.log_joint, reference.spike_slab_moments, params, x, mask, dense
        )
        ss = np.einsum("m,mg,mh->gh", weights, dense, dense)
        terms = np.array([a, m1]), m2, ss, np.outer(a, m1)
        total = [t + term for t, term in zip(total, terms, strict=True)]
    (a, m1), m2, ss, joint = total
    mu = m1 / a
    middle = mu[:, None] * joint
    psi = (m2 + np.outer(mu, mu) * ss - middle - middle.T) * np.linalg.inv(
        ss + 1e-5 * np.eye(len(a))
    )
    assert np.linalg.eigvalsh(psi)[0] > 0  # nothing to mend
    scale = np.sqrt(np.diag(psi) + mu**2)
    new = problem.model.canonical(problem.model.update(params, collect_statistics(problem, kept)))
    np.testing.assert_allclose(new.slab_covariance, psi / np.outer(scale, scale), atol=1e-9)
    np.testing.assert_allclose(new.slab_means, mu / scale, rtol=1e-9)
    assert new.activation_probs.min() >= 5e-5
