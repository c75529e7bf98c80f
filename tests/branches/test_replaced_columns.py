"""Columns of rows that are being written while main is replaced by a commit, and of replacements that fail."""

from dataclasses import replace

import pyarrow as pa
import pytest

import anabranch
from anabranch.errors import CommitConflictError, StorageError
from anabranch.kernel.actions.append import Append
from tests.branches.replacing import BEFORE, again, parted
from tests.support.faults import FaultyStorage, run
from tests.support.tables import ids_of


def _with(table, **about):
    return anabranch.Table(replace(table.context, **about))


@pytest.mark.parametrize(("call", "where"), [("put_many", "*"), ("put_if_absent", "snapshot/*")])
def test_a_column_of_an_append_is_there_though_main_is_replaced_before_its_commit(call, where):
    table = parted()
    act = run(
        "before", call, lambda path: again(table).replace_main_branch("fix", mode="commit"), where=where
    )
    writer = _with(table, storage=FaultyStorage(table.context.storage, [act]))
    writer.append(
        pa.table({"id": pa.array([500], pa.int64()), "w": pa.array([7], pa.int32())}), schema="merge"
    )
    found = again(table).scan("id = 500").to_arrow().to_pylist()
    assert found == [{"id": 500, "v": None, "w": 7}]
    assert ids_of(again(table)) == [*BEFORE, 100, 500]


def test_a_stream_with_columns_that_a_replacement_took_away_is_refused():
    table = parted()
    act = run(
        "before", "put_many", lambda path: again(table).replace_main_branch("fix", mode="commit"), where="*"
    )
    writer = _with(table, storage=FaultyStorage(table.context.storage, [act]))
    data = pa.table({"id": pa.array([500], pa.int64()), "w": pa.array([7], pa.int32())})
    with pytest.raises(CommitConflictError, match=r"SCHEMA_CHANGED.* does not hold their column 'w'"):
        writer.append(data.to_reader(), schema="merge")
    assert ids_of(again(table)) == [*BEFORE, 100]


@pytest.mark.parametrize("what", ["append", "overwrite"])
def test_rows_written_for_columns_that_a_replacement_took_away_are_refused(what):
    table = parted()
    table.alter().add_column("w", "INT").apply()
    writer = table.writer()
    data = pa.table({"id": pa.array([500], pa.int64()), "v": ["a"], "w": pa.array([7], pa.int32())})
    messages = writer.write([batch.cast(writer.schema) for batch in data.to_batches()])
    again(table).replace_main_branch("fix", mode="commit")
    with pytest.raises(CommitConflictError, match="SCHEMA_CHANGED"):
        table.commit(Append(messages) if what == "append" else table.overwriting(messages))
    assert ids_of(again(table)) == [*BEFORE, 100]


def test_rows_written_for_a_wider_type_than_the_replacement_has_are_refused():
    table = parted(schema="id BIGINT NOT NULL, v STRING, n INT")
    table.alter().widen_column("n", "BIGINT").apply()
    writer = table.writer()
    data = pa.table({"id": pa.array([500], pa.int64()), "v": ["a"], "n": pa.array([2**40], pa.int64())})
    messages = writer.write([batch.cast(writer.schema) for batch in data.to_batches()])
    again(table).replace_main_branch("fix", mode="commit")
    with pytest.raises(CommitConflictError, match="does not hold their column 'n'"):
        table.commit(Append(messages))


def test_a_column_that_was_dropped_before_or_after_a_replacement_stands_in_nobodys_way():
    table = parted()
    table.alter().add_column("w", "INT").apply()
    writer = table.writer()
    data = pa.table({"id": pa.array([500], pa.int64()), "v": ["a"], "w": pa.array([7], pa.int32())})
    messages = writer.write([batch.cast(writer.schema) for batch in data.to_batches()])
    again(table).alter().drop_column("w").apply()
    table.branch("fix").alter().add_column("z", "INT").apply()
    again(table).replace_main_branch("fix", mode="commit")
    table.commit(Append(messages))
    assert again(table).scan("id = 500").to_arrow().to_pylist() == [{"id": 500, "v": "a", "z": None}]


def _with_columns(what):
    """A replacement or merge that takes away main's column `w`, and brings `z`."""
    table = parted()
    fix = table.branch("fix")
    if what == "merge":
        table = parted(schema="id BIGINT NOT NULL, v STRING, w INT")
        fix = table.branch("fix")
        fix.alter().drop_column("w").apply()
    else:
        table.alter().add_column("w", "INT").apply()
    fix.alter().add_column("z", "INT").apply()
    table.append([{"id": 2000, "v": "a", "w": 99}])
    return table


def _do(what, table):
    if what == "merge":
        return table.merge_branch("fix")
    return table.replace_main_branch("fix", mode="commit")


def _full(path):
    raise StorageError(f"{path}: no space left on device")


@pytest.mark.parametrize("what", ["replace", "merge"])
@pytest.mark.parametrize(
    ("call", "where", "is_for_good"),
    [
        ("put_many", "*", True),
        ("put_if_absent", "schema/*", True),
        ("put_if_absent", "snapshot/*", True),
        ("put_if_absent", "snapshot/*", False),
    ],
)
def test_nothing_is_lost_when_it_fails(what, call, where, is_for_good):
    table = _with_columns(what)
    act = run("before", call, _full, where=where, times=10**9 if is_for_good else 1)
    with pytest.raises(StorageError, match="no space"):
        _do(what, _with(table, storage=FaultyStorage(table.context.storage, [act])))
    found = again(table)
    assert found.snapshot.id == table.snapshot.id
    assert found.scan("id = 2000").to_arrow()["w"].to_pylist() == [99]
    assert found.verify(deep=True).ok
    _do(what, found)
    assert [f.name for f in again(table).schema.fields] == ["id", "v", "z"]
    assert 100 in ids_of(again(table))


def test_a_conflict_takes_no_column_away():
    table = _with_columns("replace")
    with pytest.raises(CommitConflictError, match="MAIN_MOVED"):
        table.replace_main_branch("fix", mode="commit", expect_main=1)
    assert again(table).scan("id = 2000").to_arrow()["w"].to_pylist() == [99]


@pytest.mark.parametrize("what", ["replace", "merge"])
def test_the_schema_is_put_last(what):
    table = _with_columns(what)
    storage = FaultyStorage(table.context.storage)
    _do(what, _with(table, storage=storage))
    puts = [call.path for call in storage.calls if call.name in ("put_many", "put_if_absent", "put")]
    last = max(n for n, path in enumerate(puts) if path and path.startswith("schema/"))
    assert puts[last + 1].startswith("snapshot/")


def test_a_merge_that_somebody_else_completes_meanwhile_keeps_its_schema():
    table = _with_columns("merge")
    act = run("before", "put_if_absent", lambda path: again(table).merge_branch("fix"), where="snapshot/*")
    _with(table, storage=FaultyStorage(table.context.storage, [act])).merge_branch("fix")
    assert [f.name for f in again(table).schema.fields] == ["id", "v", "z"]
    assert 100 in ids_of(again(table))
