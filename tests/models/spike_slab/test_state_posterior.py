"""The slab of one state, integrated out, against dense linear algebra."""

import numpy as np
import pytest

from evoem.models.spike_slab import state_posterior
from evoem.models.triangles import pack
from evoem.runtime.compile import kernel

K, SIZES = 5, [1, 2, 3, 4, 5]


@kernel
def solve_and_expect(k, derived, tables, active, complete, spread, system):
    value = state_posterior.solve(k, None, derived, tables, active, complete, system)
    state_posterior.expect(k, None, spread, tables, active, system)
    return value


@kernel
def add_few(k, derived, active, system, weight, activation, first, second):
    """The moments of a state of one or two latents, and the value of its system."""
    value = state_posterior.value_of_few(k, derived, active, system)
    pair, amount = state_posterior.add_few(
        k, derived, active, system, weight, activation, first, second
    )
    second[pair] += amount
    return value


class Slab:
    """A slab of eight latents, of which some are active, in formulas of whole matrices."""

    def __init__(self, k, full, seed=0, dims=12, n_latents=8):
        rng = np.random.default_rng([k, full, seed])
        self.active = np.sort(rng.permutation(n_latents)[:k])
        A = rng.normal(size=(n_latents, n_latents))
        self.psi = (
            A @ A.T / 4 + 0.2 * np.eye(n_latents)
            if full
            else np.diag(rng.uniform(0.2, 3, n_latents))
        )
        self.mu, self.W = rng.normal(size=n_latents), rng.normal(size=(n_latents, dims))
        self.noise, self.y = 0.7, rng.normal(size=dims)
        self.spread = np.sqrt(np.diag(self.psi))
        self.V = self.W * self.spread[:, None] / np.sqrt(self.noise)
        self.full = full

    def model(self):
        """What `prepare` makes of it."""
        from evoem.models import SpikeSlabModel
        from evoem.models.spike_slab.model import SpikeSlabParams

        psi = self.psi if self.full else np.diag(self.psi).copy()
        params = SpikeSlabParams(self.W, np.full(8, 0.3), np.array(self.noise), self.mu, psi)
        return SpikeSlabModel(slab="full" if self.full else "diagonal").prepare(params, np.float64)

    def system(self, complete):
        """Before `solve`: V y / σ, and V Vᵀ unless the row is complete."""
        k, V = len(self.active), self.V[self.active]
        system = state_posterior.empty_system(k + 2)
        system.eta[:k] = V @ self.y / np.sqrt(self.noise)
        if not complete:
            system.local[: k * k] = (V @ V.T).reshape(-1)
        return system

    def slab(self):
        """Precision, pull and what they make of y: mean, covariance and the log-evidence."""
        s, W = self.active, self.W[self.active]
        prior = np.linalg.inv(self.psi[np.ix_(s, s)])
        covariance = np.linalg.inv(prior + W @ W.T / self.noise)
        mean = covariance @ (W @ self.y / self.noise + prior @ self.mu[s])
        return prior, mean, covariance

    def evidence(self):
        """log N(y; W μ, W Ψ Wᵀ + σ²) less log N(y; 0, σ²), for the active latents."""
        s, W = self.active, self.W[self.active]
        C = W.T @ self.psi[np.ix_(s, s)] @ W + self.noise * np.eye(len(self.y))
        left = self.y - self.mu[s] @ W
        square = self.y @ self.y / self.noise - left @ np.linalg.solve(C, left)
        return 0.5 * (square + len(self.y) * np.log(self.noise) - np.linalg.slogdet(C)[1])


@pytest.mark.parametrize("k", SIZES)
@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("complete", [False, True])
def test_a_state_is_solved_as_by_whole_matrices(k, full, complete):
    slab = Slab(k, full)
    derived, system = slab.model(), slab.system(complete)
    value = solve_and_expect(
        k, derived, derived.tables, slab.active, complete, derived.spread, system
    )
    s, (prior, mean, covariance) = slab.active, slab.slab()
    # A diagonal slab's -½ t² is in the latents' biases.
    known = 0.0 if full else -0.5 * (slab.mu[s] ** 2 / np.diag(slab.psi)[s]).sum()
    assert value + known == pytest.approx(slab.evidence(), rel=1e-9)
    np.testing.assert_allclose(system.u[:k], mean, rtol=1e-9, atol=1e-12)
    second = covariance + np.outer(mean, mean)
    found = np.tril(system.local[: k * k].reshape(k, k))
    np.testing.assert_allclose(found, np.tril(second), rtol=1e-9, atol=1e-12)
    if full:
        away = mean - slab.mu[s]
        found = np.tril(system.Q[: k * k].reshape(k, k))
        gradient = prior @ (covariance + np.outer(away, away) - np.linalg.inv(prior)) @ prior
        np.testing.assert_allclose(found, np.tril(gradient), rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(system.eta[:k], prior @ away, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("k", [1, 2])
def test_one_or_two_latents_need_no_arrays(k):
    slab = Slab(k, False)
    derived, system = slab.model(), slab.system(True)
    activation, first = np.zeros((2, 8))
    second = np.zeros(len(pack(np.zeros((8, 8)))))
    value = add_few(k, derived, slab.active, system, 0.25, activation, first, second)
    s, (_, mean, covariance) = slab.active, slab.slab()
    known = -0.5 * (slab.mu[s] ** 2 / np.diag(slab.psi)[s]).sum()
    assert value + known == pytest.approx(slab.evidence(), rel=1e-9)
    expected = np.zeros((8, 8))
    expected[np.ix_(s, s)] = 0.25 * (covariance + np.outer(mean, mean))
    np.testing.assert_allclose(second, pack(expected), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(first[s], 0.25 * mean, rtol=1e-9)
    assert (activation == np.where(np.isin(np.arange(8), s), 0.25, 0)).all()


def test_spreads_may_differ_by_orders_of_magnitude():
    """The evidence by a few digits less than there are, where whole matrices keep them too."""
    slab = Slab(4, False)
    slab.psi = np.diag(np.diag(slab.psi) * 10.0 ** np.linspace(-6, 6, 8))
    slab.spread = np.sqrt(np.diag(slab.psi))
    slab.V = slab.W * slab.spread[:, None] / np.sqrt(slab.noise)
    derived, system = slab.model(), slab.system(False)
    solve_and_expect(4, derived, None, slab.active, False, derived.spread, system)
    _, mean, _ = slab.slab()
    np.testing.assert_allclose(system.u[:4], mean, rtol=1e-7)
