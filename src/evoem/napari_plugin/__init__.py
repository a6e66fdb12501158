"""Denoise, inpaint and tell the noise of layers in napari, which finds this by its manifest."""
