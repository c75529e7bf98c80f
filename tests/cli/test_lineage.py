"""Lineage from the command line, and the system tables about it."""

import json
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

import anabranch
from anabranch.cli.main import run
from anabranch.errors import InvalidInputError
from anabranch.storage.open import open_storage
from anabranch.verbs.answer import Rich
from anabranch.verbs.caller import Caller
from anabranch.verbs.lineage import Asked, asked, drawing
from tests.support.chance import Chance

CODE = "c" * 40


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory):
    """Files flow into orders, these into clean and a branch of it, clean into daily."""
    path = tmp_path_factory.mktemp("lineage")
    chance = Chance(1).runtime
    lake = anabranch.Lake(open_storage(str(path)), runtime=chance)
    orders, clean, daily = (
        lake.create_table(f"db.{name}", "id BIGINT") for name in ("orders", "clean", "daily")
    )
    for number in range(1, 4):
        with lake.job("ingest", code=CODE) as job:
            job.read_from("/raw/orders", kind="files", end={"logOffset": number})
            orders.append([{"id": number}])
    for number in range(1, 4):
        with lake.job("clean", code=CODE):
            clean.append(orders.changes(number - 1, number).to_arrow())
    clean.create_tag("good", 2)
    clean.create_branch("fix", "good")
    with lake.job("clean", code=CODE):
        clean.branch("fix").append(orders.changes(2, 3).to_arrow())
    with lake.job("daily", code=CODE):
        daily.append(clean.scan().to_arrow())
    daily.append([{"id": 9}])
    return path


@pytest.fixture
def cli(warehouse, capsys, monkeypatch):
    monkeypatch.setenv("ANABRANCH_WAREHOUSE", str(warehouse))

    def call(*words, code=0):
        assert run([*words]) == code, capsys.readouterr()
        said = capsys.readouterr()
        return said.out if code == 0 else said.err

    return call


def test_what_programs_get_is_as_it_is(tmp_path, capsys):
    name = "db.a\u00a0 anabranch read db.t"
    lake = anabranch.connect(str(tmp_path))
    with lake.job("makes"):
        lake.create_table(name, "id BIGINT").append([{"id": 1}])
    for words in (["--json"], ["--format", "json"]):
        assert run(["-w", str(tmp_path), "lineage", "up", name, *words]) == 0
        assert name in json.dumps(json.loads(capsys.readouterr().out), ensure_ascii=False)


def test_where_rows_come_from(cli):
    assert cli("lineage", "up", "db.daily@1").splitlines()[1:] == [
        "└── db.daily  snapshot 1",
        "    └── ◂ daily (1 commit) ◂ db.clean  snapshots 1..3",
        "        └── ◂ clean (3 commits) ◂ db.orders  snapshots 1..3",
        "            └── ◂ ingest (3 commits) ◂ /raw/orders  files",
    ]
    near = json.loads(cli("lineage", "up", "db.daily", "--snapshot", "1", "--depth", "1", "--json"))
    assert near["tables"] == ["db.clean", "db.daily"]
    assert near["jobs"] == ["daily"]


def test_where_rows_went(cli):
    found = json.loads(cli("lineage", "down", "db.orders@2..3", "--json"))
    snapshots = {dataset["name"]: dataset["snapshots"] for dataset in found["datasets"]}
    assert snapshots == {
        "db.orders": [[2, 3]],
        "db.clean": [[2, 3]],
        "db.clean$branch_fix": [[3, 3]],
        "db.daily": [[1, 1]],
    }
    assert json.loads(cli("lineage", "down", "db.orders@2..3", "--format", "json")) == found
    assert "db.clean$branch_fix" in cli("lineage", "up", "db.clean$branch_fix@3")


def test_impact_says_what_it_is_sure_of_and_what_comes_next(cli):
    out = cli("lineage", "impact", "db.orders@3")
    assert "db.clean$branch_fix  snapshot 3" in out
    assert "3 tables reached. Exactly these commits" in out
    assert out.splitlines()[-2:] == [
        "next: anabranch create-savepoint db.orders",
        "next: anabranch create-branch db.orders --name fix --tag before --snapshot 2",
    ]
    assert "next:" not in cli("lineage", "impact", "db.orders@3", "--json")
    assert "create-branch" not in cli("lineage", "impact", "db.orders@1")
    assert "which snapshots are bad" in cli("lineage", "impact", "db.orders", code=2)


