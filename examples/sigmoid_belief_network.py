"""A sigmoid belief network of two latent layers, in PyTorch, which gives the gradients.

t ~ Bernoulli(σ(a)), s ~ Bernoulli(σ(b + t V)), x ~ Bernoulli(σ(c + s W)): both layers are a state.
V and W are positive, or a latent's on and off could be swapped. The best of a few starts is kept.
"""

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from scipy.special import expit

from evoem import BlackBox

TOP, MIDDLE, D, N = 2, 6, 18, 600


def bernoulli(values, log_odds):
    """Log-probability of zeros and ones."""
    return (values * log_odds - torch.nn.functional.softplus(log_odds)).sum(-1)


def log_joint(params, X, states):
    """log p(t, s, x)."""
    t, s = states[..., :TOP], states[..., TOP:]
    top, middle = bernoulli(t, params["a"]), bernoulli(s, params["b"] + t @ params["V"])
    return top + middle + bernoulli(X[:, None], params["c"] + s @ params["W"])


def start(X, n_latents, rng):
    """Random weights, and few latents of the middle layer active."""
    V, W = rng.uniform(0.2, 2, (TOP, MIDDLE)), rng.uniform(0.2, 2, (MIDDLE, D))
    first = {"a": [0.0] * TOP, "V": V, "b": [-3.0] * MIDDLE, "W": W, "c": [-2.0] * D}
    return {name: torch.tensor(value, dtype=torch.float64) for name, value in first.items()}


def match(true, learnt):
    """Mean error by the largest value, and which rows belong together."""
    errors = np.abs(true[:, None] - learnt).mean(-1) / true.max()
    rows, partners = linear_sum_assignment(errors)
    return errors[rows, partners].mean(), partners


def main(seed=0):
    """Mean errors of W and V by their largest values, after matching."""
    V, W = (np.kron(np.eye(k), np.full(3, top)) for k, top in ((TOP, 4.0), (MIDDLE, 6.0)))
    rng = np.random.default_rng(seed)
    s = rng.random((N, MIDDLE)) < expit(-2 + (rng.random((N, TOP)) < 0.5) @ V)
    X = (rng.random((N, D)) < expit(-3 + s @ W)) * 1.0
    common = {"n_latents": 8, "n_states": 20, "batch_size": 100, "max_iter": 40, "tol": 0}
    common["constraints"] = {"V": "positive", "W": "positive"}
    common["optimizer"] = lambda parameters: torch.optim.Adam(parameters, lr=0.05)
    fits = [BlackBox(log_joint, start, **common, random_state=i).fit(X) for i in range(3)]
    best = max(fits, key=lambda model: model.free_energy_).params_
    error, partners = match(W, best["W"].numpy())
    return error, match(V, best["V"].numpy()[:, partners])[0]


if __name__ == "__main__":
    print("mean errors of W and V: {:.1%} and {:.1%} of their largest values".format(*main()))
