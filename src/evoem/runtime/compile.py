"""The only file that knows Numba's options and where compiled code is cached.

Kernels are serial and release the GIL: threads come from a pool over blocks of rows (`em`), which
compiles several times faster than Numba's own parallel mode and cannot change a result.

Compiled code is kept under the user's cache folder, in a sub-folder named by a hash of evoem's own
sources. An edit in *any* file therefore starts a new sub-folder (Numba itself only notices edits in
the file that holds the kernel), and an installation that cannot be written to still gets a cache.
"""

import hashlib
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np

# Numba makes the attributes of its configuration at run time, where type checkers do not see them.
config: Any = numba.config

# Sums and products may be reordered, so that they vectorise; NaN and infinities keep their meaning,
# because -inf is the log-joint of an impossible state and NaN marks values not yet computed.
FAST_MATH = {"reassoc", "contract", "arcp", "nsz"}
OPTIONS: dict[str, Any] = {
    "nogil": True,
    "error_model": "numpy",
    "fastmath": FAST_MATH,
    "no_cfunc_wrapper": True,  # nothing calls kernels from C; compiles faster
}
# A helper is compiled once more for every literal that it is called with; these are none.
ZERO = np.int64(0)
YES = np.bool_(True)


def sources_digest() -> str:
    """Hash of every source file of the package."""
    package = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(str(path.relative_to(package)).encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def user_cache_folder() -> Path:
    """The platform's cache folder of this user; Numba's own variable wins if the user set it."""
    if config.CACHE_DIR:
        return Path(config.CACHE_DIR)
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or str(Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = str(Path.home() / "Library" / "Caches")
    else:
        base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "evoem"


def _usable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def temporary_cache_folder() -> Path:
    """A folder of this user alone: nobody else may put code there that we would run."""
    user = getattr(os, "getuid", int)()
    folder = Path(tempfile.gettempdir()) / f"evoem-cache-{user}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if hasattr(os, "getuid") and (found.st_uid != user or found.st_mode & 0o022):
        raise PermissionError(f"{folder} belongs to somebody else")
    return folder


def kernel_cache_folder() -> Path | None:
    """Where this version's kernels are cached: None when no folder can be written to."""
    digest = sources_digest()
    for find in (user_cache_folder, temporary_cache_folder):
        try:
            folder = find() / digest
        except (OSError, RuntimeError):  # no temporary folder, or a user without a home
            continue
        if _usable(folder):
            return folder
    return None


_FOLDER = kernel_cache_folder()


def kernel(function: Callable[..., Any]) -> Any:
    """Compile `function` on its first call, or load it from the cache."""
    if _FOLDER is None:
        return numba.njit(**OPTIONS)(function)
    before = config.CACHE_DIR
    config.CACHE_DIR = str(_FOLDER)  # read once, while the function is decorated
    try:
        return numba.njit(cache=True, **OPTIONS)(function)
    finally:
        config.CACHE_DIR = before


# Helpers neither make nor keep arrays, so counting references to those they are given, an atomic
# operation each, would be for nothing. Nor can Python call them (their `py_func` it can): to make
# that possible would take a tenth of the compilation.
INLINED: dict[str, Any] = OPTIONS | {
    "forceinline": True,
    "_nrt": False,
    "no_cpython_wrapper": True,
}


def inlined(function: Callable[..., Any]) -> Any:
    """Compile a helper that only kernels call; it is compiled, and cached, as a part of them."""
    return numba.njit(**INLINED)(function)


def inlined_in_order(function: Callable[..., Any]) -> Any:
    """The same, with sums in their order: loops too short to gain from vectors stay simple."""
    return numba.njit(**INLINED | {"fastmath": FAST_MATH - {"reassoc"}})(function)


def unrolled(function: Callable[..., Any]) -> Any:
    """The same for a `function(k, ...)` whose loops are over the k active latents of a state.

    Most states have few, and code for a known k has no loops left. One more argument comes second,
    `few`: None if states of one or two latents are dealt with elsewhere.
    """
    body = inlined_in_order(function)

    @inlined
    def by_size(k, few, *rest):
        if few is not None:
            if k == 1:
                return body(1, *rest)
            if k == 2:
                return body(2, *rest)
        if k == 3:
            return body(3, *rest)
        return body(k, *rest)

    return by_size
