"""The M-step by gradients of the truncated bound."""

import re
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import reference
import torch
from black_box_problems import D, H, W, make_data, plain
from scipy.special import logsumexp

from evoem import BinarySparseCoding, BlackBox, LogJointError
from evoem.states import unpack

XP = {"torch": torch, "jax": jnp}
OPTIMIZERS = {
    "torch-sgd": ("torch", lambda rate: partial(torch.optim.SGD, lr=rate)),
    "torch-adam": ("torch", lambda rate: partial(torch.optim.Adam, lr=rate)),
    "optax-sgd": ("jax", optax.sgd),
    "optax-adam": ("jax", optax.adam),
}
CONSTRAINTS = {"noise": "positive", "pi": "unit"}


def _binary_of(xp):
    def log_joint(params, X, states, observed):
        W, noise, pi = params["W"], params["noise"], params["pi"]
        residual = xp.where(observed[:, None], X[:, None] - states @ W, 0.0)
        count = xp.where(observed, xp.ones_like(X), 0.0).sum(-1)[:, None]
        prior = (states * xp.log(pi) + (1 - states) * xp.log(1 - pi)).sum(-1)
        return prior - 0.5 * ((residual**2).sum(-1) / noise + count * xp.log(2 * np.pi * noise))

    return log_joint


BINARY = {kind: _binary_of(xp) for kind, xp in {**XP, "numpy": np}.items()}


def easy_data(n=120, missing=0.0, seed=0):
    """Three causes that anyone would find, and a dictionary near them."""
    rng = np.random.default_rng(seed)
    W = np.kron(np.eye(3), np.full((1, 2), 4.0))
    X = (rng.random((n, 3)) < 0.4) @ W + 0.7 * rng.normal(size=(n, 6))
    X[rng.random(X.shape) < missing] = np.nan
    start = {"W": 0.6 * W + 0.3 * rng.normal(size=W.shape), "noise": np.array(2.0),
             "pi": np.full(3, 0.3)}  # fmt: skip
    return X, start


def arrays_of(start, kind):
    if kind == "torch":
        return {name: torch.tensor(value) for name, value in start.items()}
    with jax.enable_x64(True):
        return {name: jnp.asarray(value) for name, value in start.items()}


def ascend(kind, X, start, **options):
    options = {"n_latents": 3, "n_states": "all", "tol": 0, "random_state": 0} | options
    return BlackBox(BINARY[kind], arrays_of(start, kind), **options).fit(X)


def mean_bound(params, X, kept):
    observed = ~np.isnan(X)
    log_joints = BINARY["numpy"](params, np.where(observed, X, 0.0), kept, observed)
    return logsumexp(log_joints, axis=1).mean()


@pytest.mark.parametrize("name", ["torch-sgd", "optax-sgd"])
def test_a_step_goes_along_the_gradient_of_the_truncated_bound(name):
    """A step of plain gradient ascent, over its rate, is the slope by finite differences."""
    kind, make = OPTIMIZERS[name]
    X, start = easy_data(90, missing=0.2)
    rate, h = 1e-4, 1e-5
    model = ascend(kind, X, start, optimizer=make(rate), max_iter=1, n_states=5, n_parents=3)
    kept = unpack(model.state_.states, 3).astype(float)
    for leaf, value in start.items():
        for place in np.ndindex(value.shape):
            shifted = []
            for sign in (-1, 1):
                moved = {key: array.copy() for key, array in start.items()}
                moved[leaf][place] += sign * h
                shifted.append(mean_bound(moved, X, kept))
            slope = (shifted[1] - shifted[0]) / (2 * h)
            step = (plain(model.params_[leaf])[place] - value[place]) / rate
            assert step == pytest.approx(slope, rel=1e-5, abs=1e-6), (leaf, place)


@pytest.mark.parametrize("kind", XP)
def test_an_optimiser_remembers_its_steps(kind):
    X, start = easy_data(50)
    momentum = {
        "torch": partial(torch.optim.SGD, lr=1e-3, momentum=0.9),
        "jax": optax.sgd(1e-3, momentum=0.9),
    }
    model = ascend(kind, X, start, optimizer=momentum[kind], max_iter=4)
    free = {name: torch.tensor(value, requires_grad=True) for name, value in start.items()}
    by_hand = momentum["torch"](list(free.values()))
    dense = torch.tensor(reference.all_states(3).astype(float)).expand(50, 8, 3)
    for _ in range(4):
        by_hand.zero_grad()
        log_joints = BINARY["torch"](free, torch.tensor(X), dense, torch.ones(X.shape).bool())
        (-log_joints.logsumexp(1).mean()).backward()
        by_hand.step()
    for name, value in free.items():
        np.testing.assert_allclose(plain(model.params_[name]), plain(value), rtol=1e-9)


