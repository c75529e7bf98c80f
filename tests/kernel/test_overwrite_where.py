"""Replacing the partitions that a condition names, and the whole table."""

import json

import pyarrow as pa
import pytest

import anabranch


@pytest.fixture
def table(tmp_path):
    lake = anabranch.connect(str(tmp_path))
    made = lake.create_table("db.t", "dt STRING, id BIGINT", partition_by=["dt"])
    made.append(rows(("a", 1), ("b", 2), ("c", 3), (None, 4)))
    return made


def rows(*pairs):
    return pa.table({"dt": pa.array([d for d, _ in pairs], pa.string()), "id": [i for _, i in pairs]})


def ids(table):
    return sorted(table.scan().to_arrow()["id"].to_pylist())


def test_the_partitions_of_a_condition_are_replaced(table):
    snapshot = table.replace(rows(("c", 9)), "dt >= 'b'")
    assert ids(table) == [1, 4, 9]
    assert json.loads(snapshot.properties["anabranch.overwrite"]) == {"where": "dt >= 'b'"}
    table.replace([], anabranch.col("dt").is_null())
    assert ids(table) == [1, 9]


@pytest.mark.parametrize(
    ("where", "message"),
    [("id = 1", "'id' is no partition column"), ("dt = 'x'", "lie outside of"), ("nope = 1", "nope")],
)
def test_what_cannot_be_replaced_so_is_refused(table, where, message):
    with pytest.raises(anabranch.InvalidInputError, match=message):
        table.replace(rows(("b", 9)), where)
    assert ids(table) == [1, 2, 3, 4]


def test_all_rows_are_replaced_whatever_the_options_say(table):
    assert table.options.get("dynamic-partition-overwrite", "true") == "true"
    table.replace(rows(("b", 9)))
    assert ids(table) == [9]
