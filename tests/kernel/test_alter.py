"""Schema changes by several at a time: none is lost, none is half there, and rows keep their meaning."""

import multiprocessing
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from threading import Barrier

import pyarrow as pa
import pytest

import anabranch
from tests.support.faults import FaultyStorage, lose_answer, lose_request, run
from tests.support.tables import ids_of, make_table, rows


@pytest.fixture
def table(tmp_path):
    return make_table(tmp_path)


def _check_versions(table, count):
    """So many versions without a gap, each new column under an id that was never used."""
    schemas = table.schemas()
    assert [schema.id for schema in schemas] == list(range(count))
    for before, after in pairwise(schemas):
        assert len({f.id for f in after.fields}) == len(after.fields)
        added = {f.id for f in after.fields} - {f.id for f in before.fields}
        assert all(before.highest_field_id < i <= after.highest_field_id for i in added)
    return schemas


def test_columns_added_by_many_at_once_are_all_there(table, tmp_path):
    def add(number):
        return anabranch.connect(str(tmp_path)).table("db.t").alter().add_column(f"c{number}", "INT").apply()

    with ThreadPoolExecutor(8) as pool:
        made = [*pool.map(add, range(16))]
    assert sorted(schema.id for schema in made) == list(range(1, 17))
    newest = _check_versions(table, 17)[-1]
    assert {f.name for f in newest.fields} == {"id", "v", *(f"c{i}" for i in range(16))}


def _add_columns(url, number, times):
    table = anabranch.connect(url).table("db.t")
    for i in range(times):
        table.alter().add_column(f"c{number}_{i}", "INT").apply()
        table.append(rows(100 * number + i, 1))


def test_processes_change_the_schema_and_append(table, tmp_path):
    with multiprocessing.get_context("forkserver").Pool(3) as pool:
        pool.starmap(_add_columns, [(str(tmp_path), number, 5) for number in range(3)])
    newest = _check_versions(table, 16)[-1]
    assert len(newest.fields) == 17
    assert ids_of(table) == [100 * number + i for number in range(3) for i in range(5)]
    assert table.snapshot.schema_id == max(s.schema_id for s in table.snapshots())


def test_of_changes_that_exclude_each_other_one_is_made(table, tmp_path):
    together = Barrier(4)

    def rename(number):
        mine = anabranch.connect(str(tmp_path)).table("db.t")
        together.wait()
        try:
            return mine.alter().rename_column("v", f"v{number}").apply()
        except anabranch.SchemaError as error:
            assert "'v'" in str(error)
            return None

    with ThreadPoolExecutor(4) as pool:
        made = [schema for schema in pool.map(rename, range(4)) if schema is not None]
    assert len(made) == 1
    assert _check_versions(anabranch.connect(str(tmp_path)).table("db.t"), 2)[-1] == made[0]


def _between(table, act):
    """The table as one sees it who is overtaken right before putting a schema."""
    fault = run("before", "put_if_absent", lambda path: act(), where="schema/*")
    return anabranch.Table(replace(table.context, storage=FaultyStorage(table.context.storage, [fault])))


def test_a_change_is_applied_to_what_another_made_of_the_schema_meanwhile(table):
    other = _between(table, lambda: table.alter().rename_column("v", "w").apply())
    changed = other.alter().add_column("n", "INT").apply()
    assert [f.name for f in changed.fields] == ["id", "w", "n"]
    assert changed.id == 2


def test_a_change_is_refused_if_another_took_its_column_away_meanwhile(table):
    other = _between(table, lambda: table.alter().drop_column("v").apply())
    with pytest.raises(anabranch.SchemaError, match="'v' does not exist"):
        other.alter().rename_column("v", "w").apply()
    assert [f.name for f in table.schema.fields] == ["id"]


@pytest.mark.parametrize("again", [False, True], ids=["dropped", "recreated"])
def test_a_change_to_a_table_dropped_meanwhile_leaves_nothing(table, tmp_path, again):
    lake = anabranch.connect(str(tmp_path))

    def drop():
        lake.drop_table("db.t")
        if again:
            make_table(tmp_path, schema="a STRING, b INT")

    with pytest.raises(anabranch.NotFoundError):
        _between(table, drop).alter().add_column("n", "INT").apply()
    assert lake.tables("db") == (["t"] if again else [])
    if again:
        assert [s.id for s in lake.table("db.t").schemas()] == [0]
    else:
        make_table(tmp_path)


@pytest.mark.parametrize("fault", [lose_answer, lose_request], ids=lambda f: f.__name__)
def test_a_change_whose_answer_is_lost_can_be_made_again(table, fault):
    storage = FaultyStorage(table.context.storage, [fault("put_if_absent")])
    with pytest.raises(anabranch.StorageError):
        anabranch.Table(replace(table.context, storage=storage)).alter().set_option(
            "target-file-size", "1 mb"
        ).apply()
    assert table.alter().set_option("target-file-size", "1 mb").apply().options["target-file-size"] == "1 mb"
    _check_versions(table, table.schema.id + 1)


def test_a_handle_sees_what_others_changed(table, tmp_path):
    table.append(rows(0, 1))
    other = anabranch.connect(str(tmp_path)).table("db.t")
    other.alter().add_column("n", "INT").apply()
    other.append(pa.table({"id": [1], "v": ["x"], "n": pa.array([7], pa.int32())}))
    assert table.schema.id == 1
    assert table.scan("n = 7").to_arrow().to_pylist() == [{"id": 1, "v": "x", "n": 7}]
    assert table.at(1).schema.id == 0
