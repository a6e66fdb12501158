"""Every model function against its slow twin, with and without missing values."""

import re

import numpy as np
import pytest
import reference
from problems import MODELS, make_problem, seen

from evoem import em, models, states
from evoem.evolution import Genomes
from evoem.models import Model, base
from evoem.models.base import Posterior, flip_gains, log_joint
from evoem.models.triangles import unpack

MISSING = (0.0, 0.4)
LINEAR = ["binary", "spike_slab_diagonal", "spike_slab_full", "spike_slab_fixed"]


def moments_of(name):
    if name.startswith("subspace"):
        return reference.subspace_moments
    return reference.binary_moments if name == "binary" else reference.spike_slab_moments


def packed_all(problem):
    H = len(problem.params.activation_probs)
    dense = reference.all_states(H)
    return dense, np.broadcast_to(states.pack(dense), (len(problem.X), *states.pack(dense).shape))


def posterior_over(problem, kept):
    """Derived quantities, rows, and the posterior over packed states, as EM makes them."""
    model, params = problem.model, problem.params
    derived = model.prepare(params, np.float64)
    rows = model.prepare_rows(derived, problem.X, problem.observed)
    log_joints = em.posterior.evaluate(model, derived, rows, np.ascontiguousarray(kept))
    weights, _ = em.posterior.weigh(log_joints)
    return derived, rows, Posterior(np.ascontiguousarray(kept), weights)


def collect_statistics(problem, kept):
    stats = problem.model.empty_statistics(problem.params)
    derived, rows, posterior = posterior_over(problem, kept)
    problem.model.accumulate(stats, problem.params, derived, rows, posterior)
    return stats


