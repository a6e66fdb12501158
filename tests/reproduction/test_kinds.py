"""Every recipe has its kind of experiment, and every kind a recipe."""

from evoem.reproduction import recipes
from evoem.reproduction.kinds import EXPERIMENTS


def test_recipes_and_kinds_name_each_other():
    assert {recipes.data(name)["kind"] for name in recipes.NAMES} == EXPERIMENTS.keys()
