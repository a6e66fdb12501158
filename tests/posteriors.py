"""Posteriors over chosen states, and their statistics, of a small problem."""

import numpy as np
import reference

from evoem import posterior as truncated
from evoem import states
from evoem.models.base import Posterior


def packed_all(problem):
    H = len(problem.params.activation_probs)
    dense = reference.all_states(H)
    return dense, np.broadcast_to(states.pack(dense), (len(problem.X), *states.pack(dense).shape))


def posterior_over(problem, kept):
    """Derived quantities, rows, and the posterior over packed states, as EM makes them."""
    model, params = problem.model, problem.params
    derived = model.prepare(params, np.float64)
    rows = model.prepare_rows(derived, problem.X, problem.observed)
    log_joints = truncated.evaluate(model, derived, rows, np.ascontiguousarray(kept))
    weights, _ = truncated.weigh(log_joints)
    return derived, rows, Posterior(np.ascontiguousarray(kept), weights)


def collect_statistics(problem, kept):
    stats = problem.model.empty_statistics(problem.params)
    derived, rows, posterior = posterior_over(problem, kept)
    problem.model.accumulate(stats, problem.params, derived, rows, posterior)
    return stats


MISSING = (0.0, 0.4)


LINEAR = ["binary", "spike_slab_diagonal", "spike_slab_full", "spike_slab_fixed"]


def moments_of(name):
    if name.startswith("subspace"):
        return reference.subspace_moments
    return reference.binary_moments if name == "binary" else reference.spike_slab_moments
