"""Merges of branches against an oracle of rows, over random histories; each is determined by its seed.

The long form runs 20,000 of them in parts of 200. `ORACLE_PARTS=0:25` runs the first 25 parts only, so that several
machines can share the work.
"""

import os

import pytest

from tests.branches.histories import World
from tests.support.lengths import first_short

_PART = 200
_FIRST, _LAST = (int(n) for n in os.environ.get("ORACLE_PARTS", "0:100").split(":"))


@pytest.mark.parametrize("part", first_short(range(2)))
def test_random_histories_merge_as_the_oracle_says(part):
    worlds = [World(seed).run(10) for seed in range(10 * part, 10 * part + 10)]
    assert sum(world.merges for world in worlds) > 10


@pytest.mark.long
def test_another_engine_expires_without_a_word():
    for seed in range(5000, 5010):
        World(seed, foreign=0.7).run(12)


@pytest.mark.long
@pytest.mark.parametrize("part", range(_FIRST, _LAST))
def test_many_long_random_histories(part):
    for seed in range(100_000 + _PART * part, 100_000 + _PART * (part + 1)):
        World(seed, foreign=0.5 if seed % 4 == 0 else 0.0).run(25)
