"""The built-in models written again as black boxes learn what the built-in ones learn."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference
import torch
from black_box_problems import plain
from problems import make_model, random_params

from evoem import BinarySparseCoding, BlackBox, NoisyOr, SpikeSlabCoding
from evoem.models.binary_sparse_coding import BinarySparseCodingParams
from evoem.models.noisy_or import NoisyOrParams
from evoem.models.spike_slab.update import SpikeSlabParams

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


def noisy_or_vectorized(xp, params, X, states, observed):
    log_off = states @ xp.log1p(-params.components)
    on = -xp.expm1(log_off)
    log_on = xp.where(on > 0, xp.log(xp.where(on > 0, on, 1.0)), -np.inf)
    each = xp.where(X[:, None] == 1, log_on, log_off)
    each = xp.where(observed[:, None], each, 0.0)
    return log_prior(xp, params.activation_probs, states) + each.sum(-1)


def binary_vectorized(xp, params, X, states, observed):
    residual = xp.where(observed[:, None], X[:, None] - states @ params.components, 0.0)
    count = xp.where(observed, xp.ones_like(X), 0.0).sum(-1)[:, None]
    density = -0.5 * (residual**2).sum(-1) / params.noise_variance
    density = density - 0.5 * count * (LOG_2PI + xp.log(params.noise_variance))
    return log_prior(xp, params.activation_probs, states) + density


def spike_slab_vectorized(xp, params, X, states, observed):
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


def in_array_library(log_joint_of, xp):
    def log_joint(params, X, states, observed):
        return log_joint_of(xp, params, X, states, observed)

    return log_joint


# ----------------------------------------------------------------- M-steps out of the textbook


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
    scalar: object
    vectorized: object
    statistics: object
    update: object
    log_constant: object


TWINS = {
    "noisy_or": Twin(
        NoisyOr, noisy_or, noisy_or_vectorized, noisy_or_statistics, noisy_or_update, prior_constant
    ),
    "binary": Twin(
        BinarySparseCoding,
        binary,
        binary_vectorized,
        binary_statistics,
        binary_update,
        binary_constant,
    ),
    "spike_slab_diagonal": Twin(
        SpikeSlabCoding,
        spike_slab,
        spike_slab_vectorized,
        spike_slab_statistics,
        spike_slab_update,
        spike_slab_constant,
    ),
}
VECTORISED = {
    name: {kind: in_array_library(twin.vectorized, xp) for kind, xp in
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
    scalar = kind in ("compiled", "plain")
    return BlackBox(
        twin.scalar if scalar else VECTORISED[name][kind],
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
