"""
A model of your own
===================

``BlackBox`` needs only the logarithm of the joint probability of data and latents. Here, sources
are on or off, and each pixel shows the brightest one, as when one object hides another.
"""

# %%
# Each of six sources is a bar in a 3 × 3 image. The functions work on arrays: rows of data, with
# several states for each row.
import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import linear_sum_assignment

import evoem

rng = np.random.default_rng(0)
bars = np.concatenate([np.kron(np.eye(3), np.ones((1, 3))), np.kron(np.ones((1, 3)), np.eye(3))])
truth = bars * rng.uniform(5, 9, (6, 1))
causes = rng.random((600, 6)) < 0.2
X = (causes[..., None] * truth).max(1) + 0.5 * rng.standard_normal((600, 9))


def log_joint(params, X, states):
    """log p(s, x): each latent is on with probability 0.2, noise has the variance 1/4."""
    prior = states.sum(-1) * np.log(0.2 / 0.8)
    brightest = (states[..., None] * params["W"]).max(2)
    return prior - 2 * np.square(X[:, None] - brightest).sum(-1)


def statistics(params, X, observed, states, weights):
    """Whose value each pixel shows, weighted by the posterior: sums over rows."""
    shown = states[..., None] * params["W"]
    shows = (shown == shown.max(2, keepdims=True)) & (shown > 0)
    weights = weights[..., None, None] * shows
    return {"n": weights.sum((0, 1)), "x": (weights * X[:, None, None]).sum((0, 1))}


def update(params, sums):
    """A source has the mean of the pixels that show it."""
    return {"W": np.maximum(sums["x"] / np.maximum(sums["n"], 1e-6), 1e-6)}


# %%
# EM finds a local optimum, so we start several times and keep the fit with the highest bound.
fits = [
    evoem.BlackBox(
        log_joint, {"W": np.abs(X[seed::90][:6])}, n_latents=6, statistics=statistics,
        update=update, max_iter=40, tol=0, random_state=seed,
    ).fit(X)
    for seed in range(4)
]  # fmt: skip
model = max(fits, key=lambda fit: fit.free_energy_)
print("bounds per row:", *(f"{fit.free_energy_:.2f}" for fit in fits))

# %%
# All six are found. Their order is arbitrary: each is shown below the true one nearest to it.
learnt = model.params_["W"]
errors = np.abs(truth[:, None] - learnt).mean(-1)
nearest = linear_sum_assignment(errors)
print(f"largest mean error of a source: {errors[nearest].max():.2f}")

figure, axes = plt.subplots(2, 6, figsize=(7, 2.6), layout="constrained")
for row, (title, sources) in zip(
    axes, {"truth": truth, "learnt": learnt[nearest[1]]}.items(), strict=True
):
    row[0].set_ylabel(title)
    for axis, source in zip(row, sources, strict=True):
        axis.imshow(source.reshape(3, 3), cmap="gray", vmin=0, vmax=9)
        axis.set(xticks=[], yticks=[])
