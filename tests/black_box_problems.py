"""One model, a sum of patterns with noise, written in all the ways a black box may be."""

from itertools import product

import numpy as np
from scipy.special import logsumexp

from evoem import BlackBox

H, D = 3, 4
ALL = np.array(list(product([0.0, 1.0], repeat=H)))
W = np.array([[4.0, 4, 0, 0], [0, 3, 3, 0], [0, 0, 0, 5]])
GAUSS = {"W": W, "noise": 1.0, "pi": 0.4}


def gauss(params, X, states, observed):
    residual = np.where(observed[:, None], X[:, None] - states @ params["W"], 0.0)
    density = (residual**2 / params["noise"]).sum(-1)
    density += observed.sum(1)[:, None] * np.log(2 * np.pi * params["noise"])
    active = states.sum(-1)
    pi = params["pi"]
    prior = active * np.log(pi) + (states.shape[-1] - active) * np.log(1 - pi)
    return prior - 0.5 * density


def gauss_without_missing_values(params, X, states):
    return gauss(params, X, states, np.ones(X.shape, bool))


def gauss_scalar(params, x, observed, state):
    total = 0.0
    for h in range(len(state)):
        total += np.log(params.pi) if state[h] else np.log(1 - params.pi)
    for d in range(len(x)):
        if observed[d]:
            residual = x[d]
            for h in range(len(state)):
                if state[h]:
                    residual -= params.W[h, d]
            total -= 0.5 * (residual**2 / params.noise + np.log(2 * np.pi * params.noise))
    # For tests of what is said about a wrong log-joint: one state of rows that no data has.
    if x[0] == 99.0 and state[0] and not state[1] and state[2]:
        total = np.nan
    return total


def gauss_prepared(params, x, observed, active):
    """x is W x / σ², and last what no latent changes."""
    total = x[-1] + len(active) * np.log(params.pi / (1 - params.pi))
    for i in range(len(active)):
        total += x[active[i]] - 0.5 * params.gram[active[i], active[i]]
        for j in range(i):
            total -= params.gram[active[i], active[j]]
    return total


def products(params, X, observed):
    base = np.log(1 - params.pi) * len(params.W) - 0.5 * (X**2).sum(1) / params.noise
    base -= 0.5 * X.shape[1] * np.log(2 * np.pi * params.noise)
    return np.column_stack([X @ params.W.T / params.noise, base])


def gauss_statistics(params, X, observed, states, weights):
    return {
        "rows": len(X),
        "activation": np.einsum("ns,nsh->h", weights, states),
        "second": np.einsum("ns,nsh,nsg->hg", weights, states, states),
        "cross": np.einsum("ns,nsh,nd->hd", weights, states, X),
        "square": np.square(X).sum(),
    }


def gauss_update(params, sums):
    size = len(sums["activation"])
    second = sums["second"] + 1e-9 * np.eye(size)
    new = np.linalg.solve(second, sums["cross"])
    noise = (sums["square"] - np.vdot(new, sums["cross"])) / (sums["rows"] * new.shape[1])
    pi = sums["activation"].sum() / sums["rows"] / size
    return {"W": new, "noise": max(noise, 1e-3), "pi": np.clip(pi, 1e-3, 1 - 1e-3)}


def gauss_mean(params, states):
    return states @ params["W"]


def gauss_sampler(params, n, rng):
    states = rng.random((n, len(params["W"]))) < params["pi"]
    noise = np.sqrt(params["noise"]) * rng.normal(size=(n, params["W"].shape[1]))
    return states @ params["W"] + noise, states


def gauss_start(X, n_latents, rng):
    """Parameters from the data, in which values may be missing."""
    mean, spread = np.nanmean(X, axis=0), np.nanstd(X) + 1e-3
    return {
        "W": mean + spread * rng.normal(size=(n_latents, X.shape[1])),
        "noise": spread**2,
        "pi": 0.5,
    }


def plain(array):
    """An array of any library, as NumPy."""
    return array.detach().numpy() if hasattr(array, "detach") else np.asarray(array)


def unit_gauss(params, X, states):
    return -0.5 * ((X[:, None] - states @ params["W"]) ** 2).sum(-1)


def make_data(n=200, seed=0):
    rng = np.random.default_rng(seed)
    return gauss_sampler(GAUSS, n, rng)[0]


def held(log_joint=gauss, params=GAUSS, **options):
    """A model whose parameters stay as they are."""
    options = {"n_latents": H, "n_states": "all", "max_iter": 1, "tol": 0} | options
    return BlackBox(log_joint, params, update=False, random_state=0, **options)


def learning(**options):
    options = {"n_latents": H, "n_states": 5, "max_iter": 6, "tol": 0, "random_state": 0} | options
    return BlackBox(
        gauss, gauss_start, statistics=gauss_statistics, update=gauss_update, **options
    )  # fmt: skip


def exact(X, observed=None, params=GAUSS):
    """Posterior weights of all states and log p(x) of each row."""
    seen = np.ones(X.shape, bool) if observed is None else observed
    states = np.broadcast_to(ALL, (len(X), *ALL.shape))
    log_joints = gauss(params, np.where(seen, X, 0.0), states, seen)
    bounds = logsumexp(log_joints, axis=1)
    return np.exp(log_joints - bounds[:, None]), bounds
