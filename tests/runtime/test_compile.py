"""Where compiled code is kept: per version of the sources, and anywhere that can be written to."""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numba
import pytest

import evoem
from evoem.runtime import compile as compiling

PACKAGE = Path(evoem.__file__).parent


def digest_of(package, cache, monkeypatch):
    """`sources_digest` of a copy of the package, by the copy's own code."""
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(cache))  # the copy claims a folder, here
    spec = importlib.util.spec_from_file_location(
        "compile_of_a_copy", package / "runtime" / "compile.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.sources_digest()


@pytest.fixture
def package_copy(tmp_path):
    return shutil.copytree(
        PACKAGE, tmp_path / "copy" / "evoem", ignore=shutil.ignore_patterns("__pycache__")
    )


def test_a_copy_of_the_sources_has_the_same_digest(package_copy, tmp_path, monkeypatch):
    assert digest_of(package_copy, tmp_path, monkeypatch) == compiling.sources_digest()


def append_a_line(package):
    with (package / "models" / "base.py").open("a") as file:
        file.write("EDITED = True\n")


def rename_a_module(package):
    (package / "em.py").rename(package / "expectation_maximisation.py")


def add_a_module(package):
    (package / "models" / "another.py").touch()


@pytest.mark.parametrize("edit", [append_a_line, rename_a_module, add_a_module])
def test_an_edit_anywhere_in_the_package_changes_the_digest(
    edit, package_copy, tmp_path, monkeypatch
):
    edit(package_copy)
    assert digest_of(package_copy, tmp_path, monkeypatch) != compiling.sources_digest()


RUN_A_KERNEL = """
import numpy as np
from evoem import streams
print(streams.start(1, 2, np.arange(3, dtype=np.uint64)).tolist())
"""


def run_a_kernel(**environment):
    """Standard output of a fresh process with these variables and no other cache settings."""
    kept = {k: v for k, v in os.environ.items() if k not in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME")}
    environment = {k: str(v) for k, v in environment.items()}
    done = subprocess.run(
        [sys.executable, "-c", RUN_A_KERNEL],
        env={**kept, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def cached_kernels(folder):
    """Names of the sub-folders of `folder` that hold compiled code."""
    return {path.relative_to(folder).parts[0] for path in folder.rglob("*.nbi")}


def test_kernels_compile_when_the_home_folder_cannot_be_written_to(tmp_path):
    # Nothing can be made below a regular file, not even by root, whom permissions do not bind.
    blocked = tmp_path / "file"
    blocked.touch()
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    out = run_a_kernel(
        HOME=blocked / "home",
        XDG_CACHE_HOME=blocked / "cache",
        LOCALAPPDATA=blocked / "local",
        TMPDIR=temporary,
        TEMP=temporary,
    )
    assert len(out.split(",")) == 3
    (private,) = temporary.glob("evoem-cache-*")
    assert cached_kernels(private) == {compiling.sources_digest()}


def test_numba_cache_dir_is_where_kernels_are_kept_if_it_is_set(tmp_path):
    run_a_kernel(NUMBA_CACHE_DIR=tmp_path / "numba", XDG_CACHE_HOME=tmp_path / "xdg")
    assert cached_kernels(tmp_path / "numba") == {compiling.sources_digest()}
    assert not (tmp_path / "xdg").exists()


def test_a_folder_that_cannot_be_made_is_not_used(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "file" / "cache"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = compiling.kernel_cache_folder()
    assert folder.parent.parent == tmp_path
    assert folder.is_dir()


def test_there_is_no_cache_folder_when_none_can_be_made(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "file" / "cache"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "file"))
    assert compiling.kernel_cache_folder() is None


def refuse_a_temporary_folder():
    raise FileNotFoundError("No usable temporary directory found")


def test_there_is_no_cache_folder_when_there_is_no_temporary_folder_either(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "file" / "cache"))
    monkeypatch.setattr("tempfile.gettempdir", refuse_a_temporary_folder)
    assert compiling.kernel_cache_folder() is None


def refuse_a_home_folder():
    raise RuntimeError("Could not determine home directory.")


def test_a_user_without_a_home_folder_has_a_cache_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("LOCALAPPDATA", raising=False)
    monkeypatch.setattr(Path, "home", refuse_a_home_folder)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert compiling.kernel_cache_folder().parent.parent == tmp_path


def test_a_kernel_works_without_a_cache_folder(monkeypatch):
    monkeypatch.setattr(compiling, "_FOLDER", None)
    assert compiling.kernel(lambda x: x + 1)(2) == 3


@pytest.mark.parametrize("before", ["", "elsewhere"])
def test_decorating_a_kernel_leaves_numbas_settings_as_they_were(before, monkeypatch):
    monkeypatch.setattr(numba.config, "CACHE_DIR", before)
    compiling.kernel(lambda x: x)
    assert before == numba.config.CACHE_DIR


def test_a_kernel_that_cannot_be_decorated_leaves_numbas_settings_as_they_were(monkeypatch):
    monkeypatch.setattr(numba.config, "CACHE_DIR", "elsewhere")
    with pytest.raises(TypeError):
        compiling.kernel("no function")
    assert numba.config.CACHE_DIR == "elsewhere"


def test_kernels_keep_the_meaning_of_infinities_and_nan():
    @compiling.kernel
    def comparisons(x):
        return x == x, x > -float("inf")

    assert comparisons(float("nan")) == (False, False)
    assert comparisons(float("-inf")) == (True, False)
    assert comparisons(0.0) == (True, True)
