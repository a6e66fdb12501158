"""Tests mirror the source: `src/evoem/a/b.py` is tested by `tests/a/test_b.py`."""

from pathlib import Path

import pytest

import evoem

PACKAGE = Path(evoem.__file__).parent
TESTS = Path(__file__).parent

# Folders whose `__init__` has more in it than imports.
WITH_OWN_CODE = {"__init__": "test_package", "images/files/__init__": "images/files/test_files"}
# Modules without functions of their own to test, or tested as a whole program.
WITHOUT_TESTS = {
    "__main__": "the program: `cli/test_app.py` starts it",
    "reproduction/experiment": "records alone",
}
MODULES = sorted(
    path.relative_to(PACKAGE).with_suffix("").as_posix() for path in PACKAGE.rglob("*.py")
)


def mirror(module):
    """Where the tests of a module are."""
    if module in WITH_OWN_CODE:
        return TESTS / f"{WITH_OWN_CODE[module]}.py"
    folder, _, name = module.rpartition("/")
    return TESTS / folder / f"test_{name}.py"


def only_imports(path):
    """Whether a file has neither a function nor a class."""
    lines = path.read_text().splitlines()
    return not any(line.lstrip().startswith(("def ", "class ", "@")) for line in lines)


@pytest.mark.parametrize("module", MODULES)
def test_every_module_has_tests_of_its_own(module):
    source = PACKAGE / f"{module}.py"
    if module in WITHOUT_TESTS:
        assert not mirror(module).exists(), f"{module} has tests: it is no exception any more"
    elif module.endswith("__init__") and module not in WITH_OWN_CODE:
        assert only_imports(source), f"{module} has code, and so needs tests"
    else:
        assert mirror(module).exists(), f"{mirror(module)} is missing"


def test_exceptions_are_modules():
    assert (WITHOUT_TESTS.keys() | WITH_OWN_CODE.keys()) <= set(MODULES)
