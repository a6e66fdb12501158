"""Symmetric matrices, against NumPy."""

import threading

import numpy as np
import pytest
from scipy.linalg import LinAlgError

from evoem.runtime import linalg
from evoem.runtime.threads import crew, one_blas_thread

# Both sides of where matrices are cut, once and again in their halves.
SIZES = [1, 2, 100, linalg.SMALLEST_SPLIT - 1, linalg.SMALLEST_SPLIT, 500, 901]
TOLERANCES = {np.float32: 2e-4, np.float64: 1e-12}


def positive_definite(size, dtype):
    rows = np.random.default_rng(size).normal(size=(size, size + 3))
    return (rows @ rows.T / size + 0.5 * np.eye(size)).astype(dtype)


def lower_alone(matrix):
    """Whatever is above the diagonal must not matter."""
    return np.tril(matrix) + np.triu(np.full_like(matrix, 7.0), 1)


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("size", SIZES)
def test_a_factor_is_that_of_cholesky(size, dtype):
    matrix = positive_definite(size, dtype)
    factor = lower_alone(matrix)
    linalg.cholesky(factor)
    expected = np.linalg.cholesky(matrix.astype(np.float64))
    np.testing.assert_allclose(np.tril(factor), expected, atol=TOLERANCES[dtype])


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("width", [1, 2, 9])
def test_systems_are_solved(size, width, dtype):
    matrix = positive_definite(size, dtype)
    wanted = np.random.default_rng(0).normal(size=(size, width)).astype(dtype)
    factor = lower_alone(matrix)
    linalg.cholesky(factor)
    found = linalg.solve(factor, wanted)
    expected = np.linalg.solve(matrix.astype(np.float64), wanted)
    np.testing.assert_allclose(found, expected, atol=30 * TOLERANCES[dtype])
    assert found.dtype == dtype
    assert found.flags.c_contiguous


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("size", [1, 2, 7, 60])
def test_products_squares_and_whole_matrices_are_those_of_numpy(size, dtype):
    rng = np.random.default_rng(size)
    rows, other = rng.normal(size=(2, size, 5)).astype(dtype)
    matrix = positive_definite(size, dtype)
    close = {"rtol": 1e-5, "atol": TOLERANCES[dtype]}
    np.testing.assert_allclose(linalg.square(rows), rows @ rows.T, **close)
    np.testing.assert_array_equal(linalg.symmetric(np.tril(matrix)), matrix)
    found = linalg.symmetric_product(lower_alone(matrix).astype(np.float64), other)
    np.testing.assert_allclose(found, matrix @ other, **close)
    assert found.dtype == dtype


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("size", [1, 2, 7, 60])
@pytest.mark.parametrize("limit", [-100.0, 0.3, 100.0])
def test_eigenvectors_below_a_limit_are_those_of_numpy(size, limit, dtype):
    matrix = np.random.default_rng(size).normal(size=(size, size))
    matrix = (matrix + matrix.T).astype(dtype)
    values, vectors = linalg.eigenvectors_below(matrix.copy(), limit)
    expected, columns = np.linalg.eigh(matrix.astype(np.float64))
    below = expected < limit
    np.testing.assert_allclose(values, expected[below], atol=100 * TOLERANCES[dtype])
    columns = columns[:, below]
    projected = vectors.T @ vectors  # vectors themselves may differ in sign
    np.testing.assert_allclose(projected, columns @ columns.T, atol=100 * TOLERANCES[dtype])


@pytest.mark.parametrize("place", [0, 10, 200, 450, 499])
def test_a_matrix_that_is_not_positive_definite_is_refused_wherever_it_fails(place):
    matrix = positive_definite(500, np.float64)
    matrix[place, place] = -1.0
    with pytest.raises(LinAlgError):
        linalg.cholesky(matrix)


def test_matrices_whose_rows_are_scattered_are_refused():
    matrix = np.asfortranarray(positive_definite(5, np.float64))
    with pytest.raises(ValueError, match="in one piece"):
        linalg.cholesky(matrix)


def test_a_matrix_that_is_not_finite_is_not_taken_for_one_that_more_would_mend():
    with pytest.raises(ValueError, match="finite"):
        linalg.cholesky(np.full((3, 3), np.nan))


@pytest.mark.parametrize("size", [50, 700])
def test_the_number_of_threads_changes_nothing(size):
    rows = np.random.default_rng(0).normal(size=(size, 33))
    found = []
    for n_jobs in (1, 2):
        with one_blas_thread(), crew(n_jobs):
            square = linalg.square(rows)
            factor = square + np.eye(size)
            linalg.cholesky(factor)
            found.append((square, np.tril(factor), linalg.solve(factor, rows)))
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


def test_other_threads_go_on_meanwhile():
    matrix = positive_definite(1200, np.float64)
    began, ended = threading.Event(), threading.Event()

    def work():
        began.set()
        linalg.cholesky(matrix)
        ended.set()

    thread = threading.Thread(target=work)
    thread.start()
    began.wait()
    steps = 0
    while not ended.is_set():
        steps += 1
    thread.join()
    assert steps > 100  # with the interpreter's lock held there would be hardly any
