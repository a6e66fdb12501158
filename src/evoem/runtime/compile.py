"""Numba's options, and the cache of compiled code.

Kernels are serial and release the GIL: threads come from a pool over blocks of rows (`em`), which
compiles several times faster than Numba's own parallel mode and cannot change a result.

Compiled code is kept under the user's cache folder (`code_cache`), in a sub-folder for each file
with kernels, named by a hash of that file and of those it imports. An edit of any of these starts a
new sub-folder (Numba itself only notices edits in the file that holds the kernel), an edit of
another file compiles nothing anew, and an installation that cannot be written to still gets a
cache.
"""

import hashlib
import pickle
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite
import numba
import numpy as np
from numba.core.caching import _Cache
from numba.core.compiler import CompileResult
from numba.core.serialize import dumps

from evoem.runtime.code_cache import PACKAGE, open_cache, sources_digest
from evoem.runtime.helper_code import HelperCompiler

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


CACHE = open_cache(config.CACHE_DIR)  # Numba's own variable wins if the user set it
# Code is of use only to what it was compiled by and for; the processor is asked of Numba each time.
COMPILED_BY = (sys.version, numba.__version__, llvmlite.__version__)
# Kernels that were needed so far, with the types of their arguments, in this order.
NEEDED: list[tuple[Callable[..., Any], Any]] = []


class KernelCache(_Cache):
    """Compiled code of one kernel, a file for each signature.

    Numba's own has an index beside, which processes that start together write over each other.
    """

    def __init__(self, function: Callable[..., Any], folder: str) -> None:
        self._function = function
        self._folder = folder

    @property
    def cache_path(self) -> str:
        return str(CACHE.folder)

    def enable(self) -> None: ...

    def disable(self) -> None: ...

    def flush(self) -> None: ...

    def name(self, signature: Any, target_context: Any) -> str:
        """Of the file with the code of a signature, in the cache."""
        return self._name_and_key(signature, target_context.codegen())[0]

    def _name_and_key(self, signature: Any, codegen: Any) -> tuple[str, str]:
        code = self._function.__code__
        place = (code.co_firstlineno, code.co_code)
        key = repr((str(signature), codegen.magic_tuple(), place, COMPILED_BY))
        digest = hashlib.sha256(key.encode()).hexdigest()[:16]
        return f"{self._folder}/{self._function.__name__}-{digest}.code", key

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Code of a signature, or None."""
        NEEDED.append((self._function, sig))
        target_context.refresh()
        try:
            name, key = self._name_and_key(sig, target_context.codegen())
            content = CACHE.load(name)
            if content is None and CACHE.wait_for(name):
                content = CACHE.load(name)
            if content is None:
                return None
            own_key, payload = pickle.loads(content)
            if own_key != key:
                return None
            return CompileResult._rebuild(target_context, *payload)
        except Exception as error:  # whatever it is, code can be compiled
            CACHE.trouble(f"{type(error).__name__}: {error}")
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep code, unless it has addresses in it."""
        try:
            if data.library.has_dynamic_globals or any(not one.can_cache for one in data.lifted):
                return
            name, key = self._name_and_key(sig, data.codegen)
            CACHE.save(name, dumps((key, data._reduce())))
        except Exception as error:
            CACHE.trouble(f"{type(error).__name__}: {error}")


@cache
def kernel_folder(file: str) -> str | None:
    """Sub-folder for kernels of a file, by its version; None if they are not kept."""
    path = Path(file)
    if CACHE.folder is None or not path.is_relative_to(PACKAGE):
        return None
    try:
        module = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        return f"{module}-{sources_digest(path)}"
    except OSError:  # the package has no files, as in an archive
        return None


def is_kept(kernel: Any, signature: Any) -> bool | None:
    """Whether the code of a kernel is in the cache for these arguments; None if it is never."""
    cache = kernel._cache
    if not isinstance(cache, KernelCache):
        return None
    return CACHE.has(cache.name(signature, kernel.targetctx))


def kernel(function: Callable[..., Any]) -> Any:
    """Compile `function` on its first call, or load it from the cache."""
    return _cached(function, OPTIONS)


def kernel_in_order(function: Callable[..., Any]) -> Any:
    """The same, with sums in their order: where x + y - y is not x."""
    return _cached(function, OPTIONS | {"fastmath": FAST_MATH - {"reassoc"}})


def _cached(function: Callable[..., Any], options: dict[str, Any]) -> Any:
    compiled = numba.njit(**options)(function)
    folder = kernel_folder(function.__code__.co_filename)
    # What a function encloses is not in its name: no kernel of ours does.
    if folder is not None and function.__closure__ is None:
        compiled._cache = KernelCache(function, folder)
    return compiled


# Helpers neither make nor keep arrays, so counting references to those they are given, an atomic
# operation each, would be for nothing. Nor can Python call them (their `py_func` it can): to make
# that possible would take a tenth of the compilation.
INLINED: dict[str, Any] = OPTIONS | {
    "forceinline": True,
    "_nrt": False,
    "no_cpython_wrapper": True,
    "pipeline_class": HelperCompiler,
}


def inlined(function: Callable[..., Any]) -> Any:
    """Compile a helper that only kernels call; it is compiled, and cached, as a part of them."""
    return numba.njit(**INLINED)(function)


def inlined_in_order(function: Callable[..., Any]) -> Any:
    """The same, with sums in their order: loops too short to gain from vectors stay simple."""
    return numba.njit(**INLINED | {"fastmath": FAST_MATH - {"reassoc"}})(function)


# Such as make arrays, or are too large to be inlined everywhere: LLVM decides.
PART = {name: value for name, value in INLINED.items() if name not in ("forceinline", "_nrt")}


def part_of_kernel(function: Callable[..., Any]) -> Any:
    """Compile a large part of kernels, as a part of them alone; it may make arrays."""
    return numba.njit(**PART)(function)


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
