"""DEFAULTs and CHECKs: kept by the table, held by whoever writes rows."""

import datetime as dt
import json
from decimal import Decimal

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import anabranch
from anabranch.cli.main import app
from anabranch.errors import OptionError, SchemaError, UnsupportedFeatureError
from tests.support.tables import make_table


@pytest.fixture
def lake(tmp_path):
    return anabranch.connect(str(tmp_path))


COLUMNS = """
    id INT NOT NULL, city STRING DEFAULT 'Bonn' COMMENT 'where', n BIGINT NOT NULL DEFAULT -5,
    price DECIMAL(10, 2) DEFAULT 1.50, ok BOOLEAN DEFAULT TRUE, day DATE DEFAULT DATE '2026-01-31',
    at TIMESTAMP(3) DEFAULT TIMESTAMP '2026-01-31 12:00:00', x DOUBLE, raw BYTES DEFAULT 'ab'
"""
FILLED = {
    "id": 1,
    "city": "Bonn",
    "n": -5,
    "price": Decimal("1.50"),
    "ok": True,
    "day": dt.date(2026, 1, 31),
    "at": dt.datetime(2026, 1, 31, 12),
    "x": None,
    "raw": b"ab",
}


@pytest.mark.parametrize(
    "data",
    [
        [{"id": 1}],
        [{"id": 1, "city": None, "n": None}],
        pa.table({"id": [1], "city": pa.nulls(1), "n": pa.nulls(1, pa.int64())}),
        pd.DataFrame({"id": [1], "n": [None]}),
        pl.DataFrame({"id": [1]}),
    ],
)
def test_rows_without_a_value_get_the_default(lake, data):
    table = lake.create_table("db.t", COLUMNS)
    table.append(data)
    assert table.scan().to_arrow().to_pylist() == [FILLED]
    assert table.scan("city = 'Bonn' AND n = -5").count() == 1, "statistics are those of what was written"
    assert lake.table("db.t").schema.field("city").description == "where"


def test_values_that_are_given_stay_and_what_has_no_default_is_null(lake):
    table = lake.create_table("db.t", COLUMNS)
    table.append([{"id": 1, "city": "", "n": 0}, {"id": 2, "city": None}])
    assert table.scan(columns=["city", "n", "x"]).to_arrow().to_pylist() == [
        {"city": "", "n": 0, "x": None},
        {"city": "Bonn", "n": -5, "x": None},
    ]


def test_defaults_are_written_as_the_format_has_them(lake, tmp_path):
    lake.create_table("db.t", "id INT, city STRING DEFAULT 'it''s'")
    (schema,) = (tmp_path / "db.db" / "t" / "schema").iterdir()
    assert json.loads(schema.read_text())["fields"][1]["defaultValue"] == "it's"


def test_who_writes_files_by_himself_gets_defaults_too(lake):
    table = lake.create_table("db.t", "id INT, city STRING DEFAULT 'Bonn'")
    writer = table.writer()
    messages = writer.write([pa.record_batch({"id": [1], "city": [None]}, schema=writer.schema)])
    table.commit(anabranch.kernel.actions.append.Append(messages))
    assert table.scan().to_arrow()["city"].to_pylist() == ["Bonn"]


def test_a_default_that_is_set_later_is_for_later_rows(lake):
    table = lake.create_table("db.t", "id INT, city STRING")
    table.append([{"id": 1}])
    table.alter().set_default("city", "Rome").add_column("n", "INT", default=7).apply()
    table.append([{"id": 2}])
    table.alter().rename_column("city", "town").set_default("n", None).apply()
    table.append([{"id": 3}])
    assert table.scan().to_arrow().to_pylist() == [
        {"id": 1, "town": None, "n": None},
        {"id": 2, "town": "Rome", "n": 7},
        {"id": 3, "town": "Rome", "n": None},
    ]
    table.compact(full=True)
    assert table.scan("id = 1").to_arrow()["town"].to_pylist() == [None], "old rows stay as they are"


