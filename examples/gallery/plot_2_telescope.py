"""
A telescope with an error plane
===============================

Reduced astronomical data come with a variance for each pixel and with invalid pixels. Pass both as
``noise_variance``, infinite where nothing was measured.
"""

# %%
# A sky of stars and a galaxy, exposed unevenly. A cosmic ray and a dead column have no valid
# value.
import matplotlib.pyplot as plt
import numpy as np

import evoem
from evoem.images.quality import psnr

rng = np.random.default_rng(1)
y, x = np.mgrid[0:96, 0:128]
sky = 200 * np.exp(-np.hypot((x - 84) / 18, (y - 44) / 8))
for row, column, flux in zip(*rng.uniform(0, 1, (3, 40)), strict=True):
    distance = (y - 96 * row) ** 2 + (x - 128 * column) ** 2
    sky += 300 * flux**3 * np.exp(-distance / 5)

variance = np.where(x < 64, 25.0, 400.0)  # the right half had a shorter exposure
bad = (x == 30) | (np.abs(y - x + 20) < 1) & (x > 60) & (x < 100)
observed = sky + np.sqrt(variance) * rng.standard_normal(sky.shape)
observed[bad] = 60000
variance[bad] = np.inf

# %%
# With the errors, the quiet half keeps its details and the noisy half is smoothed more.
with_errors = evoem.restore(observed, noise_variance=variance, preset="fast")
without = evoem.restore(np.where(bad, np.nan, observed), noise="gaussian", preset="fast")
for name, result in {"without": without, "with": with_errors}.items():
    print(f"{name} the error plane: {psnr(result.image, sky):.1f} dB")

# %%
pictures = {"measured": observed, "restored": with_errors.image, "truth": sky}
figure, axes = plt.subplots(1, 3, figsize=(9, 2.7), layout="constrained")
for axis, (title, picture) in zip(axes, pictures.items(), strict=True):
    axis.imshow(np.arcsinh(np.clip(picture, -20, 300) / 20), cmap="gray")
    axis.set(title=title, xticks=[], yticks=[])
