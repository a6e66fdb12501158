"""Kernels and the types of their arguments as lines of text, and back.

    evoem.posterior._weigh(float64[2, C], float64[2, C], float64[1, C])

An array is its type of number, its number of axes and its layout in memory; a record is the class
of a NamedTuple with its fields; `none` stands for None.
"""

import ast
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numba

# Those of other versions have no types of their own, or others.
types: Any = numba.types

Signature = tuple[Any, tuple[Any, ...]]  # a kernel, and the types of its arguments


def text_of(function: Callable[..., Any], arguments: tuple[Any, ...]) -> str:
    """A kernel, by its function in Python, and the types of its arguments as a line."""
    described = ", ".join(map(_text_of_type, arguments))
    return f"{function.__module__}.{function.__qualname__}({described})"


def _text_of_type(one: Any) -> str:
    if isinstance(one, types.Array):
        if not (one.mutable and one.aligned):
            raise ValueError(f"kernels are only compiled ahead for usual arrays; got {one}.")
        return f"{one.dtype}[{one.ndim}, {one.layout}]"
    if isinstance(one, types.BaseTuple):
        name = ""
        if isinstance(one, types.BaseNamedTuple):
            name = f"{one.instance_class.__module__}.{one.instance_class.__qualname__}"
        fields = [_text_of_type(field) for field in one.types]
        return f"{name}({', '.join(fields)}{',' if len(fields) == 1 else ''})"
    return str(one)


def signature_of(line: str) -> Signature:
    """A kernel and the types of its arguments from a line."""
    tree = ast.parse(line, mode="eval").body
    if not isinstance(tree, ast.Call):
        raise ValueError(f"{line} must be a kernel with its arguments.")
    return _named(tree.func), tuple(map(_type_of, tree.args))


def _named(tree: ast.expr) -> Any:
    """A function or class by its full name."""
    module, name = ast.unparse(tree).rsplit(".", 1)
    return getattr(import_module(module), name)


def _type_of(tree: ast.expr) -> Any:
    match tree:
        case ast.Subscript(
            value=ast.Name(id=number),
            slice=ast.Tuple(elts=[ast.Constant(value=int(n_axes)), ast.Name(id=layout)]),
        ):
            return types.Array(getattr(types, number), n_axes, layout)
        case ast.Call(func=name, args=fields):
            return types.BaseTuple.from_types(tuple(map(_type_of, fields)), _named(name))
        case ast.Tuple(elts=fields):
            return types.BaseTuple.from_types(tuple(map(_type_of, fields)))
        case ast.Name(id=scalar):
            return getattr(types, scalar)
    raise ValueError(f"{ast.unparse(tree)} must be the type of an argument.")