@pytest.mark.interpreted
@pytest.mark.parametrize("missing", MISSING)
@pytest.mark.parametrize("name", MODELS)
def test_log_joints_are_those_of_the_textbook(name, missing):
    problem = make_problem(name, missing=missing, seed=1)
    dense, kept = packed_all(problem)
    derived = problem.model.prepare(problem.params, np.float64)
    rows = problem.model.prepare_rows(derived, problem.X, problem.observed)
    fast = em.posterior.evaluate(problem.model, derived, rows, np.ascontiguousarray(kept))
    slow = [
        [problem.log_joint(problem.params, x, mask, s) for s in dense]
        for x, mask in zip(problem.X, seen(problem), strict=True)
    ]
    np.testing.assert_allclose(fast, slow, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", MODELS)
def test_log_joints_with_many_active_latents_over_several_words(name):
    problem = make_problem(name, H=130, D=5, N=3, seed=2)
    rng = np.random.default_rng(0)
    dense = rng.random((3, 4, 130)) < np.array([0.01, 0.2, 0.5, 1.0])[:, None]
    derived = problem.model.prepare(problem.params, np.float64)
    rows = problem.model.prepare_rows(derived, problem.X, None)
    fast = em.posterior.evaluate(problem.model, derived, rows, states.pack(dense))
    slow = [
        [problem.log_joint(problem.params, x, np.ones(5, bool), s) for s in kept]
        for x, kept in zip(problem.X, dense, strict=True)
    ]
    np.testing.assert_allclose(fast, slow, rtol=1e-9)


@pytest.mark.parametrize("name", MODELS)
def test_the_log_joint_of_one_state_is_that_of_the_block(name):
    problem = make_problem(name, missing=0.4, seed=3)
    s = np.array([True, False, True, False])
    fast = log_joint(problem.model, problem.params, problem.X[1], problem.observed[1], s)
    slow = problem.log_joint(problem.params, problem.X[1], problem.observed[1], s)
    assert fast == pytest.approx(slow, rel=1e-12)


@pytest.mark.interpreted
@pytest.mark.parametrize("name", MODELS)
def test_single_precision_agrees_with_double(name):
    problem = make_problem(name, missing=0.3, seed=4)
    kept = np.ascontiguousarray(packed_all(problem)[1])
    values = []
    for dtype in (np.float32, np.float64):
        derived = problem.model.prepare(problem.params, dtype)
        rows = problem.model.prepare_rows(derived, problem.X.astype(dtype), problem.observed)
        values.append(em.posterior.evaluate(problem.model, derived, rows, kept))
    np.testing.assert_allclose(values[0], values[1], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("missing", MISSING)
@pytest.mark.parametrize("name", MODELS)
def test_log_constants_leave_the_paper_s_pseudo_joint(name, missing):
    """app:lpj: log-joint = log-pseudo-joint + C(Θ), each written out."""
    problem = make_problem(name, missing=missing, seed=5)
    params, s = problem.params, np.array([True, True, False, True])
    pi = params.activation_probs
    derived = problem.model.prepare(params, np.float64)
    rows = problem.model.prepare_rows(derived, problem.X, problem.observed)
    constants = problem.model.log_constants(derived, rows)
    for x, mask, constant in zip(problem.X, seen(problem), constants, strict=True):
        pseudo = problem.log_joint(params, x, mask, s) - constant
        expected = (s * np.log(pi / (1 - pi))).sum()
        if name == "noisy_or":
            N = 1 - np.prod(1 - params.components[s], axis=0)
            expected += np.where(x == 1, np.log(N), np.log(1 - N))[mask].sum()
        elif name == "binary":
            expected -= ((x - s @ params.components)[mask] ** 2).sum() / 2 / params.noise_variance
        else:
            on = reference.active_patterns(params, s) if name.startswith("subspace") else s
            W = (on[:, None] * params.components)[:, mask].T
            C = params.noise_variance * np.eye(len(W))
            C += W @ reference.full_covariance(params) @ W.T
            r = x[mask] - W @ params.slab_means
            expected -= 0.5 * np.linalg.slogdet(C)[1] + 0.5 * r @ np.linalg.solve(C, r)
            if name.startswith("subspace"):  # log σ² is in C(Θ), as in binary sparse coding
                expected += 0.5 * mask.sum() * np.log(params.noise_variance)
        assert pseudo == pytest.approx(expected, rel=1e-9, abs=1e-9)


@pytest.mark.interpreted
@pytest.mark.parametrize("name", MODELS)
def test_flip_gains_are_differences_of_log_joints(name):
    problem = make_problem(name, missing=0.3, seed=6)
    derived = problem.model.prepare(problem.params, np.float64)
    rows = problem.model.prepare_rows(derived, problem.X, problem.observed)
    dense = np.array([[True, False, False, True], [False, True, True, True]])
    genomes = Genomes(
        np.broadcast_to(states.pack(dense), (len(problem.X), 2, 1)).copy(),
        np.full(len(problem.X), 2),
    )
    gains = flip_gains(problem.model, derived, rows, genomes)
    for n, (x, mask) in enumerate(zip(problem.X, seen(problem), strict=True)):
        for m, s in enumerate(dense):
            before = problem.log_joint(problem.params, x, mask, s)
            for h in range(4):
                flipped = s.copy()
                flipped[h] = not s[h]
                after = problem.log_joint(problem.params, x, mask, flipped)
                assert gains[n, m, h] == pytest.approx(after - before, rel=1e-8, abs=1e-8)


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
        for d in range(D):  # README point 8: a missing y_d has ⟨y_d cᵀ⟩ = W_d ⟨c cᵀ⟩
            cross[:, d] += m1 * x[d] if mask[d] else m2 @ W[:, d]
            square += x[d] ** 2 if mask[d] else W[:, d] @ m2 @ W[:, d]
    np.testing.assert_allclose(sums.activation, activation, rtol=1e-9)
    np.testing.assert_allclose(sums.first, first, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(unpack(sums.second), np.tril(second), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(sums.cross, cross, rtol=1e-9, atol=1e-12)
    assert float(sums.data_square) == pytest.approx(square, rel=1e-9)
    assert float(sums.n_observed) == seen(problem).sum()
    assert float(sums.n_rows) == len(problem.X)


def test_full_slab_statistics_are_the_gradients_of_the_expected_log_prior():
    """Σ⟨log N(z_s; μ_s, Ψ_ss)⟩ by finite differences in Ψ and μ."""
    problem = make_problem("spike_slab_full", missing=0.3, seed=8)
    dense, kept = packed_all(problem)
    stats = collect_statistics(problem, kept)
    params = problem.params

    def expected_log_prior(psi, mu):
        total = 0.0
        for x, mask in zip(problem.X, seen(problem), strict=True):
            weights, _ = reference.posterior(problem.log_joint, params, x, mask, dense)
            for weight, s in zip(weights, dense, strict=True):
                on = np.flatnonzero(s)
                if len(on) == 0:
                    continue
                m1, m2 = reference.spike_slab_moments(params, x, mask, s)
                m1, m2 = m1[on], m2[np.ix_(on, on)]
                T = m2 - np.outer(m1, mu[on]) - np.outer(mu[on], m1) + np.outer(mu[on], mu[on])
                block = psi[np.ix_(on, on)]
                value = np.linalg.slogdet(block)[1] + np.trace(np.linalg.solve(block, T))
                total -= 0.5 * weight * value
        return total

    psi, mu, step = params.slab_covariance, params.slab_means, 1e-5
    for g in range(4):
        shift = step * np.eye(4)[g]
        slope = expected_log_prior(psi, mu + shift) - expected_log_prior(psi, mu - shift)
        assert stats.pull[g] == pytest.approx(slope / (2 * step), rel=1e-5, abs=1e-6)
        for h in range(g + 1):
            change = np.zeros((4, 4))
            change[g, h] = change[h, g] = step
            slope = expected_log_prior(psi + change, mu) - expected_log_prior(psi - change, mu)
            # d/dΨ of the bound is half the curvature; both (g, h) and (h, g) were moved.
            factor = 0.5 if g == h else 1.0
            expected = slope / (2 * step) / factor
            assert stats.curvature[g, h] == pytest.approx(expected, rel=1e-4, abs=1e-5)
            # In μ the bound is a parabola, so that any two steps give its second derivative.
            one, other = np.eye(4)[g], np.eye(4)[h]
            bend = sum(
                i * j * expected_log_prior(psi, mu + i * one + j * other)
                for i in (-1, 1)
                for j in (-1, 1)
            )
            assert stats.information[g, h] == pytest.approx(-bend / 4, rel=1e-5, abs=1e-6)


@pytest.mark.interpreted
@pytest.mark.parametrize("missing", MISSING)
def test_noisy_or_statistics_are_expected_attempts(missing):
    problem = make_problem("noisy_or", missing=missing, seed=9)
    dense, kept = packed_all(problem)
    stats = collect_statistics(problem, kept)
    H, D = problem.params.components.shape
    activation, chances, causes = np.zeros(H), np.zeros((H, D)), np.zeros((H, D))
    for x, mask in zip(problem.X, seen(problem), strict=True):
        weights, _ = reference.posterior(problem.log_joint, problem.params, x, mask, dense)
        for weight, s in zip(weights, dense, strict=True):
            N = 1 - np.prod(1 - problem.params.components[s], axis=0)
            for h in np.flatnonzero(s):
                activation[h] += weight
                chances[h] += weight * mask
                causes[h] += weight * mask * x / N
    np.testing.assert_allclose(stats.activation, activation, rtol=1e-9)
    np.testing.assert_allclose(stats.chances, chances, rtol=1e-9)
    np.testing.assert_allclose(stats.causes, causes, rtol=1e-9)


def test_noisy_or_printed_update_is_appendix_d():
    problem = make_problem("noisy_or", seed=10, updates="printed")
    dense, kept = packed_all(problem)
    W = problem.params.components
    numerator, denominator = np.zeros(W.shape), np.zeros(W.shape)
    for x in problem.X:
        weights, _ = reference.posterior(
            problem.log_joint, problem.params, x, np.ones(len(x), bool), dense
        )
        for weight, s in zip(weights, dense, strict=True):
            N = 1 - np.prod(1 - W[s], axis=0)
            for h in np.flatnonzero(s):
                others = s.copy()
                others[h] = False
                tilde = np.prod(1 - W[others], axis=0)
                D_dh = tilde / (N * (1 - N))
                numerator[h] += (x - 1) * weight * D_dh
                denominator[h] += weight * tilde * D_dh
    new = problem.model.update(problem.params, collect_statistics(problem, kept))
    expected = np.clip(1 + numerator / denominator, 1e-6, 1 - 1e-6)
    np.testing.assert_allclose(new.components, expected, rtol=1e-9)


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


@pytest.mark.interpreted
@pytest.mark.parametrize("missing", MISSING)
@pytest.mark.parametrize("name", MODELS)
def test_reconstruction_is_the_posterior_predictive_mean_and_variance(name, missing):
    problem = make_problem(name, missing=missing, seed=13)
    dense, kept = packed_all(problem)
    derived, rows, posterior = posterior_over(problem, kept)
    mean, variance = problem.model.reconstruct(problem.params, derived, rows, posterior)
    for n, (x, mask) in enumerate(zip(problem.X, seen(problem), strict=True)):
        if name == "noisy_or":
            expected = reference.noisy_or_reconstruction(problem.params, x, mask, dense)
        else:
            expected = reference.linear_reconstruction(
                problem.log_joint, moments_of(name), problem.params, x, mask, dense
            )
        np.testing.assert_allclose(mean[n], expected[0], rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(variance[n], expected[1], rtol=1e-6, atol=1e-9)


@pytest.mark.interpreted
@pytest.mark.parametrize("missing", MISSING)
@pytest.mark.parametrize("name", MODELS)
def test_codes_are_the_posterior_mean_of_the_latents(name, missing):
    problem = make_problem(name, missing=missing, seed=14)
    dense, kept = packed_all(problem)
    derived, rows, posterior = posterior_over(problem, kept)
    codes = problem.model.codes(problem.params, derived, rows, posterior)
    for n, (x, mask) in enumerate(zip(problem.X, seen(problem), strict=True)):
        if name not in LINEAR:  # latents without one amount each
            weights, _ = reference.posterior(problem.log_joint, problem.params, x, mask, dense)
            expected = weights @ dense
        else:
            _, expected, _ = reference.row_moments(
                problem.log_joint, moments_of(name), problem.params, x, mask, dense
            )
        np.testing.assert_allclose(codes[n], expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("name", MODELS)
def test_samples_have_the_moments_of_the_prior(name):
    problem = make_problem(name, seed=15)
    rng = np.random.default_rng(0)
    X, drawn = problem.model.sample(problem.params, 100_000, rng)
    prior = problem.model.prior(problem.params)
    deviation = 5 * X.std(0) / np.sqrt(len(X))
    assert (np.abs(X.mean(0) - prior.mean) < deviation).all()
    assert (np.abs(drawn.mean(0) - problem.params.activation_probs) < 0.01).all()
    if name == "noisy_or":
        total = prior.mean * (1 - prior.mean)
    else:
        total = prior.variance + problem.params.noise_variance
    np.testing.assert_allclose(X.var(0), total, rtol=0.05)


def test_spike_slab_with_vanishing_slab_variance_is_binary_sparse_coding():
    problem = make_problem("binary", missing=0.3, seed=16)
    slab = make_problem("spike_slab_diagonal", seed=16).model
    H = len(problem.params.activation_probs)
    for variance, tolerance in ((1e-4, 1e-2), (1e-8, 1e-6)):
        params = make_problem("spike_slab_diagonal", seed=16).params._replace(
            components=problem.params.components,
            activation_probs=problem.params.activation_probs,
            noise_variance=problem.params.noise_variance,
            slab_means=np.ones(H),
            slab_covariance=np.full(H, variance),
        )
        for s in reference.all_states(H):
            args = problem.X[1], problem.observed[1], s
            limit = log_joint(problem.model, problem.params, *args)
            assert log_joint(slab, params, *args) == pytest.approx(limit, rel=tolerance)


def test_a_diagonal_matrix_gives_the_full_slab_what_its_diagonal_gives():
    problem = make_problem("spike_slab_diagonal", missing=0.3, seed=17)
    full = make_problem("spike_slab_full", seed=17).model
    matrix = problem.params._replace(slab_covariance=np.diag(problem.params.slab_covariance))
    for s in reference.all_states(4):
        args = problem.X[1], problem.observed[1], s
        expected = log_joint(problem.model, problem.params, *args)
        assert log_joint(full, matrix, *args) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: models.SpikeSlabModel(slab="foo"),
            "slab must be one of 'diagonal', 'full', 'fixed'",
        ),
        (
            lambda: models.SpikeSlabModel(updates="foo"),
            "updates must be one of 'monotone', 'printed'",
        ),
        (lambda: models.BinarySparseCodingModel(init="foo"), "init must be one of 'mean', 'data'"),
        (lambda: models.NoisyOrModel(init="foo"), "init must be one of 'random', 'data'"),
    ],
)
def test_a_model_with_an_option_it_does_not_know_is_refused(make, message):
    with pytest.raises(ValueError, match=f"^{message}; got 'foo'.$"):
        make()


def test_the_table_of_the_contract_lists_every_member():
    listed = re.findall(r"^\| (?:or )?`(\w+)\(", base.__doc__, re.M)
    members = [name for name in vars(Model) if not name.startswith("_")]
    assert sorted(listed) == sorted(members)
    assert len(listed) <= 17


@pytest.mark.parametrize("name", MODELS)
def test_what_is_prepared_says_how_many_latents_there_are_and_are_expected_active(name):
    problem = make_problem(name, H=5, seed=6)
    derived = problem.model.prepare(problem.params, np.float64)
    assert derived.n_latents == 5
    assert derived.expected_active == pytest.approx(problem.params.activation_probs.sum())
