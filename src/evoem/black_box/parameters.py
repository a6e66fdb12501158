"""A user's parameters as named arrays, and back.

Internally parameters are a flat dict of NumPy arrays, which can be saved and sent. The user sees
the form they gave: a dict, NamedTuple, list or tuple, nested in any way, of numbers or arrays of
NumPy, PyTorch or JAX; a pytree that JAX knows; or a PyTorch `nn.Module`. Names of nested parameters
are joined by dots.
"""

import copy
import sys
from collections import namedtuple
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Values = dict[str, NDArray[Any]]


class _Container(NamedTuple):
    """The parts of a container, and how to make another of the same kind."""

    parts: dict[str, Any]
    build: Callable[[list[Any]], Any]


def is_module(params: Any) -> bool:
    """Whether this is a PyTorch module; PyTorch is not imported to find out."""
    return callable(getattr(params, "named_parameters", None))


def _container_of(node: Any) -> _Container | None:
    """The container of a value; None if it is none."""
    if isinstance(node, Mapping):
        return _Container(
            {str(key): value for key, value in node.items()},
            lambda built: dict(zip(node, built, strict=True)),
        )
    if hasattr(node, "_asdict"):
        return _Container(dict(node._asdict()), lambda built: type(node)(*built))
    if isinstance(node, list | tuple):
        return _Container(dict(zip(map(str, range(len(node))), node, strict=True)), type(node))
    if "jax" in sys.modules:
        tree = sys.modules["jax"].tree_util
        children, definition = tree.tree_flatten_with_path(node, lambda part: part is not node)
        if children and children[0][1] is not node:
            named = {tree.keystr(path).strip(".[]'"): part for path, part in children}
            return _Container(named, lambda built: tree.tree_unflatten(definition, built))
    return None


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _walk(node: Any, path: str) -> Iterator[tuple[str, Any]]:
    container = _container_of(node)
    if container is None:
        yield path, node
        return
    for name, part in container.parts.items():
        yield from _walk(part, _join(path, name))


def leaves(params: Any) -> dict[str, Any]:
    """The user's own arrays by name."""
    return dict(params.named_parameters() if is_module(params) else _walk(params, ""))


def as_numpy(array: Any) -> NDArray[Any]:
    """A number, or an array of any library."""
    return np.asarray(array.detach().cpu().numpy() if hasattr(array, "detach") else array)


def _checked_leaf(name: str, leaf: Any) -> NDArray[Any]:
    array = as_numpy(leaf).copy()
    if array.dtype.kind not in "fiub":
        whose = f" for {name!r}" if name else ""
        raise ValueError(f"params must hold real numbers; got {leaf!r}{whose}.")
    if not np.isfinite(array).all():
        wrong = array[~np.isfinite(array)][0]
        raise ValueError(f"params must be finite; got {wrong} in {name!r}.")
    return array


def flatten(params: Any) -> Values:
    """The parameters as named NumPy arrays, copied."""
    values = {name: _checked_leaf(name, leaf) for name, leaf in leaves(params).items()}
    if not values:
        raise ValueError(f"params must hold at least one array; got {params!r}.")
    return values


def rebuild(template: Any, make: Callable[[str], Any], for_numba: bool = False) -> Any:
    """Containers as in `template`, with `make(name)` for each array.

    For Numba, which knows neither, NamedTuples stand for dicts and tuples for lists.
    """

    def build(node: Any, path: str) -> Any:
        container = _container_of(node)
        if container is None:
            return make(path)
        built = [build(part, _join(path, name)) for name, part in container.parts.items()]
        if for_numba and isinstance(node, Mapping):
            return _record(tuple(container.parts))(*built)
        return tuple(built) if for_numba and isinstance(node, list) else container.build(built)

    return build(template, "")


@lru_cache
def _record(names: tuple[str, ...]) -> Any:
    """A NamedTuple that, outside Numba, can also be read like the dict it stands for."""

    def item(self: Any, key: Any) -> Any:
        return getattr(self, key) if isinstance(key, str) else tuple.__getitem__(self, key)

    return type("Params", (namedtuple("Params", names),), {"__slots__": (), "__getitem__": item})


def module_with(template: Any, values: Values) -> Any:
    """A copy of a PyTorch module with other parameters."""
    import torch

    module = copy.deepcopy(template)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter.copy_(torch.as_tensor(values[name]))
    return module


def unflatten(template: Any, values: Values) -> Any:
    """The values in the containers, and with the array types, of a template."""
    if is_module(template):
        return module_with(template, values)
    first = leaves(template)

    def make(name: str) -> Any:
        leaf, value = first[name], values[name]
        if hasattr(leaf, "new_tensor"):  # PyTorch
            return leaf.new_tensor(value)
        if hasattr(leaf, "sharding"):  # JAX
            with sys.modules["jax"].enable_x64(leaf.dtype.itemsize == 8):
                return sys.modules["jax"].numpy.asarray(value, leaf.dtype)
        return value[()]

    return rebuild(template, make)


def matching(template: Any, values: Values, source: str) -> Values:
    """The values, if they have the names and shapes of a template's."""
    wanted, got = shapes(flatten(template)), shapes(values)
    if wanted != got:
        raise ValueError(f"{source} must give params of the shapes {wanted}; got {got}.")
    return values


def shapes(values: Values) -> dict[str, tuple[int, ...]]:
    """Names and shapes."""
    return {name: value.shape for name, value in values.items()}
