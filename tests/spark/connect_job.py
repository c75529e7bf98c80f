"""Everything the data source does, through Spark Connect: `test_elsewhere` runs it.

python -m tests.spark.connect_job WAREHOUSE CHECKPOINT
"""

import sys

import anabranch.spark


def main(warehouse, checkpoint):
    spark = anabranch.spark.session(warehouse, remote="local[2]")
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
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
