"""A stream that is compacted, and whose driver kills itself in a compacting commit: `test_compaction_kills` runs it.

    python -m tests.spark.compacting_job WAREHOUSE CHECKPOINT [WHEN CALL NTH]

It copies db.src to db.dst, one snapshot a batch, until all is there and a compaction was committed. WHEN
(before or after) that commit does the nth storage CALL, driver and JVM die without warning.
"""

import os
import signal
import sys
import threading
import time
from dataclasses import replace

import anabranch
import anabranch.spark
from anabranch.maintenance import rewrites
from anabranch.spark.tasks.stream_compaction import watch
from tests.spark.conftest import CONF
from tests.support.faults import Fault, FaultyStorage


def die(path):
    os.killpg(os.getpgid(0), signal.SIGKILL)


def main(warehouse, checkpoint, *point):
    commit = rewrites.commit_rewrites
    faults = [Fault(point[0], point[1], die, nth=int(point[2]))] if point else []
    made = []

    def dying_commit(context, rewritten, writing, **how):
        storage = FaultyStorage(context.storage, faults)
        outcome = commit(replace(context, storage=storage), rewritten, writing, **how)
        made.append(outcome)
        print("survived", *(call.name for call in storage.calls), flush=True)
        return outcome

    rewrites.commit_rewrites = dying_commit
    spark = anabranch.spark.session(warehouse, master="local[2]", **CONF)
    spark.sparkContext.setLogLevel("OFF")
    source = spark.readStream.format("anabranch").option("read.stream.maxFilesPerTrigger", "1")
    frame = source.options(**{"scan.mode": "from-snapshot", "scan.snapshot-id": "1"}).load("db.src")
    sink = frame.writeStream.format("anabranch").option("checkpointLocation", checkpoint).queryName("copy")
    query = sink.trigger(processingTime="100 milliseconds").start("db.dst")
    lake = anabranch.connect(warehouse)
    src, dst = lake.table("db.src"), lake.table("db.dst")
    while not made or dst.snapshot.total_record_count < src.snapshot.total_record_count:
        assert query.isActive, query.exception()
        time.sleep(0.1)
    query.stop()
    folder = watch(spark)
    assert folder.is_dir()
    spark.stop()
    deadline = time.monotonic() + 30
    while folder.exists() or any(t.name.startswith("anabranch") for t in threading.enumerate()):
        assert time.monotonic() < deadline
        time.sleep(0.1)


if __name__ == "__main__":
    main(*sys.argv[1:])
