"""What is inferred with the parameters held fixed."""

from typing import NamedTuple

import numpy as np
import pytest
import reference
from problems import MODELS, data_of, make_problem, seen

from evoem import em, inference
from evoem.em import Evolution
from evoem.models import Model

GOOD = em.Data(np.zeros((5, 3)) + np.arange(3.0))


@pytest.mark.parametrize("missing", [0.0, 0.4])
@pytest.mark.parametrize("name", MODELS)
def test_inference_finds_the_best_states_of_new_rows(name, missing):
    problem = make_problem(name, H=6, N=40, missing=missing, seed=37)
    dense = reference.all_states(6)
    given = problem.model, data_of(problem), problem.params, Evolution(4, 3, 2)
    found = inference.infer(*given, n_states=20)
    exact = []
    for x, mask in zip(problem.X, seen(problem), strict=True):
        values = [problem.log_joint(problem.params, x, mask, s) for s in dense]
        exact.append(reference.logsumexp(np.sort(values)[-20:]))
    assert (found.bounds <= np.array(exact) + 1e-9).all()
    assert np.mean(np.array(exact) - found.bounds) < 0.02


def test_inference_of_a_row_does_not_depend_on_its_company():
    problem = make_problem("spike_slab_diagonal", H=8, D=13, N=50, missing=0.2, seed=38)

    def states_of(rows):
        given = problem.model, data_of(problem).take(rows), problem.params, Evolution(4, 3, 1)
        return inference.infer(*given, n_states=10).states

    together = states_of(np.arange(50))
    np.testing.assert_array_equal(states_of(np.arange(50)[::-1])[::-1], together)
    for n in range(0, 50, 7):
        np.testing.assert_array_equal(states_of(np.array([n]))[0], together[n])


def test_inference_goes_on_from_the_first_states():
    """They are left as they are, and nothing that was found is lost."""
    problem = make_problem("spike_slab_diagonal", H=8, D=13, N=30, seed=40)
    options = {"n_states": 10, "max_iter": 1}
    given = problem.model, data_of(problem), problem.params, Evolution(4, 3, 1)
    once = inference.infer(*given, **options)
    before = once.states.copy()
    twice = inference.infer(*given, first=once.states, **options)
    np.testing.assert_array_equal(once.states, before)
    assert (twice.bounds >= once.bounds).all()
    assert (twice.bounds > once.bounds).mean() > 0.5
    with pytest.raises(ValueError, match=r"^first must have 9 \(n_states\) states a row; got 10.$"):
        inference.infer(*given, n_states=9, first=once.states)


def test_a_row_with_nothing_observed_gives_the_prior_mean():
    for name in MODELS:
        problem = make_problem(name, H=9, missing=0.3, seed=39)  # truncated: 20 of 512 states
        model, data, params = problem.model, data_of(problem), problem.params
        state = em.init(model, data, n_states=20, params=params)
        parts = inference.estimate(model.reconstruct, model, data, params, state.states)
        prior = problem.model.prior(problem.params)
        np.testing.assert_allclose(parts[-1][0][-1], prior.mean)
        np.testing.assert_allclose(parts[-1][1][-1], prior.variance)


@pytest.mark.parametrize(
    ("kept", "sentence"),
    [
        (
            np.ones((4, 2, 1), np.uint64),
            r"must be .* of shape \(5, n_states, 1\); got uint64 of shape \(4, 2",
        ),
        (np.ones((5, 2, 1), np.int64), r"must be a uint64 array of shape .*; got int64 of"),
        (np.ones((5, 2, 2), np.uint64), r"must be a uint64 array of shape .*; got uint64 of"),
        ([[1]], r"must be a uint64 array of shape .*; got \[\[1\]\]."),
        (np.full((5, 2, 1), 8, np.uint64), "must have no latent beyond the 3 there are; got some."),
    ],
)
def test_states_that_kernels_would_misread_are_refused(kept, sentence):
    model = make_problem("binary").model
    params = em.init(model, GOOD, n_latents=3, n_states=2).params
    with pytest.raises(ValueError, match=f"^first {sentence}"):
        inference.infer(model, GOOD, params, Evolution(2, 2), n_states=2, first=kept)
    with pytest.raises(ValueError, match=f"^kept {sentence}"):
        inference.bounds(model, GOOD, params, kept)
    with pytest.raises(ValueError, match=f"^kept {sentence}"):
        inference.estimate(model.codes, model, GOOD, params, kept)


def test_states_that_are_not_distinct_are_refused():
    model = make_problem("binary").model
    params = em.init(model, GOOD, n_latents=3, n_states=2).params
    twice = np.ones((5, 2, 1), np.uint64)
    with pytest.raises(ValueError, match=r"^states must differ within each row; got some twice.$"):
        inference.infer(model, GOOD, params, Evolution(2, 2), n_states=2, first=twice)


def test_rows_of_which_only_impossible_states_are_known_are_searched_further():
    """A feature that one latent of many can turn on, and only that one."""

    class OnlyOne(NamedTuple):
        activation_probs: np.ndarray

    class Derived(NamedTuple):
        n_latents: int
        expected_active: float

    class OnlyOneModel(Model):
        def prepare(self, params, dtype):
            return Derived(len(params.activation_probs), 1.0)

        def prepare_rows(self, derived, X, observed):
            return X

        def dense_log_joints(self, derived, rows, states):
            return np.where(states[:, :, 7], 0.0, -np.inf)

    params = OnlyOne(np.full(12, 0.5))
    data = em.Data(np.ones((30, 1)), rows=np.arange(30, dtype=np.uint64))
    given = OnlyOneModel(), data, params, Evolution(2, 2, 1)
    found = inference.infer(*given, n_states=4)
    assert (found.bounds > -np.inf).all()
    few = inference.infer(*given, n_states=4, max_iter=2)
    assert (few.bounds == -np.inf).any()
