"""A batch write, a batch read and a stream on a cluster of several processes: `test_elsewhere` runs it.

python -m tests.spark.cluster_job MASTER WAREHOUSE CHECKPOINT
"""

import sys

import anabranch.spark
from anabranch.spark.native.internals import files
from tests.spark.conftest import CONF


def main(master, warehouse, checkpoint):
    conf = {**CONF, "spark.executor.memory": "512m", "spark.cores.max": "2", "spark.executor.cores": "1"}
    spark = anabranch.spark.session(warehouse, master=master, **conf)
    spark.sparkContext.setLogLevel("ERROR")
    frame = spark.range(0, 1000, 1, 4).selectExpr("id", "concat('v', id) as v")
    frame.write.format("anabranch").mode("append").save("db.src")
    assert spark.read.format("anabranch").load("db.src").filter("id >= 500").count() == 500
    native = anabranch.connect(warehouse, spark=spark).table("db.src").scan("id >= 500").to_spark()
    assert native.inputFiles()  # a frame of the portable door has none
    assert native.filter("v < 'v6'").count() == 100
    files._MANY = 1  # what is compiled for a plan of many files is known to no executor
    many = anabranch.connect(warehouse, spark=spark).table("db.src").scan("id >= 500").to_spark()
    assert many.filter("v < 'v6'").count() == 100
    leaf = many._jdf.queryExecution().optimizedPlan().collectLeaves().head()
    assert leaf.relation().fileFormat().getClass().getName() == "anabranch.PlannedParquet"
    assert spark.sql("SELECT count(*) FROM lake.db.src WHERE id >= 500").first()[0] == 500
    source = spark.readStream.table("lake.db.src")
    sink = source.writeStream.format("anabranch").option("checkpointLocation", checkpoint).queryName("copy")
    sink.trigger(availableNow=True).start("db.dst").awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
