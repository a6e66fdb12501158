"""Lower triangles of matrices over pairs of latents."""

import numpy as np
import pytest

from evoem.models import triangles


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 130])
def test_the_diagonal_stands_first_then_pairs_row_after_row(size):
    matrix = np.random.default_rng(size).normal(size=(size, size))
    triangle = triangles.pack(matrix)
    assert len(triangle) == triangles.n_pairs(size)
    for h in range(size):
        assert triangle[h] == matrix[h, h]
        for g in range(h):
            assert triangle[triangles.row_start.py_func(size, h) + g] == matrix[h, g]
    np.testing.assert_array_equal(triangles.unpack(triangle), np.tril(matrix))
    np.testing.assert_array_equal(triangles.diagonal(triangle), np.diag(matrix))
