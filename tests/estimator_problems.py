"""Estimators without the need of a user's function, and small data for them."""

import numpy as np

from evoem import BinarySparseCoding, NoisyOr, SpikeSlabCoding, SubspaceCoding

ESTIMATORS = (NoisyOr, BinarySparseCoding, SpikeSlabCoding, SubspaceCoding)


def make_data(estimator, n=80, seed=0):
    rng = np.random.default_rng(seed)
    dictionary = np.kron(np.eye(3), np.ones(3))
    causes = rng.random((n, 3)) < 0.4
    if estimator is NoisyOr:
        return (
            rng.random((n, 9)) < 1 - np.prod(1 - 0.9 * causes[:, :, None] * dictionary, axis=1)
        ) * 1.0
    amplitudes = causes * (4 + rng.normal(size=causes.shape))
    return amplitudes @ dictionary + 0.5 * rng.normal(size=(n, 9))


def fitted(estimator, X=None, **options):
    options = {"n_latents": 4, "n_states": 8, "max_iter": 8, "tol": 0, "random_state": 0} | options
    return estimator(**options).fit(make_data(estimator) if X is None else X)
