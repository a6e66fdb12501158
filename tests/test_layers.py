"""Imports point downward."""

import ast
from pathlib import Path

import pytest

import evoem

PACKAGE = Path(evoem.__file__).parent

# Top to bottom; a module may import from lower layers and from its own folder.
LAYERS = [
    {"__main__"},
    {"cli"},
    {"progress"},
    {"report"},
    {"images"},
    {"tvae"},
    {"black_box", "estimators", "subspace_coding"},
    {"estimator_base"},
    {"em"},
    {"validation"},
    {"posterior"},
    {"models", "evolution"},
    {"ranking"},
    {"states"},
    {"streams"},
    {"compile", "threads"},
    {"interrupts"},
    {"whole_files"},
    {"errors"},
]
DEPTH = {name: depth for depth, names in enumerate(LAYERS) for name in names}
MAY_VALIDATE = {
    "estimators", "estimator_base", "black_box", "subspace_coding", "tvae", "cli", "images", "em"
}  # fmt: skip


def layer_name(path):
    """`models/base.py` belongs to `models`, `em.py` to `em`."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_layers(source, folders=()):
    """Names, one below the package, that a module imports from, however late.

    `folders` are those the module lies in, which relative imports start from.
    """
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            start = ["evoem", *folders][: len(folders) + 2 - node.level] if node.level else []
            module = ".".join([*start, *filter(None, [node.module])])
            names |= {f"{module}.{alias.name}" for alias in node.names}
    parts = [name.split(".") for name in names]
    return {part[1] for part in parts if part[0] == "evoem" and len(part) > 1}


SOURCES = [path for path in sorted(PACKAGE.rglob("*.py")) if path != PACKAGE / "__init__.py"]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_imports_from_lower_layers_only(path):
    own = layer_name(path)
    assert own in DEPTH, f"{own} has no place in LAYERS"
    for other in imported_layers(path.read_text(), path.relative_to(PACKAGE).parts[:-1]):
        assert other == own or DEPTH[other] > DEPTH[own], f"{own} imports {other}"
        assert other != "validation" or own in MAY_VALIDATE, f"{own} imports validation"


@pytest.mark.parametrize(
    ("source", "folders", "expected"),
    [
        ("import evoem.em", (), {"em"}),
        ("from evoem import em, states", (), {"em", "states"}),
        ("from evoem.models.base import Model", (), {"models"}),
        ("from . import em", (), {"em"}),
        ("from .models.base import Model", (), {"models"}),
        ("from . import base", ("models",), {"models"}),
        ("from .. import em", ("models",), {"em"}),
        ("from ..em import run", ("models",), {"em"}),
        ("def late():\n    from evoem import cli", (), {"cli"}),
        ("import numpy, evoemother.em", (), set()),
    ],
)
def test_every_kind_of_import_is_seen(source, folders, expected):
    assert imported_layers(source, folders) == expected
