"""Maximal causes: where parts overlap the larger one is seen, not their sum. In JAX.

s_h ~ Bernoulli(π_h), x_d ~ N(max_h s_h W_hd, σ²). The maximum has a gradient almost everywhere,
which is all that is needed. Of a few starts the one of the highest bound is kept.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from scipy.optimize import linear_sum_assignment

from evoem import BlackBox


def log_joint(params, X, states):
    """log p(s, x)."""
    prior = states @ jnp.log(params["pi"]) + (1 - states) @ jnp.log(1 - params["pi"])
    mean = (states[..., None] * params["W"]).max(-2)  # (n, s, h, d) over h
    squares = ((X[:, None] - mean) ** 2).sum(-1)
    norm = 0.5 * X.shape[1] * jnp.log(2 * jnp.pi * params["variance"])
    return prior - 0.5 * squares / params["variance"] - norm


def start(X, n_latents, rng):
    """The mean of the data, made different for each latent."""
    W = X.mean(0).clip(0.1) * rng.uniform(0.5, 1.5, (n_latents, X.shape[1]))
    params = {"W": W, "pi": np.full(n_latents, 2 / n_latents), "variance": X.var()}
    return jax.tree.map(jnp.asarray, params)


def main(seed=0):
    """Mean error of W by its largest value, after matching; and of the noise."""
    bars = np.eye(4, dtype=bool)[:, :, None] | np.zeros(4, bool)
    W = 5.0 * np.concatenate([bars, bars.transpose(0, 2, 1)]).reshape(8, 16)  # rows and columns
    rng = np.random.default_rng(seed)
    states = rng.random((500, 8)) < 0.25
    X = (states[..., None] * W).max(1) + rng.normal(size=(500, 16))
    common = {"n_latents": 8, "n_states": 20, "batch_size": 100, "max_iter": 40, "tol": 0}
    common["constraints"] = {"W": "positive", "pi": "unit", "variance": "positive"}
    fits = [
        BlackBox(log_joint, start, **common, optimizer=optax.adam(0.05), random_state=i).fit(X)
        for i in range(3)
    ]
    best = max(fits, key=lambda model: model.free_energy_).params_
    errors = np.abs(W[:, None] - np.asarray(best["W"])).mean(-1) / W.max()
    return errors[linear_sum_assignment(errors)].mean(), abs(float(best["variance"]) - 1)


if __name__ == "__main__":
    print("errors: {:.1%} of the largest weight, {:.1%} of the variance".format(*main()))
