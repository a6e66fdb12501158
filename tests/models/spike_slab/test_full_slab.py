"""The full slab covariance: its gradients, and updates that do not lower the bound."""

import numpy as np
import pytest
import reference
from em_runs import assert_same, bounds, run, start
from posteriors import collect_statistics, packed_all
from problems import make_problem, seen


def in_any_case(problem, candidate):
    """The problem with a model whose M-step is one of those of a full slab."""

    class Decided(type(problem.model)):
        def update(self, params, stats):
            return self._update(params, stats, cautious=candidate == "cautious")

    return problem._replace(model=Decided(slab="full"))


def test_a_candidate_that_would_lower_the_bound_is_refused():
    problem = make_problem("spike_slab_full", N=60, seed=34)

    class Reckless(type(problem.model)):
        def update(self, params, stats):
            yield params._replace(slab_covariance=100.0 * params.slab_covariance)
            yield params._replace(noise_variance=100.0 * params.noise_variance)
            return self._update(params, stats, cautious=True)

    reckless = problem._replace(model=Reckless(slab="full"))
    state, infos = run(reckless, start(reckless), iterations=8)
    assert np.diff(bounds(infos)).min() > 0
    assert min(info.states_evaluated for info in infos) > 60 * 6 * 3  # kept, and two candidates
    careful = in_any_case(problem, "cautious")
    expected, _ = run(careful, start(careful), iterations=8)
    assert_same(state.params, expected.params)


def test_the_fast_full_slab_update_is_mostly_accepted_and_beats_the_cautious_one():
    problem = make_problem("spike_slab_full", N=300, seed=35)
    slow = in_any_case(problem, "cautious")
    _, fast_infos = run(problem, start(problem, n_states=16), iterations=15)
    _, slow_infos = run(slow, start(slow, n_states=16), iterations=15)
    assert bounds(fast_infos)[-1] > bounds(slow_infos)[-1]


def test_the_cautious_full_slab_update_never_lowers_the_bound():
    """Also where Ψ nears the edge of the positive definite matrices and scales differ widely."""
    for seed in range(6):
        problem = make_problem("spike_slab_full", H=6, D=8, N=10, seed=seed)

        scales = 10.0 ** np.arange(-3, 3)
        params = problem.params._replace(
            slab_means=problem.params.slab_means * scales,
            slab_covariance=problem.params.slab_covariance * np.outer(scales, scales),
        )
        slow = in_any_case(problem, "cautious")._replace(params=params)
        _, infos = run(slow, start(slow, n_states=20), iterations=15)
        assert np.diff(bounds(infos)).min() > -1e-8 * np.abs(bounds(infos)).max()


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
