"""The slow twin: textbook formulas, loops over rows and over all 2**H states, nothing shared.

Every model function is compared with these. Shapes are the paper's where it matters: `W` here is
(H, D), states are boolean vectors of length H, `seen` is the mask of observed values.
"""

import math
from fractions import Fraction
from itertools import product

import numpy as np
from scipy import stats
from scipy.special import logsumexp


def all_states(H):
    """Every boolean state; the one with index i has latent h active if bit h of i is set."""
    return np.array([bits[::-1] for bits in product([False, True], repeat=H)])


# ------------------------------------------------------------------------------------ log-joints


def log_prior(params, s):
    return sum(np.log(p if on else 1 - p) for p, on in zip(params.activation_probs, s, strict=True))


def noisy_or_log_joint(params, x, seen, s):
    total = log_prior(params, s)
    for d in range(len(x)):
        if seen[d]:
            N = 1.0
            for h in np.flatnonzero(s):
                N *= 1 - params.components[h, d]
            N = 1 - N  # eq:nor_gen_model
            p = N if x[d] == 1 else 1 - N
            total += np.log(p) if p > 0 else -np.inf
    return total


def binary_log_joint(params, x, seen, s):
    mean = s.astype(float) @ params.components
    scale = np.sqrt(params.noise_variance)
    return log_prior(params, s) + stats.norm.logpdf(x[seen], mean[seen], scale).sum()


def full_covariance(params):
    psi = params.slab_covariance
    return psi if psi.ndim == 2 else np.diag(psi)


def spike_slab_log_joint(params, x, seen, s):
    """eq:_sssc_joint_s_y: N(y; W̃_s μ, σ² 1 + W̃_s Ψ W̃_sᵀ) with a D×D covariance."""
    W = (s[:, None] * params.components)[:, seen].T  # W̃_s, (observed D, H)
    if W.shape[0] == 0:
        return log_prior(params, s)
    C = params.noise_variance * np.eye(W.shape[0]) + W @ full_covariance(params) @ W.T
    mean = W @ params.slab_means
    return log_prior(params, s) + stats.multivariate_normal.logpdf(x[seen], mean, C)


def active_patterns(params, s):
    """Which patterns a state of latents switches on."""
    return np.repeat(s, np.diff(params.groups))


def subspace_log_joint(params, x, seen, s):
    """N(y; W_sᵀ μ_s, σ² 1 + W_sᵀ diag(ψ_s) W_s) over the patterns of the active latents."""
    if not seen.any():
        return log_prior(params, s)
    on = active_patterns(params, s)
    W = params.components[on][:, seen]  # (active C, observed D)
    C = params.noise_variance * np.eye(W.shape[1]) + W.T @ np.diag(params.slab_covariance[on]) @ W
    mean = params.slab_means[on] @ W
    return log_prior(params, s) + stats.multivariate_normal.logpdf(x[seen], mean, C)


def exactly(array):
    """The same numbers as fractions, which nothing rounds."""
    array = np.asarray(array, float)
    return np.array([Fraction(value) for value in array.flat], object).reshape(array.shape)


def log_of(fraction):
    return math.log(fraction.numerator) - math.log(fraction.denominator)


def exact_log_joint(params, x, seen, s):
    """log p(s, y) of a linear model, by elimination in fractions: rounded in logarithms alone."""
    on = active_patterns(params, s) if hasattr(params, "groups") else s
    W, noise = exactly(params.components[on][:, seen]), Fraction(float(params.noise_variance))
    C = exactly(np.eye(W.shape[1])) * noise
    if hasattr(params, "slab_means"):
        mean = exactly(params.slab_means[on]) @ W
        C = C + W.T @ exactly(full_covariance(params)[np.ix_(on, on)]) @ W
    else:
        mean = W.sum(0)
    r = exactly(x[seen]) - mean
    square, determinant = Fraction(0), Fraction(1)
    for i in range(len(C)):  # C = L d Lᵀ, row by row
        pivot = C[i, i]
        determinant *= pivot
        square += r[i] * r[i] / pivot
        for j in range(i + 1, len(C)):
            factor = C[j, i] / pivot
            C[j, i:] -= factor * C[i, i:]
            r[j] -= factor * r[i]
    logarithms = len(C) * math.log(2 * math.pi) + log_of(determinant)
    return log_prior(params, s) - 0.5 * (logarithms + float(square))


