"""Work as tasks of a Spark job: the same results and the same errors as in this process."""

import pickle
import threading
import time

import pytest
from pyspark import TaskContext

import anabranch
from anabranch.errors import AnabranchError, CommitConflictError
from anabranch.spark.context.running import slots_of
from anabranch.spark.tasks.engine import SparkEngine
from tests.spark import engine_work
from tests.support.tables import SCHEMA, ids_of, rows

pytestmark = pytest.mark.spark


def partition_of(_):
    return TaskContext.get().partitionId()


def labels(_):
    task = TaskContext.get()
    return task.getLocalProperty("spark.scheduler.pool"), task.getLocalProperty("spark.job.description")


def test_results_come_once_each(spark):
    found = SparkEngine(spark).map(engine_work.square, range(7), name="squares")
    assert sorted(found) == [i * i for i in range(7)]
    assert list(SparkEngine(spark).map(engine_work.square, [], name="nothing")) == []


@pytest.mark.long
def test_slots_bound_the_tasks(spark):
    found = list(SparkEngine(spark, slots=2).map(partition_of, range(5), name="places"))
    assert sorted(found) == [0, 0, 0, 1, 1]
    assert sorted(SparkEngine(spark).map(partition_of, range(3), name="places")) == [0, 1, 2]
    assert slots_of(spark) == 2


def test_errors_come_back_as_themselves_after_what_went_well(spark):
    results = []
    with pytest.raises(CommitConflictError, match="three is taken") as caught:
        results.extend(SparkEngine(spark).map(engine_work.refuse_three, range(5), name="x"))
    assert caught.value.conflicts == ("three",)
    assert sorted(results) == [0, 1, 2, 4]
    with pytest.raises(ZeroDivisionError) as caught:
        list(SparkEngine(spark).map(engine_work.divide, [1, 0], name="x"))
    assert "in divide" in caught.value.__notes__[0]


def test_jobs_bear_name_and_pool_and_leave_the_thread_as_it_was(spark):
    context = spark.sparkContext
    context.setLocalProperty("spark.scheduler.pool", "mine")
    try:
        found = list(SparkEngine(spark, pool="theirs").map(labels, [1], name="looking"))
        assert found == [("theirs", "looking")]
        assert context.getLocalProperty("spark.scheduler.pool") == "mine"
        assert context.getLocalProperty("spark.job.description") is None
    finally:
        context.setLocalProperty("spark.scheduler.pool", None)


def test_a_job_is_cancelled_from_another_thread(spark):
    engine = SparkEngine(spark, tag="anabranch-test")

    def cancel():
        tracker = spark.sparkContext.statusTracker()
        while not tracker.getActiveStageIds():
            time.sleep(0.1)
        engine.cancel()

    thread = threading.Thread(target=cancel)
    thread.start()
    began = time.monotonic()
    with pytest.raises(AnabranchError, match="Spark did not finish 'sleeping': .*cancel") as caught:
        list(engine.map(time.sleep, [60], name="sleeping"))
    thread.join()
    assert time.monotonic() - began < 30
    assert caught.value.retryable
    assert not spark.sparkContext.getJobTags()


def test_a_lake_with_a_session_works_in_its_tasks(spark, warehouse):
    table = anabranch.connect(warehouse, spark=spark).create_table("db.t", SCHEMA)
    for i in range(3):
        table.append(rows(i, 1))
    stages = spark.sparkContext.statusTracker().getJobIdsForGroup()
    assert table.compact(full=True).files_after == 1
    assert len(spark.sparkContext.statusTracker().getJobIdsForGroup()) > len(stages)
    assert ids_of(table) == [0, 1, 2]
    assert ids_of(pickle.loads(pickle.dumps(table))) == [0, 1, 2]
