"""Whether what was taken off is white."""

import numpy as np
import pytest

from evoem.images.residual import LAGS, autocorrelation, whiteness


@pytest.mark.parametrize("missing", [False, True])
def test_autocorrelation_is_that_of_loops_over_pairs(missing):
    rng = np.random.default_rng(0)
    residual = rng.normal(1, 2, (9, 7))
    if missing:
        residual[rng.random(residual.shape) < 0.3] = np.nan
    centred = residual - np.nanmean(residual)
    slow = np.zeros((5, 5))
    for down in range(-2, 3):
        for right in range(-2, 3):
            products = [
                centred[i, j] * centred[i + down, j + right]
                for i in range(9)
                for j in range(7)
                if 0 <= i + down < 9 and 0 <= j + right < 7
            ]
            slow[2 + down, 2 + right] = np.nanmean(products) / np.nanmean(centred**2)
    found, n_values = autocorrelation(residual, 2)
    np.testing.assert_allclose(found, slow, atol=1e-12)
    assert n_values == np.isfinite(residual).sum()


def test_white_residuals_are_told_from_others():
    rng = np.random.default_rng(1)
    white, smooth = rng.normal(0, 5, (2, 40, 40))
    smooth[1:] += smooth[:-1].copy()
    assert "It is white" in whiteness(*autocorrelation(white, LAGS))
    told = whiteness(*autocorrelation(smooth, LAGS))
    assert "distance (1, 0) are correlated by 0." in told
