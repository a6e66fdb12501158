"""Runs that are kept in checkpoints, on small problems."""

from problems import data_of, make_problem

from evoem import em

EVOLUTION = em.Evolution(3, 2)


def start(name, missing, n_states=5, seed=3, **options):
    problem = make_problem(name, N=40, missing=0.3 * missing, seed=7, **options)
    data = data_of(problem)
    state = em.init(problem.model, data, params=problem.params, n_states=n_states, seed=seed)
    return problem.model, data, state