@pytest.mark.parametrize(
    ("column", "default"),
    [
        ("INT", "x"),
        ("INT", "1.5"),
        ("TINYINT", "300"),
        ("VARCHAR(2)", "abc"),
        ("DATE", "soon"),
        ("BOOLEAN", "2"),
    ],
)
def test_a_default_is_a_value_of_its_column(lake, column, default):
    table = lake.create_table("db.t", f"id INT, v {column}")
    with pytest.raises(SchemaError, match="no value of"):
        table.alter().set_default("v", default).apply()
    with pytest.raises(SchemaError, match="no value of"):
        lake.create_table("db.u", f"id INT, v {column} DEFAULT '{default}'")
    assert len(table.schemas()) == 1
    assert lake.tables("db") == ["t"]


def test_defaults_are_for_plain_columns(lake):
    table = lake.create_table("db.t", "id INT, r ROW<a INT>, l ARRAY<INT>")
    with pytest.raises(SchemaError, match="inside of another"):
        table.alter().set_default("r.a", 1).apply()
    with pytest.raises(UnsupportedFeatureError):
        table.alter().set_default("l", "[]").apply()
    with pytest.raises(UnsupportedFeatureError, match="no plain value"):
        lake.create_table("db.u", "id INT, at TIMESTAMP DEFAULT now()")


# Checks


CHECKED = (
    "id INT NOT NULL, price DOUBLE, city STRING, CONSTRAINT positive CHECK (price > 0 AND (price < 100))"
)


def test_rows_that_violate_a_check_are_refused_and_told(lake, tmp_path):
    table = lake.create_table("db.t", CHECKED)
    table.append([{"id": 1, "price": 5.0}, {"id": 2, "price": None}])
    files = sorted(str(path) for path in tmp_path.rglob("*.parquet"))
    with pytest.raises(SchemaError) as caught:
        table.append([{"id": 3, "price": 5.0}, {"id": 4, "price": -1.0}, {"id": 5, "price": 200.0}])
    assert "2 of 3 rows violate the check 'positive', price > 0 AND (price < 100)" in str(caught.value)
    assert "'id': 4" in str(caught.value)
    assert "drop_check('positive')" in str(caught.value)
    assert sorted(str(path) for path in tmp_path.rglob("*.parquet")) == files
    assert table.scan().count() == 2


WRITES = {
    "append": lambda table, rows: table.append(rows),
    "merge": lambda table, rows: table.append(rows, schema="merge"),
    "overwrite": lambda table, rows: table.overwrite(rows),
    "replace": lambda table, rows: table.replace(rows),
    "stream": lambda table, rows: table.append(pa.Table.from_pylist(rows).to_reader()),
    "writer": lambda table, rows: table.writer().write(
        pa.Table.from_pylist(rows, schema=table.writer().schema).to_batches()
    ),
    "branch": lambda table, rows: (table.create_branch("b", tag="good"), table.branch("b").append(rows)),
}


@pytest.mark.parametrize("way", WRITES)
def test_every_way_of_writing_holds_checks(lake, way):
    table = lake.create_table("db.t", CHECKED)
    table.append([{"id": 1, "price": 5.0, "city": None}])
    table.create_tag("good")
    with pytest.raises(SchemaError, match="positive"):
        WRITES[way](table, [{"id": 3, "price": -1.0, "city": None}])
    assert table.scan().to_arrow()["id"].to_pylist() == [1]


def test_an_option_of_one_write_does_not_end_a_check(lake):
    table = lake.create_table("db.t", CHECKED)
    with pytest.raises(OptionError, match="add_check"):
        table.with_options({"anabranch.check.positive": "TRUE"})


