"""A job with much state: keeping it for a tag, and beginning a corrected job with it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import anabranch
import anabranch.spark
from anabranch.jobs.job import job
from anabranch.jobs.prepare import Run
from anabranch.jobs.run import run_jobs
from anabranch.jobs.trigger import AVAILABLE_NOW, Schedule
from anabranch.kernel.provenance.job_states import job_states
from benchmarks.workers.harness import Clock, main

_STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_PART = 1_000_000
_KEY_BYTES = 96


@job("firsts", sources={"events": "db.events"}, sink="db.firsts")
def firsts(events: Any) -> Any:
    """Each key once: every one stays in the state."""
    return events.dropDuplicates(["k"])


@job("warm", sources={"events": "db.warm"}, sink="db.warmed")
def warm(events: Any) -> Any:
    """Loads the code of jobs with state."""
    return events.dropDuplicates(["k"])


def prepare(clock: Clock, home: str, keys: int) -> dict[str, Any]:
    """Take all keys in; laps: the tag's state put aside by the next run."""
    spark, lake = _lake(home)
    for name in ("events", "firsts", "warm", "warmed"):
        lake.create_table(f"db.{name}", "k BYTES")
    lake.table("db.warm").append(_keys(0, 10))
    for start in range(0, keys, _PART):
        lake.table("db.events").append(_keys(start, min(_PART, keys - start)))
        _run(lake, firsts)
    lake.table("db.firsts").create_tag("good")
    with clock.lap():
        _run(lake, firsts)
    (kept,) = job_states(lake.table("db.firsts").context)
    lake.table("db.events").append(_keys(keys - 10, 20))
    spark.stop()
    return {"kept_bytes": kept.bytes, "kept_files": kept.files}


def begin(clock: Clock, home: str, way: str, branch: str) -> dict[str, Any]:
    """The lap: the corrected job begins at the tag, takes in what came since, and ends."""
    spark, lake = _lake(home)
    _run(lake, warm)
    place = Path(home) / "warehouse/_checkpoints/firsts/anabranch/operators"
    aside = place.with_name("operators-aside")
    if way == "rebuilt":
        place.rename(aside)
    with clock.lap():
        status = _run(lake, firsts, Run(branch=branch, from_tag="good", create_branch=True))
    if way == "rebuilt":
        aside.rename(place)
    begun = str(status.begun).split(":")[0]
    if begun != way:
        raise RuntimeError(f"the state was {status.begun}")
    table = lake.table("db.firsts")
    rows = table.branch(branch).snapshot.total_record_count
    table.delete_branch(branch)
    shutil.rmtree(Path(home) / f"warehouse/_checkpoints/firsts@{branch}")
    spark.stop()
    return {"rows": rows}


def _run(lake: Any, one: Any, how: Run | None = None) -> Any:
    (status,) = run_jobs([one], lake, how or Run(), Schedule(AVAILABLE_NOW))
    if status.state.value != "ended":
        raise RuntimeError(status.message)
    return status


def _keys(start: int, count: int) -> pa.Table:
    """Keys that do not compress, the same for the same numbers."""
    blocks = [np.random.default_rng(number).bytes(_KEY_BYTES) for number in range(start, start + count)]
    return pa.table({"k": pa.array(blocks, pa.binary())})


def _lake(home: str) -> tuple[Any, Any]:
    spark = anabranch.spark.session(
        home + "/warehouse",
        master="local[2]",
        **{
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.driver.memory": "6g",
            "spark.sql.streaming.stateStore.providerClass": _STORE,
        },
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark, anabranch.connect(home + "/warehouse", spark=spark)


if __name__ == "__main__":
    main({"prepare": prepare, "begin": begin})
