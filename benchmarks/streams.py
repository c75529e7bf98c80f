"""Streams from table to table."""

from __future__ import annotations

import statistics

from benchmarks.contestants import Contestant
from benchmarks.registry import Measure, Row, Run, Verdict, benchmark, median, ratio_to

TABLES = Contestant("Anabranch", "benchmarks.workers.table_stream", ("anabranch", "pyspark", "pyarrow"))
BARE = Contestant("Spark's Parquet files", "benchmarks.workers.bare_stream", ("pyspark",))
WARM_UP = 10
"""First batches, which load code, do not count."""


@benchmark("streams", "Streams from table to table", TABLES, BARE)
def streams(run: Run) -> list[Row]:
    """What a micro-batch of a thousand rows takes from one table to another, with commit, lineage and compaction, at
    the median; beside it Spark's own file source and sink with Parquet, whose checkpoints are written by the faster of Spark's
    two classes. Once as they come, once counted by windows of ten seconds and a thousand keys. Then how fast a backlog goes through
    in one batch; a query over few rows, which loads code, comes first and does not count."""
    batches = run.size(100, 15)
    rows, files = run.size(4_000_000, 100_000), 16
    home = run.scratch / "streams"

    def short(stateful: bool) -> dict[str, Measure]:
        found = {}
        for contestant in (BARE, TABLES):
            run.log(f"  {batches} micro-batches{' with state' * stateful}: {contestant.name}")
            place = str(home / f"{contestant.name} {stateful}")
            lap = run.laps(contestant, "micro_batches", home=place, batches=batches, stateful=stateful)
            seconds = lap.seconds[WARM_UP:]
            found[contestant.name] = Measure(statistics.median(seconds), tuple(seconds))
        return found

    plain, counting = short(False), short(True)
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
            plain,
            [
                Verdict("at most 190 ms", plain[TABLES.name].seconds * 1000, 190, "ms"),
                ratio_to(plain, TABLES.name, [BARE.name], 1.05),
            ],
        ),
        Row(
            f"micro-batch of 1,000 rows counted in windows, median of {batches - WARM_UP}",
            counting,
            [ratio_to(counting, TABLES.name, [BARE.name], 1.1)],
        ),
        Row(
            f"{rows:,} rows of 3 columns in {files} files, one batch",
            backlog,
            [ratio_to(backlog, TABLES.name, [BARE.name], 1.1)],
            note=f"Anabranch: {rows / ours / 1e6:.2f} million rows a second",
        ),
    ]
