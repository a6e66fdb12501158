"""The M-step for free: a step along the gradient of the truncated bound.

The gradient of Σ_n Σ_s q_n(s) log p(s, x_n | Θ) is a sum over rows, like any statistic of EM. Each
mini-batch is followed by a step along its own gradient. With full batches EM takes a step only if
it does not lower the bound; otherwise the next one is shorter.

Optimisers are those of PyTorch (`torch.optim`, called with the parameters) or of optax. They move
free parameters, of which constrained ones are transforms, see `constraints`.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from evoem.black_box.array_libraries import import_extra
from evoem.black_box.constraints import TRANSFORMS, UNCONSTRAINED, Transform
from evoem.black_box.parameters import Values

ROWS_OF_GRADIENT = "rows of the gradient"  # a name no parameter has
LEARNING_RATE = 0.01
BACKTRACKING = 0.5
EXPANSION = 1.25

Arrays = dict[str, NDArray[np.float64]]


class AscentState(NamedTuple):
    """The state of an optimiser, and the scale of its steps."""

    memory: Any = None  # numbers and NumPy arrays in lists and dicts, so that it can be saved
    step_scale: float = 1.0


class Optimizer(Protocol):
    """Moves free parameters up a gradient."""

    def __call__(self, free: Arrays, gradient: Arrays, memory: Any) -> tuple[Arrays, Any]: ...


class TorchOptimizer:
    """An optimiser of `torch.optim`, made by `make(parameters)`; by default Adam."""

    def __init__(self, make: Callable[[list[Any]], Any] | None = None) -> None:
        self._torch = import_extra("torch", "PyTorch", "torch")
        self._make = make

    def __reduce__(self) -> Any:
        return TorchOptimizer, (self._make,)

    def __call__(self, free: Arrays, gradient: Arrays, memory: Any) -> tuple[Arrays, Any]:
        torch = self._torch
        tensors = {name: torch.tensor(value, requires_grad=True) for name, value in free.items()}
        for name, tensor in tensors.items():
            tensor.grad = torch.as_tensor(-gradient[name])
        make = self._make or partial(torch.optim.Adam, lr=LEARNING_RATE)
        optimizer = make(list(tensors.values()))
        if isinstance(optimizer, torch.optim.LBFGS):
            raise ValueError("optimizer must need one gradient for a step; got LBFGS.")
        if memory is not None:
            optimizer.load_state_dict(_mapped(memory, np.ndarray, torch.tensor))
        optimizer.step()
        moved = {name: tensor.detach().numpy() for name, tensor in tensors.items()}
        state = optimizer.state_dict()
        return moved, _mapped(state, torch.Tensor, lambda tensor: tensor.numpy().copy())


def _mapped(tree: Any, kind: type, function: Callable[[Any], Any]) -> Any:
    """Nested dicts, lists and tuples with a function applied to leaves of a type."""
    if isinstance(tree, kind):
        return function(tree)
    if isinstance(tree, dict):
        return {name: _mapped(value, kind, function) for name, value in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree)(_mapped(value, kind, function) for value in tree)
    return tree


class OptaxOptimizer:
    """An optimiser of optax; by default Adam."""

    def __init__(self, transformation: Any = None) -> None:
        optax = import_extra("optax", "optax", "jax")
        self._jax = import_extra("jax", "JAX", "jax")
        self._given = transformation
        self._optimizer = optax.adam(LEARNING_RATE) if transformation is None else transformation

    def __reduce__(self) -> Any:
        return OptaxOptimizer, (self._given,)

    def __call__(self, free: Arrays, gradient: Arrays, memory: Any) -> tuple[Arrays, Any]:
        with self._jax.enable_x64(True):
            state = self._optimizer.init(free)
            if memory is not None:
                state = self._jax.tree.unflatten(self._jax.tree.structure(state), memory)
            down = {name: -value for name, value in gradient.items()}
            change, state = self._optimizer.update(down, state, free)
            moved = {name: value + np.asarray(change[name]) for name, value in free.items()}
            memory = [np.array(leaf) for leaf in self._jax.tree.leaves(state)]
        return moved, memory


class Ascent:
    """Steps along a gradient, of parameters that may be constrained.

    Parameters
    ----------
    gradient : callable
        `VectorizedLogJoint.gradient` of the log-joint.
    optimizer : Optimizer
    constraints : dict
        Names of constraints by names of parameters.
    """

    def __init__(
        self,
        gradient: Callable[..., Arrays],
        optimizer: Optimizer,
        constraints: Mapping[str, str],
    ) -> None:
        self.gradient = gradient
        self.optimizer = optimizer
        self.constraints = dict(constraints)

    def _transform(self, name: str) -> Transform:
        constraint = self.constraints.get(name)
        return UNCONSTRAINED if constraint is None else TRANSFORMS[constraint]

    def check(self, values: Values) -> None:
        """Raise an error unless the constraints are met."""
        for name, constraint in self.constraints.items():
            if name not in values:
                raise ValueError(
                    f"constraints must name parameters, {', '.join(values)}; got {name!r}."
                )
            transform = self._transform(name)
            if not transform.holds(values[name]):
                raise ValueError(
                    f"params[{name!r}] must {transform.rule} by its constraint {constraint!r}; "
                    f"got {values[name]}."
                )

    def step(self, values: Values, before: AscentState, sums: Arrays) -> tuple[Values, AscentState]:
        """Parameters after a step, and the optimiser's new state."""
        n_rows = float(sums.get(ROWS_OF_GRADIENT, np.array(0.0)))
        names = [name for name in values if name in sums]
        if not names or n_rows == 0:
            return values, before
        free, gradient = {}, {}
        for name in names:
            value, transform = values[name].astype(np.float64), self._transform(name)
            free[name] = np.asarray(transform.free(value))
            gradient[name] = np.asarray(transform.gradient(value, sums[name] / n_rows))
        moved, memory = self.optimizer(free, gradient, before.memory)
        new = dict(values)
        for name in names:
            step = before.step_scale * (moved[name] - free[name])
            new[name] = np.asarray(self._transform(name).constrained(free[name] + step))
        return new, AscentState(memory, min(1.0, EXPANSION * before.step_scale))

    def shortened(self, before: AscentState) -> AscentState:
        """The optimiser's state after a step that was not taken."""
        return before._replace(step_scale=BACKTRACKING * before.step_scale)
