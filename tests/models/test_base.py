"""The model contract, and what follows from it for any model."""

import re

import numpy as np
import pytest
from problems import MODELS, make_problem, seen

from evoem import states
from evoem.evolution import Genomes
from evoem.models import Model, SpikeSlabModel, SubspaceModel, base
from evoem.models.base import flip_gains, log_joint


def test_the_table_of_the_contract_lists_every_member():
    listed = re.findall(r"^\| (?:or )?`(\w+)\(", base.__doc__, re.M)
    members = [name for name in vars(Model) if not name.startswith("_")]
    assert sorted(listed) == sorted(members)
    assert len(listed) <= 17


def test_a_model_is_shown_as_it_was_made():
    model = SpikeSlabModel(slab="full", least_noise_variance=0.5)
    assert vars(eval(repr(model))) == vars(model)
    assert "slab='full'" in repr(model)
    assert repr(SubspaceModel(3)) == "SubspaceModel(rank=3, least_noise_variance=0.0)"


@pytest.mark.parametrize("name", MODELS)
def test_the_log_joint_of_one_state_is_that_of_the_block(name):
    problem = make_problem(name, missing=0.4, seed=3)
    s = np.array([True, False, True, False])
    fast = log_joint(problem.model, problem.params, problem.X[1], problem.observed[1], s)
    slow = problem.log_joint(problem.params, problem.X[1], problem.observed[1], s)
    assert fast == pytest.approx(slow, rel=1e-12)


@pytest.mark.interpreted
@pytest.mark.parametrize("name", MODELS)
def test_flip_gains_are_differences_of_log_joints(name):
    problem = make_problem(name, missing=0.3, seed=6)
    derived = problem.model.prepare(problem.params, np.float64)
    rows = problem.model.prepare_rows(derived, problem.X, problem.observed)
    dense = np.array([[True, False, False, True], [False, True, True, True]])
    genomes = Genomes(
        np.broadcast_to(states.pack(dense), (len(problem.X), 2, 1)).copy(),
        np.full(len(problem.X), 2),
    )
    gains = flip_gains(problem.model, derived, rows, genomes)
    for n, (x, mask) in enumerate(zip(problem.X, seen(problem), strict=True)):
        for m, s in enumerate(dense):
            before = problem.log_joint(problem.params, x, mask, s)
            for h in range(4):
                flipped = s.copy()
                flipped[h] = not s[h]
                after = problem.log_joint(problem.params, x, mask, flipped)
                assert gains[n, m, h] == pytest.approx(after - before, rel=1e-8, abs=1e-8)
