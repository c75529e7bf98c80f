"""A job whose checkpoint is gone goes on after its last commit: every row comes once, with and without state."""

import json
import shutil
from pathlib import Path

import pytest
from pyspark.sql import functions as fn

import anabranch
from anabranch.jobs.job import job
from anabranch.jobs.prepare import Run
from anabranch.jobs.run import run_jobs
from anabranch.jobs.source import files, stream
from anabranch.jobs.task import Policy
from anabranch.jobs.trigger import AVAILABLE_NOW, Schedule


@job("copies", sources={"events": "db.events"}, sink="db.copies")
def copies(events):
    return events


@job("firsts", sources={"events": "db.events"}, sink="db.firsts")
def firsts(events):
    return events.dropDuplicates(["k"])


@job("totals", sources={"events": "db.events"}, sink="db.totals", mode="complete")
def totals(events):
    return events.groupBy().count().selectExpr("count AS k")


@pytest.fixture
def lake(spark, warehouse):
    lake = anabranch.connect(warehouse, spark=spark)
    for table in ("events", "copies", "firsts", "totals"):
        lake.create_table(f"db.{table}", "k BIGINT")
    return lake


def run(lake, *jobs, told=lambda _: None, **how):
    return run_jobs(jobs, lake, Run(**how), Schedule(AVAILABLE_NOW, Policy(most=0)), on_status=told)


def rows_of(lake, title):
    return sorted(row["k"] for row in lake.table(title).scan().to_arrow().to_pylist())


@pytest.mark.parametrize(
    "losses", [pytest.param(1, id="once"), pytest.param(2, id="twice", marks=pytest.mark.long)]
)
def test_rows_come_once_without_a_checkpoint(lake, warehouse, losses):
    jobs, given = (copies, firsts, totals), []
    for number in range(losses + 1):
        lake.table("db.events").append([{"k": number}, {"k": number + 1}])
        given += [number, number + 1]
        told = []
        statuses = run(lake, *jobs, told=told.extend)
        assert [s.state.value for s in statuses] == ["ended"] * 3, statuses
        if number:
            said = {s.job for s in told if "goes on after its last commit" in (s.message or "")}
            assert said == {"copies", "firsts", "totals"}
            ways = {s.job: (s.begun or "").split(":")[0] for s in statuses}
            assert ways == {"copies": "", "firsts": "rebuilt", "totals": "from the beginning"}
        shutil.rmtree(Path(warehouse) / "_checkpoints")
    assert rows_of(lake, "db.copies") == sorted(given)
    assert rows_of(lake, "db.firsts") == sorted(set(given))
    assert rows_of(lake, "db.totals") == [len(given)]
    run(lake, copies, start_anew=["copies"])
    assert rows_of(lake, "db.copies") == sorted(given * 2)


@job("patient", sources={"events": stream("db.events", {"scan.on-overwrite": "skip"})}, sink="db.firsts")
def patient(events):
    return events.dropDuplicates(["k"])


@pytest.mark.long
@pytest.mark.parametrize("taken_out", [pytest.param(False, marks=pytest.mark.long), True])
def test_state_is_made_again_of_expired_snapshots_only_if_all_rows_are_left(lake, warehouse, taken_out):
    events = lake.table("db.events")
    events.append([{"k": 1}])
    run(lake, patient)
    if taken_out:
        events.overwrite([])
    for number in (2, 3):
        events.append([{"k": number}])
        run(lake, patient)
    events.expire_snapshots(retain_max=2, retain_min=1, older_than="0 ms")
    shutil.rmtree(Path(warehouse) / "_checkpoints")
    events.append([{"k": 1}])
    (status,) = run(lake, patient)
    if taken_out:
        assert status.state.value == "failed"
        assert "snapshot 2 took rows out that the job had read" in status.message
    else:
        assert status.begun.startswith("rebuilt")
    assert rows_of(lake, "db.firsts") == [1, 2, 3]


def test_files_have_no_position_to_go_on_from(lake, warehouse, tmp_path):
    landing = tmp_path / "landing"
    landing.mkdir()
    (landing / "one.json").write_text(json.dumps({"k": 1}))

    @job("lands", sources={"rows": files(str(landing), "json", schema="k BIGINT")}, sink="db.copies")
    def lands(rows):
        return rows

    assert run(lake, lands)[0].state.value == "ended"
    shutil.rmtree(Path(warehouse) / "_checkpoints")
    (status,) = run(lake, lands)
    assert status.state.value == "failed"
    assert "no checkpoint" in status.message
    assert "--start-anew lands" in status.hint
    assert rows_of(lake, "db.copies") == [1]


@pytest.mark.long
@pytest.mark.parametrize("what", ["offsets", "all"])
def test_a_batch_whose_checkpoint_is_removed_while_it_runs_comes_once(lake, warehouse, tmp_path, what):
    """It was committed without saying how far it had read, and its job could not go on without doubling or losing rows."""
    place, gone = Path(warehouse) / "_checkpoints" / "removing", tmp_path / "gone"
    checkpoint, mark = str(place if what == "all" else place / "offsets"), str(gone)

    def remove(k):
        import pathlib
        import shutil

        if k == 3 and not pathlib.Path(mark).exists():
            pathlib.Path(mark).touch()
            shutil.rmtree(checkpoint)
        return k

    @job("removing", sources={"events": "db.events"}, sink="db.copies")
    def removing(events):
        return events.select(fn.udf(remove, "bigint")("k").alias("k"))

    lake.table("db.events").append([{"k": 1}, {"k": 2}])
    assert run(lake, removing)[0].state.value == "ended"
    lake.table("db.events").append([{"k": 3}])
    told = []
    statuses = run_jobs(
        (removing,), lake, Run(), Schedule(AVAILABLE_NOW, Policy(most=3)), on_status=told.extend
    )
    assert any("was not written" in (s.message or "") for s in told)
    if what == "offsets":  # Spark would say "assertion failed", for ever
        assert "is damaged: batch 0 is done" in statuses[0].message
        assert "--renew removing" in statuses[0].hint
        statuses = run(lake, removing, renew=["removing"])
    assert statuses[0].state.value == "ended", statuses
    lake.table("db.events").append([{"k": 4}])
    assert run(lake, removing)[0].state.value == "ended"
    assert rows_of(lake, "db.copies") == [1, 2, 3, 4]
