"""Jobs whose state has timers: what a correction refuses, and what it makes again."""

from threading import Timer

import pandas as pd
import pytest
from pyspark.sql.streaming import StatefulProcessor

import anabranch
from anabranch import InvalidInputError
from anabranch.cascade import run_correction
from anabranch.jobs.job import job
from anabranch.jobs.run import run_jobs
from anabranch.jobs.task import Stop
from anabranch.jobs.trigger import AVAILABLE_NOW, Schedule

SOURCES = {"events": "db.events"}


@job("counts", sources=SOURCES, sink="db.counts")
def wrong(events):
    return events.selectExpr("k", "-1L AS n")


@job("counts", sources=SOURCES, sink="db.counts")
def timed_out(events):
    def count(key, frames, state):
        state.setTimeoutDuration(1000)
        yield pd.DataFrame({"k": [key[0]], "n": [sum(map(len, frames))]})

    groups = events.groupBy("k")
    return groups.applyInPandasWithState(
        count, "k STRING, n BIGINT", "n BIGINT", "append", "ProcessingTimeTimeout"
    )


class Counting(StatefulProcessor):
    def init(self, handle):
        pass

    def handleInputRows(self, key, rows, timerValues):
        yield pd.DataFrame({"k": [key[0]], "n": [sum(map(len, rows))]})

    def close(self):
        pass


@job("counts", sources=SOURCES, sink="db.counts")
def transformed(events):
    groups = events.groupBy("k")
    return groups.transformWithStateInPandas(Counting(), "k STRING, n BIGINT", "append", "ProcessingTime")


@pytest.fixture
def lake(spark, warehouse):
    lake = anabranch.connect(warehouse, spark=spark)
    lake.create_table("db.events", "k STRING")
    lake.create_table("db.counts", "k STRING, n BIGINT")
    lake.table("db.counts").append([{"k": "before", "n": 1}])
    return lake


@pytest.mark.parametrize("corrected", [timed_out, transformed], ids=["timeout", "transform"])
def test_a_correction_that_would_never_end_is_refused_before_anything_begins(lake, corrected):
    lake.table("db.events").append([{"k": "a"}])
    run_jobs([wrong], lake, None, Schedule(AVAILABLE_NOW))
    table = lake.table("db.counts")
    table.create_tag("good")
    lake.table("db.events").append([{"k": "b"}])
    run_jobs([wrong], lake, None, Schedule(AVAILABLE_NOW))
    stop = Stop()
    late = Timer(60, stop.ask)  # so that the test ends where nothing is refused
    late.start()
    try:
        with pytest.raises(InvalidInputError, match="'counts' .* processing time") as refused:
            run_correction(lake, "db.counts", "good", [corrected], stop=stop)
    finally:
        late.cancel()
    assert "--by-hand db.counts" in refused.value.hint
    assert lake.table("db.counts").branches() == []
