"""Writers that were opened before a schema change and commit after it: one test a kind of change.

Their files keep the schema they were written with, so every row means what it meant to its writer.
"""

import itertools

import pyarrow as pa
import pytest

import anabranch
from anabranch.kernel.actions.append import Append
from anabranch.kernel.actions.overwrite import Overwrite
from tests.support.tables import make_table

COLUMNS = "k INT NOT NULL, v STRING NOT NULL, n INT, r ROW<x INT, y STRING>, a ARRAY<ROW<x INT>>"
ROW = {"k": 1, "v": "one", "n": 7, "r": {"x": 1, "y": "y"}, "a": [{"x": 1}]}
_numbers = itertools.count()

CHANGES = {
    "add": (lambda a: a.add_column("z", "INT"), ROW | {"z": None}),
    "add inside": (
        lambda a: a.add_column("r.z", "INT", first=True).add_column("a.element.z", "STRING"),
        ROW | {"r": {"z": None, "x": 1, "y": "y"}, "a": [{"x": 1, "z": None}]},
    ),
    "drop": (lambda a: a.drop_column("n"), {key: value for key, value in ROW.items() if key != "n"}),
    "drop what is NOT NULL": (lambda a: a.drop_column("v"), {k: v for k, v in ROW.items() if k != "v"}),
    "drop inside": (lambda a: a.drop_column("r.x"), ROW | {"r": {"y": "y"}}),
    "drop and add again": (lambda a: a.drop_column("n").add_column("n", "INT", after="v"), ROW | {"n": None}),
    "drop and add again inside": (
        lambda a: a.drop_column("r.x").add_column("r.x", "INT", first=True),
        ROW | {"r": {"x": None, "y": "y"}},
    ),
    "drop and add a row again": (
        lambda a: a.drop_column("r").add_column("r", "ROW<x INT, y STRING>", after="n"),
        ROW | {"r": None},
    ),
    "rename": (
        lambda a: a.rename_column("n", "m"),
        {{"n": "m"}.get(key, key): value for key, value in ROW.items()},
    ),
    "swap names": (
        lambda a: a.rename_column("k", "t").rename_column("n", "k").rename_column("t", "n"),
        {{"n": "k", "k": "n"}.get(key, key): value for key, value in ROW.items()},
    ),
    "rename inside": (lambda a: a.rename_column("r.x", "z"), ROW | {"r": {"z": 1, "y": "y"}}),
    "widen": (lambda a: a.widen_column("n", "BIGINT"), ROW),
    "widen to another kind": (lambda a: a.widen_column("n", "DOUBLE"), ROW | {"n": 7.0}),
    "widen inside": (
        lambda a: a.widen_column("r.x", "DOUBLE").widen_column("a.element.x", "BIGINT"),
        ROW | {"r": {"x": 1.0, "y": "y"}},
    ),
    "allow nulls": (lambda a: a.drop_not_null("k").drop_not_null("v"), ROW),
    "move": (lambda a: a.move_column("n", first=True).move_column("r.y", first=True), ROW),
    "comment": (lambda a: a.set_comment("why").set_comment("what", column="r.x"), ROW),
    "option": (lambda a: a.set_option("target-file-size", "1 kb"), ROW),
}
LAYOUTS = {
    "scalable": {},
    "partitions": {"partition_by": ["v"]},
    "queue": {"options": {"bucket": "3", "bucket-key": "k"}},
    "single queue": {"options": {"bucket": "1"}},
}


def _table(layout):
    return make_table(f"memory://late{next(_numbers)}", schema=COLUMNS, **LAYOUTS[layout])


def _written(table, rows):
    writer = table.writer()
    return writer.write(pa.Table.from_pylist(rows, writer.schema).to_batches())


def _apply(table, change, layout):
    """Make the change; False where the layout forbids it."""
    try:
        change(table.alter()).apply()
    except anabranch.SchemaError as error:
        assert ("partition key" in str(error)) or ("bucket" in str(error)), error
        return False
    return True


@pytest.mark.parametrize(
    "layout",
    [
        "scalable",
        *(pytest.param(each, marks=pytest.mark.long) for each in ("queue", "partitions", "single queue")),
    ],
)
@pytest.mark.parametrize("name", CHANGES)
def test_rows_written_before_a_change_and_committed_after_it(name, layout):
    change, row = CHANGES[name]
    table = _table(layout)
    appended, replacing = _written(table, [ROW]), _written(table, [ROW | {"n": 8}])
    if not _apply(table, change, layout):
        return
    table.commit(Append(appended))
    _check(table, row)
    table.commit(Overwrite(replacing, dynamic=bool(table.schema.partition_keys)))
    moved = {f.name: f.id for f in table.schema.fields}
    n = next((name for name, i in moved.items() if i == 2), None)
    _check(table, row if n is None else row | {n: type(row[n])(8)})


