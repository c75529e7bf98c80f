"""Mends that can be taken out, to show that the simulator would find the defect again.

Each is a function that replaces one function of the product by what it was, or by one that lacks the rule; with the scene
and the seeds that are known to show it.
"""

from dataclasses import dataclass
from typing import Any

MUTATIONS: dict[str, "Mutation"] = {}


@dataclass
class Mutation:
    """A mend taken out, and where that shows."""

    patch: Any
    scene: str
    first: int
    """The first seed that is tried."""
    seeds: int = 300


def mutation(scene, first=0, seeds=300):
    def add(function):
        MUTATIONS[function.__name__] = Mutation(function, scene, first, seeds)
        return function

    return add
