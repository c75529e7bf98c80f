"""`anabranch cascade`, as its users type it."""

import json

import pytest

import anabranch
from anabranch.cascade import run_cascade
from anabranch.cli.main import run
from tests.cascade.embedded import SCHEMA
from tests.cascade.embedded import run as run_embedded
from tests.cascade.story import CHAIN, correct, rows
from tests.support.lengths import first_short

JOBS = """
import anabranch

@anabranch.job("clean", sources={"orders": "db.orders"}, sink="db.clean")
def clean(orders):
    return orders

anabranch.sql_job("big", "SELECT * FROM clean", sources={"clean": "db.clean"}, sink="db.big")
"""


@pytest.fixture
def lake(tmp_path):
    lake = anabranch.connect(str(tmp_path / "warehouse"))
    for table in ("db.orders", "db.clean", "db.big"):
        lake.create_table(table, SCHEMA)
    for number, factor in enumerate((1, 100)):
        lake.table("db.orders").append(rows(number, 1, factor))
        if not number:
            lake.table("db.orders").create_tag("good")
        for job in CHAIN:
            run_embedded(job, lake)
    correct(lake, 1, 1)
    return lake


@pytest.fixture
def cli(lake, capsys, monkeypatch):
    monkeypatch.setenv("ANABRANCH_WAREHOUSE", lake.url)

    def call(*words, code=0, verb="cascade"):
        assert run([verb, *words]) == code
        said = capsys.readouterr()
        return said.out + said.err

    return call


def test_a_plan_is_told_with_what_comes_next(cli, tmp_path):
    told = cli("db.orders")
    assert "replacement 1 of main of db.orders took out snapshot 2 of main@1; 2 tables to correct" in told
    assert (
        "1. db.clean: snapshot 2 is spoilt; its branch begins with snapshot 1; 1 commit (1 row) made again"
        in told
    )
    assert "by hand: job 'clean' made 1 commit" in told
    assert "next: anabranch cascade db.orders --run --jobs FILE" in told

    file = tmp_path / "jobs.py"
    file.write_text(JOBS)
    told = cli("db.orders", "--plan", "--jobs", str(file))
    assert "job clean from db.orders after snapshot 1" in told
    assert "job big from db.clean$branch_cascade-db.orders-1 after snapshot 1" in told
    assert "by hand" not in told
    assert f"next: anabranch cascade db.orders --run --jobs {file}" in told
    found = json.loads(cli("db.orders", "--jobs", str(file), "--json"))
    assert [step["table"] for step in found["steps"]] == ["db.clean", "db.big"]


@pytest.mark.parametrize("verb", first_short(["cascade", "correct"]))
def test_where_checkpoints_are_is_said_as_to_run(cli, lake, tmp_path, verb):
    lake.table("db.orders").create_tag("start", 1)
    what = ["db.orders", *(["--from-tag", "start"] if verb == "correct" else [])]
    file = tmp_path / "jobs.py"
    file.write_text(JOBS)
    given = [*what, "--jobs", str(file), "--yes"]
    told = cli(*given, "--checkpoints", "my folder", verb=verb)
    assert "next: anabranch " in told
    assert told.rstrip().endswith(" --checkpoints 'my folder'")
    told = cli(*given, "--run", "--checkpoint", "one", verb=verb, code=2)
    assert "one checkpoint is named for 2 jobs" in told
    assert "--checkpoints." in told, "there is no --job here"
    told = cli(*given, "--run", "--checkpoint", "one", "--checkpoints", "all", verb=verb, code=2)
    assert "give one of them" in told
    assert lake.table("db.clean").branches() == [], "nothing is begun"


def test_what_was_published_is_listed_and_taken_back(cli, lake):
    run_cascade(lake, "db.orders", CHAIN, runner=run_embedded)
    assert "nothing to do: no table contains anything" in cli("db.orders")
    assert "nothing to do" in cli("db.orders", "--run")
    assert json.loads(cli("db.orders", "--run", "--json"))["published"] is True
    listed = cli("--groups")
    assert "group 1, replaced: " in listed
    assert "db.big (cascade-db.orders-1)" in listed
    assert json.loads(cli("--groups", "--json"))[0]["outcome"] == "replaced"
    told = cli("db.clean", code=2, verb="undo-replace")
    assert "together with that of db.big, as group 1" in told
    assert "anabranch cascade --undo 1" in told
    assert "which takes back group 1" in cli("--undo", "1", "--yes")
    assert "already replaced" in cli("db.orders", "--undo", "last")
    assert "is now main" in cli("db.orders", "--yes", verb="undo-replace", code=0)


def test_a_command_of_the_user_is_told(cli, lake, tmp_path):
    said, script = tmp_path / "said", tmp_path / "hook.sh"
    script.write_text(
        f'#!/bin/sh\necho "$ANABRANCH_EVENT|$ANABRANCH_TABLE|$ANABRANCH_MESSAGE|$ANABRANCH_HINT|" >> {said}\ncat >> {said}\n'
    )
    script.chmod(0o700)
    run_cascade(lake, "db.orders", CHAIN, runner=run_embedded)
    told = cli("--undo", "last", "--yes", "--hook", str(script))
    assert "which takes back group 1" in told
    event, table, message, _, values = said.read_text().split("|")
    assert (event, table, {*message.split(", ")}) == ("undone", "", {"db.clean", "db.big"})
    assert json.loads(values)["number"] == 2
    said.unlink()
    assert "there is no job file" in cli(
        "db.orders", "--run", "--jobs", "missing.py", "--hook", str(script), code=1
    )
    event, table, message, _, _ = said.read_text().split("|")
    assert (event, table) == ("failed", "db.orders")
    assert "there is no job file" in message
    assert said.read_text().count("failed|") == 1, "told once"
    assert "its quotes" in cli("db.orders", "--run", "--hook", "'", code=2), "before anything is done"


@pytest.mark.long
def test_one_table_alone_is_taken_back_where_that_is_said(cli, lake):
    run_cascade(lake, "db.orders", CHAIN, runner=run_embedded)
    assert "is now main" in cli("db.clean", "--alone", "--yes", verb="undo-replace")


def test_what_is_wrongly_typed(cli):
    assert "not said which table" in cli(code=2)
    assert "give one of them" in cli("db.orders", "--plan", "--run", code=2)
    assert "no number of a group" in cli("--undo", "first", code=2)
    assert "there is no group 9" in cli("--undo", "9", code=1)
    assert "was not replaced" in cli("db.clean", code=1)
    assert "there is no job file" in cli("db.orders", "--jobs", "missing.py", code=1)


def test_a_correction_from_a_tag_is_planned_done_and_taken_back(cli, lake):
    orders = lake.table("db.orders")
    orders.create_tag("start", 1)
    told = cli("db.orders", "--from-tag", "start", verb="correct")
    assert (
        "the correction of db.orders from tag 'start' takes out snapshots 2 of main, 2 of main@1; 3 tables"
        in told
    )
    assert "committed by hand" in told
    assert "next: anabranch correct db.orders --from-tag start --run --jobs FILE" in told
    assert "tag 'nowhere' does not exist" in cli("db.orders", "--from-tag", "nowhere", verb="correct", code=1)
    assert "was published" in cli(
        "db.orders", "--from-tag", "start", "--undo", "--yes", verb="correct", code=1
    )
