"""Runs of the functional core on small problems."""

import numpy as np
from problems import data_of

from evoem import em
from evoem.em import Evolution

OPERATORS = [
    Evolution(3, 2, 2, parents, mutation, crossover)
    for parents in ("fit", "random", "best")
    for mutation in ("uniform", "sparse")
    for crossover in (False, True)
]


def start(problem, n_states=6, seed=0, **options):
    options = {"params": problem.params, "seed": seed} | options
    return em.init(problem.model, data_of(problem), n_states=n_states, **options)


def run(problem, state, evolution=OPERATORS[0], iterations=5, **options):
    given = problem.model, data_of(problem), state, evolution
    return em.run(*given, max_iter=iterations, **options)


def bounds(infos):
    return np.array([info.free_energy for info in infos])


def assert_same(a, b):
    """NamedTuples of arrays, equal to the last bit."""
    for mine, other in zip(a, b, strict=True):
        if isinstance(mine, tuple):
            assert_same(mine, other)
        else:
            np.testing.assert_array_equal(mine, other)
