"""Spike-and-slab coding whose latents are subspaces: our extension of the paper's model."""
