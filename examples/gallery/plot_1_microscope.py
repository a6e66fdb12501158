"""
A microscope that counts photons
================================

The noise of a fluorescence image grows with the signal. ``noise="auto"``, the default, recognises
this from the image alone.
"""

# %%
# Part of a photograph serves as the sample. The detector turns each photon into 6 grey levels, on
# a pedestal of 20.
import matplotlib.pyplot as plt
import numpy as np
from skimage.data import coins

import evoem
from evoem.images.quality import psnr

clean = coins()[100:260, 20:212].astype(float)
photons = np.random.default_rng(0).poisson(clean / 6)
noisy = 20 + 6.0 * photons

# %%
# There is no need to specify gain and pedestal.
result = evoem.restore(noisy, preset="fast")
print(result.noise.describe())
print(f"PSNR {psnr(noisy - 20, clean):.1f} → {psnr(result.image - 20, clean):.1f} dB")

# %%
# The standard deviation shows where to be careful: here it grows with the signal.
pictures = {"one capture": noisy, "restored": result.image, "standard deviation": result.std}
figure, axes = plt.subplots(1, 3, figsize=(9, 3), layout="constrained")
for axis, (title, picture) in zip(axes, pictures.items(), strict=True):
    shown = {"vmin": 20, "vmax": 260} if title != "standard deviation" else {}
    axis.imshow(picture, cmap="gray", **shown)
    axis.set(title=title, xticks=[], yticks=[])

# %%
# Other pictures of the instrument need not be measured again:
# ``result.noise.save("noise.json")``, then ``evoem.denoise(other,
# noise=evoem.Noise.load("noise.json"))``.