@pytest.mark.parametrize("rate", [0.05, 1e4])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_bound_never_falls_however_large_the_steps(name, rate):
    kind, make = OPTIMIZERS[name]
    X, start = easy_data(60)
    model = ascend(
        kind, X, start, optimizer=make(rate), constraints=CONSTRAINTS, max_iter=40
    )  # fmt: skip
    assert np.diff(model.free_energies_).min() >= 0
    assert model.free_energies_[-1] > model.free_energies_[0] + 1


@pytest.mark.parametrize("kind", XP)
def test_a_long_ascent_ends_where_the_analytic_m_step_does(kind):
    X, start = easy_data()
    exact = BinarySparseCoding(
        3,
        init={"components": start["W"], "noise_variance": 2.0, "activation_probs": 0.3},
        n_states="all",
        tol=1e-7,
        max_iter=500,
        random_state=0,
    ).fit(X)
    optimizer = OPTIMIZERS["torch-adam" if kind == "torch" else "optax-adam"][1](0.03)
    one_pi = start | {"pi": np.array(0.3)}
    model = ascend(kind, X, one_pi, optimizer=optimizer, constraints=CONSTRAINTS, max_iter=250)
    assert model.free_energy_ == pytest.approx(exact.free_energy_, abs=2e-3)
    np.testing.assert_allclose(plain(model.params_["W"]), exact.components_, atol=0.05)
    assert float(model.params_["noise"]) == pytest.approx(exact.noise_variance_, rel=0.05)
    assert float(model.params_["pi"]) == pytest.approx(exact.activation_probs_[0], rel=0.05)


@pytest.mark.parametrize("kind", XP)
def test_mini_batches_learn_the_same_in_fewer_visits(kind):
    X, start = easy_data()
    options = {"constraints": CONSTRAINTS, "max_iter": 15}
    whole = ascend(kind, X, start, **options)
    parts = ascend(kind, X, start, batch_size=20, **options)
    assert parts.free_energies_[-1] > whole.free_energies_[-1] + 0.1
    assert parts.score(X) == pytest.approx(parts.free_energies_[-1], abs=0.1)


class Decoder(torch.nn.Module):
    """Latents to the mean of the data; dropout must be off when probabilities are computed."""

    def __init__(self):
        super().__init__()
        self.hidden = torch.nn.Linear(3, 8)
        self.dropout = torch.nn.Dropout(0.5)
        self.out = torch.nn.Linear(8, 6)
        self.log_noise = torch.nn.Parameter(torch.zeros(()))

    def forward(self, s):
        return self.out(self.dropout(torch.tanh(self.hidden(s))))


def decoder_log_joint(decoder, X, states):
    residual = X[:, None] - decoder(states)
    log_noise = decoder.log_noise
    return -0.5 * ((residual**2).sum(-1) / log_noise.exp() + X.shape[1] * log_noise)


def test_the_parameters_of_a_module_are_learnt_in_a_copy_of_it():
    torch.manual_seed(0)
    decoder = Decoder().double()
    before = {name: value.clone() for name, value in decoder.state_dict().items()}
    X, _ = easy_data(60)
    model = BlackBox(
        decoder_log_joint, decoder, 3, n_states="all", max_iter=40, tol=0, random_state=0,
        optimizer=partial(torch.optim.Adam, lr=0.05),
    ).fit(X)  # fmt: skip
    assert decoder.training
    for name, value in decoder.state_dict().items():
        assert torch.equal(value, before[name])
    assert model.free_energies_[-1] > model.free_energies_[0] + 5
    assert isinstance(model.params_, Decoder)
    assert all(
        not torch.equal(mine, other)
        for mine, other in zip(model.params_.parameters(), decoder.parameters(), strict=True)
    )
    with torch.no_grad():
        dense = torch.tensor(unpack(model.state_.states, 3).astype(float))
        bound = decoder_log_joint(model.params_.eval(), torch.tensor(X), dense).logsumexp(1).mean()
    assert model.score(X) == pytest.approx(float(bound), rel=1e-9)


class Prior(NamedTuple):
    pi: object
    shift: object  # a whole number


def nested_log_joint(xp, params, X, states):
    W, more = params["layers"]
    prior = params["prior"]
    mean = states @ W + more["bias"] * prior.shift
    log_prior = (states * xp.log(prior.pi) + (1 - states) * xp.log(1 - prior.pi)).sum(-1)
    return log_prior - 0.5 * ((X[:, None] - mean) ** 2).sum(-1)


NESTED = {
    "torch": lambda params, X, states: nested_log_joint(torch, params, X, states),
    "jax": lambda params, X, states: nested_log_joint(jnp, params, X, states),
}


