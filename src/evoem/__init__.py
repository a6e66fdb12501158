"""Evolutionary expectation maximisation for generative models with binary latents."""

from evoem import em, models
from evoem.estimators import BinarySparseCoding, NoisyOr, SpikeSlabCoding

__version__ = "0.1.0"

__all__ = ["BinarySparseCoding", "NoisyOr", "SpikeSlabCoding", "__version__", "em", "models"]
