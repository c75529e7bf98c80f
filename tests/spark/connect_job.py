"""Everything the data source does, through Spark Connect: `test_elsewhere` runs it.

python -m tests.spark.connect_job WAREHOUSE CHECKPOINT PART

PART is ``main``, or ``rest``: what takes longer.
"""

import re
import sys
import threading
import time
from pathlib import Path

from pyspark.sql import functions

import anabranch
import anabranch.spark
from anabranch.lineage.model import lineage_of
from anabranch.spark.tasks import sort
from anabranch.spark.tasks.stream_compaction import watch
from tests.spark.corpus_files import CORPUS, carry_out, statements_in
from tests.spark.events import EVENTS, add, at, from_first
from tests.support.tables import SCHEMA, rows


def main(warehouse, checkpoint, part):
    spark = anabranch.spark.session(warehouse, remote="local[2]")
    folder = watch(spark)
    assert folder.is_dir()
    if part == "main":
        read_and_write(spark, warehouse, checkpoint)
    else:
        do_what_the_docs_say(spark, warehouse)
        end_at_a_bound(spark, warehouse, checkpoint + "-windows")
        compact_beside(spark, warehouse, checkpoint + "-small")
        sort_there(spark, warehouse)
    spark.stop()
    eventually(lambda: not folder.exists())
    eventually(lambda: not any(thread.name.startswith("anabranch") for thread in threading.enumerate()))


def read_and_write(spark, warehouse, checkpoint):
    """Batch, stream, and a few statements."""
    frame = spark.read.format("anabranch").load("db.src")
    assert frame.count() == 10, frame.count()
    assert frame.filter("id = 3").count() == 1
    assert frame.count() == 10
    frame.filter("id < 4").write.format("anabranch").mode("append").save("db.batch")
    source = spark.readStream.format("anabranch").load("db.src")
    sink = source.writeStream.format("anabranch").option("checkpointLocation", checkpoint).queryName("copy")
    query = sink.trigger(availableNow=True).start("db.dst")
    query.awaitTermination()
    assert query.exception() is None, query.exception()
    print("query", query.id)
    lake = anabranch.connect(warehouse, spark=spark)
    carry_out(lake.sql, list(statements_in(CORPUS[0]))[:12])
    say_what_was_given(lake, frame)


def say_what_was_given(lake, frame):
    """A commit whose plan holds ids that were collected has a problem, and no other has one."""
    given = lake.create_table("db.given", SCHEMA)
    ids = [row["id"] + 48_611 for row in frame.collect()]
    for rows_, is_known in (
        (frame.filter("id < 4"), True),
        (frame.filter(~functions.col("id").isin(ids)), False),
    ):
        said = lineage_of(given.append(rows_).properties, where="")
        assert [read.name for read in said.inputs] == ["db.src"], said
        assert (not said.problems) == is_known, said
    with lake.job("nightly") as job:
        job.read_from("ids of db.src")
        assert not lineage_of(
            given.append(frame.filter(functions.col("id").isin(ids[:1]) | (frame["id"] < 4))).properties,
            where="",
        ).problems
    lake.sql("INSERT INTO db.given SELECT * FROM db.src WHERE id < 4")
    assert not lineage_of(given.snapshot.properties, where="").problems


def do_what_the_docs_say(spark, warehouse):
    """Each line of the page's table: what works does, and what does not is refused in time."""
    text = (Path(__file__).parents[2] / "docs" / "spark-sql.md").read_text()
    part = text.partition("\n## Spark Connect\n")[2].partition("\n## ")[0]
    lines = re.findall(r"^\| `(?P<code>.+?)` \| (?P<works>yes|no) \|", part, re.MULTILINE)
    assert len(lines) >= 15, lines
    lake = anabranch.connect(warehouse, spark=spark)
    lake.create_table("db.t", SCHEMA).append(rows(0, 3))
    df = spark.createDataFrame([(7, "x")], "id BIGINT, v STRING")
    wrong = []
    for code, works in lines:
        try:
            eval(code, {"spark": spark, "lake": lake, "df": df})
            found = "yes"
        except Exception as error:
            found = "no"
            if "lake.db.t" in code and "lake.sql('SELECT" not in str(error):
                wrong.append((code, str(error)))
        if found != works:
            wrong.append((code, found))
    assert not wrong, wrong


def end_at_a_bound(spark, warehouse, checkpoint):
    """A stream whose watermark is the table's, and which this client ends."""
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    lake = anabranch.connect(warehouse, spark=spark)
    table = lake.create_table("db.events", EVENTS)
    for minutes in ((1, 2, 12), (31,), (40,)):
        add(table, *minutes)
    stream = lake.read_stream("db.events", **from_first(scan__bounded__watermark=at(26)))
    counts = stream.groupBy(functions.window("at", "10 minutes")).count().select("count")
    sink = counts.writeStream.format("memory").queryName("counts").option("checkpointLocation", checkpoint)
    assert sink.start().awaitTermination(120)
    assert sorted(row["count"] for row in spark.table("counts").collect()) == [1, 2]


def compact_beside(spark, warehouse, checkpoint):
    """A stream that goes on, whose files this client compacts."""
    lake = anabranch.connect(warehouse)
    src, small = (
        lake.table("db.src"),
        lake.create_table("db.small", SCHEMA, options={"compaction.max.file-num": "2"}),
    )
    sink = spark.readStream.format("anabranch").load("db.src").writeStream.format("anabranch")
    query = sink.option("checkpointLocation", checkpoint).queryName("small").start("db.small")
    count = 10
    while small.snapshot is None or all(s.commit_kind != "COMPACT" for s in small.snapshots()):
        assert query.isActive, query.exception()
        assert count < 60
        src.append(rows(count, 1))
        count += 1
        time.sleep(1)
    query.stop()


def sort_there(spark, warehouse):
    """A table that is one large partition, as it were, sorted by several tasks."""
    sort._LEAST_PART = sort._MOST_PART = sort._PIECE_SIZE = 2 << 10
    lake = anabranch.connect(warehouse, spark=spark)
    table = lake.create_table("db.sorted", SCHEMA, options={"target-file-size": "1 kb"})
    for start in range(3000, 0, -1000):
        table.append(rows(start, 1000))
    table.sort_compact("id", "order")
    found = table.scan(columns=["id"]).to_arrow()["id"].to_pylist()
    assert found == list(range(1000, 4000)), found[:10]
    assert table.scan("id = 2000").plan().files.height == 1
    assert table.scan().plan().files.height > 2


def eventually(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


if __name__ == "__main__":
    main(*sys.argv[1:])