@pytest.mark.parametrize("kind", XP)
def test_nested_parameters_come_back_as_they_were_given_and_whole_numbers_unchanged(kind):
    X, start = easy_data(40)
    make = torch.tensor if kind == "torch" else jnp.asarray
    with jax.enable_x64(True):
        params = {
            "layers": [make(start["W"]), {"bias": make(np.zeros(6))}],
            "prior": Prior(make(start["pi"]), make(2)),
        }
    model = BlackBox(
        NESTED[kind], params, 3, constraints={"prior.pi": "unit"}, max_iter=12, tol=0,
        random_state=0,
    ).fit(X)  # fmt: skip
    learnt = model.params_
    assert type(learnt["prior"]) is Prior
    assert int(learnt["prior"].shift) == 2
    assert plain(learnt["prior"].shift).dtype.kind == "i"
    assert type(learnt["layers"]) is list
    assert type(learnt["layers"][0]) is type(params["layers"][0])
    assert (plain(learnt["layers"][1]["bias"]) != 0).all()
    kept = unpack(model.state_.states, 3).astype(float)
    numbers = {
        "layers": [plain(learnt["layers"][0]), {"bias": plain(learnt["layers"][1]["bias"])}],
        "prior": Prior(plain(learnt["prior"].pi), 2),
    }
    bound = logsumexp(nested_log_joint(np, numbers, X, kept), axis=1).mean()
    assert model.score(X) == pytest.approx(bound, rel=1e-9)
    assert bound > model.free_energies_[0]


def mixture_log_joint(params, X, states):
    """Each active latent is a cause of each value, in proportion to its share."""
    rate = 0.05 + 0.45 * states @ params["shares"]
    log_likelihood = X[:, None] * torch.log(rate) + (1 - X[:, None]) * torch.log1p(-rate)
    return log_likelihood.sum(-1) - params["cost"] * states.sum(-1)


def test_constraints_keep_parameters_in_their_sets():
    rng = np.random.default_rng(0)
    X = (rng.random((80, 4)) < [0.9, 0.5, 0.1, 0.1]) * 1.0
    start = {"shares": torch.tensor(np.full((2, 4), 0.25)), "cost": torch.tensor(1.0).double()}
    model = BlackBox(
        mixture_log_joint, start, 2, n_states="all", max_iter=1, tol=0, random_state=0,
        constraints={"shares": "simplex", "cost": "positive"}, warm_start=True,
        optimizer=partial(torch.optim.SGD, lr=3.0),
    )  # fmt: skip
    for _ in range(30):
        learnt = model.fit(X).params_
        shares = plain(learnt["shares"])
        np.testing.assert_allclose(shares.sum(1), 1.0, rtol=1e-12)
        assert (shares > 0).all()
        assert learnt["cost"] > 0
    assert plain(model.params_["shares"])[:, 0].max() > 0.4
    assert model.free_energies_[-1] > model.free_energies_[0]


@pytest.mark.parametrize("name", ["torch-sgd", "optax-sgd"])
def test_a_step_to_where_there_is_no_log_joint_is_not_taken(name):
    kind, make = OPTIMIZERS[name]
    X, start = easy_data()
    model = ascend(kind, X, start, optimizer=make(3.0), max_iter=30)  # the noise is unconstrained
    assert model.state_.params.ascent.step_scale < 1  # some steps were too long
    assert (np.diff(model.free_energies_) >= 0).all()
    assert model.free_energies_[-1] > model.free_energies_[0] + 1


def test_an_update_to_where_there_is_no_log_joint_is_an_error():
    X, start = easy_data()
    model = BlackBox(
        BINARY["numpy"], start, 3, n_states="all", random_state=0,
        statistics=lambda params, X, observed, states, weights: {"n": len(X)},
        update=lambda params, sums: {**params, "noise": np.array(-1.0)},
    )  # fmt: skip
    with np.errstate(invalid="ignore"), pytest.raises(LogJointError, match="got nan, for row 0 "):
        model.fit(X)


def sum_joint(params, X, states):
    return -(params["W"] ** 2).sum() - states.sum(-1)


@pytest.mark.parametrize(
    ("constraints", "words"),
    [
        ({"V": "positive"}, "constraints must name parameters, W; got 'V'."),
        ({"W": "positive"}, r"params\['W'\] must be positive by its constraint 'positive'; got"),
        ({"W": "unit"}, r"params\['W'\] must lie between 0 and 1 by"),
        ({"W": "simplex"}, r"params\['W'\] must be at least 0 and sum to one along the last"),
    ],
)
def test_parameters_must_start_within_their_constraints(constraints, words):
    model = BlackBox(sum_joint, {"W": torch.tensor(W - 1)}, H, constraints=constraints)
    with pytest.raises(ValueError, match=words):
        model.fit(make_data(20))


@pytest.mark.parametrize(
    ("optimizer", "words"),
    [
        ("adam", "optimizer must make one of torch.optim for these params; got 'adam'"),
        (torch.optim.LBFGS, "optimizer must need one gradient for a step; got LBFGS"),
    ],
)
def test_optimisers_that_cannot_be_used(optimizer, words):
    X = np.random.default_rng(0).normal(size=(12, D))
    params = {"W": torch.tensor(W)}

    def log_joint(params, X, states):
        return -((X[:, None] - states @ params["W"]) ** 2).sum(-1)

    with pytest.raises(ValueError, match=re.escape(words)):
        BlackBox(log_joint, params, H, optimizer=optimizer, random_state=0).fit(X)
