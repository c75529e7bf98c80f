"""Reading and planning in Spark, beside Spark's own reading of the same Parquet files."""

from __future__ import annotations

from benchmarks.contestants import Contestant
from benchmarks.registry import Row, Run, benchmark, ratio_to, within

PACKAGES = ("anabranch", "pyspark", "pyarrow")
TABLE = Contestant("Anabranch", "benchmarks.workers.spark_table", PACKAGES)
RAW = Contestant("read.parquet", "benchmarks.workers.spark_table", ("pyspark",))
CONTESTANTS = (TABLE, RAW)


@benchmark("spark-read", "Read in Spark", *CONTESTANTS)
def spark_read(run: Run) -> list[Row]:
    """The same Parquet files, read by one Spark on two cores: as a table (`to_spark()`: our planner
    chooses the files, Spark's own reader reads them), and with `spark.read.parquet` of the list of files. Every query
    goes to Spark's `noop` sink three times, which are added up, after a first one that does not count. To plan is to
    come from the session as far as the tasks."""
    rows, files = run.size(8_000_000, 80_000), run.size(50_000, 500)
    home = str(run.scratch / "spark-read")
    run.log(f"  writing {rows:,} rows, and {files:,} small files")
    run.laps(TABLE, "make", home=home, rows=rows, files=files)

    def measured(work: str, operation: str, **what: object) -> tuple[str, dict[str, object]]:
        given = {c: {"home": home, "native": c is TABLE, **what} for c in CONTESTANTS}
        return work, run.measure(work, operation, given)  # type: ignore[return-value]

    all_columns = measured(f"read 5 columns of {rows:,} rows", "read", columns=5)
    one_column = measured(f"read 1 column of {rows:,} rows", "read", columns=1)
    plan = measured(f"plan {files:,} files", "plan")
    return [
        Row(*all_columns, [ratio_to(all_columns[1], TABLE.name, [RAW.name], 1.05)]),  # type: ignore[arg-type]
        Row(*one_column, [ratio_to(one_column[1], TABLE.name, [RAW.name], 1.05)]),  # type: ignore[arg-type]
        Row(*plan, [within(plan[1], TABLE.name, 1.0)]),  # type: ignore[arg-type]
    ]
