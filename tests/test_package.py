"""What is true of the package as a whole."""

import inspect
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from types import FunctionType

import pytest

import evoem
from evoem import em, inference, models, states
from evoem.distributed import world

# What a user may call, of the modules that have names of their own in `evoem`.
PUBLIC = {
    f"{module.__name__}.{name}": getattr(module, name)
    for module in (evoem, em, inference, models)
    for name in module.__all__
    if callable(getattr(module, name)) and name != "Callback"
}
PUBLIC |= {function.__qualname__: function for function in (world, states.pack, states.unpack)}
PUBLIC |= {
    f"{kind.__name__}.{name}": member
    for kind in (evoem.Noise, evoem.Restoration)
    for name, member in vars(kind).items()
    if not name.startswith("_") and isinstance(member, FunctionType)
}
WITHOUT_FIELDS = {em.Criterion, models.Model}


@pytest.mark.parametrize("documented", PUBLIC.values(), ids=PUBLIC)
def test_everything_public_says_what_it_takes_and_gives_and_has_an_example(documented):
    text = inspect.getdoc(documented)
    assert "Examples\n--------\n" in text
    assert ">>> " in text
    if inspect.isclass(documented):
        said = "Parameters\n---" in text or "Attributes\n---" in text
        assert said != (documented in WITHOUT_FIELDS)
    else:
        signature = inspect.signature(documented)
        assert ("Parameters\n---" in text) == bool(signature.parameters.keys() - {"self"})
        assert ("Returns\n---" in text) == (signature.return_annotation is not None)


def test_type_checkers_are_told_that_there_are_types():
    assert (Path(evoem.__file__).parent / "py.typed").is_file()


def test_importing_it_loads_no_numerical_package():
    script = "import sys, evoem; print({'numpy', 'numba', 'sklearn'} & sys.modules.keys())"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "set()\n"


# What other platforms do not have, hidden: all of it is to be imported all the same.
WITHOUT_POSIX = """
import importlib, os, pkgutil, signal, sys
for name in ("fcntl", "grp", "pwd", "resource", "termios"):
    sys.modules[name] = None
for name in ("fork", "getuid", "getxattr", "sched_getaffinity", "sysconf"):
    vars(os).pop(name, None)
for name in ("SIGALRM", "SIGHUP", "SIGKILL", "setitimer"):
    vars(signal).pop(name, None)
import evoem
for module in pkgutil.walk_packages(evoem.__path__, "evoem."):
    importlib.import_module(module.name)
"""


def test_every_module_can_be_imported_where_posix_is_not():
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", WITHOUT_POSIX],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_what_is_shipped_has_all_that_is_no_code(kind, tmp_path):
    root = Path(__file__).parents[1]
    build = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(tmp_path)]
    subprocess.run(build, cwd=root, capture_output=True, check=True)
    (archive,) = tmp_path.iterdir()
    if kind == "wheel":
        with zipfile.ZipFile(archive) as opened:
            shipped = set(opened.namelist())
    else:
        with tarfile.open(archive) as opened:
            shipped = {name.split("/src/", 1)[-1] for name in opened.getnames()}
    package = root / "src" / "evoem"
    needed = {
        path.relative_to(package.parent).as_posix()
        for path in package.rglob("*")
        if path.is_file() and path.suffix not in (".py", ".pyc")
    }
    folders = {name.split("/")[1] for name in needed}
    assert {"experiments", "images", "ui"} <= folders
    assert needed <= shipped
