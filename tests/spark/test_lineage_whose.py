"""Whose reads they are that Spark plans while several work at the same time: nobody's commits name what another one read."""

import threading

import pytest

import anabranch
from anabranch.lineage.model import lineage_of
from anabranch.spark.catalog import register_catalog
from anabranch.storage.open import open_storage
from tests.spark.lineage_ways import COLUMNS, Ways
from tests.support.lengths import first_short


@pytest.fixture
def ways(spark, tmp_path):
    place = str(tmp_path / "warehouse")
    register_catalog(spark, "ways", {"warehouse": place})
    lake = anabranch.Lake(open_storage(place), spark=spark)
    for name in ("a", "b", "of_stream", "of_job"):
        lake.create_table(f"db.{name}", COLUMNS)
    for name in ("a", "b"):
        lake.table(f"db.{name}").append([{"id": 1, "v": "x"}])
    return Ways(spark, lake, place, "db.of_stream", tmp_path)


def said(ways, name):
    table = ways.lake.table(name)
    entry = lineage_of(table.snapshot.properties, where="test")
    return {read.name for read in entry.inputs}, entry.problems


def beside(ways, work):
    """Work of another thread, which has begun."""

    def run():
        ways.spark.createDataFrame([], "a INT")  # makes the session the active one of the thread
        work()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


@pytest.mark.parametrize("door", first_short(["portable", "native"]))
def test_what_a_stream_looks_up_is_not_of_the_job_that_is_open(ways, door):
    with ways.lake.job("j"):
        rows = ways.lake.table("db.a").scan().to_arrow().to_pylist()
        beside(
            ways, lambda: ways.run(ways.stream().join(getattr(ways, door)("db.b").select("id"), "id"))
        ).join()
        ways.lake.table("db.of_job").append(rows)
    inputs, problems = said(ways, "db.of_job")
    assert inputs == {"db.a"}
    # Spark plans the one door in a thread of its own, of which nobody knows whom it works for.
    assert ["db.b" in problem for problem in problems] == ([True] if door == "portable" else [])
    assert said(ways, "db.of_stream") == ({"db.a", "db.b"}, ())


@pytest.mark.long
@pytest.mark.parametrize(
    ("door", "action", "is_known"),
    first_short(
        [("portable", "collect", True), ("portable", "toPandas", False), ("native", "toPandas", True)]
    ),
)
def test_what_a_job_reads_is_not_of_the_batch_whose_function_runs(ways, door, action, is_known):
    begun, read = threading.Event(), threading.Event()

    def each(frame, _):
        begun.set()
        assert read.wait(60)
        ways.table.append(frame)

    with ways.lake.job("j"):
        stream = beside(ways, lambda: ways.run(ways.stream(), each=each))
        assert begun.wait(60)
        try:
            rows = getattr(getattr(ways, door)("db.b"), action)()
        finally:
            read.set()
            stream.join()
        ways.lake.table("db.of_job").append(ways.spark.createDataFrame(rows, ["id", "v"]))
    of_job, of_stream = said(ways, "db.of_job"), said(ways, "db.of_stream")
    if is_known:
        assert (of_job, of_stream) == (({"db.b"}, ()), ({"db.a"}, ()))
    else:
        assert of_stream[0] == {"db.a"}
        assert all("db.b" in " ".join(problems) for _, problems in (of_job, of_stream))
