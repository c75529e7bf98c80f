"""A table is who it is, not where it lies: what is done to a table never lands in another one of its name."""

import pickle
from dataclasses import replace

import pyarrow as pa
import pytest

import anabranch
from anabranch.kernel.actions.append import Append
from anabranch.kernel.log.properties import BRANCH_PROPERTY
from tests.support.faults import FaultyStorage, run
from tests.support.tables import ids_of, make_table, rows, written

OTHER = "a STRING, b INT"


@pytest.fixture
def lake(tmp_path):
    return anabranch.connect(str(tmp_path))


@pytest.fixture
def table(tmp_path):
    return make_table(tmp_path)


def _other_rows():
    return pa.table({"a": ["x"], "b": pa.array([1], pa.int32())})


def _recreate(lake, times=0):
    """Another table under the same name, with so many snapshots."""
    lake.drop_table("db.t")
    other = lake.create_table("db.t", OTHER)
    for _ in range(times):
        other.append(_other_rows())
    return other


def _check_untouched(other, times):
    fresh = anabranch.connect(other.context.storage.url.removesuffix("/db.db/t")).table("db.t")
    assert fresh.scan().to_arrow().to_pylist() == [{"a": "x", "b": 1}] * times
    assert [s.id for s in fresh.snapshots()] == list(range(times, 0, -1))
    assert fresh.append(_other_rows()).id == times + 1


@pytest.mark.parametrize("times", [0, 1])
def test_a_handle_knows_which_table_it_opened(lake, table, times):
    messages = written(table, 0, 1)
    other = _recreate(lake, times)
    with pytest.raises(anabranch.CommitConflictError, match="TABLE_REPLACED"):
        table.commit(Append(messages))
    _check_untouched(other, times)


def test_a_handle_keeps_its_table_through_pickling(lake, table):
    travelled = pickle.loads(pickle.dumps(table.context))
    assert travelled.table_uuid == table.table_uuid
    other = _recreate(lake, 1)
    assert pickle.loads(pickle.dumps(travelled)).table_uuid == table.table_uuid != other.table_uuid


def test_rows_of_another_table_are_not_read_in_the_old_schema(lake, table):
    table.append(rows(0, 1))
    _recreate(lake, 1)
    with pytest.raises(anabranch.NotFoundError, match="dropped and created again"):
        table.scan().to_arrow()


def test_rows_of_another_engines_table_are_not_read_in_the_old_schema(lake, table, tmp_path):
    """Snapshots of other engines do not say which table they belong to; the first schema does."""
    other = _recreate(lake, 1)
    _forget_writer(other)
    with pytest.raises(anabranch.NotFoundError, match="dropped and created again"):
        table.scan().to_arrow()
    assert lake.table("db.t").scan().to_arrow().num_rows == 1


def _forget_writer(table):
    storage, path = table.context.storage, table.context.layout.snapshot_path(1)
    storage.put(path, replace(table.snapshot, properties={}).to_json())


@pytest.mark.parametrize("again", [False, True], ids=["dropped", "recreated"])
def test_a_stale_handle_changes_no_schema(lake, table, again):
    assert table.schema.id == 0
    if again:
        other = _recreate(lake, 1)
    else:
        lake.drop_table("db.t")
    with pytest.raises(anabranch.NotFoundError):
        table.alter().add_column("n", "INT").apply()
    if again:
        _check_untouched(other, 1)
    else:
        assert lake.tables("db") == []


def test_a_snapshot_of_another_branch_is_not_built_on(table):
    table.append(rows(0, 1))
    messages = written(table, 5, 1)
    second = table.append(rows(1, 1))
    storage, path = table.context.storage, table.context.layout.snapshot_path(2)
    foreign = {**second.properties, BRANCH_PROPERTY: "11111111-2222-3333-4444-555555555555"}
    storage.put(path, replace(second, properties=foreign).to_json())
    with pytest.raises(anabranch.CommitConflictError, match="BRANCH_REPLACED"):
        table.commit(Append(messages))
    assert table.snapshot.id == 2


# Between the last look at the table and the put of the snapshot


def _paused(table, act):
    """The table as a writer sees it that is overtaken right before it puts its snapshot."""
    fault = run("before", "put_if_absent", lambda path: act(), where="snapshot/*")
    return anabranch.Table(replace(table.context, storage=FaultyStorage(table.context.storage, [fault])))


@pytest.mark.parametrize("before", [0, 2])
@pytest.mark.parametrize("after", [0, 1, 2])
def test_a_table_created_again_meanwhile_stays_clean(lake, table, before, after):
    for i in range(before):
        table.append(rows(i, 1))
    others = []
    with pytest.raises(anabranch.CommitConflictError, match="TABLE_REPLACED"):
        _paused(table, lambda: others.append(_recreate(lake, after))).append(rows(9, 1))
    _check_untouched(others[0], after)


@pytest.mark.parametrize("before", [0, 2])
def test_a_commit_to_a_table_dropped_meanwhile_is_refused_and_leaves_the_name_free(lake, table, before):
    for i in range(before):
        table.append(rows(i, 1))
    with pytest.raises(anabranch.NotFoundError, match="does not exist"):
        _paused(table, lambda: lake.drop_table("db.t")).append(rows(9, 1))
    assert lake.tables("db") == []
    assert ids_of(make_table(table.context.storage.url.removesuffix("/db.db/t"))) == []


def test_a_commit_to_a_table_renamed_meanwhile_is_refused(lake, table):
    table.append(rows(0, 1))
    with pytest.raises(anabranch.NotFoundError, match="does not exist"):
        _paused(table, lambda: lake.rename_table("db.t", "db.u")).append(rows(1, 1))
    assert ids_of(lake.table("db.u")) == [0]
    assert lake.tables("db") == ["u"]
    assert lake.table("db.u").table_uuid == table.table_uuid
    assert lake.table("db.u").append(rows(2, 1)).id == 2


def test_the_uuid_of_a_table_must_be_one(tmp_path, table):
    path = tmp_path / "db.db" / "t" / "schema" / "schema-0"
    path.write_text(path.read_text().replace(table.table_uuid, "nonsense"))
    with pytest.raises(anabranch.CorruptTableError, match="schema-0"):
        anabranch.connect(str(tmp_path)).table("db.t").append(rows(0, 1))
