"""A user's description of a model, and the model built from it."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any

from evoem.black_box import parameters
from evoem.black_box.array_libraries import JaxArrays, Library, NumpyArrays, TorchArrays, library_of
from evoem.black_box.gradient import Ascent, OptaxOptimizer, TorchOptimizer
from evoem.black_box.model import BlackBoxModel, Functions
from evoem.black_box.scalar_log_joint import ScalarLogJoint
from evoem.black_box.vectorized_log_joint import VectorizedLogJoint

LIBRARIES = ("numpy", "torch", "jax")


@dataclass(eq=False, repr=False)
class Specification:
    """A user's description of a model: the parameters of `evoem.BlackBox`, explained there."""

    log_joint: Callable[..., Any]
    params: Any
    _: KW_ONLY
    statistics: Callable[..., Mapping[str, Any]] | None = None
    update: Callable[..., Any] | bool | None = None
    constraints: Mapping[str, str] | None = None
    optimizer: Any = None
    mean: Callable[..., Any] | None = None
    sampler: Callable[..., tuple[Any, Any]] | None = None
    log_constant: Callable[..., Any] | None = None
    compiled: bool = True
    prepare_rows: Callable[..., Any] | None = None
    vectorized: bool | None = None
    library: str | None = None


def is_vectorized(log_joint: Callable[..., Any]) -> bool:
    """Whether a log-joint takes many states, by the names or the number of its parameters."""
    names = list(inspect.signature(getattr(log_joint, "py_func", log_joint)).parameters)
    if not {"state", "active", "states"}.isdisjoint(names):
        return "states" in names
    if len(names) in (3, 4):
        return len(names) == 3
    raise ValueError(
        "log_joint must have the parameters (params, x, observed, state), or (params, X, states) "
        f"if it is vectorised; got ({', '.join(names)})."
    )


def makes_params(specification: Specification) -> bool:
    """Whether `params` is a function that makes parameters from data."""
    return callable(specification.params) and not parameters.is_module(specification.params)


def build_model(specification: Specification, params: Any) -> BlackBoxModel:
    """The model; its parameters start from `params` and keep their form."""
    vectorized = specification.vectorized
    if vectorized is None:
        vectorized = is_vectorized(specification.log_joint)
    library = _library(specification, params, vectorized)
    log_joint = _log_joint(specification, library, vectorized)
    update = specification.update
    functions = Functions(
        specification.statistics,
        update if callable(update) else None,
        specification.mean,
        specification.sampler,
        specification.log_constant,
    )
    ascent = _ascent(specification, log_joint, library)
    return BlackBoxModel(log_joint, params, library, functions, ascent)


def _library(specification: Specification, params: Any, vectorized: bool) -> Library:
    name = specification.library or library_of(params)
    if not vectorized and name != "numpy":
        raise ValueError(
            f"log_joint must be vectorised, (params, X, states), for {name}; got one of a "
            "single state."
        )
    if name == "jax":
        return JaxArrays(specification.compiled)
    return TorchArrays() if name == "torch" else NumpyArrays()


def _log_joint(
    specification: Specification, library: Library, vectorized: bool
) -> ScalarLogJoint | VectorizedLogJoint:
    function, prepare_rows = specification.log_joint, specification.prepare_rows
    if not vectorized:
        return ScalarLogJoint(function, specification.compiled, prepare_rows)
    if prepare_rows is not None:
        raise ValueError(
            "prepare_rows must be None for a vectorised log_joint, which sees whole rows; "
            f"got {prepare_rows!r}."
        )
    return VectorizedLogJoint(function, library)


def _ascent(
    specification: Specification, log_joint: ScalarLogJoint | VectorizedLogJoint, library: Library
) -> Ascent | None:
    """The M-step along the gradient; None if the user gives an M-step, or wants none."""
    constraints, optimizer = specification.constraints, specification.optimizer
    if specification.update is not None:
        if constraints or optimizer is not None:
            raise ValueError(
                "constraints and optimizer must be None where update is given: they are for "
                "gradients."
            )
        return None
    if isinstance(log_joint, ScalarLogJoint) or not library.differentiates:
        raise ValueError(
            "update must be given, with statistics, for a log_joint of NumPy or Numba, which "
            "have no gradients; got None (use params of PyTorch or JAX, or update=False to "
            "leave them as they are)."
        )
    in_torch = isinstance(library, TorchArrays)
    usable = callable(optimizer) if in_torch else hasattr(optimizer, "update")
    if optimizer is not None and not usable:
        what = "make one of torch.optim" if in_torch else "be one of optax"
        raise ValueError(f"optimizer must {what} for these params; got {optimizer!r}.")
    make = TorchOptimizer if in_torch else OptaxOptimizer
    return Ascent(log_joint.gradient, make(optimizer), constraints or {})
