"""Evolutionary expectation maximisation for generative models with binary latents."""

from typing import TYPE_CHECKING, Any

from evoem import em, models

if TYPE_CHECKING:
    from evoem.estimators import BinarySparseCoding, NoisyOr, SpikeSlabCoding

__version__ = "0.1.0"

__all__ = ["BinarySparseCoding", "NoisyOr", "SpikeSlabCoding", "__version__", "em", "models"]


def __getattr__(name: str) -> Any:
    # scikit-learn takes longer to import than all the rest; the functional core does not need it.
    if name in __all__:
        from evoem import estimators

        return getattr(estimators, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
