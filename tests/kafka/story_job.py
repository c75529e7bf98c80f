"""Four queries in a process of their own, from a topic through tables to windows: `test_story` runs and kills it.

    python -m tests.kafka.story_job WAREHOUSE CHECKPOINTS BOOTSTRAP TOPIC MODE MOST

    topic -> db.raw -> db.clean -> db.windows   (tumbling counts of the rows that are not late)
                                -> db.late      (the rows that are)

MODE is ``follow`` (until it is killed) or ``finish`` (until all there is has gone through), MOST how many rows
a batch takes at most.
"""

import sys

from pyspark.sql import functions as F

import anabranch
import anabranch.spark
from tests.spark.conftest import CONF

WINDOW = "10 minutes"
FIRST = {"scan.mode": "from-snapshot", "scan.snapshot-id": "1"}
"""Every commit of its own: of rows that are there when a stream begins none is late."""


def main(warehouse, checkpoints, bootstrap, topic, mode, most):
    spark = anabranch.spark.session(warehouse, master="local[2]", **CONF)
    spark.sparkContext.setLogLevel("OFF")
    lake = anabranch.connect(warehouse, spark=spark)

    queries = []

    def start(name, frame, **options):
        writer = frame.writeStream.format("anabranch").queryName(name).options(**options)
        writer = writer.option("checkpointLocation", f"{checkpoints}/{name}")
        when = {"availableNow": True} if mode == "finish" else {"processingTime": "300 milliseconds"}
        queries.append(writer.trigger(**when).start(f"db.{name}"))

    def finish():
        """At the end each takes all that the one before it has left."""
        if mode == "finish":
            assert all(query.awaitTermination(300) for query in queries)

    kafka = spark.readStream.format("anabranch-kafka").option("kafka.bootstrap.servers", bootstrap)
    kafka = kafka.options(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=most).load()
    event = F.from_json(F.col("value").cast("string"), "id BIGINT, user STRING, at BIGINT")
    events = kafka.select(event.alias("e"), F.concat_ws("-", "topic", "partition").alias("_source"))
    events = events.select("e.id", "e.user", F.timestamp_millis("e.at").alias("at"), "_source")
    start("raw", events, **{"sink.watermark.source-column": "_source"})
    finish()

    start("clean", lake.read_stream("db.raw", **FIRST, **{"read.stream.maxRowsPerTrigger": most}))
    finish()

    counted = lake.read_stream("db.clean", late_rows="drop", **FIRST).groupBy(F.window("at", WINDOW)).count()
    windows = counted.select(F.col("window.start").alias("start"), F.col("count").alias("rows"))
    start("windows", windows)
    start("late", lake.read_stream("db.clean", late_rows="only", **FIRST))
    finish()
    if mode == "follow":
        spark.streams.awaitAnyTermination()
        for query in queries:
            if query.exception():
                raise query.exception()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
