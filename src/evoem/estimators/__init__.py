"""Estimators of the models, with the interface of scikit-learn."""

from evoem.estimators.black_box import BlackBox
from evoem.estimators.paper_models import BinarySparseCoding, NoisyOr, SpikeSlabCoding
from evoem.estimators.subspace import SubspaceCoding
from evoem.estimators.tvae import TVAE

__all__ = [
    "TVAE",
    "BinarySparseCoding",
    "BlackBox",
    "NoisyOr",
    "SpikeSlabCoding",
    "SubspaceCoding",
]
