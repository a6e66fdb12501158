"""Spike-and-slab sparse coding, the paper's main model."""
