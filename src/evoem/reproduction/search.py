"""The evolutionary search that a recipe describes."""

from evoem.evolution import Evolution
from evoem.reproduction.recipes import Settings


def evolution_of(searched: Settings) -> Evolution:
    """Operators and their numbers, as recipes have them."""
    return Evolution(
        searched["n_parents"],
        searched["n_children"],
        searched["n_generations"],
        searched["parents"],
        searched["mutation"],
        searched["crossover"],
        searched["known_children"],
    )
