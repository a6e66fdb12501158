"""The generative models. Each implements the contract of `evoem.models.base` by pure functions."""

from evoem.models.base import Model, Posterior
from evoem.models.binary_sparse_coding import BinarySparseCodingModel
from evoem.models.noisy_or import NoisyOrModel
from evoem.models.spike_slab.model import SpikeSlabModel
from evoem.models.subspace.model import SubspaceModel

__all__ = [
    "BinarySparseCodingModel",
    "Model",
    "NoisyOrModel",
    "Posterior",
    "SpikeSlabModel",
    "SubspaceModel",
]
