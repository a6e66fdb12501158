"""Imports point downward."""

import ast
from pathlib import Path

import pytest

import evoem

PACKAGE = Path(evoem.__file__).parent

# Top to bottom; a module may import from lower layers and from its own. A name is a file of the
# package or a folder, with all that lies in it unless that has a layer of its own.
LAYERS = [
    {"__main__"},
    {"cli"},
    {"ui"},
    {"napari_plugin"},
    {"reproduction"},
    {"progress"},
    {"screen"},
    {"report"},
    {"images"},
    {"images/files"},
    {"estimators"},
    {"black_box"},
    {"inference"},
    {"em"},
    {"iteration"},
    {"incremental", "candidates", "first_states", "stopping", "kept_run"},
    {"checkpoints", "shares", "statistics_sum"},
    {"em_state", "data"},
    {"posterior"},
    {"models/__init__.py"},
    {"models/subspace"},
    {"models/spike_slab"},
    {"models", "evolution"},
    {"ranking"},
    {"states"},
    {"streams"},
    {"distributed"},
    {"runtime"},
    {"errors", "validation"},
]
DEPTH = {name: depth for depth, names in enumerate(LAYERS) for name in names}


def layer_of(parts):
    """The layer of a module or folder, by the parts of its path below the package."""
    for length in range(len(parts), 0, -1):
        name = "/".join(parts[:length])
        if name in DEPTH:
            return name
    return "/".join(parts)


def imported_layers(source, folders=()):
    """Layers that a module imports from, however late.

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
    paths = [name.split(".")[1:] for name in names if name.startswith("evoem.")]
    return {layer_of(path) for path in map(module_path, paths)} - {""}


def module_path(parts):
    """Without the names that lie in a module: `em.run` is of `em`, `models.Model` of `models`."""
    for length in range(len(parts), 0, -1):
        path = PACKAGE.joinpath(*parts[:length])
        if path.with_suffix(".py").exists():
            return parts[:length]
        if path.is_dir():
            return [*parts[:length], "__init__.py"]
    return []


SOURCES = [path for path in sorted(PACKAGE.rglob("*.py")) if path != PACKAGE / "__init__.py"]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_imports_from_lower_layers_only(path):
    parts = path.relative_to(PACKAGE).parts
    own = layer_of([*parts[:-1], parts[-1] if parts[-1] == "__init__.py" else path.stem])
    assert own in DEPTH, f"{own} has no place in LAYERS"
    for other in imported_layers(path.read_text(), parts[:-1]):
        assert other == own or DEPTH[other] > DEPTH[own], f"{own} imports {other}"


def test_every_folder_and_every_file_of_the_package_has_a_layer():
    known = {name.split("/")[0] for name in DEPTH}
    found = {path.relative_to(PACKAGE).parts[0].removesuffix(".py") for path in SOURCES}
    assert known == found
    folders = {path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*/__init__.py")}
    assert {folder.removesuffix("/__init__.py") for folder in folders} <= DEPTH.keys()


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