def test_from_where_to_go_on(cli):
    (at,) = json.loads(cli("lineage", "positions", "db.clean@good", "--json"))
    assert (at["job"], at["commit"], at["sources"][0]["position"]["snapshot"]) == ("clean", 2, 2)
    out = cli("lineage", "positions", "db.clean@good")
    assert "table   db.orders  snapshot 2" in out
    run_it = "next: anabranch run JOB.py --branch fix --from-tag good --create-branch"
    assert out.splitlines()[-1] == run_it
    assert "next: anabranch create-tag" not in out
    out = cli("lineage", "positions", "db.orders@2")
    assert '{"logOffset": 2}' in out
    assert out.splitlines()[-2:] == ["next: anabranch create-tag db.orders --name good --snapshot 2", run_it]


def test_what_made_a_snapshot(cli):
    found = json.loads(cli("lineage", "producer", "db.clean@2", "--json"))
    assert (found["entry"]["job"], found["entry"]["code"]) == ("clean", CODE)
    out = cli("lineage", "producer", "db.clean@2")
    assert f"code      {CODE}" in out
    assert [line.split() for line in out.splitlines() if line.startswith("table")] == [
        ["table", "db.orders", "1", "2"]
    ]
    assert out.splitlines()[-1] == "next: anabranch lineage impact db.clean@2"
    assert "does not say who made it" in cli("lineage", "producer", "db.daily@2")


def test_all_jobs(cli):
    found = {job["name"]: job for job in json.loads(cli("lineage", "jobs", "--json"))}
    assert found["clean"]["sinks"] == ["db.clean", "db.clean$branch_fix"]
    assert found["ingest"]["sources"] == ["/raw/orders"]
    assert "db.orders" in cli("lineage", "jobs")
    assert cli("lineage", "jobs", "--format", "mermaid").count("-->") == 4


def test_drawings_go_to_files_by_their_endings(cli, tmp_path):
    for ending, begin in (
        (".svg", "<svg"),
        (".dot", "digraph"),
        (".mmd", "---"),
        (".json", "{"),
        (".txt", "downstream"),
    ):
        file = tmp_path / f"drawing{ending}"
        assert cli("lineage", "down", "db.orders", "-o", str(file)) == ""
        assert file.read_text().startswith(begin)
    assert cli("lineage", "down", "db.orders", "--format", "svg") == (tmp_path / "drawing.svg").read_text()
    assert "add --format" in cli("lineage", "down", "db.orders", "-o", str(tmp_path / "x.png"), code=2)
    assert "cannot be written" in cli(
        "lineage", "down", "db.orders", "-o", str(tmp_path / "no" / "x.svg"), code=2
    )
    assert "did you mean 'svg'" in cli("lineage", "down", "db.orders", "--format", "svgg", code=2)
    assert "exclude" in cli("lineage", "down", "db.orders", "--format", "svg", "--json", code=2)


def test_wrong_questions_have_the_exit_codes_of_all_verbs(cli):
    assert "does not exist" in cli("lineage", "up", "db.none", code=1)
    assert "snapshot 99" in cli("lineage", "up", "db.orders@99", code=1)
    assert "tag 'x' does not exist" in cli("lineage", "impact", "db.orders@5..x", code=1)
    assert "begins at snapshot 9" in cli("lineage", "impact", "db.orders@9..5", code=2)
    cli("lineage", "up", "db.orders", "--depth", "0", code=2)
    cli("lineage", "up", code=2)
    cli("lineage", "sideways", "db.orders", code=2)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("db.t", Asked("db.t", None)),
        ("db.t@57", Asked("db.t", "57")),
        ("db.t@5..9", Asked("db.t", "5..9")),
        ("db.t$branch_fix@good", Asked("db.t$branch_fix", "good")),
        ("db.t$branch_main@1", Asked("db.t$branch_main@1", None)),
        ("db.t$branch_main@1@5", Asked("db.t$branch_main@1", "5")),
        ("db.t@main@1.snapshot.5", Asked("db.t", "main@1.snapshot.5")),
    ],
)
def test_a_table_and_its_snapshots_are_told_apart(text, expected):
    assert asked(text) == expected


