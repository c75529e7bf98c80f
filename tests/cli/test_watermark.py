"""Tables in event time, on the command line."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anabranch.cli.main import run

COLUMNS = "id BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND"


@pytest.fixture
def cli(tmp_path, capsys):
    def call(*words, code=0):
        assert run(["-w", str(tmp_path / "lake"), *words]) == code, capsys.readouterr()
        said = capsys.readouterr()
        return said.out if code == 0 else said.err

    return call


def append(cli, tmp_path, time):
    source = tmp_path / "rows.csv"
    source.write_text(f"id,ts\n1,{time}\n")
    cli("append", "db.t", str(source))


def test_the_watermark_of_a_table_is_defined_recorded_and_shown(cli, tmp_path):
    cli("create-table", "db.t", COLUMNS)
    assert "watermark" in cli("describe", "db.t")
    append(cli, tmp_path, "2026-01-01 00:00:10.000")
    shown = " ".join(cli("describe", "db.t").split())
    assert "`ts` - INTERVAL '5' SECOND; now 2026-01-01 00:00:05.000Z" in shown
    (snapshot,) = json.loads(cli("snapshots", "db.t", "--json"))
    assert snapshot["watermark"] == 1767225605000
    assert json.loads(cli("describe", "db.t", "--json"))["watermark"] == "`ts` - INTERVAL '5' SECOND"


def test_a_time_beyond_all_calendars_can_be_shown(cli, tmp_path):
    cli(
        "create-table",
        "db.far",
        "id BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts",
        "--option",
        "watermark.max-ahead=365000000 d",
    )
    far = tmp_path / "far.parquet"
    pq.write_table(pa.table({"ts": pa.array([10**15], pa.timestamp("ms"))}), far)
    cli("append", "db.far", str(far))
    assert "1,000,000,000,000,000 ms" in " ".join(cli("describe", "db.far").split())


def test_it_can_be_changed_and_removed(cli):
    cli("create-table", "db.t", COLUMNS)
    assert "the watermark of the table is defined by it" in cli("alter-table", "db.t", "--drop", "ts", code=2)
    cli("alter-table", "db.t", "--set", "schema.watermark.0.strategy.expr=ts - INTERVAL '2' MINUTE")
    assert "INTERVAL '2' MINUTE" in cli("describe", "db.t")
    keys = ("schema.watermark.0.rowtime", "schema.watermark.0.strategy.expr")
    cli("alter-table", "db.t", *(word for key in keys for word in ("--unset", key)), "--drop", "ts")
    assert "watermark" not in cli("describe", "db.t")


def test_a_definition_that_cannot_be_is_refused(cli):
    wrong = COLUMNS.replace("- INTERVAL '5' SECOND", "- INTERVAL '5' MONTH")
    assert "no fixed length" in cli("create-table", "db.t", wrong, code=2)
    assert "there is no warehouse" in cli("databases", code=1), "nothing was made"
