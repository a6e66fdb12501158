"""Small random problems for subspaces, shared by their tests."""

import numpy as np

from evoem import em, states
from evoem import posterior as truncated
from evoem.em import Evolution
from evoem.models import SubspaceModel
from evoem.models.base import Posterior
from evoem.models.subspace.model import SubspaceParams

MODEL = SubspaceModel()
SIZES = (2, 1, 7, 1, 4)  # patterns of each latent: more and fewer than a tile, and parts of one
MISSING = (0.0, 0.4)
UNIFORM = Evolution(3, 2, 2)
GUIDED = Evolution(3, 2, 2, mutation="guided")


def random_params(sizes, n_features, rng):
    G, C = len(sizes), sum(sizes)
    return SubspaceParams(
        rng.normal(size=(C, n_features)),
        rng.uniform(0.1, 0.6, G),
        np.array(rng.uniform(0.3, 2.0)),
        rng.normal(size=C),
        rng.uniform(0.3, 2.0, C),
        np.concatenate([[0], np.cumsum(sizes)]),
    )


def make_data(n_rows, n_features, missing, rng):
    """Rows with zeros where missing, and the mask: complete rows, others, and one of nothing."""
    X = 2 * rng.normal(size=(n_rows, n_features))
    if not missing:
        return X, None
    observed = rng.random(X.shape) >= missing
    observed[:2] = True
    observed[-1] = False
    return np.where(observed, X, 0.0), observed


def make_problem(missing=0.0, *, sizes=SIZES, n_features=6, n_rows=9, seed=0):
    rng = np.random.default_rng(seed)
    return random_params(sizes, n_features, rng), *make_data(n_rows, n_features, missing, rng)


def seen(X, observed):
    """The mask of observed values, always an array."""
    return np.ones(X.shape, bool) if observed is None else observed


def for_all(X, dense):
    """The same states for every row, packed."""
    packed = states.pack(dense)
    return np.ascontiguousarray(np.broadcast_to(packed, (len(X), *packed.shape)))


def log_joints(params, X, observed, kept, model=MODEL):
    derived = model.prepare(params, X.dtype)
    rows = model.prepare_rows(derived, X, observed)
    return truncated.evaluate(model, derived, rows, kept)


def posterior_over(params, X, observed, kept, model=MODEL):
    """Derived quantities, rows, and the posterior over packed states, as EM makes them."""
    derived = model.prepare(params, X.dtype)
    rows = model.prepare_rows(derived, X, observed)
    weights, _ = truncated.weigh(truncated.evaluate(model, derived, rows, kept))
    return derived, rows, Posterior(kept, weights)


def statistics(params, X, observed, kept, model=MODEL):
    """Those of all rows, in two blocks as EM adds them up."""
    total = model.empty_statistics(params)
    for part in (slice(0, 4), slice(4, len(X))):
        mask = None if observed is None else observed[part]
        derived, rows, posterior = posterior_over(params, X[part], mask, kept[part], model)
        model.accumulate(total, params, derived, rows, posterior)
    return model.finish_statistics(model.prepare(params, X.dtype), total)[0]


def reconstruction(params, X, observed, kept, model=MODEL):
    return model.reconstruct(params, *posterior_over(params, X, observed, kept, model))


def run_with_params(model, data, state, evolution, **options):
    """The bounds of a run, and the parameters after each iteration."""
    params = []
    _, infos = em.run(
        model, data, state, evolution, callback=lambda _, now: params.append(now.params), **options
    )
    return np.array([info.free_energy for info in infos]), params


def assert_that_the_bound_never_falls(model, evolution, missing, seed):
    """From few states, and from more than the best single ones; of wide latents and few features
    too."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 4, rng.integers(2, 7))
    shape = {"n_features": int(rng.integers(1, 9)), "n_rows": int(rng.integers(5, 40))}
    params, X, observed = make_problem(missing, sizes=sizes, seed=seed, **shape)
    n_states = int(rng.integers(1, min(9, 2 ** len(sizes))))
    data = em.Data(X, observed)
    state = em.init(model, data, n_states=n_states, params=params, seed=seed)
    evolution = evolution._replace(n_parents=min(3, n_states))
    bounds, learnt = run_with_params(model, data, state, evolution, max_iter=12)
    # Tiny data can be explained without noise; |y|²/σ² is then large, and so is its rounding.
    noise = min(float(params.noise_variance) for params in learnt)
    tolerance = 1e-8 * max(1.0, np.abs(bounds).max()) + 4e-15 * np.square(X).sum(1).max() / noise
    assert np.diff(bounds).min() > -tolerance


def precision(dtype):
    """Tolerances of comparisons with the twin, which is in double precision."""
    bound = 1e-9 if dtype == np.float64 else 2e-3
    return {"rtol": bound, "atol": bound}


def planted(n_rows, rng, noise=0.1, n_kinds=3, n_features=8, rank=2):
    """Rows near one of some planes each: clean ones, noisy ones, kinds, means, directions."""
    means = 8 * np.linalg.qr(rng.normal(size=(n_features, n_features)))[0][:n_kinds]
    directions = rng.normal(size=(n_kinds, rank, n_features))
    kinds = rng.integers(n_kinds, size=n_rows)
    amounts = rng.normal(size=(n_rows, rank))
    clean = means[kinds] + np.einsum("ni,nid->nd", amounts, directions[kinds])
    return clean, clean + noise * rng.normal(size=clean.shape), kinds, means, directions
