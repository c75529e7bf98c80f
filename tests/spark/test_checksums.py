"""Checksums of pages where Spark's own Parquet reader reads."""

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

import anabranch
from anabranch.spark.native.frame import native_frame
from tests.spark.native_cases import v2_frame

pytestmark = [pytest.mark.spark, pytest.mark.versions]

COUNT = 1000


@pytest.fixture
def damaged(tmp_path):
    """A table with a flipped bit in the pages of its only file."""
    lake = anabranch.connect(str(tmp_path / "lake"))
    table = lake.create_table("db.t", "n BIGINT", options={"file.compression": "none"})
    table.append(pa.table({"n": pa.array([i * 1_000_003 for i in range(COUNT)], pa.int64())}))
    (path,) = tmp_path.rglob("data-*.parquet")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(bytes(data))
    return table


@pytest.mark.parametrize("door", ["frame", "scan builder"])
def test_spark_notices_a_flipped_bit_unless_the_table_wants_no_checks(spark, damaged, door):
    read = (
        (lambda scan: native_frame(spark, scan)) if door == "frame" else (lambda scan: v2_frame(spark, scan))
    )
    with pytest.raises((PySparkException, Py4JJavaError), match=r"(?i)crc|checksum|FAILED_READ_FILE"):
        read(damaged.scan()).collect()
    damaged.alter().set_option("file.checksum", "false").apply()
    assert len(read(damaged.scan()).collect()) == COUNT


def test_a_stream_notices_a_flipped_bit(damaged, spark, tmp_path):
    warehouse = str(tmp_path / "lake")
    source = spark.readStream.format("anabranch").options(warehouse=warehouse).load("db.t")
    query = source.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c"))
    with pytest.raises((PySparkException, Py4JJavaError), match=r"(?i)crc|checksum|FAILED_READ_FILE"):
        query.trigger(availableNow=True).start().awaitTermination()
