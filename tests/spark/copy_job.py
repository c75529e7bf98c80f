"""A streaming job of its own process that kills itself at a given point: `test_kills` runs it.

    python -m tests.spark.copy_job WAREHOUSE CHECKPOINT WAY [POINT BATCH MARKER]

It copies db.src to db.dst, one snapshot a batch, until it has taken what is available. Once, at the given
point of the given batch, it dies without warning; MARKER is the file that remembers it did.
"""

import os
import signal
import sys
from pathlib import Path

import anabranch.spark
from anabranch.spark.catalog import native_sinks
from anabranch.spark.source.data_source import AnabranchSource
from anabranch.spark.source.stream_writer import StreamWriter
from tests.spark.conftest import CONF


class Killer:
    """Kills the driver, once. Travels to Spark's processes with the number of the driver in it."""

    def __init__(self, point, batch, marker, driver):
        self.point, self.batch, self.marker, self.driver = point, batch, marker, driver

    def __call__(self, point, batch):
        if point.partition(":")[0] != self.point.partition(":")[0] or batch != self.batch:
            return
        try:
            Path(self.marker).touch(exist_ok=False)
        except FileExistsError:
            return
        if self.point.endswith(":lingering"):
            # Only the Python driver dies. Its JVM goes on for a while, and so does this process.
            os.kill(self.driver, signal.SIGKILL)
        else:
            os.killpg(os.getpgid(self.driver), signal.SIGKILL)
            os._exit(1)


class Dying(StreamWriter):
    """Dies around the commit of a batch."""

    killer = None

    def commit(self, messages, batchId):
        self.killer("before-commit", batchId)
        super().commit(messages, batchId)
        self.killer("after-commit", batchId)

    def _committed(self, files, batch, *more):
        self.killer("between-commits", batch)  # records that cannot be read are in their table by now
        return super()._committed(files, batch, *more)


class DyingWriter(Dying):
    """In processes of Python, which write and commit."""

    def write(self, iterator):
        from pyspark import TaskContext

        written = super().write(iterator)
        self.killer("task", int(TaskContext.get().getLocalProperty("streaming.sql.batchId")))
        return written


class DyingDriver(Dying):
    """In the driver, which commits what tasks of Spark have written."""

    def commit(self, messages, batchId):
        self.killer("task", batchId)
        super().commit(messages, batchId)


def let_the_driver_die(killer):
    DyingDriver.killer = killer
    native_sinks.StreamWriter = DyingDriver


class DyingSource(AnabranchSource):
    def streamWriter(self, schema, overwrite):
        writer = super().streamWriter(schema, overwrite)
        writer.__class__ = DyingWriter
        writer.killer = self.killer
        return writer


def main(warehouse, checkpoint, way, point="never", batch="-1", marker=""):
    spark = anabranch.spark.session(warehouse, master="local[2]", **CONF)
    spark.sparkContext.setLogLevel("OFF")
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", "2")
    killer = Killer(point, int(batch), marker, os.getpid())
    if way == "spark":
        let_the_driver_die(killer)
    else:
        spark._jvm.anabranch.DefaultSource.register(spark._jsparkSession, None)
        DyingSource.defaults = {"warehouse": warehouse}
        DyingSource.killer = killer
        spark.dataSource.register(DyingSource)
    source = spark.readStream.format("anabranch").option("read.stream.maxFilesPerTrigger", "1")
    frame = source.options(**{"scan.mode": "from-snapshot", "scan.snapshot-id": "1"}).load("db.src")
    sink = frame.writeStream.format("anabranch").option("checkpointLocation", checkpoint).queryName("copy")
    sink.trigger(availableNow=True).start("db.dst").awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
