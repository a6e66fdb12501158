"""Evolutionary expectation maximisation for generative models with binary latents."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evoem import distributed, em, inference, models
    from evoem.errors import LogJointError
    from evoem.estimators import (
        TVAE,
        BinarySparseCoding,
        BlackBox,
        NoisyOr,
        SpikeSlabCoding,
        SubspaceCoding,
    )
    from evoem.images.learning import Progress
    from evoem.images.noise_model import Noise
    from evoem.images.restore import Restoration, denoise, inpaint, restore

__version__ = "0.1.0"

# Everything is imported when it is first asked for: `evoem --help` needs no numerical package, and
# the functional core needs no scikit-learn.
LATE = {
    "BinarySparseCoding": "evoem.estimators",
    "BlackBox": "evoem.estimators",
    "LogJointError": "evoem.errors",
    "Noise": "evoem.images.noise_model",
    "NoisyOr": "evoem.estimators",
    "Progress": "evoem.images.learning",
    "SpikeSlabCoding": "evoem.estimators",
    "SubspaceCoding": "evoem.estimators",
    "TVAE": "evoem.estimators",
    "Restoration": "evoem.images.restore",
    "denoise": "evoem.images.restore",
    "inpaint": "evoem.images.restore",
    "restore": "evoem.images.restore",
}
__all__ = [
    "TVAE",
    "BinarySparseCoding",
    "BlackBox",
    "LogJointError",
    "Noise",
    "NoisyOr",
    "Progress",
    "Restoration",
    "SpikeSlabCoding",
    "SubspaceCoding",
    "__version__",
    "denoise",
    "distributed",
    "em",
    "inference",
    "inpaint",
    "models",
    "restore",
]


def __getattr__(name: str) -> Any:
    if name in ("distributed", "em", "inference", "models"):
        return import_module(f"evoem.{name}")
    if name in LATE:
        return getattr(import_module(LATE[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