@pytest.mark.parametrize("text", ["", "@5", "db.t@"])
def test_texts_that_name_no_snapshots(text):
    with pytest.raises(InvalidInputError, match="names no snapshots"):
        asked(text)


def test_snapshots_are_named_once():
    assert asked("db.t", "5") == Asked("db.t", "5")
    with pytest.raises(InvalidInputError, match="named twice"):
        asked("db.t@4", "5")


def test_the_index_can_be_made_anew(cli):
    before = cli("lineage", "down", "db.orders")
    assert json.loads(cli("lineage", "rebuild", "--json")) == {"commits": 9, "tables": 3, "problems": []}
    assert "9 commits of 3 tables" in cli("lineage", "rebuild")
    assert cli("lineage", "down", "db.orders") == before


# Export


def test_an_export_goes_on_where_it_ended(cli, tmp_path):
    events, cursor = tmp_path / "events.jsonl", tmp_path / "cursor"
    how = ["lineage", "export", "--to", f"file:{events}", "--cursor", str(cursor)]
    assert cli(*how).splitlines() == [
        f"8 events about 8 commits sent to file:{events}",
        "  1 commits do not say where their rows come from, and were left out",
    ]
    assert json.loads(cli(*how, "--json"))["events"] == 0
    assert json.loads(cli(*how, "--json", "--since", "beginning", "--throttle", "1 h"))["commits"] == 8
    named = [json.loads(line)["job"]["name"] for line in events.read_text().splitlines()]
    assert named[:8] == ["ingest"] * 3 + ["clean"] * 4 + ["daily"]
    assert sorted(named[8:]) == ["clean", "daily", "ingest"]
    assert json.loads(cli(*how, "--json", "--since", "2200-01-01 00:00:00"))["events"] == 0


def test_an_export_keeps_its_cursor_in_the_warehouse(cli, warehouse, tmp_path):
    to = f"file:{tmp_path}/events.jsonl"
    assert "8 events" in cli("lineage", "export", "--to", to)
    assert "0 events" in cli("lineage", "export", "--to", to)
    assert len(list((warehouse / "lineage").glob("export-*.json"))) == 1


def test_what_an_export_does_not_understand(cli):
    assert "cannot be exported to" in cli("lineage", "export", "--to", "ftp://x", code=2)
    assert "no duration" in cli(
        "lineage", "export", "--to", "http://127.0.0.1:9", "--throttle", "soon", code=2
    )
    assert "neither an age nor a time" in cli(
        "lineage", "export", "--to", "http://x", "--since", "soon", code=2
    )


def test_an_export_without_the_client_says_what_to_install(cli, monkeypatch):
    monkeypatch.setitem(sys.modules, "anabranch.lineage.openlineage.transport", None)
    assert "pip install 'anabranch[openlineage]'" in cli("lineage", "export", "--to", "file:x", code=1)


# System tables


