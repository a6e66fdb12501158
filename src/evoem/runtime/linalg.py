"""Symmetric matrices stored as lower triangles: squares, products, positive definite systems.

In two threads if there are as many.

SciPy's own functions hold the interpreter's lock while they run, so that a second thread would only
wait. BLAS and LAPACK are therefore called here by the addresses that SciPy gives to compiled code;
ctypes lets go of the lock meanwhile. Matrices are cut in the same way for any number of threads,
which therefore changes nothing in the result.
"""

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

import numpy as np
from numba.extending import get_cython_function_address
from numpy.typing import NDArray
from scipy.linalg import LinAlgError

from evoem.runtime.threads import both

Real = TypeVar("Real", bound=np.floating[Any])

# Below this size it takes longer to wake another thread than to do its share.
SMALLEST_SPLIT = 384
# Where a matrix is cut is a multiple of this.
PANEL = 64

_LETTERS = {np.dtype(np.float32): "s", np.dtype(np.float64): "d"}
_SCALARS = {"s": ctypes.c_float, "d": ctypes.c_double}


@cache
def _compiled(library: str, name: str, n_arguments: int) -> Callable[..., None]:
    address = get_cython_function_address(f"scipy.linalg.cython_{library}", name)
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * n_arguments)(address)


def _call(library: str, name: str, *arguments: Any) -> int:
    """Call a function of BLAS or LAPACK on rows of C-ordered matrices; what it says of success.

    Fortran wants addresses, and of matrices how far apart their rows are. Sizes have 64 bits, whose
    lower half comes first on all machines with wheels of SciPy, so it does not matter how many of
    them are read.
    """
    matrix = next(argument for argument in arguments if isinstance(argument, np.ndarray))
    letter = _LETTERS[matrix.dtype]
    said = ctypes.c_int64(0)
    passed: list[Any] = []
    for argument in arguments:
        if isinstance(argument, np.ndarray):
            passed.append(argument.ctypes.data)
            if argument.ndim == 2:
                if argument.strides[1] != argument.itemsize:
                    raise ValueError("the rows of a matrix must each be in one piece")
                apart = ctypes.c_int64(argument.strides[0] // argument.itemsize)
                passed.append(ctypes.byref(apart))
        elif isinstance(argument, float):
            passed.append(ctypes.byref(_SCALARS[letter](argument)))
        elif isinstance(argument, int):
            passed.append(ctypes.byref(ctypes.c_int64(argument)))
        else:
            passed.append(argument)
    if library == "lapack":
        passed.append(ctypes.byref(said))
    _compiled(library, letter + name, len(passed))(*passed)
    return said.value


# Fortran sees transposes: our lower triangles are its upper ones.


def _cholesky_block(matrix: NDArray[np.floating]) -> None:
    if not np.isfinite(matrix.trace()):  # nothing that could be added would mend that
        raise ValueError("the matrix must be finite")
    if _call("lapack", "potrf", b"U", len(matrix), matrix):
        raise LinAlgError("the matrix is not positive definite")


def _solve_rows(
    factor: NDArray[np.floating], rows: NDArray[np.floating], transposed: bool = False
) -> None:
    """Rows x become L⁻¹ x, or L⁻ᵀ x, in place."""
    way = b"N" if transposed else b"T"
    if len(rows):
        _call("blas", "trsm", b"L", b"U", way, b"N", len(factor), len(rows), 1.0, factor, rows)


def _subtract_square(matrix: NDArray[np.floating], rows: NDArray[np.floating]) -> None:
    """Subtract the products of all pairs of rows, in the lower triangle of a matrix."""
    _call("blas", "syrk", b"U", b"T", len(matrix), rows.shape[1], -1.0, rows, 1.0, matrix)


def _subtract_product(
    matrix: NDArray[np.floating], left: NDArray[np.floating], right: NDArray[np.floating]
) -> None:
    """Subtract the products of rows on the left with rows on the right."""
    height, width = matrix.shape
    _call(
        "blas", "gemm", b"T", b"N", width, height, left.shape[1], -1.0, right, left, 1.0, matrix
    )  # fmt: skip


def symmetric(lower: NDArray[np.float64]) -> NDArray[np.float64]:
    """The symmetric matrix of a lower triangle."""
    return lower + np.tril(lower, -1).T


def symmetric_product(lower: NDArray[np.floating], other: NDArray[Real]) -> NDArray[Real]:
    """`symmetric(lower) @ other`, which takes longer to set up than to multiply.

    In the precision of `other`.
    """
    other = np.ascontiguousarray(other)
    own = lower.astype(other.dtype, order="C")
    out = np.empty_like(other)
    _call("blas", "symm", b"R", b"U", other.shape[1], len(other), 1.0, own, other, 0.0, out)
    return out


def square(rows: NDArray[Real]) -> NDArray[Real]:
    """rows @ rows.T, of which NumPy would compute one triangle and copy it, which takes longer."""
    middle = len(rows) // 2
    upper, lower = rows[:middle], rows[middle:]
    out = np.empty((len(rows), len(rows)), rows.dtype)

    def aside() -> None:
        np.matmul(lower, upper.T, out=out[middle:, :middle])
        out[:middle, middle:] = out[middle:, :middle].T

    def on_diagonal() -> None:
        out[:middle, :middle] = upper @ upper.T
        out[middle:, middle:] = lower @ lower.T

    both(aside, on_diagonal)
    return out


# Apart from the factorisations of small systems: a call of LAPACK alone takes 5 µs, 100 times as
# long as a system of five latents.
def cholesky(matrix: NDArray[np.floating]) -> None:
    """Overwrite the lower triangle of a matrix L Lᵀ by L; what is above it is not used.

    `LinAlgError` if the matrix is not positive definite; it is then half overwritten.
    """
    if len(matrix) < SMALLEST_SPLIT:
        _cholesky_block(matrix)
        return
    half = len(matrix) // 2 // PANEL * PANEL
    factor, below, rest = matrix[:half, :half], matrix[half:, :half], matrix[half:, half:]
    cholesky(factor)
    middle = len(below) // 2 // PANEL * PANEL
    upper, lower = below[:middle], below[middle:]
    both(lambda: _solve_rows(factor, upper), lambda: _solve_rows(factor, lower))

    def subtract_squares() -> None:
        _subtract_square(rest[:middle, :middle], upper)
        _subtract_square(rest[middle:, middle:], lower)

    both(lambda: _subtract_product(rest[middle:, :middle], lower, upper), subtract_squares)
    cholesky(rest)


def solve(factor: NDArray[Real], wanted: NDArray[Real]) -> NDArray[Real]:
    """(L Lᵀ)⁻¹ `wanted`, a matrix of as many rows, for a `factor` L."""
    out = np.empty_like(wanted, order="C")
    middle = wanted.shape[1] // 2

    def some(columns: slice) -> None:
        rows = np.array(wanted.T[columns], order="C")
        _solve_rows(factor, rows)
        _solve_rows(factor, rows, transposed=True)
        out[:, columns] = rows.T

    both(lambda: some(slice(middle)), lambda: some(slice(middle, None)))
    return out


def eigenvectors_below(matrix: NDArray[Real], limit: float) -> tuple[NDArray[Real], NDArray[Real]]:
    """Eigenvalues up to a limit, and their vectors as rows; overwrites the matrix."""
    size = len(matrix)
    values, vectors = np.empty(size, matrix.dtype), np.empty((size, size), matrix.dtype)
    lowest = float(np.finfo(matrix.dtype).min)
    found, support = np.zeros(1, np.int64), np.empty(2 * size, np.int64)
    work, whole_work = np.empty(70 * size, matrix.dtype), np.empty(10 * size, np.int64)
    said = _call(
        "lapack", "syevr", b"V", b"V", b"U", size, matrix, lowest, limit, 0, 0, 0.0, found, values,
        vectors, support, work, len(work), whole_work, len(whole_work),
    )  # fmt: skip
    if said:
        raise LinAlgError("eigenvalues were not found")
    return values[: found[0]], vectors[: found[0]]
