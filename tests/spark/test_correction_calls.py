"""`CALL lake.sys.correct` and `cascade`, through the session's own SQL and through `lake.sql`."""

import json
from pathlib import Path
from threading import Thread

import pytest

import anabranch
from anabranch import InvalidInputError
from anabranch.jobs.load import load
from anabranch.jobs.prepare import Run
from anabranch.jobs.run import run_jobs
from anabranch.jobs.task import Stop
from anabranch.jobs.trigger import AVAILABLE_NOW, Schedule
from anabranch.storage.open import local_folder
from tests.spark.native_cases import eventually

FILE = """
import anabranch

anabranch.sql_job("clean", "SELECT id, v * FACTOR AS v FROM raw", sources={"raw": "db.raw"}, sink="db.clean")
anabranch.sql_job("big", "SELECT id, v + 1 AS v FROM clean", sources={"clean": "db.clean"}, sink="db.big")
"""


def values(lake, table):
    return sorted((row["id"], row["v"]) for row in lake.table(table).scan().to_arrow().to_pylist())


def test_a_correction_by_sql(spark, warehouse, tmp_path):
    anabranch.spark.attach(spark, warehouse, catalog="calls")
    lake = anabranch.connect(warehouse, spark=spark)
    for name in ("db.raw", "db.clean", "db.big"):
        lake.create_table(name, "id BIGINT NOT NULL, v BIGINT")
    wrong, right = tmp_path / "wrong.py", tmp_path / "right.py"
    wrong.write_text(FILE.replace("FACTOR", "3"))
    right.write_text(FILE.replace("FACTOR", "2"))

    def run():
        statuses = run_jobs(load(wrong).jobs, lake, Run(), Schedule(AVAILABLE_NOW))
        assert {status.state.value for status in statuses} == {"ended"}, statuses

    lake.table("db.raw").append([{"id": 1, "v": 0}])
    run()
    lake.table("db.clean").create_tag("good")
    lake.table("db.raw").append([{"id": 2, "v": 10}])
    run()
    place = f"checkpoints => '{tmp_path / 'checkpoints'}'"
    given = f"table => 'db.clean', from_tag => 'good', jobs => '{right}', {place}"
    plan = spark.sql(f"CALL calls.sys.correct({given})").collect()
    assert [(row["table"], row["fork"], row["anew"], row["published"]) for row in plan] == [
        ("db.clean", 1, 1, False),
        ("db.big", 1, 1, False),
    ]
    (part,) = json.loads(plan[0]["jobs"])
    assert part["job"] == "clean"
    assert 0 < part["took_millis"] < 300_000
    assert values(lake, "db.big") == [(1, 1), (2, 31)]
    done = lake.sql(f"CALL lake.sys.correct({given}, run => true)").collect()
    assert [(row["table"], row["done"], row["published"], row["message"]) for row in done] == [
        ("db.clean", True, True, None),
        ("db.big", True, True, None),
    ]
    assert values(lake, "db.clean") == [(1, 0), (2, 20)]
    assert values(lake, "db.big") == [(1, 1), (2, 21)]
    made = sorted(folder.name for folder in (tmp_path / "checkpoints").iterdir())
    assert made == ["big@correct-db.clean-good", "clean@correct-db.clean-good"]
    of_warehouse = (Path(local_folder(lake.url)) / "_checkpoints").iterdir()
    assert {folder.name for folder in of_warehouse} == {"clean", "big"}
    alone = given.replace("checkpoints =>", "name => 'alone', checkpoint =>")
    with pytest.raises(InvalidInputError, match="one checkpoint is named for 2 jobs"):
        lake.sql(f"CALL lake.sys.correct({alone}, run => true)")
    assert spark.sql(f"CALL calls.sys.correct({given}, run => true)").collect() == [], "nothing is left to do"
    undone = spark.sql(
        "CALL calls.sys.correct(table => 'db.clean', from_tag => 'good', undo => true)"
    ).collect()
    assert {row["table"] for row in undone} == {"db.clean", "db.big"}
    assert values(lake, "db.big") == [(1, 1), (2, 31)]
    with pytest.raises(InvalidInputError, match="cannot be corrected without jobs"):
        lake.sql("CALL lake.sys.correct(table => 'db.clean', from_tag => 'good')").collect()


@pytest.mark.long
def test_a_cascade_runs_inside_of_the_sessions_own_call(spark, warehouse, tmp_path):
    anabranch.spark.attach(spark, warehouse, catalog="inside")
    lake = anabranch.connect(warehouse, spark=spark)
    for name in ("db.raw", "db.clean", "db.big"):
        lake.create_table(name, "id BIGINT NOT NULL, v BIGINT")
    file, raw = tmp_path / "jobs.py", lake.table("db.raw")
    file.write_text(FILE.replace("FACTOR", "2"))
    for number, factor in ((1, 1), (2, 100)):
        raw.append([{"id": number, "v": number * factor}])
        statuses = run_jobs(load(file).jobs, lake, Run(), Schedule(AVAILABLE_NOW))
        assert {status.state.value for status in statuses} == {"ended"}, statuses
        if number == 1:
            raw.create_tag("good")
    raw.create_branch("fix", "good")
    raw.branch("fix").append([{"id": 2, "v": 2}])
    raw.replace_main_branch("fix")
    rows = spark.sql(f"CALL inside.sys.cascade(table => 'db.raw', jobs => '{file}', run => true)").collect()
    assert [(row["table"], row["published"], row["message"]) for row in rows] == [
        ("db.clean", True, None),
        ("db.big", True, None),
    ]
    assert values(lake, "db.big") == [(1, 3), (2, 5)]


@pytest.mark.long
def test_a_correction_while_the_session_runs_the_same_jobs(spark, warehouse, tmp_path):
    lake = anabranch.connect(warehouse, spark=spark)
    for name in ("db.raw", "db.clean", "db.big"):
        lake.create_table(name, "id BIGINT NOT NULL, v BIGINT")
    wrong, right, raw = tmp_path / "wrong.py", tmp_path / "right.py", lake.table("db.raw")
    wrong.write_text(FILE.replace("FACTOR", "3"))
    right.write_text(FILE.replace("FACTOR", "2"))
    raw.append([{"id": 1, "v": 0}])
    stop, ended = Stop(), []
    running = Thread(target=lambda: ended.extend(run_jobs(load(wrong).jobs, lake, stop=stop)))
    running.start()
    try:
        eventually(lambda: values(lake, "db.big") == [(1, 1)])
        lake.table("db.clean").create_tag("good")
        raw.append([{"id": 2, "v": 10}])
        eventually(lambda: len(values(lake, "db.big")) == 2)
        done = lake.correct("db.clean", from_tag="good", jobs=right, run=True)
        assert done.is_published, done.failed
        assert running.is_alive()
    finally:
        stop.ask()
        running.join(120)
    assert not running.is_alive()
    assert values(lake, "db.clean") == [(1, 0), (2, 20)]
    assert values(lake, "db.big") == [(1, 1), (2, 21)]
