"""Streams from table to table."""

from __future__ import annotations

import statistics

from benchmarks.contestants import Contestant
from benchmarks.registry import Measure, Row, Run, Verdict, benchmark, median, ratio_to

TABLES = Contestant("Anabranch", "benchmarks.workers.table_stream", ("anabranch", "pyspark", "pyarrow"))
BARE = Contestant("bare Spark", "benchmarks.workers.bare_stream", ("pyspark", "pyarrow"))
WARM_UP = 10
"""First batches, which load code, do not count."""


@benchmark("streams", "Streams from table to table", TABLES, BARE)
def streams(run: Run) -> list[Row]:
    """What a micro-batch of a thousand rows takes from one table to another, with commit, lineage and compaction, at
    the median; beside it a Python source and a Python sink that do nothing, which is what Spark itself takes. Then
    how fast a backlog goes through in one batch, beside Spark's own file source and sink with Parquet; a query over
    few rows, which starts Python's processes and loads code, comes first and does not count."""
    batches = run.size(100, 15)
    rows, files = run.size(4_000_000, 100_000), 16
    home = run.scratch / "streams"
    short: dict[str, Measure] = {}
    for contestant in (BARE, TABLES):
        run.log(f"  {batches} micro-batches: {contestant.name}")
        lap = run.laps(contestant, "micro_batches", home=str(home / contestant.name), batches=batches)
        seconds = lap.seconds[WARM_UP:]
        short[contestant.name] = Measure(statistics.median(seconds), tuple(seconds))
    backlog: dict[str, Measure] = {}
    for contestant in (BARE, TABLES):
        run.log(f"  a backlog of {rows:,} rows: {contestant.name}")
        place = str(home / f"backlog-{contestant.name}")
        lap = run.laps(contestant, "throughput", home=place, rows=rows, files=files)
        backlog[contestant.name] = median([lap])
    ours = backlog[TABLES.name].seconds
    return [
        Row(
            f"micro-batch of 1,000 rows, median of {batches - WARM_UP}",
            short,
            [
                Verdict("at most 200 ms", short[TABLES.name].seconds * 1000, 200, "ms"),
                ratio_to(short, TABLES.name, [BARE.name], 1.2),
            ],
        ),
        Row(
            f"{rows:,} rows of 2 columns in {files} files, one batch",
            backlog,
            note=f"Anabranch: {rows / ours / 1e6:.2f} million rows a second",
        ),
    ]
