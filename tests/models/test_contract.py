"""Every model function against its slow twin, with and without missing values."""

import numpy as np
import pytest
import reference
from posteriors import LINEAR, MISSING, moments_of, packed_all, posterior_over
from problems import MODELS, make_problem, seen

from evoem import models, states
from evoem import posterior as truncated
from evoem.models.subspace.by_feature import SubspacesByFeature


@pytest.mark.interpreted
@pytest.mark.parametrize("missing", MISSING)
@pytest.mark.parametrize("name", MODELS)
def test_log_joints_are_those_of_the_textbook(name, missing):
    problem = make_problem(name, missing=missing, seed=1)
    dense, kept = packed_all(problem)
    derived = problem.model.prepare(problem.params, np.float64)
    rows = problem.model.prepare_rows(derived, problem.X, problem.observed)
    fast = truncated.evaluate(problem.model, derived, rows, np.ascontiguousarray(kept))
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
    fast = truncated.evaluate(problem.model, derived, rows, states.pack(dense))
    slow = [
        [problem.log_joint(problem.params, x, np.ones(5, bool), s) for s in kept]
        for x, kept in zip(problem.X, dense, strict=True)
    ]
    np.testing.assert_allclose(fast, slow, rtol=1e-9)


@pytest.mark.interpreted
@pytest.mark.parametrize("name", MODELS)
def test_single_precision_agrees_with_double(name):
    problem = make_problem(name, missing=0.3, seed=4)
    kept = np.ascontiguousarray(packed_all(problem)[1])
    values = []
    for dtype in (np.float32, np.float64):
        derived = problem.model.prepare(problem.params, dtype)
        rows = problem.model.prepare_rows(derived, problem.X.astype(dtype), problem.observed)
        values.append(truncated.evaluate(problem.model, derived, rows, kept))
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


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: models.SpikeSlabModel(slab="foo"),
            "slab must be one of 'diagonal', 'full', 'fixed'",
        ),
        (
            lambda: models.SpikeSlabModel(updates="foo"),
            "updates must be one of 'monotone', 'printed', 'authors'",
        ),
        (lambda: models.BinarySparseCodingModel(init="foo"), "init must be one of 'mean', 'data'"),
        (lambda: models.NoisyOrModel(init="foo"), "init must be one of 'random', 'data'"),
    ],
)
def test_a_model_with_an_option_it_does_not_know_is_refused(make, message):
    with pytest.raises(ValueError, match=f"^{message}; got 'foo'.$"):
        make()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: models.SpikeSlabModel(learn_slab_means=1), "learn_slab_means must be True or F"),
        (lambda: models.SubspaceModel(rank=-1), "rank must be an integer at least 0; got -1."),
        (
            lambda: SubspacesByFeature(prior_rows=-1),
            "prior_rows must be a number at least 0; got -1.",
        ),
        (
            lambda: models.NoisyOrModel(min_activation_prob=0),
            "min_activation_prob must be a number between 1e-08 and 0.5; got 0.",
        ),
    ],
)
def test_a_model_with_an_option_out_of_range_is_refused(make, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        make()


@pytest.mark.parametrize("name", MODELS)
def test_what_is_prepared_says_how_many_latents_there_are_and_are_expected_active(name):
    problem = make_problem(name, H=5, seed=6)
    derived = problem.model.prepare(problem.params, np.float64)
    assert derived.n_latents == 5
    assert derived.expected_active == pytest.approx(problem.params.activation_probs.sum())
