"""Copies a topic to db.dst until there is no more, in a process of its own that a test can kill.

    python -m tests.spark.kafka_job WAREHOUSE CHECKPOINT BOOTSTRAP TOPIC [POINT BATCH MARKER]

POINT, BATCH and MARKER are those of `copy_job`.
"""

import os
import sys

import anabranch.spark
from tests.spark.conftest import CONF
from tests.spark.copy_job import Killer, let_the_driver_die


def main(warehouse, checkpoint, bootstrap, topic, point="never", batch="-1", marker=""):
    spark = anabranch.spark.session(warehouse, master="local[2]", **CONF)
    spark.sparkContext.setLogLevel("OFF")
    let_the_driver_die(Killer(point, int(batch), marker, os.getpid()))
    source = spark.readStream.format("anabranch-kafka").option("kafka.bootstrap.servers", bootstrap)
    source = source.option("subscribe", topic).option("maxOffsetsPerTrigger", 10)
    values = {"value.format": "csv", "value.schema": "id BIGINT", "value.on-error": "dead-letter"}
    frame = (
        source.options(**values, **{"dead-letter.table": "db.rejected"})
        .load()
        .selectExpr("row.id", "topic AS v")
    )
    sink = frame.writeStream.format("anabranch").option("checkpointLocation", checkpoint).queryName("kafka")
    sink.trigger(availableNow=True).start("db.dst").awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
