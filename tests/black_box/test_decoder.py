"""The neural decoder of `TVAE`."""

import numpy as np
import pytest
import torch

from evoem.black_box import decoder


def test_it_starts_from_data_points_at_the_data_s_own_scale():
    X = 1000 + 100 * np.random.default_rng(1).normal(size=(40, 16))
    X[0, 0] = np.nan
    first = decoder.initial_decoder(
        X, 3, np.random.default_rng(0), hidden=(8, 5), observable="gaussian"
    )
    center = np.nanmean(X, 0)
    np.testing.assert_allclose(first.center.detach(), center)
    assert first.noise_variance.item() == pytest.approx(np.nanmean((X - center) ** 2), rel=1e-5)
    alone = first(torch.eye(3, dtype=torch.float64)).detach().numpy()
    near = center + decoder.INITIAL_SHARE * (np.where(np.isnan(X), center, X) - center)
    assert np.abs(alone[:, None] - near).max(-1).min(1).max() < 1e-6
