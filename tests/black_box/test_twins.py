"""The built-in models written again as black boxes do what the built-in ones do, bit for bit or
nearly; and without an M-step of their own they learn by gradients."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import reference
import torch
from problems import make_model, random_params
from scipy.special import logsumexp

from evoem import BinarySparseCoding, BlackBox, LogJointError, NoisyOr, SpikeSlabCoding
from evoem.models.binary_sparse_coding import BinarySparseCodingParams
from evoem.models.noisy_or import NoisyOrParams
from evoem.models.spike_slab.update import SpikeSlabParams
from evoem.states import unpack

H, D, N = 6, 7, 70
ITERATIONS = 5
OPTIONS = {
    "n_latents": H,
    "n_states": 9,
    "n_parents": 4,
    "n_children": 3,
    "max_iter": ITERATIONS,
    "tol": 0,
    "random_state": 3,
}
OPERATORS = {
    "fit-uniform": {"parents": "fit", "mutation": "uniform"},
    "random-sparse": {"parents": "random", "mutation": "sparse"},
    "best-sparse-crossover": {"parents": "best", "mutation": "sparse", "crossover": True},
    "fit-uniform-crossover": {"parents": "fit", "mutation": "uniform", "crossover": True},
}
LOG_2PI = np.log(2 * np.pi)


# ----------------------------------------------------------------- log-joints of a single state


def noisy_or(params, x, observed, state):
    total = 0.0
    for h in range(len(state)):
        p = params.activation_probs[h]
        total += np.log(p) if state[h] else np.log(1 - p)
    for d in range(len(x)):
        off = 1.0
        for h in range(len(state)):
            if state[h]:
                off *= 1 - params.components[h, d]
        if observed[d]:
            if x[d] == 0:
                total += np.log(off)
            elif off < 1:
                total += np.log(1 - off)
            else:
                total = -np.inf
    return total


def binary(params, x, observed, active):
    p = params.activation_probs[0]
    n_latents = len(params.components)
    total = len(active) * np.log(p) + (n_latents - len(active)) * np.log(1 - p)
    for d in range(len(x)):
        if observed[d]:
            residual = x[d]
            for h in active:
                residual -= params.components[h, d]
            total -= 0.5 * residual**2 / params.noise_variance
            total -= 0.5 * (LOG_2PI + np.log(params.noise_variance))
    return total


def spike_slab(params, x, observed, state):
    """Gaussian elimination in the covariance, in which what is missing is 1 on the diagonal."""
    n = len(x)
    C = np.zeros((n, n))
    residual = np.zeros(n)
    total = 0.0
    for d in range(n):
        C[d, d] = params.noise_variance if observed[d] else 1.0
        if observed[d]:
            residual[d] = x[d]
            total -= 0.5 * LOG_2PI
    for h in range(len(state)):
        p = params.activation_probs[h]
        total += np.log(p) if state[h] else np.log(1 - p)
        if state[h]:
            for d in range(n):
                if observed[d]:
                    w = params.components[h, d]
                    residual[d] -= w * params.slab_means[h]
                    for e in range(n):
                        if observed[e]:
                            C[d, e] += params.slab_covariance[h] * w * params.components[h, e]
    for d in range(n):
        for e in range(d + 1, n):
            factor = C[e, d] / C[d, d]
            for f in range(d, n):
                C[e, f] -= factor * C[d, f]
            residual[e] -= factor * residual[d]
        total -= 0.5 * np.log(C[d, d]) + 0.5 * residual[d] ** 2 / C[d, d]
    return total


# ------------------------------------------------- log-joints of many states, in any array library


def log_prior(xp, pi, states):
    return states @ xp.log(pi / (1 - pi)) + xp.log1p(-pi).sum()


def noisy_or_many(xp, params, X, states, observed):
    log_off = states @ xp.log1p(-params.components)
    on = -xp.expm1(log_off)
    log_on = xp.where(on > 0, xp.log(xp.where(on > 0, on, 1.0)), -np.inf)
    each = xp.where(X[:, None] == 1, log_on, log_off)
    each = xp.where(observed[:, None], each, 0.0)
    return log_prior(xp, params.activation_probs, states) + each.sum(-1)


def binary_many(xp, params, X, states, observed):
    residual = xp.where(observed[:, None], X[:, None] - states @ params.components, 0.0)
    count = xp.where(observed, xp.ones_like(X), 0.0).sum(-1)[:, None]
    density = -0.5 * (residual**2).sum(-1) / params.noise_variance
    density = density - 0.5 * count * (LOG_2PI + xp.log(params.noise_variance))
    return log_prior(xp, params.activation_probs, states) + density


def spike_slab_many(xp, params, X, states, observed):
    seen = xp.where(observed, xp.ones_like(X), 0.0)
    W = states[:, :, :, None] * params.components * seen[:, None, None]  # (n, s, h, d)
    C = xp.einsum("nshd,h,nshe->nsde", W, params.slab_covariance, W)
    diagonal = xp.where(observed, params.noise_variance, 1.0)
    C = C + (diagonal[:, :, None] * xp.eye(X.shape[1]))[:, None]
    residual = X[:, None] * seen[:, None] - xp.einsum("nshd,h->nsd", W, params.slab_means)
    solved = xp.linalg.solve(C, residual[..., None])[..., 0]
    density = -0.5 * xp.linalg.slogdet(C)[1] - 0.5 * (residual * solved).sum(-1)
    density = density - 0.5 * LOG_2PI * seen.sum(-1)[:, None]
    return log_prior(xp, params.activation_probs, states) + density


def vectorised(many, xp):
    def log_joint(params, X, states, observed):
        return many(xp, params, X, states, observed)

    return log_joint


# ----------------------------------------------------------------- M-steps out of the textbook


def plain(array):
    """As NumPy."""
    return array.detach().numpy() if hasattr(array, "detach") else np.asarray(array)


def with_plain_arrays(function):
    """The same function of arrays of any library, or NamedTuples or dicts of them."""

    def convert(part):
        if isinstance(part, dict):
            return {name: plain(value) for name, value in part.items()}
        return type(part)(*map(plain, part)) if isinstance(part, tuple) else plain(part)

    def converted(*arguments):
        return function(*map(convert, arguments))

    return converted


def noisy_or_statistics(params, X, observed, states, weights):
    activation = np.einsum("ns,nsh->nh", weights, states)
    off = np.prod(1 - states[..., None] * params.components, axis=2)
    on = weights[..., None] * (X * observed)[:, None] / np.maximum(1 - off, 1e-300)
    return {
        "rows": len(X),
        "activation": activation.sum(0),
        "chances": activation.T @ observed,
        "causes": np.einsum("nsh,nsd->hd", states, on),
    }


def noisy_or_update(params, sums):
    W = params.components * sums["causes"] / sums["chances"]
    pi = np.clip(sums["activation"] / sums["rows"], 1e-8, 1 - 1e-8)
    return NoisyOrParams(np.clip(W, 1e-6, 1 - 1e-6), pi)


def linear_statistics(moments, params, X, observed, states, weights):
    """Moments of c, state by state; missing values are one more latent."""
    W = params.components
    sums = {
        "rows": len(X),
        "count": np.count_nonzero(observed),
        "activation": np.einsum("ns,nsh->h", weights, states),
        "first": np.zeros(len(W)),
        "second": np.zeros((len(W), len(W))),
        "cross": np.zeros(W.shape),
        "square": 0.0,
    }
    for x, seen, kept, row_weights in zip(X, observed, states > 0, weights, strict=True):
        first, second = np.zeros(len(W)), np.zeros((len(W), len(W)))
        for s, weight in zip(kept, row_weights, strict=True):
            if weight > 0:
                m1, m2 = moments(params, x, seen, s)
                first += weight * m1
                second += weight * m2
        expected = second @ W  # ⟨c y⟩ where y is not known
        sums["first"] += first
        sums["second"] += second
        sums["cross"] += np.where(seen, np.outer(first, x), expected)
        sums["square"] += (x[seen] ** 2).sum() + (W * expected)[:, ~seen].sum()
    return sums


def binary_statistics(*arguments):
    return linear_statistics(reference.binary_moments, *arguments)


def spike_slab_statistics(*arguments):
    return linear_statistics(reference.spike_slab_moments, *arguments)


def dictionary_and_noise(params, sums):
    system = sums["second"]
    system = system + 1e-10 * np.trace(system) / len(system) * np.eye(len(system))
    pull = 1e-10 * np.trace(sums["second"]) / len(system) * params.components
    W = np.linalg.solve(system, sums["cross"] + pull)
    residual = sums["square"] - 2 * np.vdot(W, sums["cross"]) + np.vdot(W, sums["second"] @ W)
    return W, np.array(residual / sums["count"])


def binary_update(params, sums):
    W, noise = dictionary_and_noise(params, sums)
    return BinarySparseCodingParams(
        W, np.full(len(W), sums["activation"].mean() / sums["rows"]), noise
    )


def spike_slab_update(params, sums):
    W, noise = dictionary_and_noise(params, sums)
    counts = sums["activation"]
    means = sums["first"] / counts
    variances = np.diag(sums["second"]) / counts - means**2
    scale = np.sqrt(variances + means**2)  # the scale of W and z is not identified
    return SpikeSlabParams(
        W * scale[:, None], counts / sums["rows"], noise, means / scale, variances / scale**2
    )


# ------------------------------------------------------------- what fitness leaves out, app:lpj


def prior_constant(params, X, observed):
    return np.full(len(X), np.log1p(-plain(params.activation_probs)).sum())


def binary_constant(params, X, observed):
    log_variance = LOG_2PI + np.log(plain(params.noise_variance))
    return prior_constant(params, X, observed) - 0.5 * plain(observed).sum(1) * log_variance


def spike_slab_constant(params, X, observed):
    return prior_constant(params, X, observed) - 0.5 * plain(observed).sum(1) * LOG_2PI


class Twin(NamedTuple):
    estimator: object
    one: object
    many: object
    statistics: object
    update: object
    log_constant: object


TWINS = {
    "noisy_or": Twin(
        NoisyOr, noisy_or, noisy_or_many, noisy_or_statistics, noisy_or_update, prior_constant
    ),
    "binary": Twin(
        BinarySparseCoding, binary, binary_many, binary_statistics, binary_update, binary_constant
    ),
    "spike_slab_diagonal": Twin(
        SpikeSlabCoding,
        spike_slab,
        spike_slab_many,
        spike_slab_statistics,
        spike_slab_update,
        spike_slab_constant,
    ),
}
VECTORISED = {
    name: {kind: vectorised(twin.many, xp) for kind, xp in
           {"numpy": np, "torch": torch, "jax": jnp}.items()}
    for name, twin in TWINS.items()
}  # fmt: skip


def data(name, missing, n=N, seed=0):
    """Data with NaN, and parameters to start from. Ties between states are unlikely."""
    rng = np.random.default_rng(seed)
    X, _ = make_model(name).sample(random_params(name, H, D, rng), n, rng)
    X[:, 0] = rng.integers(0, 2, n) if name == "noisy_or" else rng.normal(size=n)
    if missing:
        hidden = rng.random(X.shape) < 0.3
        hidden[:, :2] = False  # something is seen in every row
        X[hidden] = np.nan
    start = random_params(name, H, D, rng)
    return X, start._replace(activation_probs=np.full(H, 1 / H))


def built_in(name, X, start, **options):
    init = start._asdict()
    return TWINS[name].estimator(init=init, **OPTIONS | options).fit(X)


def in_library(params, kind):
    if kind == "torch":
        return type(params)(*(torch.tensor(value) for value in params))
    if kind == "jax":
        with jax.enable_x64(True):
            return type(params)(*map(jnp.asarray, params))
    return params


def black_box(name, kind, X, start, **options):
    twin = TWINS[name]
    one = kind in ("compiled", "plain")
    return BlackBox(
        twin.one if one else VECTORISED[name][kind],
        in_library(start, kind),
        statistics=with_plain_arrays(twin.statistics),
        update=with_plain_arrays(twin.update),
        log_constant=twin.log_constant,
        compiled=kind != "plain",
        **OPTIONS | options,
    ).fit(X)


def assert_twins(model, twin):
    np.testing.assert_array_equal(twin.state_.states, model.state_.states)
    np.testing.assert_allclose(twin.free_energies_, model.free_energies_, rtol=1e-9)
    for name, value in model.state_.params._asdict().items():
        found = plain(getattr(twin.params_, name))
        np.testing.assert_allclose(found, value, rtol=1e-6, atol=1e-9, err_msg=name)


@pytest.mark.parametrize("missing", [False, True], ids=["complete", "missing"])
@pytest.mark.parametrize("operators", OPERATORS)
@pytest.mark.parametrize("name", TWINS)
def test_a_compiled_twin_learns_what_the_built_in_model_learns(name, operators, missing):
    X, start = data(name, missing)
    model = built_in(name, X, start, **OPERATORS[operators])
    assert_twins(model, black_box(name, "compiled", X, start, **OPERATORS[operators]))
    assert len(np.unique(model.free_energies_)) == ITERATIONS


@pytest.mark.parametrize(
    ("name", "kind", "missing"),
    [
        pytest.param(
            name, kind, missing, id=f"{name}-{kind}-{'missing' if missing else 'complete'}"
        )
        for name in TWINS
        for kind in ("plain", "numpy", "torch", "jax")
        for missing in (False, True)
        # JAX takes long to compile this one.
        if missing or (name, kind) != ("spike_slab_diagonal", "jax")
    ],
)
def test_so_do_twins_in_python_and_in_any_array_library(name, kind, missing):
    X, start = data(name, missing, n=30 if kind == "plain" else N)
    operators = OPERATORS["fit-uniform" if missing else "random-sparse"]
    model = built_in(name, X, start, **operators)
    assert_twins(model, black_box(name, kind, X, start, n_jobs=2, **operators))


# ------------------------------------------------------------------------------------- gradients

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
    seen = []
    model = BlackBox(
        mixture_log_joint, start, 2, n_states="all", max_iter=30, tol=0, random_state=0,
        constraints={"shares": "simplex", "cost": "positive"}, callback=seen.append,
        optimizer=partial(torch.optim.SGD, lr=3.0),
    ).fit(X)  # fmt: skip
    for info in seen:
        shares = info.params.values["shares"]
        np.testing.assert_allclose(shares.sum(1), 1.0, rtol=1e-12)
        assert (shares > 0).all()
        assert info.params.values["cost"] > 0
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
