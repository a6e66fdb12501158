"""Fits that were stopped go on to the same bits, whatever was learnt by."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from evoem import (
    TVAE,
    BinarySparseCoding,
    BlackBox,
    NoisyOr,
    SpikeSlabCoding,
    SubspaceCoding,
)

RNG = np.random.default_rng(0)
X = (RNG.random((60, 4)) < 0.4) @ (4 * RNG.normal(size=(4, 6))) + RNG.normal(size=(60, 6))
X[3, 2] = np.nan


def vectorized(params, X, states):
    return -0.5 * ((X[:, None] - states @ params["W"]) ** 2).sum(-1)


def of_torch(**options):
    torch = pytest.importorskip("torch")
    W = torch.tensor(np.random.default_rng(1).normal(size=(4, 6)))
    return BlackBox(vectorized, {"W": W}, n_latents=4, **options)


def of_jax(**options):
    jnp = pytest.importorskip("jax.numpy")
    pytest.importorskip("optax")
    W = jnp.asarray(np.random.default_rng(1).normal(size=(4, 6)))
    return BlackBox(vectorized, {"W": W}, n_latents=4, **options)


def tvae(**options):
    pytest.importorskip("torch")
    return TVAE(n_latents=4, hidden=(5,), **options)


MAKERS = {
    "noisy-or": lambda **options: NoisyOr(4, binarize=0.0, **options),
    "binary": lambda **options: BinarySparseCoding(4, **options),
    "spike-slab": lambda **options: SpikeSlabCoding(4, slab="full", **options),
    "subspaces": lambda **options: SubspaceCoding(4, **options),
    "torch": of_torch,
    "jax": of_jax,
    "tvae": tvae,
}


class Stopped(Exception):
    pass


def stop_after(number, bounds):
    def stop(info):
        bounds.append(info.free_energy)
        if info.iteration == number:
            raise Stopped

    return stop


@pytest.mark.parametrize("batch_size", [None, 20])
@pytest.mark.parametrize("random_state", [0, None])
@pytest.mark.parametrize("name", MAKERS)
def test_a_resumed_fit_learns_the_same(name, random_state, batch_size, tmp_path):
    data = np.nan_to_num(X) if name in ("torch", "jax") else X
    path = tmp_path / "fit"
    options = {"max_iter": 5, "tol": 0, "batch_size": batch_size, "random_state": random_state}
    bounds = []
    stopped = MAKERS[name](**options, callback=stop_after(3, bounds))
    with pytest.raises(Stopped):
        stopped.fit(data, checkpoint=path, every=0)
    resumed = MAKERS[name](**options).fit(data, checkpoint=path, resume=True)
    assert resumed.n_iter_ == 5
    assert_array_equal(resumed.free_energies_[:3], bounds)
    if random_state is None:  # the seed was drawn, and is that of the checkpoint
        return
    whole = MAKERS[name](**options).fit(data)
    assert_array_equal(whole.free_energies_, resumed.free_energies_)
    assert_array_equal(whole.state_.states, resumed.state_.states)
    assert_array_equal(whole.transform(data), resumed.transform(data))
    assert_array_equal(whole.activation_probs_, resumed.activation_probs_)


def test_other_data_are_refused_and_nothing_is_forgotten(tmp_path):
    path = tmp_path / "fit"
    options = {"max_iter": 2, "tol": 0, "random_state": 0}
    model = BinarySparseCoding(4, **options).fit(X, checkpoint=path)
    before = model.components_.copy()
    with pytest.raises(ValueError, match=r"data must be those that .* was written for"):
        model.fit(X + 1, checkpoint=path, resume=True)
    with pytest.raises(ValueError, match=r"seed must be .* to resume"):
        model.set_params(random_state=1).fit(X, checkpoint=path, resume=True)
    assert_array_equal(model.components_, before)
