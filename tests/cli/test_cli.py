"""The command line, as its users type it."""

import io
import json
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anabranch.cli.main import run


@pytest.fixture
def cli(tmp_path, capsys):
    def call(*words, code=0):
        assert run(["-w", str(tmp_path / "lake"), *words]) == code, capsys.readouterr()
        said = capsys.readouterr()
        return said.out if code == 0 else said.err

    return call


@pytest.fixture
def orders(cli, tmp_path):
    cli(
        "create-table",
        "db.orders",
        "id BIGINT NOT NULL, city STRING, price DECIMAL(10, 2)",
        "--partition-by",
        "city",
    )
    source = tmp_path / "rows.csv"
    source.write_text("id,city,price\n1,Bonn,1.50\n2,Rome,20.00\n3,Rome,\n")
    cli("append", "db.orders", str(source))
    return source


def test_create_append_read(cli, orders):
    assert json.loads(cli("databases", "--json")) == ["db"]
    assert json.loads(cli("tables", "--json")) == ["db.orders"]
    lines = cli("read", "db.orders", "--json", "--filter", "price > 10").splitlines()
    assert [json.loads(line) for line in lines] == [{"id": 2, "city": "Rome", "price": "20.00"}]
    assert "Bonn" in cli("read", "db.orders", "--columns", "city,id")


def test_overwriting_what_was_read_and_nothing_else(cli, orders, tmp_path):
    new = tmp_path / "new.csv"
    new.write_text("id,city,price\n8,Rome,1.00\n")
    cli("append", "db.orders", str(orders))
    assert "CHANGED_SINCE" in cli("overwrite", "db.orders", str(new), "--if-unchanged-since", "1", code=3)
    done = json.loads(cli("overwrite", "db.orders", str(new), "--if-unchanged-since", "2", "--json"))
    assert (done["kind"], done["rows"]) == ("OVERWRITE", 3)
    assert "snapshot 4" in cli("overwrite", "db.orders", str(new), "--partition", "city=Rome")


