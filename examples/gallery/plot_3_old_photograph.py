"""
An old photograph
=================

Mark the scratches in a mask; one call removes them together with the grain.
"""

# %%
# Scratches are white here, as on a scan, and the mask says where they are. On the command line, a
# mask is an image in which the damage is bright.
import matplotlib.pyplot as plt
import numpy as np
from skimage.data import camera

import evoem
from evoem.images.degrade import add_noise, scratches
from evoem.images.quality import psnr

clean = camera()[60:220, 160:352].astype(float)
mask = scratches(clean.shape, 4, 3)
damaged = np.where(mask, 255, add_noise(clean, 12, seed=0))

# %%
# ``restore`` estimates every pixel. ``inpaint`` would leave unmasked pixels unchanged, grain
# included.
result = evoem.restore(damaged, mask=mask, preset="fast")
print(f"PSNR {psnr(damaged, clean):.1f} → {psnr(result.image, clean):.1f} dB")

# %%
figure, axes = plt.subplots(1, 3, figsize=(9, 2.9), layout="constrained")
pictures = {"damaged": damaged, "restored": result.image, "truth": clean}
for axis, (title, picture) in zip(axes, pictures.items(), strict=True):
    axis.imshow(picture, cmap="gray", vmin=0, vmax=255)
    axis.set(title=title, xticks=[], yticks=[])
