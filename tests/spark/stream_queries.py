"""Queries from one table to another, as tests run them."""

import pytest
from pyspark.errors import PySparkException


class Stream:
    """A query from one table to another; each run ends when it has taken what is available."""

    def __init__(self, spark, warehouse, checkpoint):
        self.spark, self.warehouse, self.checkpoint = spark, warehouse, checkpoint

    def source(self, name="db.src", **options):
        options = {key.replace("__", ".").replace("_", "-"): str(value) for key, value in options.items()}
        return (
            self.spark.readStream.format("anabranch").options(warehouse=self.warehouse, **options).load(name)
        )

    def sink(self, frame, name="db.dst", query="copy", mode="append", **options):
        writer = frame.writeStream.format("anabranch").outputMode(mode)
        writer = writer.options(warehouse=self.warehouse, checkpointLocation=str(self.checkpoint), **options)
        if query is not None:
            writer = writer.queryName(query)
        return writer.trigger(availableNow=True).start(name)

    def run(self, frame, name="db.dst", **options):
        query = self.sink(frame, name, **options)
        try:
            query.awaitTermination()
        finally:
            query.stop()
        return query


def failing(action):
    """What Spark says when `action` fails, as it must."""
    with pytest.raises(PySparkException) as caught:
        action()
    return str(caught.value)
