"""Small random problems for every model, shared by the tests."""

from typing import NamedTuple

import numpy as np
import reference
from subspace_problems import random_params as subspace_params

from evoem import em
from evoem.models import BinarySparseCodingModel, NoisyOrModel, SpikeSlabModel, SubspaceModel
from evoem.models.binary_sparse_coding import BinarySparseCodingParams
from evoem.models.noisy_or import NoisyOrParams
from evoem.models.spike_slab.model import SpikeSlabParams
from evoem.models.subspace.by_feature import SubspacesByFeature


class Problem(NamedTuple):
    model: object
    params: object
    X: np.ndarray  # zeros where missing
    observed: np.ndarray | None
    log_joint: object  # the slow twin


MODELS = (
    "noisy_or", "binary", "spike_slab_diagonal", "spike_slab_full", "spike_slab_fixed",
    "subspace", "subspace_by_feature",
)  # fmt: skip
# The models of the paper whose dictionary may be learnt feature by feature, in that way.
BY_FEATURE = ("binary_by_feature", "spike_slab_diagonal_by_feature", "spike_slab_full_by_feature")


def random_covariance(H, rng):
    A = rng.normal(size=(H, H))
    return A @ A.T / H + 0.3 * np.eye(H)


def make_model(name, **options):
    if name == "noisy_or":
        return NoisyOrModel(**options)
    if name == "binary":
        return BinarySparseCodingModel(**options)
    if name == "subspace":
        return SubspaceModel(**options)
    if name == "subspace_by_feature":
        return SubspacesByFeature(**options)
    if name.endswith("_by_feature"):
        return make_model(name.removesuffix("_by_feature"), by_feature=True, **options)
    slab = name.removeprefix("spike_slab_")
    return SpikeSlabModel(slab=slab, learn_slab_means=slab != "fixed", **options)


def random_params(name, H, D, rng):
    name = name.removesuffix("_by_feature")
    pi = rng.uniform(0.1, 0.6, H)
    if name == "noisy_or":
        return NoisyOrParams(rng.uniform(0.05, 0.95, (H, D)), pi)
    if name.startswith("subspace"):
        sizes = 1 + np.arange(H) % 3  # patterns of each latent
        return subspace_params(sizes, D, rng)._replace(activation_probs=pi)
    W, noise = rng.normal(size=(H, D)), np.array(rng.uniform(0.3, 2.0))
    if name == "binary":
        return BinarySparseCodingParams(W, np.full(H, pi[0]), noise)
    if name == "spike_slab_full":
        covariance = random_covariance(H, rng)
    else:
        covariance = rng.uniform(0.3, 2.0, H)
    return SpikeSlabParams(W, pi, noise, rng.normal(size=H), covariance)


def make_problem(name, *, H=4, D=6, N=7, missing=0.0, seed=0, **options):
    """A model with random parameters and data drawn from other random parameters."""
    rng = np.random.default_rng(seed)
    model = make_model(name, **options)
    X, _ = model.sample(random_params(name, H, D, rng), N, rng)
    observed = None
    if missing:
        observed = rng.random(X.shape) >= missing
        observed[0] = True  # a complete row among the others
        observed[-1] = False  # and one with nothing observed
        X = np.where(observed, X, 0.0)
    twin = {
        "noisy_or": reference.noisy_or_log_joint,
        "binary": reference.binary_log_joint,
        "subspace": reference.subspace_log_joint,
    }
    log_joint = twin.get(name.removesuffix("_by_feature"), reference.spike_slab_log_joint)
    return Problem(model, random_params(name, H, D, rng), X, observed, log_joint)


def data_of(problem):
    """The data of a problem as EM takes them."""
    return em.Data(problem.X, problem.observed)


def seen(problem):
    """The mask of observed values, always an array."""
    if problem.observed is None:
        return np.ones(problem.X.shape, bool)
    return problem.observed