# ---------------------------------------------------------------------------------- expectations


def posterior(log_joint, params, x, seen, states):
    """Weights of `states` (eq:tvem_truncated_posterior) and the bound log Σ_s p(s, x)."""
    values = np.array([log_joint(params, x, seen, s) for s in states])
    bound = logsumexp(values)
    return np.exp(values - bound), bound


def binary_moments(params, x, seen, s):
    """⟨c⟩ and ⟨c cᵀ⟩ given s, for c = s."""
    c = s.astype(float)
    return c, np.outer(c, c)


def spike_slab_moments(params, x, seen, s):
    """⟨c⟩ and ⟨c cᵀ⟩ given s, c = s⊙z: κ and Λ + κκᵀ (eq:sssc_exp_szszT), of active latents."""
    active = np.flatnonzero(s)
    first, second = np.zeros(len(s)), np.zeros((len(s), len(s)))
    if len(active) == 0:
        return first, second
    W = params.components[active][:, seen].T
    psi = full_covariance(params)[np.ix_(active, active)]
    mu = params.slab_means[active]
    precision = W.T @ W / params.noise_variance + np.linalg.inv(psi)
    Lambda = np.linalg.inv(precision)
    kappa = mu + Lambda @ W.T @ (x[seen] - W @ mu) / params.noise_variance
    first[active] = kappa
    second[np.ix_(active, active)] = Lambda + np.outer(kappa, kappa)
    return first, second


def subspace_moments(params, x, seen, s):
    """⟨c⟩ and ⟨c cᵀ⟩ given s, for the amounts c of all patterns: z where they are on, else 0."""
    return spike_slab_moments(params, x, seen, active_patterns(params, s))


def row_moments(log_joint, moments, params, x, seen, states):
    """⟨s⟩, ⟨c⟩ and ⟨c cᵀ⟩ of one row."""
    weights, _ = posterior(log_joint, params, x, seen, states)
    H = len(params.components)
    activation, first, second = np.zeros(states.shape[1]), np.zeros(H), np.zeros((H, H))
    for weight, s in zip(weights, states, strict=True):
        m1, m2 = moments(params, x, seen, s)
        activation += weight * s
        first += weight * m1
        second += weight * m2
    return activation, first, second


def linear_reconstruction(log_joint, moments, params, x, seen, states):
    """Mean and variance of W c."""
    _, first, second = row_moments(log_joint, moments, params, x, seen, states)
    covariance = second - np.outer(first, first)
    W = params.components
    return first @ W, np.array([W[:, d] @ covariance @ W[:, d] for d in range(W.shape[1])])


def noisy_or_reconstruction(params, x, seen, states):
    weights, _ = posterior(noisy_or_log_joint, params, x, seen, states)
    N = np.array([1 - np.prod(1 - params.components[s], axis=0) for s in states])
    mean = weights @ N
    return mean, weights @ (N - mean) ** 2


# --------------------------------------------------------------------------------------- bounds


def free_energy(log_joint, params, X, observed, states):
    """The bound per data point over the given states of each row (eq:tvem_free_energy)."""
    return np.mean(
        [
            posterior(log_joint, params, x, seen, kept)[1]
            for x, seen, kept in zip(X, observed, states, strict=True)
        ]
    )


def ranked(scores, dense, none=-1):
    """Inactive latents by their scores, best first, then `none`."""
    order = np.argsort(-np.where(dense, -np.inf, scores), axis=-1, kind="stable")
    places = np.arange(dense.shape[2])
    return np.where(places < (~dense).sum(-1, keepdims=True), order, none)
