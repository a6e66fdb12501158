"""Denoise, inpaint and analyse the noise of layers in napari, which finds this by its manifest."""
