"""
An image with text printed over it
==================================

``inpaint`` fills in the letters and leaves every other value unchanged. Colour channels are filled
in together.
"""

# %%
import matplotlib.pyplot as plt
import numpy as np
from skimage.data import chelsea

import evoem
from evoem.images.degrade import text_mask
from evoem.images.quality import psnr

clean = chelsea()[80:160, 100:208]
mask = text_mask(clean.shape[:2])
printed = np.where(mask[..., None], (255, 255, 0), clean).astype(np.uint8)

# %%
# The mask is true where a pixel is missing. The result keeps the type of the image, here 8-bit
# colours.
filled = evoem.inpaint(printed, mask, channel_axis=-1, preset="fast")
print(f"{mask.mean():.0%} missing; PSNR {psnr(printed, clean):.1f} → {psnr(filled, clean):.1f} dB")
assert (filled[~mask] == clean[~mask]).all()

# %%
figure, axes = plt.subplots(1, 3, figsize=(9, 2.6), layout="constrained")
for axis, (title, picture) in zip(
    axes, {"printed over": printed, "filled in": filled, "truth": clean}.items(), strict=True
):
    axis.imshow(picture)
    axis.set(title=title, xticks=[], yticks=[])
