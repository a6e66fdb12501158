"""
A table with holes
==================

The estimators accept NaN: no row is dropped, and nothing has to be imputed first.
"""

# %%
# The data are noisy spectra of 600 samples, each with a few of ten substances. Detector failures
# lost two fifths of the entries.
import matplotlib.pyplot as plt
import numpy as np
from sklearn.impute import KNNImputer

import evoem

rng = np.random.default_rng(0)
channels = np.arange(60)
lines = rng.uniform(0, 60, (10, 3, 1)), rng.uniform(1, 3, (10, 3, 1)), rng.uniform(2, 6, (10, 3, 1))
substances = (lines[2] * np.exp(-0.5 * ((channels - lines[0]) / lines[1]) ** 2)).sum(1)
amounts = (rng.random((600, 10)) < 0.2) * rng.gamma(4, 0.25, (600, 10))
clean = amounts @ substances
lost = rng.random(clean.shape) < 0.4
table = np.where(lost, np.nan, clean + rng.normal(0, 0.3, clean.shape))

# %%
# A substance is absent, or present in some amount. Spike-and-slab coding models exactly this.
model = evoem.SpikeSlabCoding(n_latents=12, max_iter=100, tol=0, random_state=0).fit(table)
filled, std = model.reconstruct(table, return_std=True)


def error(estimate):
    """Root mean square over the entries that were lost."""
    return np.sqrt(np.square(estimate - clean)[lost].mean())


print(f"mean of the column: {error(np.nanmean(table, axis=0)):.2f}")
print(f"nearest neighbours: {error(KNNImputer(n_neighbors=5).fit_transform(table)):.2f}")
print(f"SpikeSlabCoding:    {error(filled):.2f}")
print(f"noise learnt: {np.sqrt(model.noise_variance_):.2f}, true: 0.30")

# %%
# Three samples: measured values, and the reconstruction with two standard deviations.
figure, axes = plt.subplots(1, 3, figsize=(9, 2.6), sharey=True, layout="constrained")
for n, axis in enumerate(axes):
    axis.fill_between(channels, (filled - 2 * std)[n], (filled + 2 * std)[n], alpha=0.3)
    axis.plot(channels, filled[n], label="filled in")
    axis.plot(channels, clean[n], "k:", label="truth")
    axis.plot(channels, table[n], ".", label="measured")
    axis.set(xlabel="channel")
axes[0].legend()
