"""Compiled code is kept between runs, and no trouble with that fails a run."""

import hashlib
import os
import pickle
import shutil
import subprocess
import sys

import pytest

from evoem.runtime import compile as compiling
from evoem.runtime.code_cache import PACKAGE, CodeCache, sources_digest

RUN_A_KERNEL = """
import numpy as np
from evoem import streams
print(streams.start(1, 2, np.arange(3, dtype=np.uint64)).tolist())
"""


def run_a_kernel(**environment):
    """What a fresh process prints, with these variables and no other cache settings."""
    kept = {k: v for k, v in os.environ.items() if k not in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME")}
    environment = {k: str(v) for k, v in environment.items()}
    done = subprocess.run(
        [sys.executable, "-c", RUN_A_KERNEL],
        env={**kept, **environment},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.split(",")) == 3
    return done.stdout, done.stderr


def kept_code(folder):
    return sorted(folder.rglob("*.code"))


def test_kernels_compile_when_the_home_folder_cannot_be_written_to(tmp_path):
    # Nothing can be made below a regular file, not even by root, whom permissions do not bind.
    blocked = tmp_path / "file"
    blocked.touch()
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    run_a_kernel(
        HOME=blocked / "home",
        XDG_CACHE_HOME=blocked / "cache",
        LOCALAPPDATA=blocked / "local",
        TMPDIR=temporary,
        TEMP=temporary,
    )
    (private,) = temporary.glob("evoem-cache-*")
    assert kept_code(private)


def test_numba_cache_dir_is_where_kernels_are_kept_if_it_is_set(tmp_path):
    run_a_kernel(NUMBA_CACHE_DIR=tmp_path / "numba", XDG_CACHE_HOME=tmp_path / "xdg")
    digest = sources_digest(PACKAGE / "streams.py")
    assert {path.parent.name for path in kept_code(tmp_path / "numba")} == {f"streams-{digest}"}
    assert not (tmp_path / "xdg").exists()


@pytest.fixture(scope="module")
def filled_cache(tmp_path_factory):
    """A cache that a process has filled, and what that printed."""
    folder = tmp_path_factory.mktemp("cache")
    return folder, run_a_kernel(NUMBA_CACHE_DIR=folder)[0]


def test_a_second_process_compiles_nothing(filled_cache):
    folder, printed = filled_cache
    before = [(path, path.stat().st_mtime_ns) for path in kept_code(folder)]
    assert run_a_kernel(NUMBA_CACHE_DIR=folder) == (printed, "")
    assert [(path, path.stat().st_mtime_ns) for path in kept_code(folder)] == before


def cut(content):
    return content[: len(content) // 2]


def flip(content):
    return content[:-100] + bytes([content[-100] ^ 1]) + content[-99:]


def sign_garbage(content):
    """A right checksum of what no kernel is."""
    return hashlib.sha256(b"garbage").digest() + b"garbage"


@pytest.mark.parametrize("damage", [lambda content: b"", cut, flip, sign_garbage])
def test_damaged_code_is_compiled_anew_and_replaced(damage, filled_cache, tmp_path):
    folder, printed = filled_cache
    folder = shutil.copytree(folder, tmp_path / "copy")
    whole = {path: path.read_bytes() for path in kept_code(folder)}
    assert whole
    for path, content in whole.items():
        path.write_bytes(damage(content))
    out, said = run_a_kernel(NUMBA_CACHE_DIR=folder)
    assert out == printed
    assert said.count("\n") == 1
    assert "cache of compiled code" in said
    assert run_a_kernel(NUMBA_CACHE_DIR=folder) == (printed, "")


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="modes are of POSIX")
def test_planted_code_is_not_run(filled_cache, tmp_path):
    folder, printed = filled_cache
    folder = shutil.copytree(folder, tmp_path / "copy")
    planted = pickle.dumps(Planted(str(tmp_path / "proof")))
    for path in kept_code(folder):
        path.write_bytes(hashlib.sha256(planted).digest() + planted)
    folder.chmod(0o777)
    (tmp_path / "temporary").mkdir()
    out, said = run_a_kernel(NUMBA_CACHE_DIR=folder, TMPDIR=tmp_path / "temporary")
    assert out == printed
    assert said.count("\n") == 1
    assert f"others may write to {folder}" in said
    assert not (tmp_path / "proof").exists()
    folder.chmod(0o700)  # the same is run where it counts as our own
    run_a_kernel(NUMBA_CACHE_DIR=folder)
    assert (tmp_path / "proof").exists()


class Planted:
    """Makes a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_a_kernel_works_without_a_cache_folder(monkeypatch):
    monkeypatch.setattr(compiling, "CACHE", CodeCache(None))
    compiling.kernel_folder.cache_clear()
    try:
        assert compiling.kernel_folder(str(PACKAGE / "streams.py")) is None
        assert compiling.kernel(lambda x: x + 1)(2) == 3
    finally:
        compiling.kernel_folder.cache_clear()


def test_kernels_keep_the_meaning_of_infinities_and_nan():
    @compiling.kernel
    def comparisons(x):
        return x == x, x > -float("inf")

    assert comparisons(float("nan")) == (False, False)
    assert comparisons(float("-inf")) == (True, False)
    assert comparisons(0.0) == (True, True)
