"""Evolutionary expectation maximisation for generative models with binary latents."""
