"""Random pipelines of all kinds of jobs: whatever was wrong, killed or taken back, each table is what DuckDB says."""

import pytest

from tests.pipelines.engines import OnSpark
from tests.pipelines.life import live
from tests.pipelines.pipeline import pipeline

SHARDS = 30
MANY = 300


@pytest.mark.long
@pytest.mark.timeout(0)
@pytest.mark.parametrize("shard", range(SHARDS))
def test_many_pipelines(spark, warehouse, shard):
    for seed in range(shard, MANY, SHARDS):
        lived(spark, f"{warehouse}{seed}", seed)


def lived(spark, warehouse, seed):
    made = pipeline(seed)
    try:
        outcome, _ = live(made, OnSpark(spark, warehouse, made))
    except Exception as error:
        raise AssertionError(str(made)) from error
    assert outcome.compared or outcome.told.startswith("taken back"), made
