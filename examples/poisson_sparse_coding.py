"""Poisson sparse coding: counts whose rate is a sum of parts that are on or off.

s_h ~ Bernoulli(π_h), x_d ~ Poisson(b + Σ_h s_h W_hd). The log-joint of one state is compiled by
Numba; the M-step is our own. Of a few starts the one of the highest bound is kept.
"""

from math import lgamma, log

import numpy as np
from scipy.optimize import linear_sum_assignment

from evoem import BlackBox


def log_joint(params, x, observed, state):
    """log p(s, x)."""
    total = np.log(np.where(state, params.pi, 1 - params.pi)).sum()
    for d in range(len(x)):
        rate = params.b + (state * params.W[:, d]).sum()
        total += x[d] * log(rate) - rate - lgamma(x[d] + 1)
    return total


def statistics(params, X, observed, states, weights):
    """Counts are shared out among the parts, and the background, by their rates."""
    share = weights[:, :, None] * X[:, None] / (params.b + states @ params.W)
    parts = np.einsum("nsh,nsd->hd", states, share) * params.W
    active = np.einsum("ns,nsh->h", weights, states)
    return {"parts": parts, "active": active, "b": params.b * share.sum(), "n": len(X)}


def update(params, sums):
    """Mean counts of each part while it is active."""
    W = sums["parts"] / np.maximum(sums["active"], 1e-9)[:, None] + 1e-9
    pi = np.clip(sums["active"] / sums["n"], 1e-3, 1 - 1e-3)
    return {"W": W, "b": sums["b"] / (sums["n"] * W.shape[1]), "pi": pi}


def start(X, n_latents, rng):
    """The mean of the data, made different for each latent."""
    W = X.mean(0) * rng.uniform(0.5, 1.5, (n_latents, X.shape[1]))
    return {"W": W, "b": 1.0, "pi": np.full(n_latents, 2 / n_latents)}


def main(seed=0):
    """Mean error of W by its largest value, after matching."""
    bars = np.eye(4, dtype=bool)[:, :, None] | np.zeros(4, bool)
    W = 8.0 * np.concatenate([bars, bars.transpose(0, 2, 1)]).reshape(8, 16)  # rows and columns
    rng = np.random.default_rng(seed)
    X = rng.poisson(0.5 + (rng.random((500, 8)) < 0.25) @ W)
    common = {"n_latents": 8, "n_states": 20, "statistics": statistics, "update": update}
    fits = [BlackBox(log_joint, start, **common, tol=1e-3, random_state=i).fit(X) for i in range(3)]
    learnt = max(fits, key=lambda model: model.free_energy_).params_["W"]
    errors = np.abs(W[:, None] - learnt).mean(-1) / W.max()
    return errors[linear_sum_assignment(errors)].mean()


if __name__ == "__main__":
    print(f"mean error of the dictionary: {main():.1%} of its largest value")
