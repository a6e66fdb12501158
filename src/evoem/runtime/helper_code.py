"""Compile helpers only as far as the kernels that inline them need it.

Numba optimises every function and makes machine code of it, although a helper's code is inlined
into kernels, is optimised again there, and is never called on its own: a quarter of the time that
everything takes to compile. Here helpers get the passes that inline, and no machine code.
"""

from typing import Any

from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler


class _Codegen:
    """Numba's own, but for the environment of a function that is never called from Python."""

    def __init__(self, codegen: Any) -> None:
        self._codegen = codegen

    def __getattr__(self, name: str) -> Any:
        return getattr(self._codegen, name)

    def set_env(self, name: str, environment: Any) -> None: ...


class HelperLibrary(JITCodeLibrary):
    """The code of one helper, to be linked into kernels."""

    @property
    def codegen(self) -> Any:
        return _Codegen(self._codegen)

    def get_pointer_to_function(self, name: str) -> int:
        """Nowhere: there is no machine code."""
        self._ensure_finalized()
        return 0

    def _optimize_final_module(self) -> None:
        manager, builder = self._codegen._module_pass_manager(
            loop_vectorize=False, slp_vectorize=False, opt=0, cost="cheap"
        )
        manager.run(self._final_module, builder)

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._verify_declare_only_symbols()
        self._finalized = True


class HelperCompiler(Compiler):
    """Numba's compiler, with the library above."""

    def compile_extra(self, func: Any) -> Any:
        """Compile a function into a library of its own."""
        self.state.library = HelperLibrary(self.state.targetctx.codegen(), func.__qualname__)
        return super().compile_extra(func)
