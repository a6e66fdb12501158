"""JPEG leaves zeros in one grid of blocks."""

from itertools import product

import numpy as np
import pytest
from noisy_pictures import compressed
from scipy import ndimage
from scipy.fft import dctn

from evoem.images.noise_compression import HIGH, SIDE, ZERO, zeros

rng = np.random.default_rng(0)


def textured():
    smooth = ndimage.gaussian_filter(rng.standard_normal((128, 136)), 2)
    return (128 + 100 * smooth + 4 * rng.standard_normal(smooth.shape))[..., None]


def test_shares_of_zeros_are_those_of_blocks_one_by_one():
    picture = compressed(textured(), 60)[3:60, 2:50]
    shares = []
    for first in product(range(SIDE), repeat=2):
        n_zeros = n_all = 0
        for row in range(first[0], picture.shape[0] - SIDE + 1, SIDE):
            for column in range(first[1], picture.shape[1] - SIDE + 1, SIDE):
                block = picture[row : row + SIDE, column : column + SIDE, 0]
                if np.ptp(block) == 0:
                    continue
                coefficients = dctn(block, norm="ortho")
                for i, j in product(range(SIDE), repeat=2):
                    if i + j >= HIGH:
                        n_all += 1
                        n_zeros += abs(coefficients[i, j]) < ZERO
        shares.append(n_zeros / n_all)
    found = zeros(picture, 1.0)
    assert found.most == pytest.approx(max(shares), abs=0.005)
    assert found.typical == pytest.approx(np.median(shares), abs=0.005)


@pytest.mark.parametrize("start", [(0, 0), (3, 5), (7, 1)])
def test_the_grid_is_found_wherever_it_begins(start):
    picture = textured()
    found = zeros(compressed(picture, 25)[start[0] :, start[1] :], 1.0)
    assert found.compressed
    assert found.gone
    assert found.typical < 0.7
    assert not zeros(picture[start[0] :, start[1] :], 1.0).compressed


@pytest.mark.parametrize("shape", [(64, 64), (8, 8)])
def test_where_there_is_no_block_with_more_than_one_value_nothing_is_compressed(shape):
    found = zeros(np.full((*shape, 1), 9.0), 1.0)
    assert found == (0.0, 0.0)
    assert not found.compressed
