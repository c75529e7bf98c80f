"""Writing in Spark, beside Spark's own writing of Parquet files."""

from __future__ import annotations

from benchmarks.contestants import Contestant
from benchmarks.registry import Row, Run, benchmark, ratio_to

PACKAGES = ("anabranch", "pyspark", "pyarrow")
TABLE = Contestant("Anabranch", "benchmarks.workers.spark_rows", PACKAGES)
RAW = Contestant("write.parquet", "benchmarks.workers.spark_rows", ("pyspark",))
CONTESTANTS = (TABLE, RAW)


@benchmark("spark-write", "Write in Spark", *CONTESTANTS)
def spark_write(run: Run) -> list[Row]:
    """The same rows of nine columns, read from Parquet files by one Spark on two cores and written: with `INSERT INTO`
    (commit, statistics and lineage included), and with `write.parquet`, both with zstd. A first, smaller write
    does not count."""
    rows = run.size(10_000_000, 100_000)
    home = str(run.scratch / "spark-write")
    run.log(f"  making {rows:,} rows")
    run.laps(RAW, "make", home=home, rows=rows)

    def measured(what: str, partitioned: bool) -> Row:
        work = f"write {rows:,} rows of 9 columns{what}"
        given = {c: {"home": home, "table": c is TABLE, "partitioned": partitioned} for c in CONTESTANTS}
        times = run.measure(work, "write", given)
        return Row(work, times, [ratio_to(times, TABLE.name, [RAW.name], 0.95)])

    return [measured("", partitioned=False), measured(" into 20 partitions", partitioned=True)]