def test_rows_from_parquet_json_and_standard_input(cli, orders, tmp_path, monkeypatch):
    pq.write_table(pa.table({"id": [4], "city": ["Oslo"]}), tmp_path / "rows.parquet")
    cli("append", "db.orders", str(tmp_path / "rows.parquet"))
    (tmp_path / "rows.jsonl").write_text('{"id": 5, "city": "Bern"}\n{"id": 6}\n')
    snapshot = json.loads(cli("append", "db.orders", str(tmp_path / "rows.jsonl"), "--json"))
    assert (snapshot["rows"], snapshot["rows_added"]) == (6, 2)
    command = [sys.executable, "-m", "anabranch", "-w", str(tmp_path / "lake"), "append", "db.orders", "-"]
    done = subprocess.run(
        [*command, "--format", "csv"], input=b"id,city\n7,Kiel\n", capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    ids = [json.loads(line)["id"] for line in cli("read", "db.orders", "--json").splitlines()]
    assert sorted(ids) == [1, 2, 3, 4, 5, 6, 7]


def test_describe_schema_snapshots_files_explain(cli, orders):
    info = json.loads(cli("describe", "db.orders", "--json"))
    assert info["partition_keys"] == ["city"]
    assert (info["files"], info["snapshot"]["rows"]) == (2, 3)
    assert [c["name"] for c in json.loads(cli("schema", "db.orders", "--json"))] == ["id", "city", "price"]
    assert [s["id"] for s in json.loads(cli("snapshots", "db.orders", "--json"))] == [1]
    files = json.loads(cli("files", "db.orders", "--json", "--filter", "city = 'Rome'"))
    assert [f["partition"] for f in files] == ["city=Rome"]
    plan = json.loads(cli("explain", "db.orders", "--json", "--filter", "city = 'Rome'"))
    assert plan["files"] == 1
    for verb in ("describe", "schema", "snapshots", "files", "explain"):
        assert cli(verb, "db.orders")


def test_drop_asks_and_previews(cli, orders):
    assert "would remove" in cli("drop-table", "db.orders", "--dry-run")
    assert json.loads(cli("tables", "--json")) == ["db.orders"]
    assert "removed" in cli("drop-table", "db.orders", "--yes")
    assert json.loads(cli("tables", "--json")) == []
    assert cli("drop-table", "db.orders", "--if-exists")


def test_exit_codes_and_messages(cli, orders, tmp_path):
    assert "does not exist" in cli("describe", "db.nothing", code=1)
    assert "db.orders" in cli("create-table", "db.orders", "id INT", code=1)
    assert "hint" in cli("read", "db.orders", "--filter", "nope = 1", code=2)
    assert "pric" in cli("read", "db.orders", "--columns", "pric", code=2)
    assert "database.table" in cli("read", "orders", code=2)
    assert cli("read", code=2)
    assert "bogus" in cli("bogus", code=2)
    bad = tmp_path / "bad.csv"
    bad.write_text("id,city,colour\n1,Bonn,red\n")
    assert "colour" in cli("append", "db.orders", str(bad), code=2)
    bad.write_text("id,city\nx,Bonn\n")
    assert "bad.csv" in cli("append", "db.orders", str(bad), code=2)
    assert "does not exist" in cli("append", "db.orders", str(tmp_path / "none.csv"), code=1)


def test_no_traceback_without_debug(cli, orders, tmp_path):
    (tmp_path / "lake" / "db.db" / "orders" / "snapshot" / "snapshot-1").write_bytes(b"junk")
    said = cli("read", "db.orders", code=1)
    assert "Traceback" not in said
    assert "snapshot/snapshot-1" in said


def test_doctor(cli, tmp_path):
    checks = json.loads(cli("doctor", "--json"))
    assert {"Python", "pyarrow", "warehouse"} <= {c["name"] for c in checks}
    assert all(c["status"] in ("ok", "missing", "failed") for c in checks)


def test_help_starts_without_arrow_and_spark():
    code = "import sys, anabranch.cli.main as m; m.run(['--help']); print([n for n in ('pyarrow','polars','pyspark') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith("[]")


def test_maps_from_json(cli, tmp_path):
    cli(
        "create-table", "db.m", "id BIGINT, m MAP<STRING, INT>, s ROW<x ARRAY<MAP<INT, TIMESTAMP(3)>>, y INT>"
    )
    (tmp_path / "rows.json").write_text(
        '{"id": 1, "m": {"a": 1, "b": null}, "s": {"x": [{"1": "2024-01-02T00:00:00"}, null, {}], "y": 3}}\n'
        "\n"
        '{"id": 2, "m": [["z", 9]]}\n'
        '{"id": 3, "m": null, "s": null}\n'
    )
    cli("append", "db.m", str(tmp_path / "rows.json"))
    assert [json.loads(line) for line in cli("read", "db.m", "--json").splitlines()] == [
        {
            "id": 1,
            "m": [["a", 1], ["b", None]],
            "s": {"x": [[[1, "2024-01-02T00:00:00"]], None, []], "y": 3},
        },
        {"id": 2, "m": [["z", 9]], "s": None},
        {"id": 3, "m": None, "s": None},
    ]


def test_decimals_from_json_are_exact_beside_a_map(cli, tmp_path):
    columns = "d DECIMAL(38, 20), f DOUBLE, m MAP<STRING, DECIMAL(38, 20)>, s ROW<d DECIMAL(38, 20)>"
    cli("create-table", "db.m", columns)
    exact = "1.12345678901234567891"
    row = f'{{"d": {exact}, "f": 0.1, "m": {{"a": {exact}}}, "s": {{"d": {exact}}}}}\n'
    (tmp_path / "rows.json").write_text(row + row.replace(exact, f'"{exact}"'))
    cli("append", "db.m", str(tmp_path / "rows.json"))
    wanted = {"d": exact, "f": 0.1, "m": [["a", exact]], "s": {"d": exact}}
    assert [json.loads(line) for line in cli("read", "db.m", "--json").splitlines()] == [wanted] * 2


@pytest.mark.parametrize(
    "bad", ['{"id": 1, "m": 3}', '{"id": 1, "m": [3]}', '{"id": 1, "m": ', '{"id": {}}', "7"]
)
def test_json_that_does_not_fit_a_table_with_a_map(cli, tmp_path, bad):
    cli("create-table", "db.m", "id BIGINT, m MAP<STRING, INT>")
    (tmp_path / "rows.json").write_text(bad)
    assert "cannot be read as json" in cli("append", "db.m", str(tmp_path / "rows.json"), code=2)


def test_a_bad_file_ends_the_process_as_it_should(cli, orders, tmp_path):
    for row in (
        "x,Bonn,1\n",
        "1,Bonn,1\n" * 300_000 + "x,Bonn,1\n",
    ):  # in the first block, and in a later one
        orders.write_text("id,city,price\n" + row)
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "anabranch",
                "-w",
                str(tmp_path / "lake"),
                "append",
                "db.orders",
                str(orders),
            ],
            check=False,
            capture_output=True,
            text=True,
        )
        assert (done.returncode, "terminate" in done.stderr) == (2, False), done.stderr


def test_nothing_chosen_is_refused(cli, orders):
    for table in ("db.orders", "db.orders$files"):
        assert "names no column" in cli("read", table, "-c", " ,", code=2)
        assert "there is no column 'nope'" in cli("read", table, "-c", "nope", code=2)


def test_how_many_snapshots(cli, orders):
    cli("append", "db.orders", str(orders))
    assert len(json.loads(cli("snapshots", "db.orders", "--json"))) == 2
    assert len(json.loads(cli("snapshots", "db.orders", "--json", "--limit", "0"))) == 0
    assert len(json.loads(cli("snapshots", "db.orders", "--json", "--limit", "1"))) == 1
    assert "--limit" in cli("snapshots", "db.orders", "--limit", "-1", code=2)


def test_nobody_is_asked_without_a_terminal(cli, orders, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO())
    assert "removed db.orders" in cli("drop-table", "db.orders")