def test_the_system_tables_about_lineage(cli, warehouse):
    lake = anabranch.connect(str(warehouse))
    jobs = lake.system("jobs").to_pylist()
    assert [(job["job"], job["sources"], job["sinks"], job["commits"]) for job in jobs] == [
        ("clean", ["db.orders"], ["db.clean", "db.clean$branch_fix"], 4),
        ("daily", ["db.clean"], ["db.daily"], 1),
        ("ingest", ["/raw/orders"], ["db.orders"], 3),
    ]
    assert jobs[0]["first_seen"] < jobs[0]["last_seen"] < datetime.now(UTC)
    assert {job["code"] for job in jobs} == {CODE}
    seen = [
        (r["job"], r["role"], r["kind"], r["table_name"], r["commits"])
        for r in lake.system("table_lineage").to_pylist()
    ]
    assert seen == [
        ("clean", "source", "table", "db.orders", 4),
        ("clean", "sink", "table", "db.clean", 3),
        ("clean", "sink", "table", "db.clean$branch_fix", 1),
        ("daily", "source", "table", "db.clean", 1),
        ("daily", "sink", "table", "db.daily", 1),
        ("ingest", "source", "files", "/raw/orders", 3),
        ("ingest", "sink", "table", "db.orders", 3),
    ]
    rows = lake.system("snapshot_lineage").to_pylist()
    shown = {
        (r["sink_table"], r["sink_branch"], r["snapshot_id"]): (
            r["source_table"],
            r["source_after"],
            r["source_through"],
        )
        for r in rows
    }
    assert shown["db.clean", None, 2] == ("db.orders", 1, 2)
    assert shown["db.clean", "fix", 3] == ("db.orders", 2, 3)
    assert shown["db.daily", None, 1] == ("db.clean", 0, 3)
    assert len(rows) == 8
    read = cli(
        "read", "sys.snapshot_lineage", "--filter", "job = 'daily'", "--columns", "snapshot_id", "--json"
    )
    assert json.loads(read) == {"snapshot_id": 1}


def test_what_has_expired_or_was_merged_is_told_as_well(tmp_path, capsys):
    lake = anabranch.connect(str(tmp_path / "lake"))
    orders, clean = (lake.create_table(f"db.{name}", "id BIGINT") for name in ("orders", "clean"))
    for number in range(4):
        with lake.job("ingest"):
            orders.append([{"id": number}])
    clean.append([{"id": -1}])
    clean.create_tag("good", 1)
    clean.create_branch("fix", "good")
    with lake.job("clean"):
        clean.branch("fix").append(orders.changes(0, 4).to_arrow())
    clean.merge_branch("fix")
    clean.delete_branch("fix")
    orders.expire_snapshots(retain_max=2, retain_min=2)
    assert len(list(orders.snapshots())) == 2
    call = ["-w", str(tmp_path / "lake"), "lineage"]
    assert run([*call, "rebuild"]) == run([*call, "export", "--to", f"file:{tmp_path}/events.jsonl"]) == 0
    rows = lake.system("snapshot_lineage").to_pylist()
    assert sorted((r["job"], r["sink_table"], r["source_table"], r["source_branch"]) for r in rows) == [
        ("clean", "db.clean", "db.orders", None),
        *[("ingest", "db.orders", None, None)] * 4,
        ("merge-branch fix", "db.clean", "db.clean", "fix"),
    ]
    events = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert [event["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] for event in events] == [
        *[1] * 4,
        *[4] * 2,
    ]
    merge = events[-1]
    assert merge["inputs"][0]["name"] == events[-2]["outputs"][0]["name"]
    assert merge["inputs"][0]["name"].endswith("/lake/db.db/clean/branch/branch-fix")
    assert "schema" in events[0]["outputs"][0]["facets"]
    capsys.readouterr()


def test_the_example_of_the_page_runs(tmp_path, monkeypatch, capsys):
    page = (Path(__file__).parents[2] / "docs" / "lineage.md").read_text()
    monkeypatch.chdir(tmp_path)
    code = re.search(r"```python\n(.*?)```", page, re.DOTALL)
    exec(compile(code[1], "lineage.md", "exec"), {})
    assert (
        capsys.readouterr().out
        == "('shop.orders', 'shop.clean', 'shop.totals') ('clean', 'totals') ((2, 2),)\n"
    )
    command, output = re.search(r"^\$ anabranch (.*?)\n(.*?)```", page, re.DOTALL | re.MULTILINE).groups()
    assert run(command.split()) == 0
    assert capsys.readouterr().out == output


def test_the_command_line_starts_without_databases_and_clients():
    heavy = "{'sqlalchemy', 'openlineage', 'requests', 'sqlglot', 'pyarrow', 'polars'}"
    code = f"import sys, anabranch.cli.main; print(sorted({heavy} & set(sys.modules)))"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        == "[]\n"
    )


def test_a_drawing_for_people_is_no_text():
    from anabranch.lineage.trace import Trace

    answer = drawing(Trace("nothing", (), ()), None, None, Caller("lake", wants_values=False))
    assert [type(part) for part in answer.shown] == [Rich]
