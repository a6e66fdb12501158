"""The E-step and the statistics of `evoem` as one would write them in NumPy alone.

Rows are looped over; all that concerns the states of one row is vectorised: dense boolean states
(n_states, n_latents), stacks of small matrices for `np.linalg`, `np.unique` to find duplicates,
`argpartition` to keep the best. What saves work whatever the language is done here as well: Gram
matrix and projections are made once for all rows, spike-and-slab coding solves systems as large as
the number of active latents, and states without weight are left out of the statistics.

The operators are those of section 2.1 and appendix B, the log-joints those of appendix A, the
statistics those that `evoem`'s own M-step (which is NumPy already) takes.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evoem.em import Evolution
from evoem.models.linear_moments import NOISE_FLOORS, LinearStats

Floats = NDArray[np.float64]
Dense = NDArray[np.bool_]


# --------------------------------------------------------------------------------------- models


class NoisyOr:
    """Log-joints and statistics of noisy-OR."""

    negligible = float(np.finfo(np.float64).eps)

    def __init__(self, params: Any, X: Floats) -> None:
        pi = params.activation_probs
        self.on = X != 0
        self.log_off = np.log1p(-params.components)
        self.logits = np.log(pi / (1 - pi))
        self.expected_active = pi.sum()
        self.constant = np.log1p(-pi).sum()

    def log_joints(self, n: int, states: Dense) -> Floats:
        """log p(s, y) of the states of row n."""
        on = self.on[n]
        log_all_off = states.astype(float) @ self.log_off  # log(1 - N_d(s))
        with np.errstate(divide="ignore"):  # s = 0 explains nothing that is on
            log_on = np.log(-np.expm1(log_all_off[:, on]))
        likelihood = log_on.sum(1) + log_all_off[:, ~on].sum(1)
        return self.constant + states @ self.logits + likelihood

    def add_statistics(self, stats: Any, n: int, states: Dense, weights: Floats) -> None:
        """Add those of row n."""
        on = self.on[n]
        weighted = weights[:, None] * states
        activation = weighted.sum(0)
        chance_on = -np.expm1(states.astype(float) @ self.log_off[:, on])
        stats.n_rows[...] += 1
        stats.activation[...] += activation
        stats.chances[...] += activation[:, None]
        stats.causes[:, on] += weighted.T @ (1 / chance_on)


def _add_linear(stats: LinearStats, x: Floats, activation: Floats, first: Floats) -> None:
    """Statistics that the linear models share, except for second moments."""
    used = np.flatnonzero(activation)
    stats.n_rows[...] += 1
    stats.n_observed[...] += len(x)
    stats.data_square[...] += x @ x
    stats.floor[...] += NOISE_FLOORS[np.dtype(np.float32)] * (x @ x)  # evoem's rows are single
    stats.activation[...] += activation
    stats.first[...] += first
    stats.cross[used] += np.outer(first[used], x)


def pair_places(
    n_latents: int, high: NDArray[np.int64], low: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Where pairs of latents stand in sums over pairs: the diagonal, then row after row."""
    return np.where(high == low, high, n_latents + high * (high - 1) // 2 + low)


class BinarySparseCoding:
    """Log-joints and statistics of binary sparse coding."""

    negligible = float(np.finfo(np.float32).eps)

    def __init__(self, params: Any, X: Floats) -> None:
        pi = params.activation_probs
        self.X = X
        self.components = params.components
        self.variance = float(params.noise_variance)
        self.logits = np.log(pi / (1 - pi))
        self.expected_active = pi.sum()
        log_normal = -0.5 * X.shape[1] * np.log(2 * np.pi * self.variance)
        self.constant = np.log1p(-pi).sum() + log_normal

    def log_joints(self, n: int, states: Dense) -> Floats:
        """log p(s, y) of the states of row n."""
        used = np.flatnonzero(states.any(0))
        states = states[:, used].astype(float)
        residuals = self.X[n] - states @ self.components[used]
        squares = np.einsum("sd,sd->s", residuals, residuals)
        return self.constant + states @ self.logits[used] - 0.5 * squares / self.variance

    def add_statistics(self, stats: LinearStats, n: int, states: Dense, weights: Floats) -> None:
        """Add those of row n."""
        activation = weights @ states
        used = np.flatnonzero(activation)
        some = states[:, used].astype(float)
        row, column = np.tril_indices(len(used))
        sums = (some.T @ (weights[:, None] * some))[row, column]
        stats.second[pair_places(states.shape[1], used[row], used[column])] += sums
        _add_linear(stats, self.X[n], activation, activation)


class SlabPosteriors(NamedTuple):
    """p(z | s, y) of the active latents of some states, padded to the largest number of them."""

    active: NDArray[np.int64]  # (n_states, k)
    real: Dense  # (n_states, k): what is not padding
    pairs: Dense  # (n_states, k, k): likewise
    prior_precision: Floats  # (n_states, k, k)  Ψ_ss⁻¹
    precision: Floats  # (n_states, k, k)  Λ⁻¹
    prior_means: Floats  # (n_states, k)  μ_s
    means: Floats  # (n_states, k)  κ
    log_ratios: Floats  # (n_states,)  log N(y; W_s μ_s, C_s) - log N(y; 0, σ² 1)


class SpikeSlab:
    """Log-joints and statistics of spike-and-slab sparse coding."""

    negligible = float(np.finfo(np.float32).eps)

    def __init__(self, params: Any, X: Floats) -> None:
        pi = params.activation_probs
        variance = float(params.noise_variance)
        n_features = X.shape[1]
        self.X = X
        self.gram = params.components @ params.components.T / variance
        self.projections = X @ params.components.T / variance
        self.slab_means = params.slab_means
        self.slab_covariance = params.slab_covariance
        self.full = params.slab_covariance.ndim == 2
        self.logits = np.log(pi / (1 - pi))
        self.expected_active = pi.sum()
        self.constant = np.log1p(-pi).sum() - 0.5 * n_features * np.log(2 * np.pi)
        squares = np.einsum("nd,nd->n", X, X)
        self.base = self.constant - 0.5 * (n_features * np.log(variance) + squares / variance)

    def log_joints(self, n: int, states: Dense) -> Floats:
        """log p(s, y) of the states of row n."""
        return self.base[n] + states @ self.logits + self._posteriors(n, states).log_ratios

    def _posteriors(self, n: int, states: Dense) -> SlabPosteriors:
        counts = states.sum(1)
        real = np.arange(max(counts.max(), 1)) < counts[:, None]
        active = np.zeros(real.shape, np.int64)
        active[real] = np.nonzero(states)[1]  # both run through a state before the next one
        pairs = real[:, :, None] & real[:, None, :]
        prior_precision, log_det_prior = self._slab_precision(active, real, pairs)
        gram = np.where(pairs, self.gram[active[:, :, None], active[:, None, :]], 0.0)
        precision = gram + prior_precision
        prior_means = np.where(real, self.slab_means[active], 0.0)
        pull = np.einsum("sij,sj->si", prior_precision, prior_means)
        eta = np.where(real, self.projections[n, active], 0.0) + pull
        means = np.linalg.solve(precision, eta[:, :, None])[:, :, 0]
        quadratic = np.einsum("si,si->s", eta, means) - np.einsum("si,si->s", pull, prior_means)
        log_ratios = 0.5 * (quadratic - log_det_prior - np.linalg.slogdet(precision)[1])
        return SlabPosteriors(
            active, real, pairs, prior_precision, precision, prior_means, means, log_ratios
        )

    def _slab_precision(
        self, active: NDArray[np.int64], real: Dense, pairs: Dense
    ) -> tuple[Floats, Floats]:
        """Ψ_ss⁻¹ and log|Ψ_ss|; a padding latent has variance one."""
        identity = np.eye(active.shape[1])
        if self.full:
            block = self.slab_covariance[active[:, :, None], active[:, None, :]]
            covariance = np.where(pairs, block, identity)
            return np.linalg.inv(covariance), np.linalg.slogdet(covariance)[1]
        variances = np.where(real, self.slab_covariance[active], 1.0)
        return identity / variances[:, None, :], np.log(variances).sum(1)

    def add_statistics(self, stats: Any, n: int, states: Dense, weights: Floats) -> None:
        """Add those of row n."""
        slab = self._posteriors(n, states)
        covariance = np.linalg.inv(slab.precision)  # Λ
        second = covariance + slab.means[:, :, None] * slab.means[:, None, :]
        # Active latents ascend, so the lower triangles of a state are those of the sums.
        chosen = np.tril(slab.pairs)
        owner, i, j = np.nonzero(chosen)
        place = pair_places(states.shape[1], slab.active[owner, i], slab.active[owner, j])
        sums = stats.pairs[:, 2] if self.full else stats.linear.second
        np.add.at(sums, place, weights[owner] * second[chosen])
        coefficients = np.zeros(states.shape)
        coefficients[states] = slab.means[slab.real]
        _add_linear(stats.linear, self.X[n], weights @ states, weights @ coefficients)
        if self.full:
            prior = slab.prior_precision
            gradient = np.einsum("sij,sj->si", prior, slab.means - slab.prior_means)
            outer = gradient[:, :, None] * gradient[:, None, :]
            curvature = prior @ covariance @ prior + outer - prior
            np.add.at(stats.pairs[:, 0], place, weights[owner] * prior[chosen])
            np.add.at(stats.pairs[:, 1], place, weights[owner] * curvature[chosen])
            owner = np.nonzero(slab.real)[0]
            np.add.at(stats.pull, slab.active[slab.real], weights[owner] * gradient[slab.real])


# ------------------------------------------------------------------------------------ operators


def select_by_fitness(
    states: Dense, log_joints: Floats, constant: float, n_parents: int, rng: np.random.Generator
) -> Dense:
    """Parents without replacement, with probability proportional to fitness (eq:eem_fitness)."""
    if n_parents >= len(states):
        return states
    possible = np.isfinite(log_joints)
    values = log_joints[possible] - constant
    offset = abs(2 * values.min()) if len(values) else 0.0
    fitness = np.full(len(states), np.finfo(float).tiny)  # impossible states come last
    fitness[possible] += np.maximum(values + offset, 0.0)
    chosen = rng.choice(len(states), n_parents, replace=False, p=fitness / fitness.sum())
    return states[chosen]


def cross_all_pairs(parents: Dense, rng: np.random.Generator) -> Dense:
    """Single-point crossover of every pair of parents."""
    n_latents = parents.shape[1]
    i, j = np.tril_indices(len(parents), -1)
    keep = np.arange(n_latents) < rng.integers(1, n_latents, len(i))[:, None]
    a, b = parents[i], parents[j]
    return np.concatenate([np.where(keep, a, b), np.where(keep, b, a)])


def flip_uniformly(parents: Dense, n_children: int, rng: np.random.Generator) -> Dense:
    """Children that differ from their parent in one bit, each in another one."""
    bits = rng.random(parents.shape).argpartition(n_children - 1)[:, :n_children]
    children = np.repeat(parents, n_children, axis=0)
    children[np.arange(len(children)), bits.ravel()] ^= True
    return children


def flip_sparsely(parents: Dense, expected_active: float, rng: np.random.Generator) -> Dense:
    """Flips that lead back to the prior's mean activity, one per child on average (appendix B)."""
    n_latents = parents.shape[1]
    n_active = parents.sum(1)
    surplus = expected_active - n_active
    p0 = np.clip((1 + surplus) / (2 * np.maximum(n_latents - n_active, 1)), 0, 1)
    p1 = np.clip((1 - surplus) / (2 * np.maximum(n_active, 1)), 0, 1)
    return parents ^ (rng.random(parents.shape) < np.where(parents, p1[:, None], p0[:, None]))


def breed(
    plain: Any,
    states: Dense,
    log_joints: Floats,
    evolution: Evolution,
    rng: np.random.Generator,
) -> Dense:
    """One generation of children."""
    parents = select_by_fitness(states, log_joints, plain.constant, evolution.n_parents, rng)
    n_children = evolution.n_children
    if evolution.crossover:
        parents, n_children = cross_all_pairs(parents, rng), 1
    if evolution.mutation == "uniform":
        return flip_uniformly(parents, n_children, rng)
    return flip_sparsely(np.repeat(parents, n_children, axis=0), plain.expected_active, rng)


# ------------------------------------------------------------------------------------- the E-step


def only_new(children: Dense, known: Dense) -> Dense:
    """The children that are not known, each once."""
    bits = np.packbits(np.concatenate([known, children]), axis=1)
    keys = bits.view(f"S{bits.shape[1]}")[:, 0]  # a string per state sorts faster than a row
    first = np.unique(keys, return_index=True)[1]
    return children[first[first >= len(known)] - len(known)]


def improve(
    plain: Any, n: int, states: Dense, evolution: Evolution, rng: np.random.Generator
) -> tuple[Dense, Floats, int]:
    """The best states of row n, their log-joints, and how many states were evaluated."""
    pool, pool_log_joints = states, plain.log_joints(n, states)
    population, log_joints = pool, pool_log_joints
    for _ in range(evolution.n_generations):
        population = only_new(breed(plain, population, log_joints, evolution, rng), pool)
        if len(population) == 0:
            break
        log_joints = plain.log_joints(n, population)
        pool = np.concatenate([pool, population])
        pool_log_joints = np.concatenate([pool_log_joints, log_joints])
    best = np.argpartition(pool_log_joints, -len(states))[-len(states) :]
    return pool[best], pool_log_joints[best], len(pool)


def add_row(plain: Any, stats: Any, n: int, states: Dense, log_joints: Floats) -> None:
    """Add the statistics of row n with its truncated posterior (eq:tvem_truncated_posterior)."""
    weights = np.exp(log_joints - log_joints.max())
    weights /= weights.sum()
    kept = weights > plain.negligible  # evoem skips the same ones
    plain.add_statistics(stats, n, states[kept], weights[kept])


def e_step(
    plain: Any, stats: Any, states: Dense, evolution: Evolution, rng: np.random.Generator
) -> int:
    """Improve `states` (n_rows, n_states, n_latents) in place, add up; states evaluated."""
    total = 0
    for n in range(len(states)):
        states[n], log_joints, evaluated = improve(plain, n, states[n], evolution, rng)
        add_row(plain, stats, n, states[n], log_joints)
        total += evaluated
    return total
