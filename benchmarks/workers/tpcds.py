"""TPC-DS in one Spark, over tables of a lake and over plain Parquet files."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from tests.tpcds.contest import Contest, differences
from tests.tpcds.data import generated, load, write_parquet

import anabranch
import anabranch.spark
from benchmarks.workers.harness import Clock, main
from benchmarks.workers.stream_session import SETTINGS, SLOTS

# What one query sends to all tasks stays until the JVM has found out that nobody needs it: 4 GiB were not enough.
CONF = {**SETTINGS, "spark.driver.memory": "10g", "spark.sql.shuffle.partitions": str(SLOTS)}


def make(_clock: Clock, home: str, scale: float) -> dict[str, Any]:
    """The tables, twice."""
    tables = generated(scale)
    load(anabranch.connect(f"{home}/lake"), tables)
    write_parquet(Path(home, "plain"), tables)
    return {}


def ask(clock: Clock, home: str, queries: list[int], rounds: int) -> dict[str, Any]:
    """The seconds of each query in all rounds but the first, by side; the laps are those of the lake."""
    spark = anabranch.spark.session(f"{home}/lake", master=f"local[{SLOTS}]", **CONF)
    spark.sparkContext.setLogLevel("ERROR")
    both = Contest.opened(spark, Path(home))
    taken: dict[str, list[list[float]]] = {"lake": [], "plain": []}
    for number in queries:
        text = both.query(number)
        for seconds in taken.values():
            seconds.append([])
        spark._jvm.System.gc()  # so that no query pays for the one before
        for turn in range(rounds + 1):
            answers = {}
            for side, session in (("lake", both.lake), ("plain", both.plain)):
                start = time.perf_counter()
                try:
                    answers[side] = session.sql(text).collect()
                except Exception as error:
                    raise RuntimeError(f"query {number}, {side}") from error
                if turn:
                    taken[side][-1].append(time.perf_counter() - start)
            wrong = differences(answers["lake"], answers["plain"])
            if wrong:
                raise AssertionError(f"query {number}: {wrong}")
    clock.seconds += [min(times) for times in taken["lake"]]
    spark.stop()
    return dict(taken)


if __name__ == "__main__":
    main({"make": make, "ask": ask})
