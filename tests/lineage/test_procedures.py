"""What ``CALL lake.sys.lineage_...`` answers; that Spark calls it is tested with the other procedures of the catalog."""

import json

import pytest

import anabranch
from anabranch.errors import InvalidInputError
from anabranch.lineage import remembered
from anabranch.verbs.caller import Session
from anabranch.verbs.registry import call as call_procedure
from anabranch.verbs.registry import procedure as procedure_named


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    """Orders became clean rows; the second commit of orders says nothing, and names no job."""
    remembered.forget()  # what other modules have read in this process, of which that commit would tell
    lake = anabranch.connect(str(tmp_path_factory.mktemp("lake")))
    orders, clean = (lake.create_table(f"db.{name}", "id BIGINT") for name in ("orders", "clean"))
    with lake.job("ingest") as job:
        job.read_from("orders", kind="kafka", start={"orders": {"0": 0}}, end={"orders": {"0": 1}})
        orders.append([{"id": 1}])
    orders.append([{"id": 2}])
    for number in (1, 2):
        with lake.job("clean", code="v1"):
            clean.append(orders.changes(number - 1, number).to_arrow())
    clean.create_tag("good", 1)
    return lake


def call(lake, name, table, **given):
    procedure = procedure_named(name)
    found = [*call_procedure(procedure, Session(None, lake.table(table)), {"table": table, **given})]
    columns = [column.split()[0] for column in procedure.columns.split(", ")]
    assert all(len(row) == len(columns) for row in found)
    return found


def test_where_rows_went(lake):
    impact = call(lake, "lineage_impact", "db.orders", snapshots="2")
    assert impact == [(0, "table", "db.orders", 2, 2, None), (1, "table", "db.clean", 2, 2, "clean")]
    assert call(lake, "lineage_downstream", "db.orders", snapshot="2", depth=1) == impact
    with pytest.raises(InvalidInputError, match="needs the argument 'snapshots'"):
        call(lake, "lineage_impact", "db.orders")


def test_where_rows_came_from(lake):
    assert call(lake, "lineage_upstream", "db.clean") == [
        (2, "kafka", "orders", None, None, "ingest"),
        (1, "table", "db.orders", 1, 2, "clean"),
        (0, "table", "db.clean", 1, 2, None),
    ]


def test_from_where_to_go_on(lake):
    ((job, snapshot, kind, name, _, position, options),) = call(
        lake, "lineage_positions", "db.clean", snapshot="good"
    )
    assert (job, snapshot, kind, name, json.loads(position)["snapshot"]) == (
        "clean",
        1,
        "table",
        "db.orders",
        1,
    )
    assert list(json.loads(options)) == ["scan.start-offset"]


def test_what_made_a_snapshot(lake):
    ((snapshot, kind, job, run, code, engine, batch, *read),) = call(
        lake, "lineage_producer", "db.clean", snapshot="2"
    )
    assert (snapshot, kind, job, code, engine, batch) == (2, "APPEND", "clean", "v1", "anabranch", None)
    assert run
    assert read == ["table", "db.orders", "1", "2"]
    ((*_, kind, name, after, through),) = call(lake, "lineage_producer", "db.orders", snapshot="1")
    assert (kind, name, json.loads(after), json.loads(through)) == (
        "kafka",
        "orders",
        {"orders": {"0": 0}},
        {"orders": {"0": 1}},
    )
    assert call(lake, "lineage_producer", "db.orders") == [(2, "APPEND", *(None,) * 9)]
