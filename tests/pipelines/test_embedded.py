"""Random pipelines whose jobs keep no state: whatever was wrong, killed or taken back, each table is what DuckDB says."""

import pytest

from tests.pipelines.engines import Embedded
from tests.pipelines.life import live
from tests.pipelines.pipeline import pipeline
from tests.support.lengths import first_short

SHARDS = 10
MANY = 300


@pytest.mark.parametrize("seed", first_short([1, 3, 4, 16, 19, 45, 55, 80, 82, 219, 231], 3))
def test_some_pipelines(seed):
    lived(seed)


@pytest.mark.long
@pytest.mark.timeout(0)
@pytest.mark.parametrize("shard", range(SHARDS))
def test_many_pipelines(shard):
    for seed in range(100 + shard, 100 + MANY, SHARDS):
        lived(seed)


def lived(seed):
    made = pipeline(seed, stateless=True)
    try:
        outcome, _ = live(made, Embedded(made))
    except Exception as error:
        raise AssertionError(str(made)) from error
    assert outcome.compared or outcome.told.startswith("taken back"), made