def _check(table, row):
    """The table holds this row alone, and filters find it by what it holds, whatever its file says."""
    assert table.scan().to_arrow().to_pylist() == [{f.name: row[f.name] for f in table.schema.fields}]
    for name, value in row.items():
        column = anabranch.col(name)
        assert table.scan(column.is_null()).to_arrow().num_rows == (value is None)
        if isinstance(value, int | float | str):
            assert table.scan(column == value).to_arrow().num_rows == 1
            assert table.scan(column > value).to_arrow().num_rows == 0


@pytest.mark.parametrize("other", ["fresh", "late"])
def test_a_column_that_came_back_is_null_in_rows_of_late_writers_only(other):
    table = _table("scalable")
    late = _written(table, [ROW])
    table.alter().drop_column("n").add_column("n", "STRING").apply()
    fresh = _written(table, [{key: value for key, value in ROW.items() if key != "n"} | {"n": "new"}])
    for messages in (late, fresh) if other == "fresh" else (fresh, late):
        table.commit(Append(messages))
    assert sorted(map(str, table.scan(columns=["n"]).to_arrow()["n"].to_pylist())) == ["None", "new"]
    assert table.scan("n = 'new'").to_arrow().num_rows == 1
    assert table.scan("n IS NULL").to_arrow().num_rows == 1
    assert table.scan("n = '7'").plan().files.height == 0


def test_the_key_of_a_queue_is_the_same_under_another_name():
    table = _table("queue")
    rows = [ROW | {"k": k} for k in range(20)]
    late = _written(table, rows[:10])
    table.alter().rename_column("k", "key").apply()
    assert table.schema.options["bucket-key"] == "key"
    table.commit(Append(late))
    table.append(pa.Table.from_pylist([{**row, "key": row.pop("k")} for row in rows], table.writer().schema))
    for k in range(20):
        found = table.scan(f"key = {k}")
        assert found.to_arrow().num_rows == (2 if k < 10 else 1)
        assert len({split.bucket for split in found.plan().splits}) == 1


def test_rows_for_another_number_of_buckets_are_refused():
    table = _table("queue")
    late = _written(table, [ROW])
    table.alter().set_option("bucket", "4").apply()
    for action in (Append(late), Overwrite(late)):
        with pytest.raises(anabranch.CommitConflictError, match="BUCKET_COUNT_CHANGED"):
            table.commit(action)
    assert table.snapshot is None


def test_what_replaces_a_partition_names_it_by_its_column_whatever_changed():
    table = _table("partitions")
    table.append(pa.Table.from_pylist([ROW, ROW | {"v": "two"}], table.writer().schema))
    late = _written(table, [ROW | {"k": 5}])
    table.alter().move_column("v", first=True).rename_column("k", "key").drop_not_null("v").apply()
    table.commit(table.overwriting(late, {"v": "one"}))
    found = table.scan(columns=["key", "v"]).to_arrow().to_pylist()
    assert sorted(found, key=str) == [{"key": 1, "v": "two"}, {"key": 5, "v": "one"}]
    table.overwrite(pa.table({"key": [6], "v": ["two"]}))
    assert sorted(table.scan(columns=["key"]).to_arrow()["key"].to_pylist()) == [5, 6]


def test_options_that_say_where_rows_lie_are_not_for_one_write():
    table = _table("queue")
    for key, value in {
        "bucket": "4",
        "bucket-key": "n",
        "partition.legacy-name": "false",
        "partition.default-name": "none",
        "bucket-function.type": "mod",
    }.items():
        with pytest.raises(anabranch.OptionError, match=f"'{key}' = '{value}' was given for one"):
            table.with_options({key: value})
    with pytest.raises(anabranch.UnsupportedFeatureError, match="primary key"):
        table.with_options({"primary-key": "k"})
    same = table.with_options({"bucket": "3", "bucket-key": " k ", "partition.legacy-name": "true"})
    same.append(pa.Table.from_pylist([ROW], table.writer().schema))
    assert table.scan("k = 1").to_arrow().num_rows == 1
