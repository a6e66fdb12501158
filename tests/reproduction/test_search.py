"""Operators of recipes are those of EM, by the same names."""

from evoem.reproduction.search import evolution_of

SEARCHED = {
    "n_parents": 3,
    "n_children": 5,
    "n_generations": 2,
    "parents": "random",
    "mutation": "sparse",
    "crossover": True,
    "known_children": True,
}


def test_each_name_of_a_recipe_means_what_it_means_to_em():
    found = evolution_of(SEARCHED | {"max_iter": 7})
    assert {name: getattr(found, name) for name in SEARCHED} == SEARCHED
