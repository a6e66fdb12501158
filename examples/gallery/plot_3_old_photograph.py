"""
An old photograph
=================

Grain and scratches at once: mark the scratches in a mask, and let one call remove both.
"""

# %%
# Scratches are painted white here, as on a scan. The mask says where they are; on the command
# line it is any picture in which the damage is bright.
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
# ``restore`` estimates every pixel. ``inpaint`` would keep those that are not under the mask as
# they are, grain included.
result = evoem.restore(damaged, mask=mask, preset="fast")
print(f"PSNR {psnr(damaged, clean):.1f} → {psnr(result.image, clean):.1f} dB")

# %%
figure, axes = plt.subplots(1, 3, figsize=(9, 2.9), layout="constrained")
pictures = {"damaged": damaged, "restored": result.image, "truth": clean}
for axis, (title, picture) in zip(axes, pictures.items(), strict=True):
    axis.imshow(picture, cmap="gray", vmin=0, vmax=255)
    axis.set(title=title, xticks=[], yticks=[])