def test_checks_are_added_and_dropped(lake):
    table = lake.create_table("db.t", "id INT, price DOUBLE, CHECK (id < 10), CHECK (id > -10)")
    assert table.options["anabranch.check.check_1"] == "id < 10"
    table.append([{"id": 1, "price": -1.0}])
    table.alter().add_check("positive", "price > 0").drop_check("check_1").apply()
    table.append([{"id": 10, "price": 1.0}])
    with pytest.raises(SchemaError, match="positive"):
        table.append([{"id": 1, "price": -1.0}])
    table.compact(full=True)
    assert table.scan("NOT (price > 0)").count() == 1, "rows that were there stay"
    table.alter().drop_check("positive").apply()
    table.append([{"id": 2, "price": -1.0}])


def test_checks_may_compute(lake):
    table = lake.create_table("db.t", "v STRING, dt DATE, CHECK (length(v) < 3 AND year(dt) > 2000)")
    table.append([{"v": "ab", "dt": None}])
    with pytest.raises(SchemaError, match="check_1"):
        table.append([{"v": "abc", "dt": None}])
    table.alter().add_check("check_1", "CAST(v AS INT) > 0").apply()
    with pytest.raises(SchemaError, match="'check_1'.* cannot be computed"):
        table.append([{"v": "x", "dt": None}])


@pytest.mark.parametrize("condition", ["price >", "prise > 0", "price > 'x'", ""])
def test_a_check_must_fit_the_columns(lake, condition):
    table = lake.create_table("db.t", "id INT, price DOUBLE")
    with pytest.raises(OptionError, match="check"):
        table.alter().add_check("c", condition).apply()
    with pytest.raises(OptionError, match="check"):
        lake.create_table("db.u", "id INT, price DOUBLE", options={"anabranch.check.c": condition})
    assert (len(table.schemas()), lake.tables("db")) == (1, ["t"])
    with pytest.raises(OptionError, match="name a check"):
        table.alter().add_check("a b", "id > 0").apply()


def test_a_column_that_a_check_names_stays(lake):
    table = lake.create_table("db.t", CHECKED)
    for change in (table.alter().drop_column("price"), table.alter().rename_column("price", "cost")):
        with pytest.raises(OptionError, match="drop_check\\('positive'\\)"):
            change.apply()
    table.alter().drop_check("positive").rename_column("price", "cost").add_check(
        "positive", "cost > 0"
    ).apply()
    assert table.options["anabranch.check.positive"] == "cost > 0"


def test_a_column_may_be_called_check(lake):
    table = lake.create_table("db.t", "check INT, constraint STRING")
    assert [f.name for f in table.schema.fields] == ["check", "constraint"]


def test_a_table_of_rows_holds_its_checks(lake):
    with pytest.raises(SchemaError, match="positive"):
        lake.create_table("db.t", CHECKED, data=[{"id": 1, "price": -1.0}])
    assert lake.databases() == []


def test_a_branch_brings_its_rules_with_it(lake):
    table = lake.create_table("db.t", "id INT, city STRING")
    table.append([{"id": 1}])
    table.create_tag("good")
    table.create_branch("fix", tag="good")
    table.branch("fix").alter().set_default("city", "Bonn").add_check("c", "id > 0").apply()
    table.branch("fix").append([{"id": 2}])
    table.merge_branch("fix")
    table.append([{"id": 3}])
    assert table.scan("id > 1").to_arrow()["city"].to_pylist() == ["Bonn", "Bonn"]
    with pytest.raises(SchemaError, match="'c'"):
        table.append([{"id": -1}])


def test_the_command_line_sets_them(tmp_path):
    table = make_table(tmp_path)
    result = CliRunner().invoke(
        app,
        [
            "--warehouse",
            str(tmp_path),
            "alter-table",
            "db.t",
            "--default",
            "v=none",
            "--set",
            "anabranch.check.c=id > 0",
        ],
    )
    assert result.exit_code == 0, result.output
    assert "set the default of 'v' to 'none'" in result.output
    table.append([{"id": 1}])
    assert table.scan().to_arrow()["v"].to_pylist() == ["none"]
    shown = CliRunner().invoke(app, ["--warehouse", str(tmp_path), "schema", "db.t"]).output
    assert "none" in next(line for line in shown.splitlines() if "STRING" in line)
