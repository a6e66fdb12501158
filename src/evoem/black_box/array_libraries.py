"""NumPy, PyTorch or JAX: the library a user's functions are written in, imported when needed."""

import contextlib
import importlib
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray

from evoem.black_box import parameters
from evoem.black_box.parameters import Values
from evoem.errors import MissingExtra


class Library(Protocol):
    """What EM needs of an array library."""

    differentiates: bool

    def params(self, template: Any, values: Values, dtype: DTypeLike) -> Any:
        """Parameters in the form that the user's functions take."""

    def array(self, params: Any, values: Any) -> Any:
        """Data in the form that the user's functions take."""

    def call(self, function: Callable[..., Any], params: Any, *arrays: Any, **more: Any) -> Any:
        """The log-joints that a function returns for arrays of rows and states, as NumPy."""

    def apply(self, function: Callable[..., Any], params: Any, *arguments: Any) -> Any:
        """The result of another of the user's functions."""

    def gradient(
        self,
        function: Callable[..., Any],
        params: Any,
        arrays: tuple[Any, ...],
        weights: NDArray[np.float64],
        more: Mapping[str, Any],
    ) -> dict[str, NDArray[np.float64]]:
        """The gradient of Σ weights · function(params, …) by each real parameter."""


def import_extra(module: str, package: str, extra: str) -> Any:
    """Import a module of an optional package."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtra(package, extra) from error


def read_only(values: Any) -> NDArray[Any]:
    """A read-only view, so that no function changes its arguments."""
    view = np.asarray(values)[...]
    view.flags.writeable = False
    return view


class NumpyArrays:
    """NumPy: no gradients."""

    differentiates = False

    def params(self, template: Any, values: Values, dtype: DTypeLike) -> Any:
        def make(name: str) -> Any:
            value = values[name]
            real = value.dtype.kind == "f"
            return read_only(value.astype(dtype, copy=False) if real else value)[()]

        return parameters.rebuild(template, make)

    def array(self, params: Any, values: Any) -> Any:
        return read_only(values)

    def call(self, function: Callable[..., Any], params: Any, *arrays: Any, **more: Any) -> Any:
        return function(params, *arrays, **more)

    def apply(self, function: Callable[..., Any], params: Any, *arguments: Any) -> Any:
        return function(params, *arguments)

    def gradient(self, *_: Any) -> dict[str, NDArray[np.float64]]:
        raise TypeError("NumPy has no gradients.")


class _Threads:
    """How many of our threads use PyTorch, and its own number of threads before that."""

    lock = threading.Lock()
    inside = 0
    before = 1


class TorchArrays:
    """PyTorch, on the processor."""

    differentiates = True

    def __init__(self) -> None:
        self._torch = import_extra("torch", "PyTorch", "torch")

    def __reduce__(self) -> Any:  # modules cannot be pickled
        return TorchArrays, ()

    def params(self, template: Any, values: Values, dtype: DTypeLike) -> Any:
        if parameters.is_module(template):
            return parameters.module_with(template, values).eval()

        def make(name: str) -> Any:
            value = values[name]
            real = value.dtype.kind == "f"
            tensor = self._torch.from_numpy(value.astype(dtype) if real else value.copy())
            return tensor.requires_grad_(real)

        return parameters.rebuild(template, make)

    def array(self, params: Any, values: Any) -> Any:
        tensor = self._torch.from_numpy(np.require(values, requirements=["C", "W"]))
        real = self._real_leaves(params)
        return tensor.to(real[0].dtype) if tensor.is_floating_point() and real else tensor

    def _real_leaves(self, params: Any) -> list[Any]:
        found = parameters.leaves(params).values()
        return [leaf for leaf in found if leaf.is_floating_point()]

    @contextlib.contextmanager
    def _one_thread(self) -> Iterator[None]:
        """One thread: ours share blocks of rows, and sums must not depend on their number.

        PyTorch has a number of threads for each thread; new ones take the last that was set.
        """
        with _Threads.lock:
            if _Threads.inside == 0:
                _Threads.before = self._torch.get_num_threads()
            _Threads.inside += 1
        self._torch.set_num_threads(1)
        try:
            yield
        finally:
            with _Threads.lock:
                _Threads.inside -= 1
                self._torch.set_num_threads(_Threads.before)

    def call(self, function: Callable[..., Any], params: Any, *arrays: Any, **more: Any) -> Any:
        with self._one_thread(), self._torch.no_grad():
            result = function(params, *arrays, **more)
        return result.cpu().numpy() if self._torch.is_tensor(result) else result

    def apply(self, function: Callable[..., Any], params: Any, *arguments: Any) -> Any:
        return self.call(function, params, *arguments)

    def gradient(
        self,
        function: Callable[..., Any],
        params: Any,
        arrays: tuple[Any, ...],
        weights: NDArray[np.float64],
        more: Mapping[str, Any],
    ) -> dict[str, NDArray[np.float64]]:
        leaves = {
            name: leaf for name, leaf in parameters.leaves(params).items() if leaf.requires_grad
        }
        with self._one_thread(), self._torch.enable_grad():
            result = function(params, *arrays, **more)
            total = (self._torch.from_numpy(weights).to(result.dtype) * result).sum()
            found = self._torch.autograd.grad(total, list(leaves.values()), allow_unused=True)
        return {
            name: np.zeros(leaf.shape) if part is None else part.double().numpy()
            for (name, leaf), part in zip(leaves.items(), found, strict=True)
        }


class JaxArrays:
    """JAX, compiled. Shapes are padded to powers of two: each new one would compile again."""

    differentiates = True

    def __init__(self, compiled: bool = True) -> None:
        self._jax = import_extra("jax", "JAX", "jax")
        self._compiled = compiled
        self._functions: dict[Any, Any] = {}
        self._gradients: dict[Any, Any] = {}

    def __reduce__(self) -> Any:  # compiled code is made again where it is needed
        return JaxArrays, (self._compiled,)

    def _precision(self, double: bool) -> Any:
        """Double precision for the time being, unless it is switched on anyway."""
        return self._jax.enable_x64(True) if double else contextlib.nullcontext()

    def _is_double(self, params: Any) -> bool:
        return any(
            getattr(leaf, "dtype", None) == np.float64
            for leaf in parameters.leaves(params).values()
        )

    def params(self, template: Any, values: Values, dtype: DTypeLike) -> Any:
        with self._precision(np.dtype(dtype) == np.float64):

            def make(name: str) -> Any:
                real = values[name].dtype.kind == "f"
                return self._jax.numpy.asarray(values[name], dtype if real else None)

            return parameters.rebuild(template, make)

    def array(self, params: Any, values: Any) -> Any:
        return np.asarray(values)  # moved when it is padded

    def _call(
        self, cache: dict[Any, Any], make: Callable[[Any], Any], function: Any, *arguments: Any,
        **more: Any,
    ) -> Any:  # fmt: skip
        if function not in cache:
            cache[function] = self._jax.jit(make(function)) if self._compiled else make(function)
        try:
            return cache[function](*arguments, **more)
        except self._jax.errors.JAXTypeError as error:
            if not self._compiled:
                raise
            first = str(error).splitlines()[0]
            raise TypeError(
                f"log_joint must compile with jax.jit, or be run without by compiled=False; {first}"
            ) from error

    def call(self, function: Callable[..., Any], params: Any, *arrays: Any, **more: Any) -> Any:
        shapes = [_padded_shape(array) for array in arrays]
        padded = [_pad(array, shape) for array, shape in zip(arrays, shapes, strict=True)]
        named = {name: _pad(array, _padded_shape(array)) for name, array in more.items()}
        with self._precision(self._is_double(params)):
            found = self._call(
                self._functions, lambda function: function, function, params, *padded, **named
            )
            result = np.asarray(found)
        # Back to the rows and states that were asked for, if the result has these axes.
        wanted = (len(arrays[0]), *(array.shape[1] for array in arrays if array.ndim == 3))[:2]
        grown = (len(padded[0]), *(array.shape[1] for array in padded if array.ndim == 3))[:2]
        if result.shape[: len(grown)] == grown:
            result = result[tuple(slice(length) for length in wanted)]
        return result

    def apply(self, function: Callable[..., Any], params: Any, *arguments: Any) -> Any:
        """Not compiled, since it may do anything, and not padded, since it may sum over rows."""
        with self._precision(self._is_double(params)):
            move = self._jax.numpy.asarray
            given = self._jax.tree.map(
                lambda part: move(part) if isinstance(part, np.ndarray) else part, arguments
            )
            return function(params, *given)

    def gradient(
        self,
        function: Callable[..., Any],
        params: Any,
        arrays: tuple[Any, ...],
        weights: NDArray[np.float64],
        more: Mapping[str, Any],
    ) -> dict[str, NDArray[np.float64]]:
        padded = [_pad(array, _padded_shape(array)) for array in arrays]
        named = {name: _pad(array, _padded_shape(array)) for name, array in more.items()}
        full = np.zeros((len(padded[0]), padded[-1].shape[1]))
        full[: weights.shape[0], : weights.shape[1]] = weights

        def make(function: Any) -> Any:
            def total(params: Any, weights: Any, *arrays: Any, **more: Any) -> Any:
                return (weights * function(params, *arrays, **more)).sum()

            return self._jax.grad(total, allow_int=True)

        with self._precision(self._is_double(params)):
            found = self._call(self._gradients, make, function, params, full, *padded, **named)
            return {
                name: np.asarray(part, np.float64)
                for name, part in parameters.leaves(found).items()
                if np.issubdtype(part.dtype, np.floating)
            }


def _padded_shape(array: NDArray[Any]) -> tuple[int, ...]:
    """Rows, and states if there are any, grown to powers of two."""
    grown = [1 << (length - 1).bit_length() for length in array.shape[: array.ndim - 1]]
    return (*grown, array.shape[-1])


def _pad(array: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """Filled up with the last row and state."""
    grow = [(0, after - before) for before, after in zip(array.shape, shape, strict=True)]
    return np.pad(array, grow, mode="edge")


def library_of(params: Any) -> str:
    """The library whose arrays the parameters are."""
    if parameters.is_module(params):
        return "torch"
    for leaf in parameters.leaves(params).values():
        root = type(leaf).__module__.partition(".")[0]
        if root in ("torch", "jax", "jaxlib"):
            return root.removesuffix("lib")
    return "numpy"
