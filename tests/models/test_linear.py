"""What linear models share: sums of moments, against slow twins."""

import numpy as np
import pytest
import reference
from em_runs import OPERATORS, run, start
from posteriors import LINEAR, MISSING, collect_statistics, moments_of, packed_all
from problems import data_of, make_problem, seen

from evoem import em
from evoem.models.triangles import unpack


@pytest.mark.interpreted
@pytest.mark.parametrize("missing", MISSING)
@pytest.mark.parametrize("name", LINEAR)
def test_linear_statistics_are_sums_of_exact_moments(name, missing):
    problem = make_problem(name, missing=missing, seed=7)
    dense, kept = packed_all(problem)
    kept = kept[:, 3:12]  # a truncated posterior, not the exact one
    stats = collect_statistics(problem, kept)
    sums = problem.model.linear_part(stats)
    H, D = problem.params.components.shape
    W = problem.params.components
    activation, first, second = np.zeros(H), np.zeros(H), np.zeros((H, H))
    cross, square = np.zeros((H, D)), 0.0
    for x, mask in zip(problem.X, seen(problem), strict=True):
        a, m1, m2 = reference.row_moments(
            problem.log_joint, moments_of(name), problem.params, x, mask, dense[3:12]
        )
        activation, first, second = activation + a, first + m1, second + m2
        for d in range(D):  # a missing y_d has ⟨y_d cᵀ⟩ = W_d ⟨c cᵀ⟩
            cross[:, d] += m1 * x[d] if mask[d] else m2 @ W[:, d]
            square += x[d] ** 2 if mask[d] else W[:, d] @ m2 @ W[:, d]
    np.testing.assert_allclose(sums.activation, activation, rtol=1e-9)
    np.testing.assert_allclose(sums.first, first, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(unpack(sums.second), np.tril(second), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(sums.cross, cross, rtol=1e-9, atol=1e-12)
    assert float(sums.data_square) == pytest.approx(square, rel=1e-9)
    assert float(sums.n_observed) == seen(problem).sum()
    assert float(sums.n_rows) == len(problem.X)


def test_printed_updates_fill_missing_values_by_their_estimate():
    problem = make_problem("binary", missing=0.4, seed=12, updates="printed")
    dense, kept = packed_all(problem)
    H, D = problem.params.components.shape
    cross, square = np.zeros((H, D)), 0.0
    for x, mask in zip(problem.X, seen(problem), strict=True):
        _, m1, _ = reference.row_moments(
            problem.log_joint, reference.binary_moments, problem.params, x, mask, dense
        )
        filled = np.where(mask, x, m1 @ problem.params.components)
        cross += np.outer(m1, filled)
        square += filled @ filled
    stats = collect_statistics(problem, kept)
    np.testing.assert_allclose(stats.cross, cross, rtol=1e-9, atol=1e-12)
    assert float(stats.data_square) == pytest.approx(square, rel=1e-9)


@pytest.mark.parametrize("name", ["binary", "spike_slab_fixed"])
def test_printed_noise_is_an_average_over_what_was_observed(name):
    """Of a run that has come to rest, so that the old W is the new one."""
    problem = make_problem(name, H=3, N=60, missing=0.2, seed=12, updates="printed")
    state = start(problem, n_states=8)
    state, _ = run(problem, state, iterations=400)
    dense, total = reference.all_states(3), 0.0
    for x, mask in zip(problem.X, problem.observed, strict=True):
        mean, variance = reference.linear_reconstruction(
            problem.log_joint, moments_of(name), state.params, x, mask, dense
        )
        if name == "binary":
            total += ((x - mean) ** 2 + variance)[mask].sum()
        else:  # the printed way takes squares of means
            total += (x**2 - mean**2)[mask].sum()
    expected = total / problem.observed.sum()
    assert float(state.params.noise_variance) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("name", ["binary", "spike_slab_fixed"])
@pytest.mark.parametrize("missing", [0.0, 0.4])
def test_noise_of_the_authors_programs(name, missing):
    """σ² of the old W: missing values count, observed ones add the old σ² too."""
    problem = make_problem(name, missing=missing, seed=12, updates="authors")
    dense, kept = packed_all(problem)
    total, n_observed = 0.0, seen(problem).sum()
    for x, mask in zip(problem.X, seen(problem), strict=True):
        mean, variance = reference.linear_reconstruction(
            problem.log_joint, moments_of(name), problem.params, x, mask, dense
        )
        squares = (x - mean) ** 2 + variance if name == "binary" else x**2 - mean**2
        total += squares[mask].sum()
    new = problem.model.update(problem.params, collect_statistics(problem, kept))
    if missing:
        total += n_observed * float(problem.params.noise_variance)
    elif name != "binary":  # of spike-and-slab coding with the new W, as printed
        printed = make_problem(name, missing=missing, seed=12, updates="printed")
        same = printed.model.update(printed.params, collect_statistics(printed, kept))
        assert float(new.noise_variance) == float(same.noise_variance)
        return
    assert float(new.noise_variance) == pytest.approx(total / problem.X.size, rel=1e-9)


@pytest.mark.parametrize("name", ["binary", "spike_slab_diagonal"])
def test_the_m_step_is_the_maximiser_of_the_expected_log_joint(name):
    """Q(Θ) by the slow twin falls in every direction from the updated parameters."""
    problem = make_problem(name, N=40, seed=24)
    dense = reference.all_states(4)
    mask = np.ones(problem.X.shape[1], bool)
    old = problem.params
    # Not `em.step`: Q is written for the amplitudes as they were, not for those of the scale
    # convention.
    model, data, state = problem.model, data_of(problem), start(problem, n_states=16)
    new = em.m_step(model, data, *em.e_step(model, data, state, OPERATORS[0]))[0].params
    slab = name != "binary"
    moments = reference.spike_slab_moments if slab else reference.binary_moments
    rows = []
    for x in problem.X:
        weights, _ = reference.posterior(problem.log_joint, old, x, mask, dense)
        rows.append((x, weights, [moments(old, x, mask, s) for s in dense]))

    def Q(params):
        W, noise, pi = params.components, params.noise_variance, params.activation_probs
        total = 0.0
        for x, weights, given_s in rows:
            for weight, s, (m1, m2) in zip(weights, dense, given_s, strict=True):
                square = x @ x - 2 * m1 @ W @ x + np.trace(W.T @ m2 @ W)
                value = -0.5 * len(x) * np.log(noise) - 0.5 * square / noise
                value += np.log(np.where(s, pi, 1 - pi)).sum()
                if slab:
                    mu, psi = params.slab_means, params.slab_covariance
                    spread = np.diag(m2) - 2 * mu * m1 + mu**2
                    value -= 0.5 * (s * (np.log(psi) + spread / psi)).sum()
                total += weight * value
        return total

    best = Q(new)
    rng = np.random.default_rng(0)
    for field in new._fields:
        value = getattr(new, field)
        for _ in range(8):
            direction = rng.normal(size=value.shape)
            if not slab and field == "activation_probs":
                direction = np.full(value.shape, direction[0])  # one π for all
            for size in (1e-3, -1e-3):
                moved = new._replace(**{field: value * (1 + size * direction)})
                assert Q(moved) <= best + 1e-9
