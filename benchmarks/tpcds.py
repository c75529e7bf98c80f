"""The queries of TPC-DS in Spark, over a lake and over plain Parquet files."""

from __future__ import annotations

import statistics

from benchmarks.contestants import Contestant
from benchmarks.registry import Measure, Row, Run, benchmark, ratio_to

PACKAGES = ("anabranch", "pyspark", "pyarrow", "duckdb")
LAKE = Contestant("Anabranch", "benchmarks.workers.tpcds", PACKAGES)
PARQUET = Contestant("read.parquet", "benchmarks.workers.tpcds", ("pyspark", "duckdb"))
SCALE = 1.0
ROUNDS = 2
"""Times that every query is asked, after a first one that does not count."""
SHORT = 1.0
"""Seconds; of shorter queries planning is the most, and their ratios say more of the machine than of reading."""


@benchmark("tpcds", "The queries of TPC-DS in Spark", LAKE, PARQUET)
def tpcds(run: Run) -> list[Row]:
    """All 99 queries by one Spark on two cores, in plain SQL: over tables of a lake (in several commits, some compacted,
    some partitioned), and over views of the same rows in plain Parquet files, as many and partitioned alike, which
    Spark has listed before. Data and queries are those of DuckDB. Every query is asked three times, in turns and in one
    process; the first does not count, and the better of the others does. All answers are the same on both sides."""
    scale = 0.01 if run.quick else SCALE
    home = str(run.scratch / "tpcds")
    run.log(f"  tables at scale {scale}")
    run.laps(LAKE, "make", home=home, scale=scale)
    queries = [1, 7, 21] if run.quick else list(range(1, 100))
    run.log(f"  {len(queries)} queries, {ROUNDS + 1} times on each side")
    lap = run.laps(LAKE, "ask", home=home, queries=queries, rounds=ROUNDS)
    taken: dict[str, list[float]] = {
        contestant.name: [min(times) for times in lap.facts[side]]
        for contestant, side in ((LAKE, "lake"), (PARQUET, "plain"))
    }
    total = {name: Measure(sum(times), tuple(times)) for name, times in taken.items()}
    pairs = zip(taken[LAKE.name], taken[PARQUET.name], queries, strict=True)
    ratios = sorted((ours / theirs, number, ours, theirs) for ours, theirs, number in pairs)
    worst, number, ours, theirs = ratios[-1]
    longer = [ratio for ratio, _, _, plain in ratios if plain >= SHORT] or [worst]
    middle = statistics.median(ratio for ratio, *_ in ratios)
    return [
        Row(
            f"{len(queries)} queries at scale {scale}, all together",
            total,
            [ratio_to(total, LAKE.name, [PARQUET.name], 1.1)],
            note=f"a query in the middle {middle:.2f} x; the worst of those of {SHORT:.0f} s or more {longer[-1]:.2f} x",
        ),
        Row(
            f"query {number}, which loses most",
            {LAKE.name: Measure(ours, (ours,)), PARQUET.name: Measure(theirs, (theirs,))},
            [],
            note=f"{worst:.2f} x",
        ),
    ]
